// A cluster's instances as its solver reads them: sparse terms, a dense vector and the constant.
//
// Vectors over features have the sparse features first (renumbered, see submatrix.hpp), then the
// dense ones, then the constant. For W labels at once they are vector[feature][label].
//
// Words follow Zipf's law: half of a cluster's features occur in only one of its instances. The
// weight of such a "lone" feature is that instance's variable times the feature's value, so a sweep
// need not load or store it. The other weights then fit into a faster cache.
#pragma once

#include <cstdint>
#include <vector>

#include "dispatch.hpp"
#include "lanes.hpp"
#include "points.hpp"
#include "prefetch.hpp"
#include "submatrix.hpp"

namespace labelgrove {

struct ClusterSource {
    Points features;
    float dense_scale;  // factor on the dense features, which changes their regularisation
    float bias;
    const int32_t* rows;  // the cluster's instances
    int64_t count;
    RowRange more;  // copied too, see submatrix.hpp
};

class ClusterRows {
public:
    void assign(const ClusterSource& source) {
        const int64_t count = source.count;
        const float bias = source.bias;
        sparse_.assign(source.features.sparse, source.rows, count, source.more);
        sparse_.move_lone_features_back();
        width_ = source.features.width();
        bias_ = bias;
        lone_squares_.resize(count);
        dense_.resize(count * width_);
        squared_norms_.resize(count);
        for (int64_t i = 0; i < count; ++i) {
            float sum = bias * bias, lone = 0.0f;
            for (const auto* e = sparse_.begin(i); e != sparse_.lone(i); ++e) {
                sum += e->value * e->value;
            }
            for (const auto* e = sparse_.lone(i); e != sparse_.end(i); ++e) {
                lone += e->value * e->value;
            }
            lone_squares_[i] = lone;
            sum += lone;
            if (width_ > 0) {
                float* const row = dense_.data() + i * width_;
                source.features.dense.copy_row(source.rows[i], row);
                float dense_sum = 0.0f;
                for (int64_t f = 0; f < width_; ++f) {
                    row[f] *= source.dense_scale;
                    dense_sum += row[f] * row[f];
                }
                sum += dense_sum;
            }
            squared_norms_[i] = sum;
        }
    }

    int64_t rows() const { return sparse_.rows(); }
    int64_t terms() const { return sparse_.features(); }
    int64_t width() const { return width_; }
    int64_t features() const { return terms() + width_ + 1; }
    float bias() const { return bias_; }
    const float* squared_norms() const { return squared_norms_.data(); }
    const Submatrix& sparse() const { return sparse_; }
    const float* dense_row(int64_t i) const { return dense_.data() + i * width_; }

    LABELGROVE_INLINE void fetch(int64_t i) const {
        sparse_.prefetch_row(i);
        const float* const row = dense_row(i);
        for (int64_t f = 0; f < width_; f += 16) prefetch(row + f);
    }

    template <int W>
    LABELGROVE_INLINE Lanes<W> margin(int64_t i, const Lanes<W>* weights) const {
        return margin_to<W>(i, sparse_.end(i), weights, weights[terms() + width_] * bias_);
    }

    // The same in a sweep: `constant` is the constant's part, and `factor` is this row's factor in
    // the weights, which gives the part of its lone features.
    template <int W>
    LABELGROVE_INLINE Lanes<W> margin_in_sweep(int64_t i, const Lanes<W>* weights,
                                               const Lanes<W>& constant,
                                               const Lanes<W>& factor) const {
        return margin_to<W>(i, sparse_.lone(i), weights, constant + factor * lone_squares_[i]);
    }

    template <int W>
    LABELGROVE_INLINE Lanes<W> margin_to(int64_t i, const Submatrix::Entry* end,
                                         const Lanes<W>* weights, const Lanes<W>& start) const {
        const auto* entry = sparse_.begin(i);
        const Lanes<W>* const dense_weights = weights + terms();
        Lanes<W> a = start, b{}, c{}, d{};  // four sums hide the latency of addition
        for (; end - entry >= 4; entry += 4) {
            a += weights[entry[0].feature] * entry[0].value;
            b += weights[entry[1].feature] * entry[1].value;
            c += weights[entry[2].feature] * entry[2].value;
            d += weights[entry[3].feature] * entry[3].value;
        }
        for (; entry != end; ++entry) a += weights[entry->feature] * entry->value;
        const float* const row = dense_row(i);
        int64_t f = 0;
        for (; f + 4 <= width_; f += 4) {
            a += dense_weights[f] * row[f];
            b += dense_weights[f + 1] * row[f + 1];
            c += dense_weights[f + 2] * row[f + 2];
            d += dense_weights[f + 3] * row[f + 3];
        }
        for (; f < width_; ++f) a += dense_weights[f] * row[f];
        return (a + b) + (c + d);
    }

    // weights += change * row
    template <int W>
    LABELGROVE_INLINE void add(int64_t i, const Lanes<W>& change, Lanes<W>* weights) const {
        add_to<W>(i, sparse_.end(i), change, weights);
        weights[terms() + width_] += change * bias_;
    }

    // The same in a sweep, without the constant and the lone features.
    template <int W>
    LABELGROVE_INLINE void add_in_sweep(int64_t i, const Lanes<W>& change,
                                        Lanes<W>* weights) const {
        add_to<W>(i, sparse_.lone(i), change, weights);
    }

    // After the sweeps: sets the weights of the row's lone features.
    template <int W>
    LABELGROVE_INLINE void set_lone(int64_t i, const Lanes<W>& factor, Lanes<W>* weights) const {
        for (const auto *entry = sparse_.lone(i), *end = sparse_.end(i); entry != end; ++entry) {
            weights[entry->feature] = factor * entry->value;
        }
    }

    template <int W>
    LABELGROVE_INLINE void add_to(int64_t i, const Submatrix::Entry* end, const Lanes<W>& change,
                                  Lanes<W>* weights) const {
        for (const auto* entry = sparse_.begin(i); entry != end; ++entry) {
            weights[entry->feature] += change * entry->value;
        }
        Lanes<W>* const dense_weights = weights + terms();
        const float* const row = dense_row(i);
        for (int64_t f = 0; f < width_; ++f) dense_weights[f] += change * row[f];
    }

private:
    Submatrix sparse_;
    int64_t width_ = 0;
    float bias_ = 0.0f;
    std::vector<float> dense_, squared_norms_, lone_squares_;
};

// margins[i] for rows i = first, first + 1, ...
template <int W>
LABELGROVE_INLINE void walk_margins(const ClusterRows& rows, int64_t first, const Lanes<W>* weights,
                                    Lanes<W>* margins) {
    for (int64_t i = first; i < rows.rows(); ++i) margins[i] = rows.margin<W>(i, weights);
}

// weights += sum of factors[i] * row i.
template <int W>
LABELGROVE_INLINE void walk_sum(const ClusterRows& rows, const Lanes<W>* factors,
                                Lanes<W>* weights) {
    const Lanes<W> zero{};
    for (int64_t i = 0; i < rows.rows(); ++i) {
        if (any_of<W>(factors[i] != zero)) rows.add<W>(i, factors[i], weights);
    }
}

// Templates cannot have several versions, so these are plain functions.
LABELGROVE_MULTIVERSION
inline void row_margins(const ClusterRows& rows, int64_t first, const Lanes<16>* weights,
                        Lanes<16>* margins) {
    walk_margins<16>(rows, first, weights, margins);
}
LABELGROVE_MULTIVERSION
inline void row_margins(const ClusterRows& rows, int64_t first, const Lanes<8>* weights,
                        Lanes<8>* margins) {
    walk_margins<8>(rows, first, weights, margins);
}
LABELGROVE_MULTIVERSION
inline void row_margins(const ClusterRows& rows, int64_t first, const Lanes<4>* weights,
                        Lanes<4>* margins) {
    walk_margins<4>(rows, first, weights, margins);
}
LABELGROVE_MULTIVERSION
inline void sum_rows(const ClusterRows& rows, const Lanes<16>* factors, Lanes<16>* weights) {
    walk_sum<16>(rows, factors, weights);
}
LABELGROVE_MULTIVERSION
inline void sum_rows(const ClusterRows& rows, const Lanes<8>* factors, Lanes<8>* weights) {
    walk_sum<8>(rows, factors, weights);
}
LABELGROVE_MULTIVERSION
inline void sum_rows(const ClusterRows& rows, const Lanes<4>* factors, Lanes<4>* weights) {
    walk_sum<4>(rows, factors, weights);
}

}  // namespace labelgrove
