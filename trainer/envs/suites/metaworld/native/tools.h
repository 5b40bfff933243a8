/* Rewards of the tasks with tools, nuts and lids. */

#ifndef ANCHORLEG_TOOLS_H
#define ANCHORLEG_TOOLS_H

#include "parts.h"

/* Where to grip a tool with a long handle: beside the hand, where that is over it. */
static void handle_beside(const double *obs, double half_length, double *at) {
    for (int i = 0; i < 3; i++)
        at[i] = obs[4 + i];
    if (fabs(obs[4] - obs[0]) < half_length)
        at[0] = obs[0];
}

static const struct grip tool_grip = {.radius = 0.015, .pad = 0.02, .xz = 0.01, .effort = 1, .density = HIGH};

/* `_reward_pos` of hammer and disassemble: lifted, and near its target. */
static double lifted_to(struct row *row, const double *at, const double *target) {
    return 0.1 * (at[2] > 0.02) + 0.9 * near(row, distance(target, at), 0.02, 0.2);
}

static number tool_sum(number grab, double in_place, double quat) {
    return times(plus_python(times(python(2.0), grab), 6.0 * in_place), python(quat));
}

/* `named`: the joint of the nail. */
static struct outcome hammer(struct row *row, const float *action) {
    const double *obs = row->last, ideal[4] = {1.0, 0.0, 0.0, 0.0};
    const double head[3] = {obs[4] + 0.16, obs[5] + 0.06, obs[6] + 0.0};
    double handle[3];
    handle_beside(obs, 0.14 / 2.0, handle);
    number grab = caging_reward(row, action, handle, row->object_init, tool_grip);
    number reward = tool_sum(grab, lifted_to(row, head, row->target), upright(obs, ideal, 0.4));
    bool success = *row->named[0] > 0.09;
    return (struct outcome){success && reward.value > 5.0 ? python(10.0) : reward, success};
}

static const double nut_ideal[4] = {0.707, 0, 0, 0.707};

/* `named`: the middle of the nut. */
static struct outcome assembly(struct row *row, const float *action) {
    const double *obs = row->last, *center = row->named[0], *target = row->target;
    struct grip grip = tool_grip;
    double handle[3];
    grip.density = MEDIUM;
    grip.reach = 0.01;
    handle_beside(obs, 0.02 / 2.0, handle);
    number grab = caging_reward(row, action, handle, row->object_init, grip);
    double radius = plane_distance(target, center);
    bool success = radius < 0.02 && target[2] - center[2] > 0.0;
    double threshold = success ? 0.02 : 0.01, height = rising_floor(radius, threshold, 0.02, 0.2);
    const double above[3] = {target[0], target[1], height};
    double error = scaled_distance(above, center, 1.0, 1.0, 3.0);
    bool is_lifted = center[2] > 0.02 || radius < threshold;
    double in_place = 0.1 * is_lifted + 0.9 * near(row, error, 0.02, 0.4);
    number reward = tool_sum(grab, in_place, upright(obs, nut_ideal, 0.4));
    return (struct outcome){success ? python(10.0) : reward, success};
}

/* `named`: the middle of the nut. */
static struct outcome disassemble(struct row *row, const float *action) {
    const double *obs = row->last, *target = row->target;
    const double above[3] = {target[0] + 0.0, target[1] + 0.0, target[2] + 0.1};
    double handle[3];
    handle_beside(obs, 0.02 / 2.0, handle);
    number grab = caging_reward(row, action, handle, row->object_init, tool_grip);
    number reward = tool_sum(grab, lifted_to(row, row->named[0], above), upright(obs, nut_ideal, 0.4));
    bool success = obs[6] > target[2];
    return (struct outcome){success ? python(10.0) : reward, success};
}

static struct outcome box_close(struct row *row, const float *action) {
    const double *obs = row->last, *hand = obs, lid[3] = {obs[4] + 0.0, obs[5] + 0.0, obs[6] + 0.02};
    double floor = rising_floor(plane_distance(hand, lid), 0.02, 0.04, 0.4);
    double above = hand[2] >= floor ? 1.0 : near(row, floor - hand[2], 0.01, floor / 2.0);
    double in_place = near(row, distance(hand, lid), 0.02, 0.5);
    number ready = both(row, python(above), python(in_place));
    double error = scaled_distance(row->target, lid, 1.0, 1.0, 3.0);
    double is_lifted = 0.2 * (lid[2] > 0.04) + 0.8 * near(row, error, 0.05, 0.25);
    bool success = distance(obs + 4, row->target) < 0.08;
    double reward = 2.0 * both(row, grab_effort(action), ready).value + 8.0 * is_lifted;
    return (struct outcome){python((success ? 10.0 : reward) * upright(obs, nut_ideal, 0.2)), success};
}

/* `extra` is where the stick was in the beginning. */
static bool has_stick(const struct row *row, double tcp_to_stick) {
    return tcp_to_stick < 0.02 && row->last[3] > 0 && row->last[6] - 0.01 > row->extra[2];
}

static struct outcome stick_push(struct row *row, const float *action) {
    const struct grip grip = {.radius = 0.04, .pad = 0.05, .xz = 0.01, .effort = 1, .density = HIGH};
    const double *obs = row->last, *container = obs + 11, *target = row->target;
    const double stick[3] = {obs[4] + 0.015, obs[5] + 0.0, obs[6] + 0.0};
    double to_target = distance(container, target);
    double stick_in_place = near(row, distance(stick, target), 0.12, distance(row->extra, target) - 0.12);
    double in_place = near(row, to_target, 0.12, distance(row->object_init, target) - 0.12);
    number reward = caging_reward(row, action, stick, row->extra, grip);
    if (has_stick(row, from_tcp(row, stick)))
        reward = python(to_target <= 0.12 ? 10.0 : 2.0 + 5.0 * stick_in_place + 3.0 * in_place);
    bool grasped = touching(row) && obs[3] > 0 && obs[6] - 0.01 > row->extra[2];
    return (struct outcome){reward, grasped && to_target <= 0.12};
}

/* `named`: the end of the stick. */
static struct outcome stick_pull(struct row *row, const float *action) {
    const struct grip grip = {.radius = 0.014, .pad = 0.05, .xz = 0.01, .effort = 1, .density = HIGH};
    const double *obs = row->last, *stick = obs + 4, *handle = obs + 11, *target = row->target, *end = row->named[0];
    const double *init = row->object_init, container_init[3] = {init[0] + 0.05, init[1] + 0.0, init[2] + 0.0};
    const double container[3] = {handle[0] + 0.05, handle[1] + 0.0, handle[2] + 0.0};
    double margin = scaled_distance(row->extra, container_init, 1.0, 1.0, 2.0);
    double in_container = near(row, scaled_distance(stick, container, 1.0, 1.0, 2.0), 0.05, margin);
    double at_target = near(row, distance(stick, target), 0.05, distance(row->extra, target));
    double in_place = near(row, distance(container, target), 0.05, distance(init, target));
    double to_target = distance(handle, target);
    bool inserted = end[0] >= handle[0] && fabs(end[1] - handle[1]) <= 0.04 && fabs(end[2] - handle[2]) <= 0.06;
    number caging = caging_reward(row, action, stick, init, grip);
    bool grasped = has_stick(row, from_tcp(row, stick));
    number reward = both(row, grasped ? python(1) : caging, python(in_container));
    if (grasped) {
        double base = 1.0 + reward.value;
        reward = python(inserted ? base + 5.0 + 2.0 * at_target + 1.0 * in_place : base + 5.0 * in_container);
        if (inserted && to_target <= 0.12)
            reward = python(10.0);
    }
    return (struct outcome){reward, to_target <= 0.12 && inserted};
}

#endif
