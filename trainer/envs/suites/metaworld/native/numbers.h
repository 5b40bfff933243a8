/* Upstream's arithmetic, bit for bit: numbers that know which of Python's kinds they are, norms, functions, sigmoids.

Sources: metaworld 3.1.1 utils/reward_utils.py; NumPy's promotion rules for scalars (NEP 50). */

#ifndef ANCHORLEG_NUMBERS_H
#define ANCHORLEG_NUMBERS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* What upstream's exceptions become; the texts are in library.py. */
enum fault { FINE, NEGATIVE_MARGIN, OUTSIDE_UNIT, PRODUCT_TOO_LARGE, EPISODE_OVER, SIMULATOR };

/* The order is NumPy's: a Python float or int takes the kind of what it meets, np.float32 gives way to np.float64. */
enum kind { PYTHON, SINGLE, DOUBLE };

typedef struct {
    double value;
    enum kind kind;
} number;

static number python(double value) { return (number){value, PYTHON}; }

static number made(double value, enum kind kind) {
    /* Rounding a double result to float is float arithmetic: 53 >= 2 * 24 + 2 bits. */
    return (number){kind == SINGLE ? (float)value : value, kind};
}

static enum kind joint(number *a, number *b) {
    enum kind kind = a->kind > b->kind ? a->kind : b->kind;
    if (kind == SINGLE) {
        a->value = (float)a->value;
        b->value = (float)b->value;
    }
    return kind;
}

static number plus(number a, number b) {
    enum kind kind = joint(&a, &b);
    return made(a.value + b.value, kind);
}

static number minus(number a, number b) {
    enum kind kind = joint(&a, &b);
    return made(a.value - b.value, kind);
}

static number times(number a, number b) {
    enum kind kind = joint(&a, &b);
    return made(a.value * b.value, kind);
}

static number over(number a, number b) {
    enum kind kind = joint(&a, &b);
    return made(a.value / b.value, kind);
}

/* np.linalg.norm of a short vector is the square root of BLAS's dot product, which multiplies and adds in one rounding
   or in two, as the processor's kernel has it: found out by asking NumPy (library.py). */
static bool fused_norms;

static double norm(const double *x, int count) {
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum = fused_norms ? fma(x[i], x[i], sum) : sum + x[i] * x[i];
    return sqrt(sum);
}

static double distance(const double *a, const double *b) {
    double difference[3] = {a[0] - b[0], a[1] - b[1], a[2] - b[2]};
    return norm(difference, 3);
}

/* NumPy's own functions, because they differ from the C library's and between processors: the inner loops of its
   ufuncs, which need no lock of Python. Loading compares them with what NumPy says (library.py). */
enum function { EXP, LOG, SIN, COS, FUNCTIONS };

struct ufunc {
    void (*loop)(char **args, const intptr_t *count, const intptr_t *steps, void *data);
    void *data;
};

static struct ufunc ufuncs[FUNCTIONS];

static double numpy(enum function which, double x) {
    double result;
    char *args[2] = {(char *)&x, (char *)&result};
    const intptr_t count = 1, steps[2] = {sizeof x, sizeof result};
    ufuncs[which].loop(args, &count, steps, ufuncs[which].data);
    return result;
}

/* NumPy's power of two scalars is the C library's; the compiler's x * x differs once in a thousand times, so the build
   forbids it (-fno-builtin-pow). */
static double square(double x) { return pow(x, 2.0); }

/* How far `x` is outside of the bounds, in margins. */
static double excess(double x, double lower, double upper, double margin) {
    return (x < lower ? lower - x : x - upper) / margin;
}

static double chosen(double x, double lower, double upper, double margin, double outside, int *fault) {
    bool inside = lower <= x && x <= upper;
    if (margin < 0)
        *fault = NEGATIVE_MARGIN;
    if (margin == 0)
        return inside ? 1.0 : 0.0;
    return inside ? 1.0 : outside;
}

/* reward_utils.tolerance with sigmoid="long_tail"; its scale sqrt(1 / 0.1 - 1) is exactly 3. */
static double long_tail(double x, double lower, double upper, double margin, int *fault) {
    double outside = 1 / (square(excess(x, lower, upper, margin) * 3.0) + 1);
    return chosen(x, lower, upper, margin, outside, fault);
}

/* reward_utils.tolerance with sigmoid="gaussian", bounds (0, upper). */
static double gaussian_scale;

static double gaussian(double x, double upper, double margin, int *fault) {
    double outside = numpy(EXP, -0.5 * square(excess(x, 0, upper, margin) * gaussian_scale));
    return chosen(x, 0, upper, margin, outside, fault);
}

static bool in_unit(number a) { return 0.0 <= a.value && a.value <= 1.0; }

/* reward_utils.hamacher_product. */
static number hamacher(number a, number b, int *fault) {
    if (!in_unit(a) || !in_unit(b))
        *fault = OUTSIDE_UNIT;
    number product = times(a, b);
    number denominator = minus(plus(a, b), product);
    number result = denominator.value > 0 ? over(product, denominator) : python(0);
    if (!in_unit(result))
        *fault = PRODUCT_TOO_LARGE;
    return result;
}

static bool in_range(double a, double b, double c) { return c >= b ? b <= a && a <= c : c <= a && a <= b; }

/* reward_utils.rect_prism_tolerance. */
static number in_prism(const double *at, const double *zero, const double *one) {
    double scale[3];
    for (int i = 0; i < 3; i++) {
        if (!in_range(at[i], zero[i], one[i]))
            return python(1);
        scale[i] = (at[i] - zero[i]) / (one[i] - zero[i]);
    }
    return (number){scale[0] * scale[1] * scale[2], DOUBLE};
}

/* np.clip: min(max(x, low), high), equal values from the bound, NaN kept. */
static double clipped(double x, double low, double high) {
    double raised = isnan(x) || x > low ? x : low;
    return isnan(raised) || raised < high ? raised : high;
}

/* scipy's Rotation.from_matrix(m).as_quat(), x y z w, of an orthogonal matrix in row order (scipy 1.17
   spatial/transform/_rotation_cy.pyx): the largest of the diagonal and the trace decides. */
static void quaternion(const double *m, double *q) {
    double trace = m[0] + m[4] + m[8];
    double decision[4] = {m[0], m[4], m[8], trace};
    int choice = 0;
    for (int i = 1; i < 4; i++)
        if (decision[i] > decision[choice])
            choice = i;
    if (choice == 3) {
        q[0] = m[7] - m[5];
        q[1] = m[2] - m[6];
        q[2] = m[3] - m[1];
        q[3] = 1 + trace;
    } else {
        int i = choice, j = (i + 1) % 3, k = (j + 1) % 3;
        q[i] = 1 - trace + 2 * m[3 * i + i];
        q[j] = m[3 * j + i] + m[3 * i + j];
        q[k] = m[3 * k + i] + m[3 * i + k];
        q[3] = m[3 * k + j] - m[3 * j + k];
    }
    double length = sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
    for (int i = 0; i < 4; i++)
        q[i] /= length;
}

#endif
