// Products of all pairs of a cluster's instances, so that descent can update margins, not weights.
//
// A visit without a change then costs one look at a margin, and a visit with a change costs one row
// of the matrix, whatever the number of features. This is faster in clusters with few instances or
// many features, especially where a dense block makes every row long.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cluster_rows.hpp"
#include "lanes.hpp"

namespace labelgrove {

class Gram {
public:
    // Computes 16 columns at a time: the products of 16 rows with all rows.
    void assign(const ClusterRows& rows) {
        constexpr int W = 16;
        const int64_t n = rows.rows();
        stride_ = (n + W - 1) / W * W;
        products_.assign(stride_ * n, 0.0f);
        columns_.assign(rows.features() * W, 0.0f);
        margins_.assign(n * W, 0.0f);
        const Submatrix& sparse = rows.sparse();
        for (int64_t first = 0; first < n; first += W) {
            const int64_t last = std::min(n, first + W);
            float* const dense = columns_.data() + rows.terms() * W;
            for (int64_t j = first; j < last; ++j) {
                const int64_t lane = j - first;
                for (const auto* e = sparse.begin(j); e != sparse.end(j); ++e) {
                    columns_.data()[static_cast<int64_t>(e->feature) * W + lane] = e->value;
                }
                const float* const row = rows.dense_row(j);
                for (int64_t f = 0; f < rows.width(); ++f) dense[f * W + lane] = row[f];
                dense[rows.width() * W + lane] = rows.bias();
            }
            row_margins(rows, first, columns_.lanes<W>(), margins_.lanes<W>());
            for (int64_t i = first; i < n; ++i) {
                const float* const from = margins_.data() + i * W;
                for (int64_t j = first; j < last; ++j) {
                    products_.data()[i * stride_ + j] = from[j - first];
                    products_.data()[j * stride_ + i] = from[j - first];
                }
            }
            for (int64_t j = first; j < last; ++j) {
                for (const auto* e = sparse.begin(j); e != sparse.end(j); ++e) {
                    columns_.data()[static_cast<int64_t>(e->feature) * W + j - first] = 0.0f;
                }
            }
        }
    }

    const float* row(int64_t i) const { return products_.data() + i * stride_; }

private:
    int64_t stride_ = 0;
    LaneArray products_, columns_, margins_;
};

// Whether the matrix is faster for a cluster with this many instances, blocks of labels, sparse and
// dense features per row. Costs are in units of one dense feature in a visit; the constants are
// measured (benchmarks/NOTES.md).
inline bool gram_pays(int64_t instances, int64_t blocks, double terms, int64_t width) {
    constexpr int64_t kMostInstances = 2048;
    constexpr double kTerm = 2.5, kProduct = 2.0, kVisits = 8.0;
    // Without a dense block it is never clearly faster, and slower where rows are long.
    if (width == 0 || instances > kMostInstances || instances == 0) return false;
    const double walk = static_cast<double>(width) + kTerm * terms;
    const double descent = kVisits * static_cast<double>(blocks);
    const double by_weights = descent * 2.0 * walk;
    const double by_margins =
        descent * kProduct * static_cast<double>(instances) +
        (static_cast<double>(blocks) + static_cast<double>(instances) / 32.0) * walk;
    return by_margins < by_weights;
}

}  // namespace labelgrove
