/* One environment as the stepper sees it. `ROW` in library.py has the same fields in the same order. */

#ifndef ANCHORLEG_ROW_H
#define ANCHORLEG_ROW_H

#include "simulator.h"

enum rotation { ZEROS, MATRIX, QUATERNION, IDENTITY };

/* An object of the observation. Its place is shifted by `offset`, or along the circle of the dial that has `angle`. */
struct object {
    const double *position, *rotation, *angle;
    double offset[3];
    int32_t has_offset, rotation_kind;
};

struct row {
    /* The simulation, and windows into its data. */
    struct simulation simulation;
    const double *hand, *right_claw, *left_claw, *right_end, *left_end, *right_pad, *left_pad;
    struct object objects[2];
    const double *named[5];
    /* Where upstream's `_target_pos` and `obj_init_pos` are windows too; else NULL. */
    const double *target_window, *object_window;
    /* What the task and its reset have fixed. */
    double mocap_low[3], mocap_high[3];
    double low[39], high[39];
    double target[3], object_init[3], init_tcp[3], hand_init[3], extra[3];
    double radius;
    /* What a step changes. */
    double previous[18], last[39];
    double total, reward;
    int32_t path_length, length, solved, steps;
    /* Whether `extra` holds what the first step of an episode has found. */
    int32_t found;
    /* How to step it. */
    int32_t port, objects_seen, path_limit;
    int32_t index, task, horizon, stop_at_success;
    /* Of the geometries whose contacts a success depends on. */
    int32_t right_pad_geom, left_pad_geom, main_geom;
    /* What the last step produced. */
    int32_t finished, fault;
    float action_scale;
};

#endif
