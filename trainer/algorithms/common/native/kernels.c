/* What an update of multi-task SAC does between its matrix products (update.py calls these, library.py loads them).

   The formulas are those of trainer/algorithms/mtsac.py. Bits depend on this file alone, not on the compiler,
   the processor or the C library: nothing is contracted or reordered, every sum has its order here, and exp, tanh and
   log are computed from the four operations. Arrays are row-major float; B rows, K tasks, A numbers of an action, H
   outputs of a critic (1, or K: then a row takes its task's). */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("avx2", "default"))) /* same bits, eight numbers at once where there can be */
#else
#define WIDE
#endif
#define INLINE static inline __attribute__((always_inline))

static const double LN2 = 0.69314718055994530942, HALF_LOG_2PI = 0.91893853320467274178;
/* Where log_std is cut off: trainer.nets.distributions. */
static const double LOG_STD_MIN = -20.0, LOG_STD_MAX = 2.0;

/* --- functions of one number, good to 1e-12 ----------------------------------------------------------------------- */

/* e^x = 2^k e^r, |r| <= ln 2 / 2. Adding 1.5 * 2^52 rounds to k, and leaves it in the lowest bits. */
INLINE double exponential(double x) {
    x = x > 700.0 ? 700.0 : x;
    x = x < -700.0 ? -700.0 : x;
    double shifted = x * (1.0 / LN2) + 6755399441055744.0;
    double k = shifted - 6755399441055744.0;
    double r = x - k * 0.693147180369123816490 - k * 1.90821492927058770002e-10;
    double p = 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

INLINE double tangent(double x) {
    double e = exponential(2.0 * x);
    double near = x - x * x * x * (1.0 / 3.0);
    return fabs(x) < 1e-4 ? near : 1.0 - 2.0 / (e + 1.0);
}

/* log(1 + y) for 0 <= y <= 1: twice the inverse hyperbolic tangent of y / (2 + y), which is at most 1/3. */
INLINE double log_of_one_and(double y) {
    double s = y / (2.0 + y), t = s * s, p = 1.0 / 25.0;
    p = p * t + 1.0 / 23.0;
    p = p * t + 1.0 / 21.0;
    p = p * t + 1.0 / 19.0;
    p = p * t + 1.0 / 17.0;
    p = p * t + 1.0 / 15.0;
    p = p * t + 1.0 / 13.0;
    p = p * t + 1.0 / 11.0;
    p = p * t + 1.0 / 9.0;
    p = p * t + 1.0 / 7.0;
    p = p * t + 1.0 / 5.0;
    p = p * t + 1.0 / 3.0;
    p = p * t + 1.0;
    return 2.0 * s * p;
}

/* log(1 + e^x) */
INLINE double softplus(double x) {
    double above = x > 0.0 ? x : (x != x ? x : 0.0);
    return above + log_of_one_and(exponential(-fabs(x)));
}

INLINE int64_t head_of(int64_t heads, const int64_t *task, int64_t row) { return heads == 1 ? 0 : task[row]; }

/* --- what nets read, and their layers ----------------------------------------------------------------------------- */

/* `rows` [B, O + K + A]: observation, one-hot task, action; without `action` its place stays as it is. */
void fill_inputs(int64_t count, int64_t numbers, int64_t tasks, int64_t actions, const float *obs, const int64_t *task,
                 const float *action, float *rows) {
    int64_t width = numbers + tasks + actions;
    for (int64_t i = 0; i < count; i++) {
        float *row = rows + i * width;
        memcpy(row, obs + i * numbers, (size_t)numbers * sizeof(float));
        memset(row + numbers, 0, (size_t)tasks * sizeof(float));
        row[numbers + task[i]] = 1.0f;
        if (action) memcpy(row + numbers + tasks, action + i * actions, (size_t)actions * sizeof(float));
    }
}

WIDE void bias_relu(int64_t count, int64_t width, const float *restrict bias, float *restrict values) {
    for (int64_t i = 0; i < count; i++)
        for (int64_t c = 0; c < width; c++) {
            float x = values[i * width + c] + bias[c];
            values[i * width + c] = x < 0.0f ? 0.0f : x; /* NaN stays */
        }
}

/* `gradient` through the ReLU that left `values`, in place, and its sum over rows. */
WIDE void through_relu(int64_t count, int64_t width, const float *restrict values, float *restrict gradient,
                       float *restrict sum) {
    memset(sum, 0, (size_t)width * sizeof(float));
    for (int64_t i = 0; i < count; i++)
        for (int64_t c = 0; c < width; c++) {
            float g = values[i * width + c] > 0.0f ? gradient[i * width + c] : 0.0f;
            gradient[i * width + c] = g;
            sum[c] += g;
        }
}

/* As `through_relu`, where gradient's row i belongs to row picked[i] of `values`; no sum. */
WIDE void through_relu_of(int64_t count, const int64_t *restrict picked, int64_t width, const float *restrict values,
                          float *restrict gradient) {
    for (int64_t i = 0; i < count; i++) {
        const float *restrict of = values + picked[i] * width;
        for (int64_t c = 0; c < width; c++) gradient[i * width + c] = of[c] > 0.0f ? gradient[i * width + c] : 0.0f;
    }
}

/* From Q back to before the last ReLU: row i is `weight`'s row of its head, times `by_q` [B] where there is one. */
WIDE void through_head(int64_t count, const int64_t *restrict picked, int64_t heads, const int64_t *restrict task,
                       int64_t width, const float *restrict weight, const float *restrict values,
                       const float *restrict by_q, float *restrict gradient) {
    for (int64_t i = 0; i < count; i++) {
        int64_t row = picked ? picked[i] : i;
        const float *restrict of = values + row * width, *restrict w = weight + head_of(heads, task, row) * width;
        float scale = by_q ? by_q[row] : 1.0f;
        for (int64_t c = 0; c < width; c++) {
            float g = scale * w[c];
            gradient[i * width + c] = of[c] > 0.0f ? g : 0.0f;
        }
    }
}

WIDE void sum_rows(int64_t count, int64_t width, const float *restrict values, float *restrict sum) {
    memset(sum, 0, (size_t)width * sizeof(float));
    for (int64_t i = 0; i < count; i++)
        for (int64_t c = 0; c < width; c++) sum[c] += values[i * width + c];
}

/* --- the actor ---------------------------------------------------------------------------------------------------- */

/* Actions [B, A] (rows `stride` apart) and their log density [B], from what the last product left, `outputs` [B, 2 A].
   `step` [B, A] is deviation times noise, `within` [B, A] 1 where log_std was not cut off, else 0: for the way back. */
WIDE void draw_actions(int64_t count, int64_t actions, const float *restrict outputs, const float *restrict bias,
                       const float *restrict noise, float *restrict action, int64_t stride, float *restrict log_prob,
                       float *restrict step, float *restrict within) {
    enum { BLOCK = 64 }; /* rows at once, so that the compiler has a loop over rows */
    for (int64_t from = 0; from < count; from += BLOCK) {
        int64_t rows = count - from < BLOCK ? count - from : BLOCK;
        double density[BLOCK] = {0};
        for (int64_t a = 0; a < actions; a++)
            for (int64_t r = 0; r < rows; r++) {
                int64_t i = from + r;
                double mean = (double)outputs[2 * i * actions + a] + bias[a], z = noise[i * actions + a];
                double raw = (double)outputs[(2 * i + 1) * actions + a] + bias[actions + a];
                double log_std = raw < LOG_STD_MIN ? LOG_STD_MIN : raw > LOG_STD_MAX ? LOG_STD_MAX : raw;
                double s = exponential(log_std) * z, u = mean + s;
                density[r] += -0.5 * z * z - log_std - HALF_LOG_2PI - 2.0 * (LN2 - u - softplus(-2.0 * u));
                action[i * stride + a] = (float)tangent(u);
                step[i * actions + a] = (float)s;
                within[i * actions + a] = log_std == raw;
            }
        for (int64_t r = 0; r < rows; r++) log_prob[from + r] = (float)density[r];
    }
}

/* The derivative of the actor's loss by its outputs, `gradient` [B, 2 A]. `by_action` [B, A]: dQ/da. `sums`: += the
   loss and the mean log density. */
void actor_gradient(int64_t count, int64_t actions, const float *action, int64_t stride, const float *by_action,
                    const float *step, const float *within, const int64_t *task, const float *temperature,
                    const float *log_prob, const float *value, float *gradient, double *sums) {
    float share = 1.0f / (float)count;
    for (int64_t i = 0; i < count; i++) {
        float density = temperature[task[i]] * share;
        for (int64_t a = 0; a < actions; a++) {
            int64_t at = i * actions + a;
            float x = action[i * stride + a];
            float by_u = -by_action[at] * share * (1.0f - x * x) + 2.0f * density * x;
            gradient[2 * i * actions + a] = by_u;
            gradient[(2 * i + 1) * actions + a] = (by_u * step[at] - density) * within[at];
        }
        sums[0] += ((double)temperature[task[i]] * log_prob[i] - value[i]) / (double)count;
        sums[1] += (double)log_prob[i] / (double)count;
    }
}

/* --- the critics -------------------------------------------------------------------------------------------------- */

/* Of critics' last products [B, H] the smaller Q of each row, or the one that is NaN; `picked` [B]: rows whose smaller
   one is the first's, then the second's. Returns how many are the first's. */
int64_t smaller(int64_t count, int64_t heads, const int64_t *task, const float *one, const float *one_bias,
                const float *other, const float *other_bias, float *value, int64_t *picked) {
    int64_t first = 0, last = count;
    for (int64_t i = 0; i < count; i++) {
        int64_t h = head_of(heads, task, i);
        float a = one[i * heads + h] + one_bias[h], b = other[i * heads + h] + other_bias[h];
        int is_first = a <= b || a != a;
        value[i] = is_first ? a : b;
        if (is_first)
            picked[first++] = i;
        else
            picked[--last] = i;
    }
    return first;
}

/* `value` [B], the smaller Q' of what follows, becomes the target r + gamma (1 - terminated)(Q' - temperature log pi). */
void td_target(int64_t count, const int64_t *task, const float *reward, const float *terminated, float gamma,
               const float *temperature, const float *log_prob, float *value) {
    for (int64_t i = 0; i < count; i++)
        value[i] = reward[i] + gamma * (1.0f - terminated[i]) * (value[i] - temperature[task[i]] * log_prob[i]);
}

/* The squared error of one critic: `by_q` [B] and, at each row's head, `gradient` [B, H]; `sums`: += loss, half of Q. */
void critic_gradient(int64_t count, int64_t heads, const int64_t *task, const float *outputs, const float *bias,
                     const float *target, float *by_q, float *gradient, double *sums) {
    float share = 2.0f / (float)count;
    memset(gradient, 0, (size_t)(count * heads) * sizeof(float));
    for (int64_t i = 0; i < count; i++) {
        int64_t h = head_of(heads, task, i);
        float q = outputs[i * heads + h] + bias[h], error = q - target[i];
        by_q[i] = gradient[i * heads + h] = share * error;
        sums[0] += (double)error * error / (double)count;
        sums[1] += 0.5 * q / (double)count;
    }
}

/* Rows of `from` [n, A] to their places in `to` [B, A]. */
void put_rows(int64_t count, const int64_t *picked, int64_t actions, const float *from, float *to) {
    for (int64_t i = 0; i < count; i++)
        memcpy(to + picked[i] * actions, from + i * actions, (size_t)actions * sizeof(float));
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

/* What makes a gradient's norm at most `limit`, as torch's clip_grad_norm_ has it. Eight sums, side by side. */
WIDE double clip_scale(int64_t size, const float *restrict gradient, double limit) {
    double sums[8] = {0}, total = 0.0;
    int64_t i = 0;
    for (; i + 8 <= size; i += 8)
        for (int k = 0; k < 8; k++) sums[k] += (double)gradient[i + k] * gradient[i + k];
    for (; i < size; i++) sums[0] += (double)gradient[i] * gradient[i];
    for (int k = 0; k < 8; k++) total += sums[k];
    double scale = limit / (sqrt(total) + 1e-6);
    return scale > 1.0 ? 1.0 : scale;
}

INLINE double to_the(double base, int64_t times) {
    double result = 1.0;
    for (; times; times >>= 1, base *= base)
        if (times & 1) result *= base;
    return result;
}

/* What every step of a run has alike. */
struct adam {
    double rate, beta1, beta2, eps, weight_decay;
};

/* torch's AdamW along `scale` times `gradient`; then `target`, where there is one, goes `tau` of the way there.

   Moments below 1e-30 become 0: those of a unit that never fires would else shrink to denormals and stay there, as
   0.9 of the smallest is the smallest again, and processors take many times as long over each. */
WIDE void adam(const struct adam *how, int64_t size, float scale, float *restrict weight, const float *restrict gradient,
               float *restrict mean, float *restrict square, float *step, float *restrict target, float tau) {
    *step += 1.0f;
    int64_t times = (int64_t)*step;
    float keep = (float)(1.0 - how->rate * how->weight_decay), eps = (float)how->eps;
    float new1 = (float)(1.0 - how->beta1), old2 = (float)how->beta2, new2 = (float)(1.0 - how->beta2);
    float length = (float)(how->rate / (1.0 - to_the(how->beta1, times)));
    float unbias = (float)(1.0 / sqrt(1.0 - to_the(how->beta2, times)));
    for (int64_t from = 0; from < size; from += 1024) {
        int64_t to = from + 1024 < size ? from + 1024 : size;
        for (int64_t i = from; i < to; i++) {
            float g = gradient[i] * scale, m = mean[i] + new1 * (g - mean[i]), v = old2 * square[i] + new2 * g * g;
            m = fabsf(m) < 1e-30f ? 0.0f : m; /* NaN stays */
            v = v < 1e-30f ? 0.0f : v;
            mean[i] = m;
            square[i] = v;
            weight[i] = weight[i] * keep - length * m / (sqrtf(v) * unbias + eps);
        }
        if (target)
            for (int64_t i = from; i < to; i++) target[i] += tau * (weight[i] - target[i]);
    }
}

/* `temperature` [K] of `log_temperature` [K]. */
void temperatures(int64_t tasks, const float *log_temperature, float *temperature) {
    for (int64_t k = 0; k < tasks; k++) temperature[k] = (float)exponential(log_temperature[k]);
}

/* The derivative of the temperatures' loss, `gradient` [K]; `sums`: += the loss. */
void temperature_gradient(int64_t count, int64_t tasks, int is_shared, const int64_t *task, const float *log_prob,
                          float target_entropy, const float *log_temperature, float *gradient, double *sums) {
    memset(gradient, 0, (size_t)tasks * sizeof(float));
    double all = 0.0;
    for (int64_t i = 0; i < count; i++) {
        float missing = log_prob[i] + target_entropy;
        gradient[task[i]] -= missing / (float)count;
        all -= (double)missing / (double)count;
        sums[0] -= (double)log_temperature[task[i]] * missing / (double)count;
    }
    for (int64_t k = 0; k < tasks && is_shared; k++) gradient[k] = (float)all;
}
