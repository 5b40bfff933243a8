/* The rewards (version v2) and successes of the ported tasks, from metaworld 3.1.1 envs/sawyer_*_v3.py.

Every function follows its `compute_reward` operation by operation; names are upstream's. `obs` is the clipped
observation, `action` the learner's, unclipped. `answer` is what NumPy made of `question`. */

#ifndef ANCHORLEG_REWARDS_H
#define ANCHORLEG_REWARDS_H

#include "numbers.h"
#include "row.h"

struct outcome {
    number reward;
    bool success;
};

/* Upstream's `tcp_center`. */
static void tcp_center(const struct row *row, double *tcp) {
    for (int i = 0; i < 3; i++)
        tcp[i] = (row->right_end[i] + row->left_end[i]) / 2.0;
}

/* min(max(0, action[-1]), 1): the action's own np.float32 between the limits, Python's 0 or 1 at them. */
static number gripper_closed(const float *action) {
    if (!(action[3] > 0))
        return python(0);
    return 1 < action[3] ? python(1) : (number){action[3], SINGLE};
}

/* SawyerXYZEnv._gripper_caging_reward with high_density=True and desired_gripper_effort=1. */
static number caging_reward(struct row *row, const float *action, const double *obj, double obj_radius,
                            double pad_success_thresh, double xz_thresh) {
    const double pad_y[2] = {row->left_pad[1], row->right_pad[1]};
    double caging_lr[2], tcp[3];
    for (int i = 0; i < 2; i++) {
        double margin = fabs(fabs(pad_y[i] - row->object_init[1]) - pad_success_thresh);
        caging_lr[i] = long_tail(fabs(pad_y[i] - obj[1]), obj_radius, pad_success_thresh, margin, &row->fault);
    }
    number caging_y = hamacher(python(caging_lr[0]), python(caging_lr[1]), &row->fault);
    tcp_center(row, tcp);
    const double init_xz[2] = {row->object_init[0] - row->init_tcp[0], row->object_init[2] - row->init_tcp[2]};
    const double xz[2] = {tcp[0] - obj[0], tcp[2] - obj[2]};
    double caging_xz = long_tail(norm(xz, 2), 0, xz_thresh, norm(init_xz, 2) - xz_thresh, &row->fault);
    number caging = hamacher(caging_y, python(caging_xz), &row->fault);
    number gripping = caging.value > 0.97 ? gripper_closed(action) : python(0);
    number both = hamacher(caging, gripping, &row->fault);
    return over(plus(both, caging), python(2));
}

static struct outcome reach(struct row *row) {
    double tcp[3];
    tcp_center(row, tcp);
    double to_target = distance(tcp, row->target);
    double in_place = long_tail(to_target, 0, 0.05, distance(row->hand_init, row->target), &row->fault);
    return (struct outcome){python(10 * in_place), to_target <= 0.05};
}

static struct outcome drawer_open(struct row *row, const double *obs) {
    const double *gripper = obs, *handle = obs + 4, *target = row->target, scale[3] = {3.0, 3.0, 1.0};
    const double max_dist = 0.2, up[3] = {0.0, max_dist, 0.0};
    double error[3], error_init[3];
    double handle_error = distance(handle, target);
    double opening = long_tail(handle_error, 0, 0.02, max_dist, &row->fault);
    for (int i = 0; i < 3; i++) {
        error[i] = (handle[i] - gripper[i]) * scale[i];
        error_init[i] = (target[i] + up[i] - row->init_tcp[i]) * scale[i];
    }
    double caging = long_tail(norm(error, 3), 0, 0.01, norm(error_init, 3), &row->fault);
    return (struct outcome){python((caging + opening) * 5.0), handle_error <= 0.03};
}

static double drawer_close_margin(const struct row *row) {
    return fabs(distance(row->object_init, row->init_tcp) - 0.005);
}

static struct outcome drawer_close(struct row *row, const double *obs, const float *action, double answer) {
    const double *obj = obs + 4;
    double tcp[3];
    tcp_center(row, tcp);
    double to_target = distance(obj, row->target);
    double margin = fabs(distance(row->object_init, row->target) - row->radius);
    double in_place = long_tail(to_target, 0, row->radius, margin, &row->fault);
    double reaching = gaussian(distance(obj, tcp), 0.005, drawer_close_margin(row), answer, &row->fault);
    number reach = hamacher(python(reaching), gripper_closed(action), &row->fault);
    number reward = hamacher(reach, python(in_place), &row->fault);
    bool success = to_target <= row->radius + 0.015;
    return (struct outcome){times(success ? python(1.0) : reward, python(10)), success};
}

/* np.linalg.norm of a scalar, which is not always its absolute value. */
static double length_of(double x) { return norm(&x, 1); }

static double window_margin(const struct row *row) { return fabs(distance(row->extra, row->init_tcp) - 0.02); }

/* `extra` is the handle's first position; `from` is the coordinate where the handle's way to the target begins. */
static struct outcome window(struct row *row, double from, double reaching) {
    double to_target = length_of(row->position[0] - row->target[0]);
    double margin = fabs(length_of(from - row->target[0]) - row->radius);
    double in_place = long_tail(to_target, 0, row->radius, margin, &row->fault);
    number product = hamacher(python(reaching), python(in_place), &row->fault);
    return (struct outcome){times(python(10), product), to_target <= row->radius};
}

static struct outcome window_open(struct row *row) {
    double tcp[3];
    tcp_center(row, tcp);
    double reaching = long_tail(distance(row->position, tcp), 0, 0.02, window_margin(row), &row->fault);
    return window(row, row->object_init[0], reaching);
}

static struct outcome window_close(struct row *row, double answer) {
    double tcp[3];
    tcp_center(row, tcp);
    double reaching = gaussian(distance(row->position, tcp), 0.02, window_margin(row), answer, &row->fault);
    return window(row, row->extra[0], reaching);
}

static struct outcome push(struct row *row, const double *obs, const float *action) {
    const double *obj = obs + 4, *target = row->target;
    const double tcp_opened = obs[3];
    double tcp[3];
    tcp_center(row, tcp);
    double tcp_to_obj = distance(obj, tcp), to_target = distance(obj, target);
    double in_place = long_tail(to_target, 0, row->radius, distance(row->object_init, target), &row->fault);
    number reward = times(python(2), caging_reward(row, action, obj, 0.015, 0.05, 0.005));
    if (tcp_to_obj < 0.02 && tcp_opened > 0)
        reward = plus(reward, plus(plus(python(1.0), reward), python(5.0 * in_place)));
    if (to_target < row->radius)
        reward = python(10.0);
    return (struct outcome){reward, to_target <= row->radius};
}

/* SawyerPickPlaceEnvV3._gripper_caging_reward; its `init_left_pad` and `init_right_pad` are windows into the data, so
   they are the pads as they are. Points in the x-z plane keep their zero, as upstream's do. */
static number pick_place_caging(struct row *row, const float *action, const double *obj, const double *tcp) {
    const double margin = 0.05, xz_margin = 0.005, obj_radius = 0.015;
    const double right_margin = fabs(fabs(obj[1] - row->right_pad[1]) - margin);
    const double left_margin = fabs(fabs(obj[1] - row->left_pad[1]) - margin);
    double right = long_tail(obj[1] - row->right_pad[1], obj_radius, margin, right_margin, &row->fault);
    double left = long_tail(row->left_pad[1] - obj[1], obj_radius, margin, left_margin, &row->fault);
    number y_caging = hamacher(python(left), python(right), &row->fault);
    const double *init = row->object_init;
    const double xz[3] = {tcp[0] - obj[0], 0, tcp[2] - obj[2]};
    const double init_xz[3] = {init[0] - row->init_tcp[0], 0, init[2] - row->init_tcp[2]};
    double xz_caging = long_tail(norm(xz, 3), 0, xz_margin, norm(init_xz, 3) - xz_margin, &row->fault);
    number caging = hamacher(y_caging, python(xz_caging), &row->fault);
    number gripping = caging.value > 0.97 ? gripper_closed(action) : python(0);
    number both = hamacher(caging, gripping, &row->fault);
    return over(plus(both, caging), python(2));
}

static struct outcome pick_place(struct row *row, const double *obs, const float *action) {
    const double *obj = obs + 4, *target = row->target;
    const double tcp_opened = obs[3];
    double tcp[3];
    tcp_center(row, tcp);
    double to_target = distance(obj, target), tcp_to_obj = distance(obj, tcp);
    double in_place = long_tail(to_target, 0, 0.05, distance(row->object_init, target), &row->fault);
    number reward = hamacher(pick_place_caging(row, action, obj, tcp), python(in_place), &row->fault);
    if (tcp_to_obj < 0.02 && tcp_opened > 0 && obj[2] - 0.01 > row->object_init[2])
        reward = plus(reward, python(1.0 + 5.0 * in_place));
    if (to_target < 0.05)
        reward = python(10.0);
    return (struct outcome){reward, to_target <= 0.07};
}

/* How far the hand is from the door's handle, less the threshold of `_reward_pos`; both in the plane. */
static double door_radius(const double *obs) {
    const double difference[2] = {obs[0] - (obs[4] + -0.05), obs[1] - (obs[5] + 0)};
    return norm(difference, 2);
}

static const double door_threshold = 0.12;

static struct outcome door_open(struct row *row, const double *obs, const float *action, double answer) {
    const double pi = 3.141592653589793, a = 0.2, b = 0.8, theta = *row->named[0];
    const double door[3] = {obs[4] + -0.05, obs[5] + 0, obs[6] + 0}, beside[3] = {0.05, 0.03, -0.01};
    double to_handle[3];
    float grab = ((float)clipped(action[3], -1, 1) + 1.0f) / 2.0f;
    double floor = door_radius(obs) <= door_threshold ? 0.0 : 0.04 * answer + 0.4;
    double above = obs[2] >= floor ? 1.0 : long_tail(floor - obs[2], 0.0, 0.01, floor / 2.0, &row->fault);
    for (int i = 0; i < 3; i++)
        to_handle[i] = obs[i] - door[i] - beside[i];
    double in_place = long_tail(norm(to_handle, 3), 0, door_threshold / 2.0, 0.5, &row->fault);
    number ready = hamacher(python(above), python(in_place), &row->fault);
    double left_to_open = pi / 2.0 + pi / 6 - -theta;
    double opened = a * (theta < -pi / 90.0) + b * long_tail(left_to_open, 0, 0.5, pi / 3.0, &row->fault);
    bool success = fabs(obs[4] - row->target[0]) <= 0.08;
    double reward = 2.0 * hamacher(ready, python(grab), &row->fault).value + 8.0 * opened;
    return (struct outcome){python(success ? 10.0 : reward), success};
}

static struct outcome button_press_topdown(struct row *row, const double *obs) {
    const double *obj = obs + 4;
    double tcp[3];
    tcp_center(row, tcp);
    double tcp_to_obj = distance(obj, tcp), to_target = fabs(row->target[2] - obj[2]);
    number closed = {1 - obs[3], DOUBLE};
    double near = long_tail(tcp_to_obj, 0, 0.01, distance(obj, row->init_tcp), &row->fault);
    double pressed = long_tail(to_target, 0, 0.005, row->extra[0], &row->fault);
    number reward = times(python(5), hamacher(closed, python(near), &row->fault));
    if (tcp_to_obj <= 0.03)
        reward = plus(reward, python(5 * pressed));
    return (struct outcome){reward, to_target <= 0.024};
}

/* `named`: the peg's head, then the bottom right and the top left corner of two boxes. */
static struct outcome peg_insert_side(struct row *row, const double *obs, const float *action) {
    const double *obj = obs + 4, *head = row->named[0], scale[3] = {1.0, 2.0, 2.0};
    double tcp[3], to_target[3], init_to_target[3];
    tcp_center(row, tcp);
    double tcp_to_obj = distance(obj, tcp);
    for (int i = 0; i < 3; i++) {
        to_target[i] = (head[i] - row->target[i]) * scale[i];
        init_to_target[i] = (row->extra[i] - row->target[i]) * scale[i];
    }
    double obj_to_target = norm(to_target, 3);
    number in_place = python(long_tail(obj_to_target, 0, row->radius, norm(init_to_target, 3), &row->fault));
    number box_1 = in_prism(head, row->named[1], row->named[2]);
    number box_2 = in_prism(head, row->named[3], row->named[4]);
    in_place = hamacher(in_place, hamacher(box_2, box_1, &row->fault), &row->fault);
    number grasped = caging_reward(row, action, obj, 0.0075, 0.03, 0.005);
    bool lifted = tcp_to_obj < 0.08 && obs[3] > 0 && obj[2] - 0.01 > row->object_init[2];
    number reward = hamacher(lifted ? python(1.0) : grasped, in_place, &row->fault);
    if (lifted)
        reward = plus(reward, plus(python(1.0), times(python(5), in_place)));
    if (obj_to_target <= 0.07)
        reward = python(10.0);
    return (struct outcome){reward, obj_to_target <= 0.07};
}

/* What NumPy is to be asked for this row: `exponential` of a power, or `logarithm` of a number, harmless if neither. */
static void question(const struct row *row, double *exponential, double *logarithm) {
    double tcp[3];
    *exponential = 0;
    *logarithm = 1;
    tcp_center(row, tcp);
    if (row->port == DRAWER_CLOSE)
        *exponential = gaussian_power(distance(row->last + 4, tcp), 0.005, drawer_close_margin(row));
    else if (row->port == WINDOW_CLOSE)
        *exponential = gaussian_power(distance(row->position, tcp), 0.02, window_margin(row));
    else if (row->port == DOOR_OPEN && door_radius(row->last) > door_threshold)
        *logarithm = door_radius(row->last) - door_threshold;
}

static struct outcome evaluate(struct row *row, const float *action, double exponential, double logarithm) {
    const double *obs = row->last;
    switch ((enum port)row->port) {
    case REACH:
        return reach(row);
    case PUSH:
        return push(row, obs, action);
    case PICK_PLACE:
        return pick_place(row, obs, action);
    case DOOR_OPEN:
        return door_open(row, obs, action, logarithm);
    case DRAWER_OPEN:
        return drawer_open(row, obs);
    case DRAWER_CLOSE:
        return drawer_close(row, obs, action, exponential);
    case BUTTON_PRESS_TOPDOWN:
        return button_press_topdown(row, obs);
    case PEG_INSERT_SIDE:
        return peg_insert_side(row, obs, action);
    case WINDOW_OPEN:
        return window_open(row);
    case WINDOW_CLOSE:
        return window_close(row, exponential);
    default:
        row->fault = SIMULATOR;
        return (struct outcome){python(0), false};
    }
}

#endif
