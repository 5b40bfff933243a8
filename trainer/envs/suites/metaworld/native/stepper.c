/* Steps Meta-World environments without Python, with the MuJoCo that Python has loaded and NumPy's own functions.

Sources: metaworld 3.1.1 sawyer_xyz_env.py (`step`), gymnasium 1.x envs/mujoco/mujoco_env.py (`do_simulation`),
trainer/envs/episodes.py (the stats).

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

/* An object's place [3] and quaternion [4]. */
static void look_at(const struct object *object, double *at) {
    double offset[3] = {object->offset[0], object->offset[1], object->offset[2]};
    if (object->angle) { /* SawyerDialTurnEnvV3._get_pos_objects */
        offset[0] = numpy(SIN, *object->angle) * 0.05;
        offset[1] = -numpy(COS, *object->angle) * 0.05;
    }
    for (int i = 0; i < 3; i++)
        at[i] = object->has_offset ? object->position[i] + offset[i] : object->position[i];
    if (object->rotation_kind == MATRIX)
        quaternion(object->rotation, at + 3);
    else if (object->rotation_kind == QUATERNION)
        memcpy(at + 3, object->rotation, 4 * sizeof *at);
    else if (object->rotation_kind == IDENTITY)
        at[3] = 1.0;
}

/* `_get_curr_obs_combined_no_goal`. */
static void look(const struct row *row, double *frame) {
    memset(frame, 0, FRAME * sizeof *frame);
    memcpy(frame, row->hand, 3 * sizeof *frame);
    frame[3] = clipped(distance(row->right_claw, row->left_claw) / 0.1, 0.0, 1.0);
    for (int i = 0; i < row->objects_seen; i++)
        look_at(&row->objects[i], frame + 4 + 7 * i);
}

/* `_get_obs` and the clipping in `step`. */
static void observe(struct row *row) {
    double obs[OBS];
    if (row->target_window)
        memcpy(row->target, row->target_window, sizeof row->target);
    if (row->object_window)
        memcpy(row->object_init, row->object_window, sizeof row->object_init);
    look(row, obs);
    memcpy(obs + FRAME, row->previous, FRAME * sizeof *obs);
    memcpy(obs + 2 * FRAME, row->target, 3 * sizeof *obs);
    memcpy(row->previous, obs, FRAME * sizeof *obs);
    for (int i = 0; i < OBS; i++)
        row->last[i] = clipped(obs[i], row->low[i], row->high[i]);
}

/* The row's place in the buffers. */
static void write(const struct row *row, const struct buffers *buffers, bool success) {
    int i = row->index;
    float next_obs[OBS];
    for (int k = 0; k < OBS; k++)
        next_obs[k] = (float)row->last[k];
    memcpy(buffers->next_obs + OBS * i, next_obs, sizeof next_obs);
    memcpy(buffers->obs + OBS * i, next_obs, sizeof next_obs);
    buffers->reward[i] = (float)row->reward;
    buffers->success[i] = success;
    buffers->terminated[i] = false;
    buffers->truncated[i] = buffers->finished[i] = row->finished;
    buffers->task[i] = buffers->next_task[i] = row->task;
    buffers->episode_return[i] = row->finished ? row->total : 0;
    buffers->episode_length[i] = row->finished ? row->length : 0;
    buffers->episode_success[i] = row->finished && row->solved;
}

struct advancing {
    struct row *rows;
    const struct buffers *buffers;
};

static void advance_one(void *context, int piece) {
    const struct advancing *all = context;
    struct row *row = &all->rows[piece];
    const float *action = all->buffers->actions + 4 * row->index;
    row->finished = 0;
    if (!row->port)
        return;
    row->fault = row->path_length >= row->path_limit ? EPISODE_OVER : FINE;
    if (row->fault)
        return;
    move_hand(row, action);
    row->simulation.data->ctrl[0] = action[3];
    row->simulation.data->ctrl[1] = -action[3];
    row->fault = advance_physics(&row->simulation) ? FINE : SIMULATOR;
    if (row->fault)
        return;
    row->path_length++;
    row->steps++;
    observe(row);
    struct outcome outcome = rewards[row->port](row, action);
    row->length++;
    row->reward = outcome.reward.value;
    row->total += row->reward;
    row->solved |= outcome.success;
    row->finished = row->length >= row->horizon || (row->stop_at_success && outcome.success);
    write(row, all->buffers, outcome.success);
}

/* Step `count` rows and write their places in the buffers; where an episode has ended, `obs` and `next_task` are the
   caller's to write. Returns how many have ended, or -1 where a row has a fault. */
int advance(struct team *team, struct row *rows, int count, const struct buffers *buffers) {
    struct advancing context = {rows, buffers};
    int finished = 0, faults = 0;
    for_rows(team, count, advance_one, &context);
    for (int i = 0; i < count; i++) {
        faults += rows[i].port && rows[i].fault;
        finished += rows[i].finished;
    }
    return faults ? -1 : finished;
}

/* Lengths of `vectors` [rows, count], as `norm` computes them; for the comparison with NumPy. */
void norms(bool fused, const double *vectors, int rows, int count, double *out) {
    fused_norms = fused;
    for (int i = 0; i < rows; i++)
        out[i] = norm(vectors + i * count, count);
}

/* `which` of `count` numbers, or after the last function their squares; for the comparison with NumPy. */
void values(int which, const double *of, int count, double *out) {
    for (int i = 0; i < count; i++)
        out[i] = which == FUNCTIONS ? square(of[i]) : numpy(which, of[i]);
}

/* After `connect_simulator`. */
void configure(bool fused, double scale) {
    fused_norms = fused;
    gaussian_scale = scale;
}

/* The inner loops of NumPy's ufuncs, in the order of `enum function`. */
void connect_numpy(const struct ufunc *functions) { memcpy(ufuncs, functions, sizeof ufuncs); }

int row_bytes(void) { return sizeof(struct row); }
