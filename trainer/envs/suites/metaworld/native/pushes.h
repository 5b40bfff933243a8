/* Rewards of the tasks that reach, or move something over the table. */

#ifndef ANCHORLEG_PUSHES_H
#define ANCHORLEG_PUSHES_H

#include "parts.h"

static const struct grip puck_grip = {.radius = 0.015, .pad = 0.05, .xz = 0.005, .effort = 1, .density = HIGH};

/* Also reach-wall. */
static struct outcome reach(struct row *row, const float *action) {
    (void)action;
    double to_target = from_tcp(row, row->target);
    double in_place = near(row, to_target, 0.05, distance(row->hand_init, row->target));
    return (struct outcome){python(10 * in_place), to_target <= 0.05};
}

static struct outcome push(struct row *row, const float *action) {
    const double *obs = row->last, *obj = obs + 4;
    double to_target = distance(obj, row->target);
    double in_place = near(row, to_target, row->radius, distance(row->object_init, row->target));
    number reward = times(python(2), caging_reward(row, action, obj, row->object_init, puck_grip));
    if (from_tcp(row, obj) < 0.02 && obs[3] > 0)
        reward = plus(reward, plus(plus(python(1.0), reward), python(5.0 * in_place)));
    if (to_target < row->radius)
        reward = python(10.0);
    return (struct outcome){reward, to_target <= row->radius};
}

static struct outcome push_wall(struct row *row, const float *action) {
    const double *obs = row->last, *obj = obs + 4, midpoint[3] = {-0.05, 0.77, obj[2]};
    double to_target = distance(obj, row->target);
    double to_midpoint = scaled_distance(obj, midpoint, 3.0, 1.0, 1.0);
    double part_1 = near(row, to_midpoint, 0.05, scaled_distance(row->object_init, midpoint, 3.0, 1.0, 1.0));
    double part_2 = near(row, to_target, 0.05, distance(row->object_init, row->target));
    number reward = times(python(2), caging_reward(row, action, obj, row->object_init, puck_grip));
    bool over_wall = obj[1] > 0.75;
    if (from_tcp(row, obj) < 0.02 && obs[3] > 0) {
        reward = plus_python(reward, 1.0);
        reward = over_wall ? plus_python(plus_python(reward, 4.0), 3.0 * part_2) : plus_python(reward, 4.0 * part_1);
    }
    if (to_target < 0.05)
        reward = python(10.0);
    return (struct outcome){reward, to_target <= 0.07};
}

static struct outcome push_back(struct row *row, const float *action) {
    (void)action;
    const double *obs = row->last, *obj = obs + 4;
    double to_target = distance(obj, row->target), init = distance(row->object_init, row->target);
    double in_place = near(row, to_target, row->radius, init);
    number reward = both(row, pinching_reward(row, obj, 0.007, 0.003, 0.01), python(in_place));
    if (from_tcp(row, obj) < 0.01 && 0 < obs[3] && obs[3] < 0.55 && init - to_target > 0.01)
        reward = plus_python(reward, 1.0 + 5.0 * in_place);
    if (to_target < row->radius)
        reward = python(10.0);
    return (struct outcome){reward, to_target <= 0.07};
}

static struct outcome soccer(struct row *row, const float *action) {
    (void)action;
    const double *obj = row->last + 4, *target = row->target;
    double to_target = scaled_distance(obj, target, 3.0, 1.0, 1.0);
    double in_place = near(row, to_target, row->radius, scaled_distance(obj, row->object_init, 3.0, 1.0, 1.0));
    double goal_line = target[1] - 0.1;
    if (obj[1] > goal_line && fabs(obj[0] - target[0]) > 0.1)
        in_place = clipped(in_place - 2 * ((obj[1] - goal_line) / (1 - goal_line)), 0.0, 1.0);
    double reward = 3 * pinching_reward(row, obj, 0.013, 0.01, 0.005).value + 6.5 * in_place;
    return (struct outcome){python(to_target < row->radius ? 10.0 : reward), distance(obj, target) <= 0.07};
}

static struct outcome sweep_to(struct row *row, const double *target, double grip, double xz_margin) {
    const double *obj = row->last + 4;
    double to_target = distance(obj, target);
    double in_place = near(row, to_target, 0.05, distance(row->object_init, target));
    number grasped = pinching_reward(row, obj, 0.02, grip, xz_margin);
    double reward = 2 * grasped.value + 6 * both(row, grasped, python(in_place)).value;
    return (struct outcome){python(to_target < 0.05 ? 10.0 : reward), to_target <= 0.05};
}

static struct outcome sweep(struct row *row, const float *action) {
    (void)action;
    return sweep_to(row, row->target, 0.01, 0.005);
}

static struct outcome sweep_into(struct row *row, const float *action) {
    (void)action;
    const double target[3] = {row->target[0], row->target[1], row->last[6]};
    return sweep_to(row, target, 0.005, 0.01);
}

static struct outcome plate_slide(struct row *row, const float *action) {
    (void)action;
    const double *obj = row->last + 4;
    double to_target = distance(obj, row->target);
    double in_place = near(row, to_target, 0.05, distance(row->object_init, row->target));
    double grasped = near(row, from_tcp(row, obj), 0.05, distance(row->init_tcp, row->object_init));
    double reward = 8 * both(row, python(grasped), python(in_place)).value;
    return (struct outcome){python(to_target < 0.05 ? 10.0 : reward), to_target <= 0.07};
}

/* plate-slide-side, -back and -back-side. */
static struct outcome plate_slide_away(struct row *row, const float *action) {
    (void)action;
    const double *obj = row->last + 4;
    double tcp[3];
    tcp_center(row, tcp);
    double to_target = distance(obj, row->target), tcp_to_obj = distance(tcp, obj);
    double in_place = near(row, to_target, 0.05, distance(row->object_init, row->target) - 0.05);
    double grasped = near(row, tcp_to_obj, 0.05, distance(row->init_tcp, row->object_init) - 0.05);
    double reward = tcp[2] <= 0.03 && tcp_to_obj < 0.07 ? 2.0 + 7.0 * in_place : 1.5 * grasped;
    return (struct outcome){python(to_target < 0.05 ? 10.0 : reward), to_target <= 0.07};
}

/* coffee-push and coffee-pull. */
static struct outcome coffee(struct row *row, const float *action) {
    const struct grip grip = {.radius = 0.02, .pad = 0.05, .xz = 0.05, .effort = 0.7, .density = MEDIUM, .reach = 0.04};
    const double *obs = row->last, *obj = obs + 4;
    double to_target = scaled_distance(obj, row->target, 2.0, 2.0, 1.0);
    double in_place = near(row, to_target, 0.05, scaled_distance(row->object_init, row->target, 2.0, 2.0, 1.0));
    number reward = both(row, caging_reward(row, action, obj, row->object_init, grip), python(in_place));
    if (from_tcp(row, obj) < 0.04 && obs[3] > 0)
        reward = plus_python(reward, 1.0 + 5.0 * in_place);
    if (to_target < 0.05)
        reward = python(10.0);
    return (struct outcome){reward, distance(obj, row->target) <= 0.07};
}

static struct outcome hand_insert(struct row *row, const float *action) {
    const double *obs = row->last, *obj = obs + 4;
    double to_target = distance(obj, row->target);
    double in_place = near(row, to_target, row->radius, distance(row->object_init, row->target));
    number reward = both(row, caging_reward(row, action, obj, row->object_init, puck_grip), python(in_place));
    if (from_tcp(row, obj) < 0.02 && obs[3] > 0)
        reward = plus_python(reward, 1.0 + 7.0 * in_place);
    if (to_target < row->radius)
        reward = python(10.0);
    return (struct outcome){reward, to_target <= 0.05};
}

#endif
