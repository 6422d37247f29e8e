// Run-time choice of the vector instruction set.
//
// A function marked LABELGROVE_MULTIVERSION is compiled for several levels, and the loader picks
// the best one that the machine has. Compilers that cannot do this get the baseline only. Headers
// define such functions as `static` where several files include them, so some copies stay unused.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__) && \
    !defined(LABELGROVE_ONE_VERSION)
#define LABELGROVE_MULTIVERSION \
    [[maybe_unused, gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")]]
#else
#define LABELGROVE_MULTIVERSION [[maybe_unused]]
#endif

namespace labelgrove {

inline const char* simd_level() {
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) {
        return "x86-64-v4 (AVX-512)";
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "x86-64-v3 (AVX2)";
    return "x86-64 (SSE2)";
#elif defined(__aarch64__) || defined(_M_ARM64)
    return "aarch64 (NEON)";
#else
    return "baseline";
#endif
}

}  // namespace labelgrove
