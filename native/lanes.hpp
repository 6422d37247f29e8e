// W floats that are computed together, one per label of a block.
//
// GCC and Clang have vector types for any target. Other compilers get arrays with the same
// operators. Every lane is computed on its own, so the bits are those of scalar code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#if (defined(__GNUC__) || defined(__clang__)) && !defined(LABELGROVE_PLAIN_LANES)
#define LABELGROVE_VECTOR_TYPE 1
#define LABELGROVE_INLINE [[gnu::always_inline]] inline
#else
#define LABELGROVE_VECTOR_TYPE 0
#define LABELGROVE_INLINE inline
#endif

namespace labelgrove {

#if LABELGROVE_VECTOR_TYPE

template <int W>
struct LanesOf {
    typedef float type __attribute__((vector_size(W * sizeof(float)), may_alias));
};
template <int W>
using Lanes = typename LanesOf<W>::type;

#else

template <class T, int W>
struct Pack {
    T lane[W];
    T operator[](int i) const { return lane[i]; }

    template <class Operation>
    static auto of(Operation operation) {
        Pack<decltype(operation(0)), W> out{};
        for (int i = 0; i < W; ++i) out.lane[i] = operation(i);
        return out;
    }
    // clang-format off
    friend Pack operator+(Pack a, Pack b) { return of([&](int i) { return a[i] + b[i]; }); }
    friend Pack operator-(Pack a, Pack b) { return of([&](int i) { return a[i] - b[i]; }); }
    friend Pack operator*(Pack a, Pack b) { return of([&](int i) { return a[i] * b[i]; }); }
    friend Pack operator/(Pack a, Pack b) { return of([&](int i) { return a[i] / b[i]; }); }
    friend Pack operator+(Pack a, T b) { return of([&](int i) { return a[i] + b; }); }
    friend Pack operator-(Pack a, T b) { return of([&](int i) { return a[i] - b; }); }
    friend Pack operator*(Pack a, T b) { return of([&](int i) { return a[i] * b; }); }
    friend Pack& operator+=(Pack& a, Pack b) { return a = a + b; }
    friend auto operator<(Pack a, Pack b) { return of([&](int i) { return a[i] < b[i] ? -1 : 0; }); }
    friend auto operator>(Pack a, Pack b) { return b < a; }
    friend auto operator==(Pack a, Pack b) { return of([&](int i) { return a[i] == b[i] ? -1 : 0; }); }
    friend auto operator!=(Pack a, Pack b) { return of([&](int i) { return a[i] != b[i] ? -1 : 0; }); }
    friend Pack operator&(Pack a, Pack b) { return of([&](int i) { return a[i] & b[i]; }); }
    friend Pack operator|(Pack a, Pack b) { return of([&](int i) { return a[i] | b[i]; }); }
    // clang-format on
};
template <int W>
using Lanes = Pack<float, W>;

#endif

template <class Mask, class Values>
LABELGROVE_INLINE Values select(Mask mask, Values yes, Values no) {
#if LABELGROVE_VECTOR_TYPE
    return mask ? yes : no;
#else
    return Values::of([&](int i) { return mask[i] ? yes[i] : no[i]; });
#endif
}

template <int W, class Mask>
LABELGROVE_INLINE bool all_of(Mask mask) {
    int found = -1;
    for (int i = 0; i < W; ++i) found &= static_cast<int>(mask[i]);
    return found != 0;
}

template <int W, class Mask>
LABELGROVE_INLINE bool any_of(Mask mask) {
    int found = 0;
    for (int i = 0; i < W; ++i) found |= static_cast<int>(mask[i]);
    return found != 0;
}

// Floats aligned to cache lines: a load of 16 lanes then touches one line, not two.
class LaneArray {
public:
    void assign(size_t count, float value) {
        store_.assign(count + kLine / sizeof(float), value);
        const auto address = reinterpret_cast<uintptr_t>(store_.data());
        data_ = store_.data() + (kLine - address % kLine) % kLine / sizeof(float);
    }
    float* data() { return data_; }
    const float* data() const { return data_; }
    template <int W>
    Lanes<W>* lanes() {
        return reinterpret_cast<Lanes<W>*>(data_);
    }

private:
    static constexpr size_t kLine = 64;
    std::vector<float> store_;
    float* data_ = nullptr;
};

}  // namespace labelgrove
