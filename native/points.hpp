// Rows with a sparse block, a dense block, or both: documents, or labels to build a tree from.
//
// The dense block needs no renumbering, so its rows are read in place: millions of labels are not
// copied, and half precision is converted while reading.
#pragma once

#include <cstdint>
#include <cstring>

#include "csr.hpp"
#include "dense.hpp"
#include "dispatch.hpp"
#include "lanes.hpp"

namespace labelgrove {

struct Points {
    Csr sparse;
    Dense dense;

    int64_t rows() const { return sparse.rows; }
    int64_t width() const { return dense.cols; }

    bool has_features(int64_t row) const {
        if (sparse.row_nnz(row) > 0) return true;
        const int64_t first = row * dense.cols, last = first + dense.cols;
        for (int64_t k = first; k < last; ++k) {
            if (dense.single != nullptr ? dense.single[k] != 0.0f
                                        : (dense.half[k] & 0x7fffu) != 0) {
                return true;
            }
        }
        return false;
    }
};

// How k-means runs.
struct KmeansOptions {
    int max_iterations;
    uint64_t seed;
    int threads;
};

inline constexpr int kPointLanes = 16;
using PointLanes = Lanes<kPointLanes>;

// Rows may be unaligned, so lanes are loaded with memcpy, which becomes an unaligned load.
LABELGROVE_INLINE PointLanes load_lanes(const float* from) {
    PointLanes lanes;
    std::memcpy(&lanes, from, sizeof lanes);
    return lanes;
}

LABELGROVE_INLINE PointLanes load_lanes(const uint16_t* from) {
    float wide[kPointLanes];
    for (int i = 0; i < kPointLanes; ++i) wide[i] = half_to_float(from[i]);
    return load_lanes(wide);
}

LABELGROVE_INLINE float widened(float value) { return value; }
LABELGROVE_INLINE float widened(uint16_t value) { return half_to_float(value); }

// The order of additions is fixed and does not depend on the instruction set.
template <class Number>
LABELGROVE_INLINE float dot_lanes(const Number* row, const float* vector, int64_t width) {
    PointLanes even{}, odd{};
    int64_t f = 0;
    for (; f + 2 * kPointLanes <= width; f += 2 * kPointLanes) {
        even += load_lanes(row + f) * load_lanes(vector + f);
        odd += load_lanes(row + f + kPointLanes) * load_lanes(vector + f + kPointLanes);
    }
    even += odd;
    float sum = 0.0f;
    for (int i = 0; i < kPointLanes; ++i) sum += even[i];
    for (; f < width; ++f) sum += widened(row[f]) * vector[f];
    return sum;
}

// Static, because several files have their own versions of these, from which the loader chooses.
LABELGROVE_MULTIVERSION
static float dot_single(const float* row, const float* vector, int64_t width) {
    return dot_lanes(row, vector, width);
}
LABELGROVE_MULTIVERSION
static float dot_half(const uint16_t* row, const float* vector, int64_t width) {
    return dot_lanes(row, vector, width);
}
LABELGROVE_MULTIVERSION
static void add_single(const float* row, double factor, int64_t count, double* sum) {
    for (int64_t f = 0; f < count; ++f) sum[f] += factor * row[f];
}
LABELGROVE_MULTIVERSION
static void add_half(const uint16_t* row, double factor, int64_t count, double* sum) {
    for (int64_t f = 0; f < count; ++f) sum[f] += factor * half_to_float(row[f]);
}

inline float dense_row_dot(const Dense& dense, int64_t row, const float* vector) {
    const int64_t first = row * dense.cols;
    return dense.single != nullptr ? dot_single(dense.single + first, vector, dense.cols)
                                   : dot_half(dense.half + first, vector, dense.cols);
}

// sum[f] += factor * row[f] for the columns from .. to-1 of the dense block.
inline void dense_row_add(const Dense& dense, int64_t row, double factor, int64_t from, int64_t to,
                          double* sum) {
    const int64_t first = row * dense.cols + from;
    if (dense.single != nullptr) {
        add_single(dense.single + first, factor, to - from, sum + from);
    } else {
        add_half(dense.half + first, factor, to - from, sum + from);
    }
}

}  // namespace labelgrove
