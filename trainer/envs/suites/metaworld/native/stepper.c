/* Steps Meta-World environments without Python, with the MuJoCo that Python has loaded.

A step is two calls, because the exponentials and logarithms of some rewards must be NumPy's own (numbers.h): `advance`
simulates and observes, on all threads and without Python's lock; NumPy answers the questions; `settle` rewards, keeps
the episodes' stats and writes the buffers. Sources: metaworld 3.1.1 sawyer_xyz_env.py (`step`), gymnasium 1.x
envs/mujoco/mujoco_env.py (`do_simulation`), trainer/envs/episodes.py (the stats).

Left out, because nothing observable depends on it: mj_rnePostConstraint (the tests compare every bit), the positions of
target sites before mj_forward computes them anew, and `info`, of which the trainer keeps the success. */

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include "numbers.h"
#include "rewards.h"
#include "row.h"
#include "team.h"

#define OBS 39
#define FRAME 18
#define FRAME_SKIP 5

static void (*simulate)(const mjModel *, mjData *), (*forward)(const mjModel *, mjData *);

/* MuJoCo ends the process after an error, unless its handler does not return. */
static _Thread_local jmp_buf *rescue;
static char last_error[512];

static void on_error(const char *text) {
    snprintf(last_error, sizeof last_error, "%s", text);
    if (rescue)
        longjmp(*rescue, 1);
    fprintf(stderr, "MuJoCo: %s\n", text);
    exit(EXIT_FAILURE);
}

/* `SawyerXYZEnv.set_xyz_action`: the product is float32, because the action is. */
static void move_hand(const struct row *row, const float *action) {
    double *at = row->data->mocap_pos, *quat = row->data->mocap_quat;
    for (int i = 0; i < 3; i++) {
        float delta = (float)clipped(action[i], -1, 1) * row->action_scale;
        at[i] = clipped(at[i] + delta, row->mocap_low[i], row->mocap_high[i]);
        quat[i] = i != 1;
    }
    quat[3] = 0;
}

/* `_get_curr_obs_combined_no_goal`. */
static void look(const struct row *row, double *frame) {
    memset(frame, 0, FRAME * sizeof *frame);
    memcpy(frame, row->hand, 3 * sizeof *frame);
    frame[3] = clipped(distance(row->right_claw, row->left_claw) / 0.1, 0.0, 1.0);
    for (int i = 0; i < 3; i++)
        frame[4 + i] = row->has_offset ? row->position[i] + row->offset[i] : row->position[i];
    if (row->rotation_kind == MATRIX)
        quaternion(row->rotation, frame + 7);
    else if (row->rotation_kind == QUATERNION)
        memcpy(frame + 7, row->rotation, 4 * sizeof *frame);
}

/* `_get_obs` and the clipping in `step`. */
static void observe(struct row *row) {
    double obs[OBS];
    look(row, obs);
    memcpy(obs + FRAME, row->previous, FRAME * sizeof *obs);
    memcpy(obs + 2 * FRAME, row->target, 3 * sizeof *obs);
    memcpy(row->previous, obs, FRAME * sizeof *obs);
    for (int i = 0; i < OBS; i++)
        row->last[i] = clipped(obs[i], row->low[i], row->high[i]);
}

static void step_row(struct row *row, const float *action) {
    jmp_buf here;
    row->fault = FINE;
    if (row->path_length >= row->path_limit) {
        row->fault = EPISODE_OVER;
        return;
    }
    if (setjmp(here)) {
        rescue = NULL;
        row->fault = SIMULATOR;
        return;
    }
    rescue = &here;
    move_hand(row, action);
    row->data->ctrl[0] = action[3];
    row->data->ctrl[1] = -action[3];
    for (int i = 0; i < FRAME_SKIP; i++)
        simulate(row->model, row->data);
    forward(row->model, row->data);
    rescue = NULL;
    row->path_length++;
    row->steps++;
    observe(row);
}

struct advancing {
    struct row *rows;
    const struct buffers *buffers;
    double *exponentials, *logarithms;
};

static void advance_one(void *context, int piece) {
    const struct advancing *all = context;
    struct row *row = &all->rows[piece];
    if (row->port == NONE)
        return;
    step_row(row, all->buffers->actions + 4 * row->index);
    if (row->fault == FINE)
        question(row, &all->exponentials[piece], &all->logarithms[piece]);
}

/* Simulate and observe `count` rows, and write what NumPy is to compute: [count] powers, [count] arguments. */
void advance(struct team *team, struct row *rows, int count, const struct buffers *buffers, double *exponentials,
             double *logarithms) {
    struct advancing context = {rows, buffers, exponentials, logarithms};
    if (team)
        team_do(team, count, advance_one, &context);
    else
        for (int i = 0; i < count; i++)
            advance_one(&context, i);
}

static void settle_one(struct row *row, const struct buffers *buffers, double exponential, double logarithm) {
    int i = row->index;
    float next_obs[OBS];
    struct outcome outcome = evaluate(row, buffers->actions + 4 * i, exponential, logarithm);
    for (int k = 0; k < OBS; k++)
        next_obs[k] = (float)row->last[k];
    row->length++;
    row->reward = outcome.reward.value;
    row->total += row->reward;
    row->solved |= outcome.success;
    row->finished = row->length >= row->horizon || (row->stop_at_success && outcome.success);
    memcpy(buffers->next_obs + OBS * i, next_obs, sizeof next_obs);
    memcpy(buffers->obs + OBS * i, next_obs, sizeof next_obs);
    buffers->reward[i] = (float)row->reward;
    buffers->success[i] = outcome.success;
    buffers->terminated[i] = false;
    buffers->truncated[i] = buffers->finished[i] = row->finished;
    buffers->task[i] = buffers->next_task[i] = row->task;
    buffers->episode_return[i] = row->finished ? row->total : 0;
    buffers->episode_length[i] = row->finished ? row->length : 0;
    buffers->episode_success[i] = row->finished && row->solved;
}

/* Reward `count` rows, given NumPy's answers, and write their places in the buffers; where an episode has ended, `obs`
   and `next_task` are the caller's to write. Returns how many have ended, or -1 where a row has a fault. */
int settle(struct row *rows, int count, const struct buffers *buffers, const double *exponentials,
           const double *logarithms) {
    int finished = 0, faults = 0;
    for (int i = 0; i < count; i++) {
        struct row *row = &rows[i];
        row->finished = 0;
        if (row->port == NONE)
            continue;
        if (row->fault == FINE)
            settle_one(row, buffers, exponentials[i], logarithms[i]);
        faults += row->fault != FINE;
        finished += row->finished;
    }
    return faults ? -1 : finished;
}

struct racing {
    struct row *rows;
    int count, steps, shares;
};

static void race_one(void *context, int piece) {
    const struct racing *race = context;
    for (int step = 0; step < race->steps; step++)
        for (int i = piece; i < race->count; i += race->shares) {
            for (int k = 0; k < FRAME_SKIP; k++)
                simulate(race->rows[i].model, race->rows[i].data);
            forward(race->rows[i].model, race->rows[i].data);
        }
}

/* The physics of `steps` steps alone, every thread for itself: what the stepper is measured against. */
void race(struct team *team, struct row *rows, int count, int steps) {
    struct racing context = {rows, count, steps, team ? team->helpers + 1 : 1};
    if (team)
        team_do(team, context.shares, race_one, &context);
    else
        race_one(&context, 0);
}

/* Lengths of `vectors` [rows, count], as `norm` computes them; for the comparison with NumPy. */
void norms(bool fused, const double *vectors, int rows, int count, double *out) {
    fused_norms = fused;
    for (int i = 0; i < rows; i++)
        out[i] = norm(vectors + i * count, count);
}

/* Before anything else. `handler` is the address of MuJoCo's mju_user_error. */
void configure(void *step, void *step_forward, void *handler, bool fused, double scale) {
    simulate = (void (*)(const mjModel *, mjData *))step;
    forward = (void (*)(const mjModel *, mjData *))step_forward;
    *(void (**)(const char *))handler = on_error;
    fused_norms = fused;
    gaussian_scale = scale;
}

struct team *open_team(int helpers) { return team_open(helpers); }
void close_team(struct team *team) { team_close(team); }
const char *error_text(void) { return last_error; }
int row_bytes(void) { return sizeof(struct row); }
int mujoco_header(void) { return mjVERSION_HEADER; }
