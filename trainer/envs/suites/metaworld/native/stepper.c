/* Steps Meta-World environments without Python, with the MuJoCo that Python has loaded.

A step is two calls, because the exponentials and logarithms of some rewards must be NumPy's own (numbers.h): `advance`
simulates and observes, on all threads and without Python's lock; NumPy answers the questions; `settle` rewards, keeps
the episodes' stats and writes the buffers. Sources: metaworld 3.1.1 sawyer_xyz_env.py (`step`), gymnasium 1.x
envs/mujoco/mujoco_env.py (`do_simulation`), trainer/envs/episodes.py (the stats).

Left out, because nothing observable depends on it: mj_rnePostConstraint (the tests compare every bit), the positions of
target sites before mj_forward computes them anew, and `info`, of which the trainer keeps the success. */

#include <string.h>

#include "numbers.h"
#include "rewards.h"
#include "row.h"

#define OBS 39
#define FRAME 18

/* `SawyerXYZEnv.set_xyz_action`: the product is float32, because the action is. */
static void move_hand(const struct row *row, const float *action) {
    double *at = row->simulation.data->mocap_pos, *quat = row->simulation.data->mocap_quat;
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
    row->fault = FINE;
    if (row->path_length >= row->path_limit) {
        row->fault = EPISODE_OVER;
        return;
    }
    move_hand(row, action);
    row->simulation.data->ctrl[0] = action[3];
    row->simulation.data->ctrl[1] = -action[3];
    if (!advance_physics(&row->simulation)) {
        row->fault = SIMULATOR;
        return;
    }
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
    for_rows(team, count, advance_one, &context);
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

/* Lengths of `vectors` [rows, count], as `norm` computes them; for the comparison with NumPy. */
void norms(bool fused, const double *vectors, int rows, int count, double *out) {
    fused_norms = fused;
    for (int i = 0; i < rows; i++)
        out[i] = norm(vectors + i * count, count);
}

/* After `connect_simulator`. */
void configure(bool fused, double scale) {
    fused_norms = fused;
    gaussian_scale = scale;
}

int row_bytes(void) { return sizeof(struct row); }
