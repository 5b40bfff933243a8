/* Steps arms without Python, with the MuJoCo that Python has loaded: what `ArmEnv.step` (../env.py) does, in the same
order of operations, and then what `EnvSlot.step` (trainer/envs/episodes.py) and `EnvGroup.step` do. */

#include <math.h>
#include <string.h>

#include "row.h"

static struct numbers numbers;

/* Python's max and min: the first one where neither is larger, or one is NaN. */
static double larger(double a, double b) { return b > a ? b : a; }
static double smaller(double a, double b) { return b < a ? b : a; }

static double distance(const double *one, const double *other) {
    double x = one[0] - other[0], y = one[1] - other[1], z = one[2] - other[2];
    return sqrt(x * x + y * y + z * z);
}

/* `ArmEnv._move`, but for the physics. */
static void move(struct row *row, const double *done) {
    const double *angles = row->simulation.data->qpos;
    double *ctrl = row->simulation.data->ctrl;
    for (int i = 0; i < JOINTS; i++) {
        double wanted = row->target[i] + done[i] * row->reach[i];
        double near = smaller(larger(wanted, angles[i] - numbers.lead), angles[i] + numbers.lead);
        row->target[i] = smaller(larger(near, row->low[i]), row->high[i]);
        ctrl[i] = row->target[i];
    }
    ctrl[JOINTS] = ctrl[JOINTS + 1] = row->triggered ? numbers.shut : numbers.open;
}

/* `ArmEnv.observation`; how many numbers it has. */
static int observe(struct row *row) {
    const mjData *data = row->simulation.data;
    const double *hand = row->hand;
    double goal[3];
    memcpy(goal, data->mocap_pos, sizeof goal);
    if (row->noise) {
        const double *off = row->noise + 3 * (row->steps < row->noise_rows ? row->steps : row->noise_rows - 1);
        for (int i = 0; i < 3; i++)
            goal[i] = goal[i] + off[i];
    }
    float *out = row->last;
    if (row->is_legacy)
        *out++ = (float)distance(hand, goal);
    for (int i = 0; i < JOINTS; i++)
        *out++ = (float)data->qpos[i];
    if (row->is_legacy)
        return 1 + JOINTS;
    for (int i = 0; i < JOINTS; i++)
        *out++ = (float)data->qvel[i];
    for (int i = 0; i < 3; i++) {
        out[i] = (float)hand[i];
        out[3 + i] = (float)goal[i];
        out[6 + i] = (float)(goal[i] - hand[i]);
    }
    out[9] = (float)((data->qpos[JOINTS] + data->qpos[JOINTS + 1]) / (2 * numbers.open));
    out[10] = (float)row->triggered;
    return LONGEST;
}

/* shapes.py */
static double pay(const struct row *row, double away, double effort) {
    if (row->pays == TANH)
        return 1.0 - tanh(numbers.steepness * away);
    if (row->pays == SPARSE)
        return away < numbers.solved ? 0.0 : -1.0;
    return -away + (away < numbers.solved ? 1.0 : 0.0) - numbers.effort * effort;
}

static void write(struct row *row, const struct buffers *buffers, int size, bool success, bool terminated, bool cut,
                  double away) {
    int i = row->index;
    double *measures = buffers->episode_measures + 4 * i;
    memcpy(buffers->next_obs + size * i, row->last, (size_t)size * sizeof *row->last);
    memcpy(buffers->obs + size * i, row->last, (size_t)size * sizeof *row->last);
    buffers->reward[i] = (float)row->reward;
    buffers->success[i] = success;
    buffers->terminated[i] = terminated;
    buffers->truncated[i] = cut;
    buffers->finished[i] = row->finished;
    buffers->task[i] = buffers->next_task[i] = row->task;
    buffers->episode_return[i] = row->finished ? row->total : 0;
    buffers->episode_length[i] = row->finished ? row->length : 0;
    buffers->episode_success[i] = row->finished && row->solved;
    memset(measures, 0, 4 * sizeof *measures);
    if (row->finished) {
        measures[0] = row->reached != 0;
        measures[1] = row->has_triggered;
        measures[2] = away;
        measures[3] = row->reached ? row->reached : NAN;
    }
}

struct advancing {
    struct row *rows;
    const struct buffers *buffers;
};

static void advance_one(void *context, int piece) {
    const struct advancing *all = context;
    struct row *row = &all->rows[piece];
    row->finished = 0;
    if (!row->taken)
        return;
    double wanted[JOINTS], done[JOINTS], effort = 0;
    for (int i = 0; i < JOINTS; i++) {
        wanted[i] = smaller(larger(all->buffers->actions[JOINTS * row->index + i], -1.0), 1.0);
        effort += wanted[i] * wanted[i];
    }
    memcpy(done, row->delay ? row->held : wanted, sizeof done);
    memcpy(row->held, wanted, sizeof wanted);
    move(row, done);
    row->fault = advance_physics(&row->simulation) ? FINE : SIMULATOR;
    if (row->fault)
        return;
    row->steps++;
    row->stepped = 1;
    double away = distance(row->hand, row->simulation.data->mocap_pos);
    row->triggered = away < (row->triggered ? numbers.opens : numbers.shuts);
    row->has_triggered |= row->triggered;
    bool success = away < numbers.solved, terminated = success && row->ends_on_success;
    if (success && !row->reached)
        row->reached = row->steps;
    row->reward = pay(row, away, effort);
    if (terminated)
        row->reward *= row->episode - row->steps + 1;
    row->length++;
    row->total += row->reward;
    row->solved = success; /* the last step counts */
    bool cut = !terminated && (row->length >= row->horizon || (row->stop_at_success && success));
    row->finished = terminated || cut;
    write(row, all->buffers, observe(row), success, terminated, cut, away);
}

/* Step `count` rows and write their places in the buffers; where an episode has ended, `obs` and `next_task` are the
   caller's to write. Returns how many have ended, or -1 where a row has a fault. */
int advance(struct team *team, struct row *rows, int count, const struct buffers *buffers) {
    struct advancing context = {rows, buffers};
    int finished = 0, faults = 0;
    for_rows(team, count, advance_one, &context);
    for (int i = 0; i < count; i++) {
        faults += rows[i].taken && rows[i].fault;
        finished += rows[i].finished;
    }
    return faults ? -1 : finished;
}

/* After `connect_simulator`. */
void configure(const struct numbers *told) { numbers = *told; }

int row_bytes(void) { return sizeof(struct row); }
