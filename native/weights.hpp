// How weights are stored: single precision, half precision, or bytes that a scale per child multiplies.
//
// Kernels read them where they lie, one or eight at a time.
#pragma once

#include <cstdint>

#include "half.hpp"
#include "lanes.hpp"

namespace labelgrove {

struct Half {
    uint16_t bits;
};

enum class ValueType : int { single, half, byte };
enum class ChildType : int { byte, word };

inline float to_float(float value) { return value; }
inline float to_float(Half value) { return half_to_float(value.bits); }
inline float to_float(int8_t value) { return static_cast<float>(value); }

// Left to itself, GCC 12 turns loops of known length over short rows into long shuffles across rows;
// hence vector types where the compiler knows them.
#if LABELGROVE_VECTOR_TYPE

template <class T, int N>
struct PackedOf {
    typedef T type __attribute__((vector_size(N * sizeof(T)), aligned(alignof(T)), may_alias));
};
// N numbers that may lie anywhere in memory.
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
template <int N>
LABELGROVE_INLINE Packed<float, N> load_floats(const Half* from) {  // half_to_float, N at once
    const auto bits = __builtin_convertvector(load<uint16_t, N>(from), Packed<uint32_t, N>);
    const auto scaled = (Packed<float, N>)((bits & 0x7fffu) << 13) * std::bit_cast<float>(0x77800000u);
    return (Packed<float, N>)((Packed<uint32_t, N>)scaled | (bits & 0x8000u) << 16);
}
template <int N>
LABELGROVE_INLINE Packed<float, N> load_floats(const int8_t* from) {
    const auto whole = __builtin_convertvector(load<int8_t, N>(from), Packed<int32_t, N>);
    return __builtin_convertvector(whole, Packed<float, N>);
}

#endif

}  // namespace labelgrove
