/* A part of every library: whether this processor has the instructions that the compiler was told to use, by -march in
   CC or by a cluster's own `cc`. A library that is used without them ends the process by SIGILL. */

#define NEEDS(name)                                                                                                    \
    if (!__builtin_cpu_supports(name))                                                                                 \
        return 0;

int runs_here(void) {
#if defined(__x86_64__) && (__GNUC__ >= 6 || defined(__clang__)) && !defined(__INTEL_COMPILER) /* older: fewer names */
    __builtin_cpu_init();
#ifdef __SSE4_1__
    NEEDS("sse4.1")
#endif
#ifdef __SSE4_2__
    NEEDS("sse4.2")
#endif
#ifdef __POPCNT__
    NEEDS("popcnt")
#endif
#ifdef __AVX__
    NEEDS("avx")
#endif
#ifdef __AVX2__
    NEEDS("avx2")
#endif
#ifdef __FMA__
    NEEDS("fma")
#endif
#ifdef __BMI__
    NEEDS("bmi")
#endif
#ifdef __BMI2__
    NEEDS("bmi2")
#endif
#ifdef __AVX512F__
    NEEDS("avx512f")
#endif
#ifdef __AVX512CD__
    NEEDS("avx512cd")
#endif
#ifdef __AVX512DQ__
    NEEDS("avx512dq")
#endif
#ifdef __AVX512BW__
    NEEDS("avx512bw")
#endif
#ifdef __AVX512VL__
    NEEDS("avx512vl")
#endif
#endif
    return 1;
}
