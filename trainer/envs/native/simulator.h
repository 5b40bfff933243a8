/* MuJoCo for steppers: its functions as Python has loaded them, its errors, the arrays of trainer.envs.shared, and what
every library exports. A row of a stepper begins with `struct simulation`. */

#ifndef ANCHORLEG_SIMULATOR_H
#define ANCHORLEG_SIMULATOR_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <mujoco/mujoco.h>

#include "team.h"

struct simulation {
    const mjModel *model;
    mjData *data;
};

/* The fields of trainer.envs.shared where an observation is one row of numbers, each an array over all environments. */
struct buffers {
    const float *actions;
    float *obs, *next_obs, *reward;
    bool *terminated, *truncated, *success;
    int32_t *task, *next_task;
    bool *finished;
    double *episode_return;
    int32_t *episode_length;
    bool *episode_success;
    double *episode_measures;
};

/* mj_step, and what follows the substeps of a step: mj_forward, mj_kinematics. */
static void (*simulate)(const mjModel *, mjData *), (*afterwards)(const mjModel *, mjData *);
static int substeps;

/* MuJoCo ends the process after an error, unless its handler does not return. */
static _Thread_local jmp_buf *rescue;
static char last_error[512];
/* The handler before ours: another stepper's, whose call it may be. */
static void (*handler_before)(const char *);

static void on_error(const char *text) {
    snprintf(last_error, sizeof last_error, "%s", text);
    if (rescue)
        longjmp(*rescue, 1);
    if (handler_before)
        handler_before(text);
    fprintf(stderr, "MuJoCo: %s\n", text);
    exit(EXIT_FAILURE);
}

static void run(const struct simulation *simulation) {
    for (int i = 0; i < substeps; i++)
        simulate(simulation->model, simulation->data);
    if (afterwards)
        afterwards(simulation->model, simulation->data);
}

/* One step of the physics; whether MuJoCo came to its end. */
static bool advance_physics(const struct simulation *simulation) {
    jmp_buf here;
    if (setjmp(here)) {
        rescue = NULL;
        return false;
    }
    rescue = &here;
    run(simulation);
    rescue = NULL;
    return true;
}

struct racing {
    char *rows;
    int row_bytes, count, steps, shares;
};

static void race_one(void *context, int piece) {
    const struct racing *race = context;
    for (int step = 0; step < race->steps; step++)
        for (int i = piece; i < race->count; i += race->shares)
            run((const struct simulation *)(race->rows + (size_t)i * race->row_bytes));
}

int row_bytes(void);

/* The physics of `steps` steps alone, every thread for itself: what a stepper is measured against. */
void race(struct team *team, void *rows, int count, int steps) {
    struct racing context = {rows, row_bytes(), count, steps, team ? team->helpers + 1 : 1};
    if (team)
        team_do(team, context.shares, race_one, &context);
    else
        race_one(&context, 0);
}

/* Do `one` for every row, on all threads. */
static void for_rows(struct team *team, int count, void (*one)(void *, int), void *context) {
    if (team)
        team_do(team, count, one, context);
    else
        for (int i = 0; i < count; i++)
            one(context, i);
}

/* Before anything else. `handler` is the address of MuJoCo's mju_user_error. */
void connect_simulator(void *step, void *after, int steps, void *handler) {
    simulate = (void (*)(const mjModel *, mjData *))step;
    afterwards = (void (*)(const mjModel *, mjData *))after;
    substeps = steps;
    static bool connected;
    if (!connected) { /* twice would lead from handler to handler and back */
        handler_before = *(void (**)(const char *))handler;
        *(void (**)(const char *))handler = on_error;
        connected = true;
    }
}

struct team *open_team(int helpers) { return team_open(helpers); }
void close_team(struct team *team) { team_close(team); }
const char *error_text(void) { return last_error; }
int mujoco_header(void) { return mjVERSION_HEADER; }

#endif
