/* What the rewards of several tasks share, from metaworld 3.1.1 sawyer_xyz_env.py and envs/sawyer_*_v3.py. */

#ifndef ANCHORLEG_PARTS_H
#define ANCHORLEG_PARTS_H

#include "numbers.h"
#include "row.h"

struct outcome {
    number reward;
    bool success;
};

/* Upstream's `tcp_center`. */
static void tcp_center(const struct row *row, double *tcp) {
    for (int i = 0; i < 3; i++)
        tcp[i] = (row->right_end[i] + row->left_end[i]) / 2.0;
}

/* How far `at` is from upstream's `tcp_center`. */
static double from_tcp(const struct row *row, const double *at) {
    double tcp[3];
    tcp_center(row, tcp);
    return distance(at, tcp);
}

static double scaled_distance(const double *a, const double *b, double x, double y, double z) {
    const double difference[3] = {(a[0] - b[0]) * x, (a[1] - b[1]) * y, (a[2] - b[2]) * z};
    return norm(difference, 3);
}

/* In the plane of the table. */
static double plane_distance(const double *a, const double *b) {
    const double difference[2] = {a[0] - b[0], a[1] - b[1]};
    return norm(difference, 2);
}

/* np.linalg.norm of a scalar, which is not always its absolute value. */
static double length_of(double x) { return norm(&x, 1); }

/* reward_utils.tolerance of a distance: bounds (0, upper), sigmoid="long_tail". */
static double near(struct row *row, double x, double upper, double margin) {
    return long_tail(x, 0, upper, margin, &row->fault);
}

static number both(struct row *row, number a, number b) { return hamacher(a, b, &row->fault); }

/* max(x, 0.0) */
static double positive(double x) { return 0.0 > x ? 0.0 : x; }

/* `of` plus a Python float. */
static number plus_python(number of, double value) { return plus(of, python(value)); }

/* min(max(0, action[-1]), effort) / effort: the action's np.float32 between the limits, Python's numbers at them. */
static number gripper_closed(const float *action, double effort) {
    number closed = {action[3], SINGLE};
    if (!(action[3] > 0))
        closed = python(0);
    else if ((float)effort < action[3])
        closed = python(effort);
    return over(closed, python(effort));
}

/* The effort of door-open and box-close, a Python float: the clipped action from 0 to 1. */
static number grab_effort(const float *action) {
    return python(((float)clipped(action[3], -1, 1) + 1.0f) / 2.0f);
}

/* max(1 - distance of the object's quaternion from `ideal` / tolerance, 0) */
static double upright(const double *obs, const double *ideal, double tolerance) {
    double difference[4];
    for (int i = 0; i < 4; i++)
        difference[i] = obs[7 + i] - ideal[i];
    return positive(1.0 - norm(difference, 4) / tolerance);
}

/* A height that rises with the distance from a place: `slope` * log(radius - threshold) + height outside. */
static double rising_floor(double radius, double threshold, double slope, double height) {
    return radius > threshold ? slope * numpy(LOG, radius - threshold) + height : 0.0;
}

enum density { SPARSE, MEDIUM, HIGH };

/* The arguments of SawyerXYZEnv._gripper_caging_reward; `reach` is read for MEDIUM only. */
struct grip {
    double radius, pad, xz, effort;
    enum density density;
    double reach;
};

/* SawyerXYZEnv._gripper_caging_reward; `init` is where `obj` was in the beginning. */
static number caging_reward(struct row *row, const float *action, const double *obj, const double *init,
                            struct grip grip) {
    const double pad_y[2] = {row->left_pad[1], row->right_pad[1]};
    double caging_lr[2], tcp[3];
    for (int i = 0; i < 2; i++) {
        double margin = fabs(fabs(pad_y[i] - init[1]) - grip.pad);
        caging_lr[i] = long_tail(fabs(pad_y[i] - obj[1]), grip.radius, grip.pad, margin, &row->fault);
    }
    number caging_y = both(row, python(caging_lr[0]), python(caging_lr[1]));
    tcp_center(row, tcp);
    const double init_xz[2] = {init[0] - row->init_tcp[0], init[2] - row->init_tcp[2]};
    const double xz[2] = {tcp[0] - obj[0], tcp[2] - obj[2]};
    number caging_xz = python(near(row, norm(xz, 2), grip.xz, norm(init_xz, 2) - grip.xz));
    number caging = both(row, caging_y, caging_xz);
    number gripping = caging.value > 0.97 ? gripper_closed(action, grip.effort) : python(0);
    number reward = both(row, caging, gripping);
    if (grip.density == HIGH)
        reward = over(plus(reward, caging), python(2));
    if (grip.density == MEDIUM) {
        double margin = fabs(distance(init, row->init_tcp) - grip.reach);
        reward = over(plus_python(reward, near(row, distance(obj, tcp), grip.reach, margin)), python(2));
    }
    return reward;
}

/* Between the pads, as the tasks with a `_gripper_caging_reward` of their own measure it: up to `upper` from each.
   Their `init_left_pad` and `init_right_pad` are windows into the data, so they are the pads as they are. */
static number between_pads(struct row *row, const double *obj, double radius, double upper) {
    const double margin = 0.05;
    const double right_margin = fabs(fabs(obj[1] - row->right_pad[1]) - margin);
    const double left_margin = fabs(fabs(obj[1] - row->left_pad[1]) - margin);
    double right = long_tail(obj[1] - row->right_pad[1], radius, upper, right_margin, &row->fault);
    double left = long_tail(row->left_pad[1] - obj[1], radius, upper, left_margin, &row->fault);
    return both(row, python(right), python(left));
}

/* And how near the tcp is in the x-z plane. Points there keep their zero, as upstream's do. */
static number pads_around(struct row *row, const double *obj, double radius, double xz_margin) {
    const double *init = row->object_init;
    double tcp[3];
    tcp_center(row, tcp);
    const double xz[3] = {tcp[0] - obj[0], 0, tcp[2] - obj[2]};
    const double init_xz[3] = {init[0] - row->init_tcp[0], 0, init[2] - row->init_tcp[2]};
    number y_caging = between_pads(row, obj, radius, 0.05);
    double xz_caging = near(row, norm(xz, 3), xz_margin, norm(init_xz, 3) - xz_margin);
    return both(row, y_caging, python(xz_caging));
}

/* `_gripper_caging_reward` of the tasks that grip whatever the action: push-back, soccer, sweep, sweep-into. */
static number pinching_reward(struct row *row, const double *obj, double radius, double grip, double xz_margin) {
    number caging = pads_around(row, obj, radius, xz_margin);
    number gripping = between_pads(row, obj, radius, radius + grip);
    return over(plus(caging, caging.value > 0.95 ? gripping : python(0.0)), python(2));
}

/* SawyerXYZEnv.touching_object: the force between a pad and the task's main geometry, summed over their contacts. */
static double pad_force(const struct row *row, int pad) {
    const mjData *data = row->simulation.data;
    double force = 0;
    for (int i = 0; i < data->ncon; i++) {
        const mjContact *contact = &data->contact[i];
        const int *geom = contact->geom, main = row->main_geom;
        if (!((geom[0] == pad && geom[1] == main) || (geom[1] == pad && geom[0] == main)))
            continue;
        int at = contact->efc_address < 0 ? data->nefc - 1 : contact->efc_address; /* as Python reads -1 */
        force += at < 0 ? 0 : data->efc_force[at];
    }
    return force;
}

static bool touching(const struct row *row) {
    return 0 < pad_force(row, row->left_pad_geom) && 0 < pad_force(row, row->right_pad_geom);
}

#endif
