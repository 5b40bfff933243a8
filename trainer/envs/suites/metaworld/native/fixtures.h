/* Rewards of the tasks with doors, drawers, windows, buttons, handles and knobs. */

#ifndef ANCHORLEG_FIXTURES_H
#define ANCHORLEG_FIXTURES_H

#include "parts.h"

/* `named`: the joint of the door. */
static struct outcome door_open(struct row *row, const float *action) {
    const double *obs = row->last, pi = 3.141592653589793, a = 0.2, b = 0.8, theta = *row->named[0];
    const double door[3] = {obs[4] + -0.05, obs[5] + 0, obs[6] + 0}, beside[3] = {0.05, 0.03, -0.01};
    double to_handle[3];
    double floor = rising_floor(plane_distance(obs, door), 0.12, 0.04, 0.4);
    double above = obs[2] >= floor ? 1.0 : near(row, floor - obs[2], 0.01, floor / 2.0);
    for (int i = 0; i < 3; i++)
        to_handle[i] = obs[i] - door[i] - beside[i];
    double in_place = near(row, norm(to_handle, 3), 0.12 / 2.0, 0.5);
    number ready = both(row, python(above), python(in_place));
    double left_to_open = pi / 2.0 + pi / 6 - -theta;
    double opened = a * (theta < -pi / 90.0) + b * near(row, left_to_open, 0.5, pi / 3.0);
    bool success = fabs(obs[4] - row->target[0]) <= 0.08;
    double reward = 2.0 * both(row, ready, grab_effort(action)).value + 8.0 * opened;
    return (struct outcome){python(success ? 10.0 : reward), success};
}

static struct outcome door_close(struct row *row, const float *action) {
    (void)action;
    const double *obj = row->last + 4, *target = row->target;
    double to_target = distance(obj, target);
    double in_place = gaussian(to_target, 0.05, distance(row->object_init, target), &row->fault);
    double margin = distance(row->hand_init, obj) + 0.1;
    double hand_in_place = gaussian(from_tcp(row, target), 0.25 * 0.05, margin, &row->fault);
    double reward = to_target < 0.05 ? 10 : 3 * hand_in_place + 6 * in_place;
    return (struct outcome){python(reward), to_target <= 0.08};
}

/* Upstream measures from the left pad, and the margin from where it is too: its `init_left_pad` is a window. */
static struct outcome door_lock(struct row *row, const float *action) {
    (void)action;
    const double *obs = row->last, *obj = obs + 4;
    double tcp_to_obj = scaled_distance(obj, row->left_pad, 0.25, 1.0, 0.5), to_target = fabs(row->target[2] - obj[2]);
    number opened = {positive(obs[3]), DOUBLE};
    double near_lock = near(row, tcp_to_obj, 0.01, tcp_to_obj), pressed = near(row, to_target, 0.005, 0.1);
    number reward = times(python(2), both(row, opened, python(near_lock)));
    return (struct outcome){plus_python(reward, 8 * pressed), to_target <= 0.02};
}

/* From the gripper's shoulder to `to`, for door-unlock and lever-pull. */
static double from_shoulder(const double *gripper, const double *to, double x, double y, double z) {
    const double shoulder[3] = {gripper[0] + 0.0, gripper[1] + 0.055, gripper[2] + 0.07};
    return scaled_distance(shoulder, to, x, y, z);
}

static struct outcome door_unlock(struct row *row, const float *action) {
    (void)action;
    const double *obs = row->last, *lock = obs + 4;
    double margin = from_shoulder(row->init_tcp, row->object_init, 0.25, 1.0, 0.5);
    double ready = near(row, from_shoulder(obs, lock, 0.25, 1.0, 0.5), 0.02, margin);
    double to_target = fabs(row->target[0] - lock[0]);
    return (struct outcome){python(2 * ready + 8 * near(row, to_target, 0.005, 0.1)), to_target <= 0.02};
}

/* `named`: the joint of the lever; `extra`: where the lever was. */
static struct outcome lever_pull(struct row *row, const float *action) {
    (void)action;
    const double *obs = row->last, *lever = obs + 4, pi = 3.141592653589793;
    double margin = from_shoulder(row->init_tcp, row->extra, 4.0, 1.0, 4.0);
    double ready = near(row, from_shoulder(obs, lever, 4.0, 1.0, 4.0), 0.02, margin);
    double in_place = near(row, distance(lever, row->target), 0.04, distance(row->extra, row->target));
    number reward = times(python(10.0), both(row, python(ready), python(in_place)));
    return (struct outcome){reward, fabs(-*row->named[0] - pi / 2.0) <= pi / 24};
}

static struct outcome drawer_open(struct row *row, const float *action) {
    (void)action;
    const double *gripper = row->last, *handle = row->last + 4, *target = row->target, max_dist = 0.2;
    const double closed[3] = {target[0] + 0.0, target[1] + max_dist, target[2] + 0.0};
    double error = distance(handle, target);
    double opening = near(row, error, 0.02, max_dist);
    double margin = scaled_distance(closed, row->init_tcp, 3.0, 3.0, 1.0);
    double caging = near(row, scaled_distance(handle, gripper, 3.0, 3.0, 1.0), 0.01, margin);
    return (struct outcome){python((caging + opening) * 5.0), error <= 0.03};
}

static struct outcome drawer_close(struct row *row, const float *action) {
    const double *obj = row->last + 4;
    double to_target = distance(obj, row->target);
    double in_place = near(row, to_target, row->radius, fabs(distance(row->object_init, row->target) - row->radius));
    double margin = fabs(distance(row->object_init, row->init_tcp) - 0.005);
    double reaching = gaussian(from_tcp(row, obj), 0.005, margin, &row->fault);
    number reach = both(row, python(reaching), gripper_closed(action, 1));
    number reward = both(row, reach, python(in_place));
    bool success = to_target <= row->radius + 0.015;
    return (struct outcome){times(success ? python(1.0) : reward, python(10)), success};
}

/* `extra` is the handle's first position; `from` is the coordinate where the handle's way to the target begins. */
static struct outcome window(struct row *row, double from, double reaching) {
    double to_target = length_of(row->last[4] - row->target[0]);
    double margin = fabs(length_of(from - row->target[0]) - row->radius);
    number product = both(row, python(reaching), python(near(row, to_target, row->radius, margin)));
    return (struct outcome){times(python(10), product), to_target <= row->radius};
}

static double window_margin(const struct row *row) { return fabs(distance(row->extra, row->init_tcp) - 0.02); }

static struct outcome window_open(struct row *row, const float *action) {
    (void)action;
    double reaching = near(row, from_tcp(row, row->last + 4), 0.02, window_margin(row));
    return window(row, row->object_init[0], reaching);
}

static struct outcome window_close(struct row *row, const float *action) {
    (void)action;
    double reaching = gaussian(from_tcp(row, row->last + 4), 0.02, window_margin(row), &row->fault);
    return window(row, row->extra[0], reaching);
}

/* Pressing along `axis`: `closed` and near the button, and, where nearer than `reach`, how far it is pressed. */
struct press {
    int axis;
    double near, near_weight, reach, pressed_weight, margin, solved;
};

static struct outcome press_button(struct row *row, double closed, struct press press) {
    const double *obj = row->last + 4;
    double tcp_to_obj = from_tcp(row, obj), to_target = fabs(row->target[press.axis] - obj[press.axis]);
    double near_button = near(row, tcp_to_obj, press.near, distance(obj, row->init_tcp));
    double pressed = near(row, to_target, 0.005, press.margin);
    double reward = press.near_weight * both(row, (number){closed, DOUBLE}, python(near_button)).value;
    if (tcp_to_obj <= press.reach)
        reward += press.pressed_weight * pressed;
    return (struct outcome){python(reward), to_target <= press.solved};
}

static struct outcome button_press_topdown(struct row *row, const float *action) {
    (void)action;
    return press_button(row, 1 - row->last[3], (struct press){2, 0.01, 5, 0.03, 5, row->extra[0], 0.024});
}

static struct outcome button_press_topdown_wall(struct row *row, const float *action) {
    (void)action;
    return press_button(row, positive(row->last[3]), (struct press){2, 0.01, 5, 0.03, 5, row->extra[0], 0.024});
}

static struct outcome button_press(struct row *row, const float *action) {
    (void)action;
    return press_button(row, positive(row->last[3]), (struct press){1, 0.05, 2, 0.05, 8, row->extra[0], 0.02});
}

static struct outcome coffee_button(struct row *row, const float *action) {
    (void)action;
    return press_button(row, positive(row->last[3]), (struct press){1, 0.05, 2, 0.05, 8, 0.03, 0.02});
}

static struct outcome button_press_wall(struct row *row, const float *action) {
    (void)action;
    const double *obs = row->last, *obj = obs + 4;
    double tcp_to_obj = from_tcp(row, obj), to_target = fabs(row->target[1] - obj[1]);
    double near_button = near(row, tcp_to_obj, 0.01, distance(obj, row->init_tcp));
    double pressed = near(row, to_target, 0.005, row->extra[0]);
    double reward = 2 + 2 * (1 + obs[3]) + 4 * square(pressed);
    if (tcp_to_obj > 0.07)
        reward = 2 * both(row, (number){(1 - obs[3]) / 2.0, DOUBLE}, python(near_button)).value;
    return (struct outcome){python(reward), to_target <= 0.03};
}

static struct outcome faucet(struct row *row, const double *obj) {
    const double radius = 0.07;
    double to_target = distance(obj, row->target);
    double in_place = near(row, to_target, radius, fabs(distance(row->object_init, row->target) - radius));
    double margin = fabs(distance(row->object_init, row->init_tcp) - 0.01);
    double reach = gaussian(from_tcp(row, obj), 0.01, margin, &row->fault);
    return (struct outcome){python(to_target <= radius ? 10 : (2 * reach + 3 * in_place) * 2), to_target <= 0.07};
}

static struct outcome faucet_close(struct row *row, const float *action) {
    (void)action;
    return faucet(row, row->last + 4);
}

static struct outcome faucet_open(struct row *row, const float *action) {
    (void)action;
    const double *obs = row->last, obj[3] = {obs[4] + -0.04, obs[5] + 0.0, obs[6] + 0.03};
    return faucet(row, obj);
}

/* handle-press and handle-press-side; `extra`: where the handle was. */
static struct outcome handle_press(struct row *row, const float *action) {
    (void)action;
    const double *obj = row->last + 4;
    double to_target = length_of(obj[2] - row->target[2]);
    double margin = fabs(length_of(row->extra[2] - row->target[2]) - row->radius);
    double in_place = near(row, to_target, row->radius, margin);
    double reach = near(row, from_tcp(row, obj), 0.02, fabs(distance(row->extra, row->init_tcp) - 0.02));
    double reward = both(row, python(reach), python(in_place)).value;
    bool success = to_target <= row->radius;
    return (struct outcome){python((success ? 1.0 : reward) * 10), success};
}

static struct outcome handle_pull_by(struct row *row, const float *action, struct grip grip, double to_target,
                                     double margin, double lifted_from, double solved) {
    const double *obs = row->last, *obj = obs + 4;
    double in_place = near(row, to_target, row->radius, margin);
    number reward = both(row, caging_reward(row, action, obj, row->object_init, grip), python(in_place));
    if (from_tcp(row, obj) < 0.035 && obs[3] > 0 && lifted_from - 0.01 > row->object_init[2])
        reward = plus_python(reward, 1.0 + 5.0 * in_place);
    if (to_target < row->radius)
        reward = python(10.0);
    return (struct outcome){reward, to_target <= solved};
}

/* Upstream compares the handle's y with the height where it was. */
static struct outcome handle_pull(struct row *row, const float *action) {
    const struct grip grip = {.radius = 0.022, .pad = 0.05, .xz = 0.01, .effort = 1, .density = HIGH};
    const double *obj = row->last + 4;
    double margin = fabs(row->target[2] - row->object_init[2]);
    return handle_pull_by(row, action, grip, fabs(row->target[2] - obj[2]), margin, obj[1], row->radius);
}

static struct outcome handle_pull_side(struct row *row, const float *action) {
    const struct grip grip = {.radius = 0.032, .pad = 0.06, .xz = 0.01, .effort = 1, .density = HIGH};
    const double *obj = row->last + 4;
    double margin = distance(row->object_init, row->target);
    return handle_pull_by(row, action, grip, distance(obj, row->target), margin, obj[2], 0.08);
}

/* `extra`: where the dial was to be pushed in the beginning. */
static struct outcome dial_turn(struct row *row, const float *action) {
    const double *obj = row->last + 4, push_at[3] = {obj[0] + 0.05, obj[1] + 0.02, obj[2] + 0.09};
    double to_target = distance(obj, row->target);
    double in_place = near(row, to_target, row->radius, fabs(distance(row->extra, row->target) - row->radius));
    double margin = fabs(distance(row->extra, row->init_tcp) - 0.005);
    double reach = gaussian(from_tcp(row, push_at), 0.005, margin, &row->fault);
    number reached = both(row, python(reach), gripper_closed(action, 1));
    number reward = times(python(10), both(row, reached, python(in_place)));
    return (struct outcome){reward, to_target <= row->radius};
}

#endif
