// W floats that are computed together, one per label of a block.
//
// GCC and Clang have vector types for any target; W floats are as many registers as they need.
// Other compilers get arrays with the same operators. Every lane is computed on its own, so the
// bits are those of scalar code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#if (defined(__GNUC__) || defined(__clang__)) && !defined(LABELGROVE_PLAIN_LANES)
#define LABELGROVE_VECTOR_TYPE 1
#define LABELGROVE_INLINE [[gnu::always_inline]] inline
#define LABELGROVE_MAY_ALIAS [[gnu::may_alias]]
#else
#define LABELGROVE_VECTOR_TYPE 0
#define LABELGROVE_INLINE inline
#define LABELGROVE_MAY_ALIAS
#endif

namespace labelgrove {

// The most floats to compute with at once. GCC keeps what is wider than a register in memory, and a
// sum then waits for a store and a load in every step. On x86-64 this is a register of AVX2, as
// AVX-512 gains nothing from wider ones.
#if !LABELGROVE_VECTOR_TYPE
inline constexpr int kRegister = 1;
#elif defined(__aarch64__)
inline constexpr int kRegister = 4;
#else
inline constexpr int kRegister = 8;
#endif

#if LABELGROVE_VECTOR_TYPE
template <class T, int W>
struct VectorOf {
    typedef T type __attribute__((vector_size(W * sizeof(T)), may_alias));
};
#else
template <class T, int W>
struct VectorOf {
    using type = T;
};
#endif

// The type of W numbers in one register; a plain number if there are no vector types.
template <class T, int W>
using Register = typename VectorOf<T, W>::type;

// Several registers with the operators of one.
template <class T, int N, int kEach = kRegister>
struct LABELGROVE_MAY_ALIAS Pack {
    Register<T, kEach> parts[N];

    template <class Result, class Operation>
    LABELGROVE_INLINE static Pack<Result, N> of(Operation operation) {
        Pack<Result, N> out;
        for (int i = 0; i < N; ++i) out.parts[i] = operation(i);
        return out;
    }
    LABELGROVE_INLINE T operator[](int i) const {
        if constexpr (kEach == 1) {
            return parts[i];
        } else {
            return parts[i / kEach][i % kEach];
        }
    }
    LABELGROVE_INLINE friend Pack& operator+=(Pack& a, const Pack& b) { return a = a + b; }

    // clang-format off
#define LABELGROVE_OPERATOR(SIGN) \
    LABELGROVE_INLINE friend Pack operator SIGN(const Pack& a, const Pack& b) { \
        return of<T>([&](int i) { return a.parts[i] SIGN b.parts[i]; }); \
    }
#define LABELGROVE_WITH_NUMBER(SIGN) \
    LABELGROVE_INLINE friend Pack operator SIGN(const Pack& a, T b) { \
        return of<T>([&](int i) { return a.parts[i] SIGN b; }); \
    }
    // Comparisons give masks: all bits of a lane, or none.
#define LABELGROVE_COMPARISON(SIGN) \
    LABELGROVE_INLINE friend auto operator SIGN(const Pack& a, const Pack& b) { \
        return of<int32_t>([&](int i) { \
            if constexpr (kEach == 1) return a.parts[i] SIGN b.parts[i] ? -1 : 0; \
            else return a.parts[i] SIGN b.parts[i]; \
        }); \
    }
    LABELGROVE_OPERATOR(+) LABELGROVE_OPERATOR(-) LABELGROVE_OPERATOR(*) LABELGROVE_OPERATOR(/)
    LABELGROVE_OPERATOR(&) LABELGROVE_OPERATOR(|)
    LABELGROVE_WITH_NUMBER(+) LABELGROVE_WITH_NUMBER(-) LABELGROVE_WITH_NUMBER(*)
    LABELGROVE_COMPARISON(<) LABELGROVE_COMPARISON(>)
    LABELGROVE_COMPARISON(==) LABELGROVE_COMPARISON(!=)
#undef LABELGROVE_OPERATOR
#undef LABELGROVE_WITH_NUMBER
#undef LABELGROVE_COMPARISON
    // clang-format on
};

template <int W, bool kFits = W <= kRegister>
struct LanesOf {
    using type = Register<float, W>;
};
template <int W>
struct LanesOf<W, false> {
    using type = Pack<float, W / kRegister>;
};
template <int W>
using Lanes = typename LanesOf<W>::type;

template <class Mask, class Values>
LABELGROVE_INLINE Values select(Mask mask, Values yes, Values no) {
    return mask ? yes : no;
}
template <class T, int N>
LABELGROVE_INLINE Pack<T, N> select(const Pack<int32_t, N>& mask, const Pack<T, N>& yes,
                                    const Pack<T, N>& no) {
    return Pack<T, N>::template of<T>(
        [&](int i) { return mask.parts[i] ? yes.parts[i] : no.parts[i]; });
}

template <int W, class Mask>
LABELGROVE_INLINE bool any_of(const Mask& mask) {
    int found = 0;
    for (int i = 0; i < W; ++i) found |= static_cast<int>(mask[i]);
    return found != 0;
}
template <int W, int N>
LABELGROVE_INLINE bool any_of(const Pack<int32_t, N>& mask) {
    auto found = mask.parts[0];
    for (int i = 1; i < N; ++i) found |= mask.parts[i];
    if constexpr (kRegister == 1) {
        return found != 0;
    } else {
        return any_of<kRegister>(found);
    }
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
