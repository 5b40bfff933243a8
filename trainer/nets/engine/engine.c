/* Plain nets forward and backward, their losses and their optimizers, on one core of a CPU (plan.py calls these,
   library.py loads them). A plan is a list of steps, each with its sizes `n` and its addresses `p`.

   Bits depend on this file alone, not on the compiler, the processor or the C library: nothing is contracted or
   reordered, every sum has its order here, and exp, tanh and log are computed from the four operations. Arrays are
   row-major float; B rows, A numbers of an action, K tasks, H outputs of a critic (1, or K: a row has its task's). */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
/* Of one step: what it is called, and what plan.py gives it. */
#define STEP(name) void name(const int64_t *restrict n, void *const *restrict p)
#define F(i) ((float *)p[i])
#define D(i) ((double *)p[i])
#define I(i) ((int64_t *)p[i])

struct step {
    void (*run)(const int64_t *, void *const *);
    int64_t n[8];
    void *p[12];
};

void run(const struct step *steps, int64_t count) {
    for (int64_t i = 0; i < count; i++) steps[i].run(steps[i].n, steps[i].p);
}

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* --- products ----------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#include <immintrin.h>
#define NAME of_eights
#define TARGET
#define V __m256
#define W 8
#define TALL 6
#define LOAD _mm256_loadu_ps
#define STORE _mm256_storeu_ps
#define SAME _mm256_set1_ps
#define FMA _mm256_fmadd_ps
#include "products.h"
#define NAME of_sixteens
#define TARGET __attribute__((target("avx512f")))
#define V __m512
#define W 16
#define TALL 12
#define LOAD _mm512_loadu_ps
#define STORE _mm512_storeu_ps
#define SAME _mm512_set1_ps
#define FMA _mm512_fmadd_ps
#include "products.h"
static int is_wide(void) { return __builtin_cpu_supports("avx512f") != 0; }
#else
typedef float many __attribute__((vector_size(32)));
INLINE many many_at(const float *x) {
    many v;
    memcpy(&v, x, sizeof v);
    return v;
}
INLINE void many_to(float *x, many v) { memcpy(x, &v, sizeof v); }
INLINE many many_of(float x) { return (many){x, x, x, x, x, x, x, x}; }
INLINE many many_fma(many x, many y, many z) {
    for (int i = 0; i < 8; i++) z[i] = __builtin_fmaf(x[i], y[i], z[i]);
    return z;
}
#define NAME of_eights
#define TARGET
#define V many
#define W 8
#define TALL 6
#define LOAD many_at
#define STORE many_to
#define SAME many_of
#define FMA many_fma
#include "products.h"
#define of_sixteens of_eights
static int is_wide(void) { return 0; }
#endif

int64_t panel_width(void) { return is_wide() ? 32 : 16; }

/* b [depth, columns], whose numbers lie `row_step` and `column_step` apart, as panels. */
STEP(pack) {
    const int64_t depth = n[0], columns = n[1], row_step = n[2], column_step = n[3], width = panel_width();
    for (int64_t c = 0; c < columns; c += width) {
        int64_t wide = least(width, columns - c);
        float *restrict to = F(1) + c * depth;
        const float *restrict from = F(0) + c * column_step;
        if (column_step == 1)
            for (int64_t d = 0; d < depth; d++) {
                memcpy(to + d * width, from + d * row_step, (size_t)wide * sizeof(float));
                if (wide < width) memset(to + d * width + wide, 0, (size_t)(width - wide) * sizeof(float));
            }
        else
            for (int64_t above = 0; above < depth; above += 16) /* so many rows of a panel stay in the first cache */
                for (int64_t j = 0; j < width; j++)
                    for (int64_t d = above; d < least(above + 16, depth); d++)
                        to[d * width + j] = j < wide ? from[j * column_step + d * row_step] : 0.0f;
    }
}

/* c [rows, columns] = a b. p[3]: how many rows it has now, where that is known when it runs. */
STEP(product) {
    int64_t rows = p[3] ? *I(3) : n[0];
    (is_wide() ? of_sixteens : of_eights)(rows, n[1], n[2], F(0), n[3], n[4], F(1), F(2), n[5]);
}

/* --- functions of one number -------------------------------------------------------------------------------------- */

/* e^x = 2^k e^r, |r| <= ln 2 / 2, good to 1e-12. Adding 1.5 * 2^52 rounds to k, and leaves it in the lowest bits. */
INLINE double exponential(double x) {
    x = x > 700.0 ? 700.0 : x;
    x = x < -700.0 ? -700.0 : x;
    double shifted = x * 1.44269504088896340736 + 6755399441055744.0;
    double k = shifted - 6755399441055744.0;
    double r = x - k * 0.693147180369123816490 - k * 1.90821492927058770002e-10;
    double q = 1.0 / 479001600.0;
    q = q * r + 1.0 / 39916800.0;
    q = q * r + 1.0 / 3628800.0;
    q = q * r + 1.0 / 362880.0;
    q = q * r + 1.0 / 40320.0;
    q = q * r + 1.0 / 5040.0;
    q = q * r + 1.0 / 720.0;
    q = q * r + 1.0 / 120.0;
    q = q * r + 1.0 / 24.0;
    q = q * r + 1.0 / 6.0;
    q = q * r + 0.5;
    q = q * r + 1.0;
    q = q * r + 1.0;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return q * power;
}

/* tanh x = -m / (2 + m) with m = e^(-2 |x|) - 1, good to 3e-7 of itself. Layers have many of them: single precision.
   2^k (e^r - 1) + 2^k - 1 keeps the digits of a small x. */
INLINE float tangent(float x) {
    float y = -2.0f * fabsf(x);
    y = y < -40.0f ? -40.0f : y;
    float shifted = y * 1.44269504f + 12582912.0f, k = shifted - 12582912.0f;
    float r = y - k * 0.693359375f + k * 2.12194440e-4f;
    float q = 1.0f / 5040.0f;
    q = q * r + 1.0f / 720.0f;
    q = q * r + 1.0f / 120.0f;
    q = q * r + 1.0f / 24.0f;
    q = q * r + 1.0f / 6.0f;
    q = q * r + 0.5f;
    q = q * r * r + r;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    float m = power * q + (power - 1.0f), size = -m / (2.0f + m);
    return x < 0.0f ? -size : x > 0.0f ? size : x; /* NaN stays */
}

/* log(1 + y) for 0 <= y <= 1: twice the inverse hyperbolic tangent of y / (2 + y), which is at most 1/3. */
INLINE double log_of_one_and(double y) {
    double s = y / (2.0 + y), t = s * s, q = 1.0 / 25.0;
    q = q * t + 1.0 / 23.0;
    q = q * t + 1.0 / 21.0;
    q = q * t + 1.0 / 19.0;
    q = q * t + 1.0 / 17.0;
    q = q * t + 1.0 / 15.0;
    q = q * t + 1.0 / 13.0;
    q = q * t + 1.0 / 11.0;
    q = q * t + 1.0 / 9.0;
    q = q * t + 1.0 / 7.0;
    q = q * t + 1.0 / 5.0;
    q = q * t + 1.0 / 3.0;
    q = q * t + 1.0;
    return 2.0 * s * q;
}

/* log x for a normal x > 0: the exponent, and log of a mantissa in [sqrt 1/2, sqrt 2). */
INLINE double logarithm(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint64_t above = bits - 0x3fe6a09e667f3bcdu; /* of sqrt 1/2 */
    double k = (double)((int64_t)above >> 52);
    bits -= above & 0xfff0000000000000u;
    double m;
    memcpy(&m, &bits, sizeof m);
    double s = (m - 1.0) / (m + 1.0), t = s * s, q = 1.0 / 15.0;
    q = q * t + 1.0 / 13.0;
    q = q * t + 1.0 / 11.0;
    q = q * t + 1.0 / 9.0;
    q = q * t + 1.0 / 7.0;
    q = q * t + 1.0 / 5.0;
    q = q * t + 1.0 / 3.0;
    q = q * t + 1.0;
    return k * 0.69314718055994530942 + 2.0 * s * q;
}

/* --- what nets read, and their layers ----------------------------------------------------------------------------- */

/* Rows of `width` numbers, `from_step` apart, to rows `to_step` apart; p[2], p[3]: which rows, and how many now. */
STEP(copy_rows) {
    const int64_t *index = I(2), count = p[3] ? *I(3) : n[0];
    for (int64_t i = 0; i < count; i++)
        memcpy(F(1) + i * n[3], F(0) + (index ? index[i] : i) * n[2], (size_t)n[1] * sizeof(float));
}

/* Numbers [B, n[1]], rows n[2] apart, that are whole, as integers. */
STEP(as_integers) {
    for (int64_t i = 0; i < n[0]; i++)
        for (int64_t c = 0; c < n[1]; c++) I(1)[i * n[1] + c] = (int64_t)F(0)[i * n[2] + c];
}

enum { NONE, RELU, TANH };

/* values [B, width] plus bias, through an activation. */
STEP(activate) {
    const int64_t count = n[0], width = n[1];
    const float *restrict bias = F(0);
    for (int64_t i = 0; i < count; i++) {
        float *restrict x = F(1) + i * width;
        if (n[2] == RELU)
            for (int64_t c = 0; c < width; c++) {
                float y = x[c] + bias[c];
                x[c] = y < 0.0f ? 0.0f : y; /* NaN stays */
            }
        else if (n[2] == TANH)
            for (int64_t c = 0; c < width; c++) x[c] = tangent(x[c] + bias[c]);
        else
            for (int64_t c = 0; c < width; c++) x[c] += bias[c];
    }
}

/* gradient [B, width] back through the activation that left `values`, in place, and its sum over rows where that is
   wanted (p[2]). p[3], p[4]: how many rows it has now, and of which rows of `values`. */
STEP(activate_back) {
    const int64_t count = p[3] ? *I(3) : n[0], width = n[1], *index = I(4);
    float *restrict sum = F(2);
    if (sum) memset(sum, 0, (size_t)width * sizeof(float));
    for (int64_t i = 0; i < count; i++) {
        const float *restrict y = F(0) + (index ? index[i] : i) * width;
        float *restrict g = F(1) + i * width;
        if (n[2] == RELU)
            for (int64_t c = 0; c < width; c++) g[c] = y[c] > 0.0f ? g[c] : 0.0f;
        else if (n[2] == TANH)
            for (int64_t c = 0; c < width; c++) g[c] *= 1.0f - y[c] * y[c];
        if (sum)
            for (int64_t c = 0; c < width; c++) sum[c] += g[c];
    }
}

/* Layer normalisation of x [B, width] into y; `kept` [B, 2]: mean and 1 / deviation of each row (Ba et al. 2016). */
STEP(normalise) {
    const int64_t count = n[0], width = n[1];
    const float *restrict scale = F(1), *restrict shift = F(2);
    for (int64_t i = 0; i < count; i++) {
        const float *restrict x = F(0) + i * width;
        float *restrict y = F(3) + i * width, *restrict kept = F(4) + 2 * i;
        double sums[8] = {0}, squares[8] = {0};
        for (int64_t c = 0; c < width; c++) sums[c & 7] += x[c];
        double mean = 0.0, square = 0.0;
        for (int k = 0; k < 8; k++) mean += sums[k];
        mean /= (double)width;
        for (int64_t c = 0; c < width; c++) squares[c & 7] += (x[c] - mean) * (x[c] - mean);
        for (int k = 0; k < 8; k++) square += squares[k];
        kept[0] = (float)mean;
        kept[1] = (float)(1.0 / sqrt(square / (double)width + 1e-5));
        for (int64_t c = 0; c < width; c++) y[c] = (x[c] - kept[0]) * kept[1] * scale[c] + shift[c];
    }
}

/* Back through it: gradient [B, width] by y becomes that by x; by_scale and by_shift [width]. */
STEP(normalise_back) {
    const int64_t count = n[0], width = n[1];
    const float *restrict scale = F(1);
    float *restrict by_scale = F(4), *restrict by_shift = F(5);
    memset(by_scale, 0, (size_t)width * sizeof(float));
    memset(by_shift, 0, (size_t)width * sizeof(float));
    for (int64_t i = 0; i < count; i++) {
        const float *restrict x = F(0) + i * width, *restrict kept = F(2) + 2 * i;
        float *restrict g = F(3) + i * width;
        double sums[8] = {0}, along[8] = {0}, sum = 0.0, all = 0.0;
        for (int64_t c = 0; c < width; c++) {
            float unit = (x[c] - kept[0]) * kept[1];
            by_scale[c] += g[c] * unit;
            by_shift[c] += g[c];
            g[c] *= scale[c];
            sums[c & 7] += g[c];
            along[c & 7] += g[c] * unit;
        }
        for (int k = 0; k < 8; k++) sum += sums[k], all += along[k];
        float mean = (float)(sum / (double)width), part = (float)(all / (double)width);
        for (int64_t c = 0; c < width; c++) {
            float unit = (x[c] - kept[0]) * kept[1];
            g[c] = (g[c] - mean - unit * part) * kept[1];
        }
    }
}

/* --- distributions ------------------------------------------------------------------------------------------------ */

static const double LN2 = 0.69314718055994530942, HALF_LOG_2PI = 0.91893853320467274178;
/* Where log_std is cut off: trainer.nets.distributions. */
static const double LOG_STD_MIN = -20.0, LOG_STD_MAX = 2.0;

INLINE double softplus(double x) { return (x > 0.0 ? x : x != x ? x : 0.0) + log_of_one_and(exponential(-fabs(x))); }

/* tanh of a normal: actions [B, A] (rows n[2] apart) and their log density [B], of the net's outputs [B, 2 A] and noise.
   `step` [B, A] is deviation times noise, `within` [B, A] 1 where log_std was not cut off, else 0: for the way back. */
STEP(squashed_normal) {
    enum { BLOCK = 64 }; /* rows at once, so that the compiler has a loop over rows */
    const int64_t count = n[0], actions = n[1], stride = n[2];
    const float *restrict outputs = F(0), *restrict noise = F(1);
    float *restrict action = F(2), *restrict log_prob = F(3), *restrict step = F(4), *restrict within = F(5);
    for (int64_t from = 0; from < count; from += BLOCK) {
        int64_t rows = least(BLOCK, count - from);
        double density[BLOCK] = {0};
        for (int64_t a = 0; a < actions; a++)
            for (int64_t r = 0; r < rows; r++) {
                int64_t i = from + r;
                double mean = outputs[2 * i * actions + a], raw = outputs[(2 * i + 1) * actions + a];
                double log_std = raw < LOG_STD_MIN ? LOG_STD_MIN : raw > LOG_STD_MAX ? LOG_STD_MAX : raw;
                double z = noise[i * actions + a], s = exponential(log_std) * z, u = mean + s;
                density[r] += -0.5 * z * z - log_std - HALF_LOG_2PI - 2.0 * (LN2 - u - softplus(-2.0 * u));
                double e = exponential(2.0 * u), near = u - u * u * u * (1.0 / 3.0);
                action[i * stride + a] = (float)(fabs(u) < 1e-4 ? near : 1.0 - 2.0 / (e + 1.0));
                step[i * actions + a] = (float)s;
                within[i * actions + a] = log_std == raw;
            }
        for (int64_t r = 0; r < rows; r++) log_prob[from + r] = (float)density[r];
    }
}

/* Back through it: from a loss with these derivatives by action [B, A] and log density [B] to that by outputs.
   The log density changes by 2 a with u (the squashing), and by -1 with log_std besides. */
STEP(squashed_normal_back) {
    const int64_t count = n[0], actions = n[1], stride = n[2];
    for (int64_t i = 0; i < count; i++)
        for (int64_t a = 0; a < actions; a++) {
            int64_t at = i * actions + a;
            float x = F(0)[i * stride + a], density = F(4)[i];
            float by_u = F(3)[at] * (1.0f - x * x) + 2.0f * density * x;
            F(5)[2 * i * actions + a] = by_u;
            F(5)[(2 * i + 1) * actions + a] = (by_u * F(1)[at] - density) * F(2)[at];
        }
}

/* A normal whose log deviations [A] are the same in all rows: the log density [B] of actions [B, A] around `mean`; z
   [B, A]: their distance in deviations; the entropy [B]. */
STEP(normal) {
    const int64_t count = n[0], actions = n[1];
    const float *restrict mean = F(0), *restrict log_std = F(1), *restrict action = F(2);
    float inverse[actions];
    double constant = 0.0;
    for (int64_t a = 0; a < actions; a++) {
        inverse[a] = (float)exponential(-(double)log_std[a]);
        constant += log_std[a] + HALF_LOG_2PI;
    }
    for (int64_t i = 0; i < count; i++) {
        double sum = 0.0;
        for (int64_t a = 0; a < actions; a++) {
            float z = (action[i * actions + a] - mean[i * actions + a]) * inverse[a];
            F(4)[i * actions + a] = z;
            sum += (double)z * z;
        }
        F(3)[i] = (float)(-0.5 * sum - constant);
        F(5)[i] = (float)(constant + 0.5 * (double)actions);
    }
}

/* Back through it, from `by_log_prob` [B], less `bonus` times the mean entropy: by mean [B, A], by log_std [A]. */
STEP(normal_back) {
    const int64_t count = n[0], actions = n[1];
    const float *restrict z = F(0), *restrict log_std = F(1), *restrict by_log_prob = F(2);
    float *restrict by_mean = F(4), *restrict by_log_std = F(5), inverse[actions];
    for (int64_t a = 0; a < actions; a++) {
        inverse[a] = (float)exponential(-(double)log_std[a]);
        by_log_std[a] = (float)-*D(3);
    }
    for (int64_t i = 0; i < count; i++)
        for (int64_t a = 0; a < actions; a++) {
            float x = z[i * actions + a];
            by_mean[i * actions + a] = by_log_prob[i] * x * inverse[a];
            by_log_std[a] += by_log_prob[i] * (x * x - 1.0f);
        }
}

/* One of n[1] by logits: `log` [B, n] of all probabilities, the log density [B] of `action`, the entropy [B]. */
STEP(categorical) {
    const int64_t count = n[0], choices = n[1];
    for (int64_t i = 0; i < count; i++) {
        const float *restrict logit = F(0) + i * choices;
        float *restrict log = F(2) + i * choices, largest = logit[0];
        for (int64_t c = 1; c < choices; c++) largest = logit[c] > largest ? logit[c] : largest;
        double sum = 0.0, entropy = 0.0;
        for (int64_t c = 0; c < choices; c++) sum += exponential((double)logit[c] - largest);
        double whole = largest + logarithm(sum);
        for (int64_t c = 0; c < choices; c++) {
            double l = logit[c] - whole;
            log[c] = (float)l;
            entropy -= exponential(l) * l;
        }
        F(4)[i] = (float)entropy;
        if (p[1]) F(3)[i] = log[I(1)[i]];
    }
}

/* Back through it, from `by_log_prob` [B], less `bonus` times the mean entropy: by logits [B, n]. */
STEP(categorical_back) {
    const int64_t count = n[0], choices = n[1];
    float bonus = (float)(*D(4) / (double)count);
    for (int64_t i = 0; i < count; i++)
        for (int64_t c = 0; c < choices; c++) {
            float log = F(0)[i * choices + c], share = (float)exponential(log);
            float by_entropy = -share * (log + F(3)[i]), chosen = c == I(1)[i] ? 1.0f : 0.0f;
            F(5)[i * choices + c] = F(2)[i] * (chosen - share) - bonus * by_entropy;
        }
}

INLINE double to_the(double base, int64_t times) {
    double result = 1.0;
    for (; times; times >>= 1, base *= base)
        if (times & 1) result *= base;
    return result;
}

/* --- losses: each adds what it measured to `sums` ----------------------------------------------------------------- */

INLINE double mean_of(int64_t count, const float *x) {
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) sum += x[i];
    return sum / (double)count;
}

/* x [B] to mean 0 and deviation 1; one alone stays as it is. */
STEP(standardise) {
    const int64_t count = n[0];
    if (count < 2) return;
    double mean = mean_of(count, F(0)), square = 0.0;
    for (int64_t i = 0; i < count; i++) square += (F(0)[i] - mean) * (F(0)[i] - mean);
    double scale = 1.0 / (sqrt(square / (double)(count - 1)) + 1e-8);
    for (int64_t i = 0; i < count; i++) F(0)[i] = (float)((F(0)[i] - mean) * scale);
}

/* PPO's: minus the smaller of ratio · advantage and that of a ratio within 1 ± clip, and its derivative by the log
   density. Sums: loss, Schulman's estimate of the divergence, the share of ratios beyond. */
STEP(clipped_ratio) {
    const int64_t count = n[0];
    const double clip = *D(3), share = 1.0 / (double)count;
    double *sums = D(5);
    for (int64_t i = 0; i < count; i++) {
        double log_ratio = (double)F(0)[i] - F(1)[i], ratio = exponential(log_ratio), advantage = F(2)[i];
        double within = ratio < 1.0 - clip ? 1.0 - clip : ratio > 1.0 + clip ? 1.0 + clip : ratio;
        double gain = ratio * advantage, clipped = within * advantage;
        F(4)[i] = gain <= clipped || gain != gain ? (float)(-gain * share) : 0.0f;
        sums[0] -= (gain <= clipped || gain != gain ? gain : clipped) * share;
        sums[1] += (ratio - 1.0 - log_ratio) * share;
        sums[2] += fabs(ratio - 1.0) > clip ? share : 0.0;
    }
}

/* A2C's: minus log density · advantage. */
STEP(policy_gradient) {
    const double share = 1.0 / (double)n[0];
    for (int64_t i = 0; i < n[0]; i++) {
        F(2)[i] = (float)(-F(1)[i] * share);
        D(3)[0] -= (double)F(0)[i] * F(1)[i] * share;
    }
}

/* Values [B] and what they should be: the mean squared error, and `by_value` [B] of coef times it. */
STEP(squared_error) {
    const double share = 1.0 / (double)n[0], coef = *D(2);
    for (int64_t i = 0; i < n[0]; i++) {
        double error = (double)F(0)[i] - F(1)[i];
        F(3)[i] = (float)(2.0 * coef * share * error);
        D(4)[0] += error * error * share;
    }
}

/* p[1] += the mean of x [B], of which there are n[1]. */
STEP(mean) { D(1)[0] += mean_of(n[0], F(0)) / (double)n[1]; }

/* --- critics ------------------------------------------------------------------------------------------------------- */

/* What counts of the value behind a step [B]: gamma, to the power of the steps that a row sums up (p[1], or 1), and
   nothing behind a true end. */
STEP(discounts) {
    for (int64_t i = 0; i < n[0]; i++) {
        int64_t steps = p[1] ? (int64_t)F(1)[i] : 1;
        F(3)[i] = (float)(to_the(*D(2), steps) * (1.0 - F(0)[i]));
    }
}

/* Of x [B, n[1]] the number that each row's task, or action, names. */
STEP(choose) {
    for (int64_t i = 0; i < n[0]; i++) F(2)[i] = F(0)[i * n[1] + (n[1] > 1 ? I(1)[i] : 0)];
}

/* Back through it: 0 for all others. */
STEP(choose_back) {
    memset(p[2], 0, (size_t)(n[0] * n[1]) * sizeof(float));
    for (int64_t i = 0; i < n[0]; i++) F(2)[i * n[1] + (n[1] > 1 ? I(1)[i] : 0)] = F(0)[i];
}

/* The smaller of two Q each, or the one that is NaN. Where they are wanted: the rows whose smaller one is the first's
   (p[3]) and the second's (p[4]), and how many each has (p[5]). */
STEP(smaller) {
    int64_t *first = I(3), *second = I(4), counts[2] = {0, 0};
    for (int64_t i = 0; i < n[0]; i++) {
        float a = F(0)[i], b = F(1)[i];
        int is_first = a <= b || a != a;
        F(2)[i] = is_first ? a : b;
        if (!first) continue;
        if (is_first)
            first[counts[0]++] = i;
        else
            second[counts[1]++] = i;
    }
    if (first) memcpy(p[5], counts, sizeof counts);
}

/* Rows [count, width] to where they belong: n[0] at most, `p[2]` of them (p[3]: which). */
STEP(put_rows) {
    for (int64_t i = 0; i < *I(2); i++) memcpy(F(1) + I(3)[i] * n[1], F(0) + i * n[1], (size_t)n[1] * sizeof(float));
}

/* The temperature [B] of each row's task, of their logarithms [K]. */
STEP(temperatures) {
    for (int64_t i = 0; i < n[0]; i++) F(2)[i] = (float)exponential(F(0)[I(1)[i]]);
}

/* reward + discount (Q' - temperature log pi), of rows. */
STEP(soft_target) {
    for (int64_t i = 0; i < n[0]; i++) F(5)[i] = F(0)[i] + F(1)[i] * (F(2)[i] - F(3)[i] * F(4)[i]);
}

/* SAC's actor: temperature · log density - Q, and its derivative by the log density. p[4] += the loss, p[5] += minus the
   mean log density: what is measured of the entropy. */
STEP(soft_loss) {
    const double share = 1.0 / (double)n[0];
    for (int64_t i = 0; i < n[0]; i++) {
        F(3)[i] = (float)(F(0)[i] * share);
        D(4)[0] += ((double)F(0)[i] * F(1)[i] - F(2)[i]) * share;
        *D(5) -= (double)F(1)[i] * share;
    }
}

/* The same of one of n[1], where `log` [B, n] has all log densities and q [B, n] all values, and by logits; p[4]: the mean
   log density of each row. */
STEP(soft_choice) {
    const int64_t choices = n[1];
    const double share = 1.0 / (double)n[0];
    for (int64_t i = 0; i < n[0]; i++) {
        const float *restrict log = F(1) + i * choices, *restrict q = F(2) + i * choices;
        double mean = 0.0, density = 0.0, temperature = F(0)[i];
        for (int64_t c = 0; c < choices; c++) {
            double part = exponential(log[c]);
            density += part * log[c];
            mean += part * (temperature * log[c] - q[c]);
        }
        for (int64_t c = 0; c < choices; c++)
            F(3)[i * choices + c] = (float)(exponential(log[c]) * (temperature * log[c] - q[c] - mean) * share);
        F(4)[i] = (float)density;
        *D(5) += mean * share;
        *D(6) -= density * share;
    }
}

/* Means of q [B, n] by their log densities. */
STEP(expected) {
    for (int64_t i = 0; i < n[0]; i++) {
        double sum = 0.0;
        for (int64_t c = 0; c < n[1]; c++) sum += exponential(F(0)[i * n[1] + c]) * F(1)[i * n[1] + c];
        F(2)[i] = (float)sum;
    }
}

/* Each task's temperature up where the entropy is below `target`, down where it is above: the derivative by the
   logarithms [K], which is one number for all where n[2]. Sums: the loss. */
STEP(temperature_loss) {
    double all = 0.0;
    memset(p[4], 0, (size_t)n[1] * sizeof(float));
    for (int64_t i = 0; i < n[0]; i++) {
        double missing = F(2)[i] + *D(3), part = missing / (double)n[0];
        F(4)[I(1)[i]] -= (float)part;
        all -= part;
        D(5)[0] -= F(0)[I(1)[i]] * part;
    }
    for (int64_t k = 0; n[2] && k < n[1]; k++) F(4)[k] = (float)all;
}

/* TD3's target actions [B, A], rows n[2] apart, in place: noise · deviation, cut off at ± limit, around them. */
STEP(noisy) {
    const double deviation = D(2)[0], limit = D(2)[1];
    for (int64_t i = 0; i < n[0]; i++)
        for (int64_t a = 0; a < n[1]; a++) {
            double z = F(1)[i * n[1] + a] * deviation;
            z = F(0)[i * n[2] + a] + (z > limit ? limit : z < -limit ? -limit : z);
            F(0)[i * n[2] + a] = (float)(z > 1.0 ? 1.0 : z < -1.0 ? -1.0 : z);
        }
}

/* --- optimizers --------------------------------------------------------------------------------------------------- */

/* The norm of several gradients is made at most `limit` (torch's clip_grad_norm_): first p[1] += the squares of each. */
STEP(sum_squares) {
    const float *restrict g = F(0);
    double sums[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n[0]; i += 8)
        for (int k = 0; k < 8; k++) sums[k] += (double)g[i + k] * g[i + k];
    for (; i < n[0]; i++) sums[0] += (double)g[i] * g[i];
    for (int k = 0; k < 8; k++) *D(1) += sums[k];
}

/* Then each is made smaller, where `squares` are too many. */
STEP(clip) {
    float *restrict g = F(0);
    float scale = (float)(*D(2) / (sqrt(*D(1)) + 1e-6));
    for (int64_t i = 0; scale < 1.0f && i < n[0]; i++) g[i] *= scale;
}

/* `n[0]` doubles become 0. */
STEP(reset) { memset(p[0], 0, (size_t)n[0] * sizeof(double)); }

/* torch's AdamW; `how`: rate, beta1, beta2, eps, weight decay.

   Moments below 1e-30 become 0: those of a unit that never fires would else shrink to denormals and stay there, as
   0.9 of the smallest is the smallest again, and processors take many times as long over each. */
STEP(adam) {
    const double *how = D(0);
    float *restrict weight = F(1), *restrict mean = F(3), *restrict square = F(4);
    const float *restrict gradient = F(2);
    *F(5) += 1.0f;
    int64_t times = (int64_t)*F(5);
    float keep = (float)(1.0 - how[0] * how[4]), eps = (float)how[3];
    float new1 = (float)(1.0 - how[1]), old2 = (float)how[2], new2 = (float)(1.0 - how[2]);
    float length = (float)(how[0] / (1.0 - to_the(how[1], times)));
    float unbias = (float)(1.0 / sqrt(1.0 - to_the(how[2], times)));
    for (int64_t i = 0; i < n[0]; i++) {
        float g = gradient[i], m = mean[i] + new1 * (g - mean[i]), v = old2 * square[i] + new2 * g * g;
        m = fabsf(m) < 1e-30f ? 0.0f : m; /* NaN stays */
        v = v < 1e-30f ? 0.0f : v;
        mean[i] = m;
        square[i] = v;
        weight[i] = weight[i] * keep - length * m / (sqrtf(v) * unbias + eps);
    }
}

/* torch's RMSprop; `how`: rate, alpha, eps. */
STEP(rmsprop) {
    const float rate = (float)D(0)[0], old = (float)D(0)[1], new = (float)(1.0 - D(0)[1]), eps = (float)D(0)[2];
    float *restrict weight = F(1), *restrict square = F(3);
    const float *restrict gradient = F(2);
    *F(4) += 1.0f;
    for (int64_t i = 0; i < n[0]; i++) {
        float g = gradient[i], v = old * square[i] + new * g * g;
        v = v < 1e-30f ? 0.0f : v;
        square[i] = v;
        weight[i] -= rate * g / (sqrtf(v) + eps);
    }
}

/* Targets p[1] go `tau` of the way to p[0]. */
STEP(polyak) {
    const float *restrict x = F(0), tau = (float)*D(2);
    float *restrict y = F(1);
    for (int64_t i = 0; i < n[0]; i++) y[i] += tau * (x[i] - y[i]);
}
