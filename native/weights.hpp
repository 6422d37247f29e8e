// The types of stored weights: single precision or half precision.
//
// Kernels read them in place, one or eight at a time.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "half.hpp"
#include "lanes.hpp"

#if LABELGROVE_VECTOR_TYPE && defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace labelgrove {

struct Half {
    uint16_t bits;
};

enum class ValueType : int { single, half };
enum class ChildType : int { byte, word };

inline float to_float(float value) { return value; }
inline float to_float(Half value) { return half_to_float(value.bits); }

// Explicit vector types where the compiler has them, because GCC 12 turns loops of known length
// over short rows into long shuffles across rows.
#if LABELGROVE_VECTOR_TYPE

template <class T, int N>
struct PackedOf {
    typedef T type __attribute__((vector_size(N * sizeof(T)), aligned(alignof(T)), may_alias));
};
// N numbers at any address, aligned or not.
template <class T, int N>
using Packed = typename PackedOf<T, N>::type;

template <class T, int N>
LABELGROVE_INLINE Packed<T, N> load(const void* from) {
    return *static_cast<const Packed<T, N>*>(from);
}
template <int N>
LABELGROVE_INLINE void store(float* to, Packed<float, N> values) {
    *reinterpret_cast<Packed<float, N>*>(to) = values;
}

template <int N>
LABELGROVE_INLINE Packed<float, N> load_floats(const float* from) {
    return load<float, N>(from);
}
// GCC 12 makes one instruction of such a list; __builtin_convertvector takes five.
template <class T, size_t... I>
LABELGROVE_INLINE Packed<int32_t, sizeof...(I)> widen(const T* from, std::index_sequence<I...>) {
    return Packed<int32_t, sizeof...(I)>{from[I]...};
}

// half_to_float, N at once. Widened as a signed number, the sign fills the bits above the exponent.
template <int N>
LABELGROVE_INLINE Packed<float, N> load_floats(const Half* from) {
    const auto bits = widen(reinterpret_cast<const int16_t*>(from), std::make_index_sequence<N>());
    const auto moved = (Packed<float, N>)((bits << 13) & static_cast<int32_t>(0x8fffe000u));
    return moved * std::bit_cast<float>(0x77800000u);  // 2^112
}
#if defined(__aarch64__)
// One instruction, with the same bits.
template <>
LABELGROVE_INLINE Packed<float, 4> load_floats<4>(const Half* from) {
    const auto bits = vld1_u16(reinterpret_cast<const uint16_t*>(from));
    return vcvt_f32_f16(vreinterpret_f16_u16(bits));
}
#endif

// N sums, in as many registers as they need.
template <int N>
struct Sums {
    static constexpr int kWidth = N < kRegister ? N : kRegister;
    Packed<float, kWidth> parts[N / kWidth] = {};

    LABELGROVE_INLINE void start_with(const float* values) {
        for (int i = 0; i < N / kWidth; ++i) parts[i] = load<float, kWidth>(values + i * kWidth);
    }
    template <class Value>
    LABELGROVE_INLINE void add(const Value* values, float factor) {
        for (int i = 0; i < N / kWidth; ++i) {
            parts[i] += load_floats<kWidth>(values + i * kWidth) * factor;
        }
    }
    LABELGROVE_INLINE void write(float* to) const {
        for (int i = 0; i < N / kWidth; ++i) store<kWidth>(to + i * kWidth, parts[i]);
    }
};

#endif

}  // namespace labelgrove
