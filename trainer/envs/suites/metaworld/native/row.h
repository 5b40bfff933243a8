/* One environment as the stepper sees it. `ROW` and `SharedBuffers` in library.py have the same fields in the same order. */

#ifndef ANCHORLEG_ROW_H
#define ANCHORLEG_ROW_H

#include "simulator.h"

enum port {
    NONE, /* stepped by Python, or idle */
    REACH,
    PUSH,
    PICK_PLACE,
    DOOR_OPEN,
    DRAWER_OPEN,
    DRAWER_CLOSE,
    BUTTON_PRESS_TOPDOWN,
    PEG_INSERT_SIDE,
    WINDOW_OPEN,
    WINDOW_CLOSE,
};

enum rotation { ZEROS, MATRIX, QUATERNION };

struct row {
    /* The simulation, and windows into its data. */
    struct simulation simulation;
    const double *hand, *right_claw, *left_claw, *right_end, *left_end, *right_pad, *left_pad;
    const double *position, *rotation;
    const double *named[5];
    /* What the task and its reset have fixed. */
    double mocap_low[3], mocap_high[3];
    double low[39], high[39];
    double offset[3];
    double target[3], object_init[3], init_tcp[3], hand_init[3], extra[3];
    double radius;
    /* What a step changes. */
    double previous[18], last[39];
    double total, reward;
    int32_t path_length, length, solved, steps;
    /* How to step it. */
    int32_t port, rotation_kind, has_offset, path_limit;
    int32_t index, task, horizon, stop_at_success;
    /* What the last step produced. */
    int32_t finished, fault;
    float action_scale, spare;
};

#endif
