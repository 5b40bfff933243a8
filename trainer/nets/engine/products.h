/* Products of matrices of floats, c = a b, for one kind of processor: included once for each, with V a vector of W
   floats, TALL the rows of a tile, and NAME, TARGET, LOAD, STORE, SAME, FMA as the kind has them.

   Each number of c is one chain of fused multiply-adds in the order of the depth, so its bits depend on nothing else:
   not on the processor, nor on the sizes. b is packed into panels of 2 W columns, with zeros beyond its last one; a is
   read as it lies. The loops are those of Goto and van de Geijn 2008, "Anatomy of high-performance matrix
   multiplication": a panel stays in the first cache, a block of a in the second. */

#define JOINED(a, b) a##b
#define NAMED(a, b) JOINED(a, b)
#define EACH _Pragma("GCC unroll 16") for

/* A tile of c in registers. `add`: to what stands there. */
TARGET INLINE void NAMED(NAME, _tile)(const int rows, int64_t depth, const float *a, int64_t row_step,
                                      int64_t depth_step, const float *b, float *c, int64_t c_step, int add) {
    V sums[TALL][2];
    EACH(int i = 0; i < rows; i++)
        EACH(int j = 0; j < 2; j++) sums[i][j] = add ? LOAD(c + i * c_step + j * W) : SAME(0.0f);
    for (int64_t p = 0; p < depth; p++) {
        V left = LOAD(b + p * 2 * W), right = LOAD(b + p * 2 * W + W);
        EACH(int i = 0; i < rows; i++) {
            V x = SAME(a[i * row_step + p * depth_step]);
            sums[i][0] = FMA(x, left, sums[i][0]);
            sums[i][1] = FMA(x, right, sums[i][1]);
        }
    }
    EACH(int i = 0; i < rows; i++)
        EACH(int j = 0; j < 2; j++) STORE(c + i * c_step + j * W, sums[i][j]);
}

/* c [rows, columns] = a [rows, depth] b [depth, columns]. a's numbers lie `row_step` and `depth_step` apart, of which
   one is 1; c's rows lie `c_step` apart. */
TARGET static void NAME(int64_t rows, int64_t columns, int64_t depth, const float *a, int64_t row_step,
                        int64_t depth_step, const float *panels, float *c, int64_t c_step) {
    enum { DEPTH = 384, HIGH = 240 };
    static __thread float block[HIGH * DEPTH];
    float edge[TALL * 2 * W];
    for (int64_t d = 0; d < depth; d += DEPTH)
        for (int64_t r = 0; r < rows; r += HIGH) {
            int64_t deep = least(DEPTH, depth - d), high = least(HIGH, rows - r);
            const float *from = a + r * row_step + d * depth_step;
            int is_column = depth_step != 1; /* neighbours in memory are rows of a: they are brought side by side */
            for (int64_t m = 0; is_column && m < high; m += TALL)
                for (int64_t p = 0; p < deep; p++)
                    for (int64_t i = 0; i < least(TALL, high - m); i++)
                        block[m * deep + p * TALL + i] = from[(m + i) * row_step + p * depth_step];
            for (int64_t n = 0; n < columns; n += 2 * W) {
                int64_t wide = least(2 * W, columns - n);
                const float *b = panels + n * depth + d * 2 * W;
                for (int64_t m = 0; m < high; m += TALL) {
                    int64_t tall = least(TALL, high - m), step = wide == 2 * W ? c_step : 2 * W;
                    const float *x = is_column ? block + m * deep : from + m * row_step;
                    int64_t across = is_column ? 1 : row_step, along = is_column ? TALL : 1;
                    float *to = c + (r + m) * c_step + n, *at = wide == 2 * W ? to : edge;
                    for (int64_t i = 0; at == edge && d && i < tall; i++)
                        memcpy(edge + i * step, to + i * c_step, (size_t)wide * sizeof(float));
                    switch (tall) {
#define TILE(n)                                                                                                        \
    case n:                                                                                                            \
        if (n <= TALL) NAMED(NAME, _tile)(n, deep, x, across, along, b, at, step, d > 0);                              \
        break;
                        TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)
                        TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12)
#undef TILE
                    }
                    for (int64_t i = 0; at == edge && i < tall; i++)
                        memcpy(to + i * c_step, edge + i * step, (size_t)wide * sizeof(float));
                }
            }
        }
}

#undef NAME
#undef TARGET
#undef V
#undef W
#undef TALL
#undef LOAD
#undef STORE
#undef SAME
#undef FMA
