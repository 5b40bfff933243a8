/* Rewards of the tasks that pick something up and put it somewhere. */

#ifndef ANCHORLEG_GRASPS_H
#define ANCHORLEG_GRASPS_H

#include "parts.h"

/* Near enough, not closed, and higher than it was in the beginning by `height`. */
static bool lifted(const struct row *row, double tcp_to_obj, double reach, double height) {
    return tcp_to_obj < reach && row->last[3] > 0 && row->last[6] - height > row->object_init[2];
}

static struct outcome pick_place(struct row *row, const float *action) {
    const double *obj = row->last + 4;
    double to_target = distance(obj, row->target);
    double in_place = near(row, to_target, 0.05, distance(row->object_init, row->target));
    number caging = pads_around(row, obj, 0.015, 0.005);
    number gripping = caging.value > 0.97 ? gripper_closed(action, 1) : python(0);
    number grasped = over(plus(both(row, caging, gripping), caging), python(2));
    number reward = both(row, grasped, python(in_place));
    if (lifted(row, from_tcp(row, obj), 0.02, 0.01))
        reward = plus_python(reward, 1.0 + 5.0 * in_place);
    if (to_target < 0.05)
        reward = python(10.0);
    return (struct outcome){reward, to_target <= 0.07};
}

static struct outcome pick_place_wall(struct row *row, const float *action) {
    const struct grip grip = {.radius = 0.015, .pad = 0.05, .xz = 0.005, .effort = 1, .density = SPARSE};
    const double *obj = row->last + 4, midpoint[3] = {row->target[0], 0.77, 0.25};
    double to_target = distance(obj, row->target);
    double to_midpoint = scaled_distance(obj, midpoint, 1.0, 1.0, 3.0);
    double part_1 = near(row, to_midpoint, 0.05, scaled_distance(row->object_init, midpoint, 1.0, 1.0, 3.0));
    double part_2 = near(row, to_target, 0.05, distance(row->object_init, row->target));
    number reward = both(row, caging_reward(row, action, obj, row->object_init, grip), python(part_1));
    bool over_wall = obj[1] > 0.75;
    if (lifted(row, from_tcp(row, obj), 0.02, 0.015)) {
        reward = plus_python(reward, 1.0);
        reward = over_wall ? plus_python(plus_python(reward, 4.0), 3.0 * part_2) : plus_python(reward, 4.0 * part_1);
    }
    if (to_target < 0.05)
        reward = python(10.0);
    return (struct outcome){reward, to_target <= 0.07};
}

static struct outcome pick_out_of_hole(struct row *row, const float *action) {
    const struct grip grip = {.radius = 0.015, .pad = 0.02, .xz = 0.03, .effort = 0.1, .density = HIGH};
    const double *obs = row->last, *obj = obs + 4;
    double tcp[3];
    tcp_center(row, tcp);
    double to_target = distance(obj, row->target);
    double in_place = near(row, to_target, 0.02, distance(row->object_init, row->target));
    double floor = rising_floor(plane_distance(tcp, row->object_init), 0.03, 0.015, 0.15);
    double above = tcp[2] >= floor ? 1.0 : near(row, positive(floor - tcp[2]), 0.01, 0.02);
    number reward = both(row, caging_reward(row, action, obj, row->object_init, grip), python(in_place));
    if (distance(obj, tcp) < 0.04 && obj[2] - 0.02 > row->object_init[2] && !(obs[3] < 0.33))
        reward = plus_python(reward, 1.0 + 5.0 * both(row, python(in_place), python(above)).value);
    if (to_target < row->radius)
        reward = python(10.0);
    return (struct outcome){reward, to_target <= 0.07};
}

/* The first step of an episode finds how far the object is from the target (`extra`). */
static struct outcome bin_picking(struct row *row, const float *action) {
    const struct grip grip = {.radius = 0.015, .pad = 0.05, .xz = 0.01, .effort = 0.7, .density = HIGH};
    const double *obs = row->last, *hand = obs, *obj = obs + 4;
    double to_target = distance(obj, row->target);
    if (!row->found) {
        row->extra[0] = to_target;
        row->found = 1;
    }
    double in_place = near(row, to_target, row->radius, row->extra[0]);
    double floor = rising_floor(plane_distance(hand, row->object_init), 0.03, 0.02, 0.2);
    double floor_there = rising_floor(plane_distance(hand, row->target), 0.03, 0.02, 0.2);
    if (floor_there < floor)
        floor = floor_there;
    double above = hand[2] >= floor ? 1.0 : near(row, positive(floor - hand[2]), 0.01, 0.05);
    number reward = both(row, caging_reward(row, action, obj, row->object_init, grip), python(in_place));
    if (distance(obj, hand) < 0.04 && obj[2] - 0.02 > row->object_init[2] && !(obs[3] < 0.43))
        reward = plus_python(reward, 1.0 + 5.0 * both(row, python(above), python(in_place)).value);
    if (to_target < row->radius)
        reward = python(10.0);
    return (struct outcome){reward, to_target <= 0.05};
}

static struct outcome shelf_place(struct row *row, const float *action) {
    const struct grip grip = {.radius = 0.02, .pad = 0.05, .xz = 0.01, .effort = 1, .density = SPARSE};
    const double *obj = row->last + 4, *target = row->target, depth = 3 * 0.05;
    double to_target = distance(obj, target);
    number in_place = python(near(row, to_target, 0.05, distance(row->object_init, target)));
    number reward = both(row, caging_reward(row, action, obj, row->object_init, grip), in_place);
    bool below = 0.0 < obj[2] && obj[2] < 0.24 && target[0] - 0.15 < obj[0] && obj[0] < target[0] + 0.15;
    if (below && target[1] - depth < obj[1] && obj[1] < target[1]) {
        number z_scaling = {(0.24 - obj[2]) / 0.24, DOUBLE};
        number y_scaling = {(obj[1] - (target[1] - depth)) / depth, DOUBLE};
        number loss = both(row, y_scaling, z_scaling);
        in_place = (number){clipped(in_place.value - loss.value, 0.0, 1.0), DOUBLE};
    }
    if (below && obj[1] > target[1])
        in_place = python(0.0);
    if (lifted(row, from_tcp(row, obj), 0.025, 0.01))
        reward = plus(reward, plus(python(1.0), times(python(5.0), in_place)));
    if (to_target < 0.05)
        reward = python(10.0);
    return (struct outcome){reward, to_target <= 0.07};
}

static struct outcome basketball(struct row *row, const float *action) {
    const struct grip grip = {.radius = 0.025, .pad = 0.06, .xz = 0.005, .effort = 1, .density = HIGH};
    const double *obj = row->last + 4, target[3] = {row->target[0], row->target[1], 0.3};
    double to_target = scaled_distance(obj, target, 1.0, 1.0, 2.0);
    double in_place = near(row, to_target, row->radius, scaled_distance(row->object_init, target, 1.0, 1.0, 2.0));
    number grasped = caging_reward(row, action, obj, row->object_init, grip);
    bool is_lifted = lifted(row, from_tcp(row, obj), 0.035, 0.01);
    number reward = both(row, is_lifted ? python(1.0) : grasped, python(in_place));
    if (is_lifted)
        reward = plus_python(reward, 1.0 + 5.0 * in_place);
    if (to_target < row->radius)
        reward = python(10.0);
    return (struct outcome){reward, to_target <= row->radius};
}

/* `named`: the peg's head, then the bottom right and the top left corner of two boxes. */
static struct outcome peg_insert_side(struct row *row, const float *action) {
    const struct grip grip = {.radius = 0.0075, .pad = 0.03, .xz = 0.005, .effort = 1, .density = HIGH};
    const double *obj = row->last + 4, *head = row->named[0];
    double to_target = scaled_distance(head, row->target, 1.0, 2.0, 2.0);
    double margin = scaled_distance(row->extra, row->target, 1.0, 2.0, 2.0);
    number in_place = python(near(row, to_target, row->radius, margin));
    number box_1 = in_prism(head, row->named[1], row->named[2]);
    number box_2 = in_prism(head, row->named[3], row->named[4]);
    in_place = both(row, in_place, both(row, box_2, box_1));
    number grasped = caging_reward(row, action, obj, row->object_init, grip);
    bool is_lifted = lifted(row, from_tcp(row, obj), 0.08, 0.01);
    number reward = both(row, is_lifted ? python(1.0) : grasped, in_place);
    if (is_lifted)
        reward = plus(reward, plus(python(1.0), times(python(5), in_place)));
    if (to_target <= 0.07)
        reward = python(10.0);
    return (struct outcome){reward, to_target <= 0.07};
}

static struct outcome peg_unplug_side(struct row *row, const float *action) {
    const struct grip grip = {.radius = 0.025, .pad = 0.05, .xz = 0.005, .effort = 0.8, .density = HIGH};
    const double *obs = row->last, *obj = obs + 4;
    double to_target = distance(obj, row->target);
    double in_place = near(row, to_target, 0.05, distance(row->object_init, row->target));
    number grasped = times(python(2), caging_reward(row, action, obj, row->object_init, grip));
    number reward = grasped;
    if (obs[3] > 0.5 && obj[0] - row->object_init[0] > 0.015 && from_tcp(row, obj) < 0.035)
        reward = plus_python(plus(python(1), grasped), 5 * in_place);
    if (to_target <= 0.05)
        reward = python(10.0);
    return (struct outcome){reward, to_target <= 0.07};
}

#endif
