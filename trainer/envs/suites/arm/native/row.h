/* One arm as the stepper sees it. `ROW` and `NUMBERS` in library.py have the same fields in the same order. */

#ifndef ANCHORLEG_ARM_ROW_H
#define ANCHORLEG_ARM_ROW_H

#include "simulator.h"

#define JOINTS 7
#define LONGEST 25

enum fault { FINE, SIMULATOR };
enum reward { DENSE, TANH, SPARSE };

struct row {
    struct simulation simulation;
    /* Where the hand is, and how far off the goal is seen, [noise_rows, 3]. */
    const double *hand, *noise;
    double low[JOINTS], high[JOINTS], reach[JOINTS];
    /* What a step changes. */
    double target[JOINTS], held[JOINTS];
    double total, reward;
    float last[LONGEST];
    int32_t steps, triggered, delay, reached, has_triggered;
    int32_t length, solved, stepped;
    /* How to step it. */
    int32_t taken, noise_rows, pays, is_legacy, ends_on_success, episode;
    int32_t index, task, horizon, stop_at_success;
    /* What the last step produced. */
    int32_t finished, fault;
};

/* What shapes.py says, once a library. */
struct numbers {
    double lead, solved, shuts, opens, open, shut, effort, steepness;
};

#endif
