// Balanced spherical 2-means, repeated until there are 2^depth clusters.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "parallel.hpp"
#include "points.hpp"
#include "random.hpp"
#include "submatrix.hpp"
#include "work_report.hpp"

namespace labelgrove {

// What a thread of one split should have to read in an iteration, about a tenth of a millisecond.
inline constexpr int64_t kEntriesPerThread = 1 << 16;

// Splits a set of rows into halves, and those again; keeps its memory for the next set.
class HalvingKmeans {
public:
    // A node of the tree: the rows order[offset .. end), ascending. Nodes are numbered as in a
    // heap; the number picks the seed.
    struct Part {
        int32_t* order;
        int64_t offset, end;
        uint64_t node;
    };

    // Rearranges the part into 2^layers consecutive parts, each ascending. A slice [s, e) is halved
    // at floor((s + e) / 2). A layer of a row is one unit of work.
    void grow(const Points& points, const Part& part, int layers, const KmeansOptions& options,
              WorkReport& done, int worker) {
        const int64_t offset = part.offset, count = part.end - part.offset;
        int32_t* const ids = part.order + offset;
        uint64_t node = part.node;
        rows_.assign(points.sparse, ids, count);
        dense_ = points.dense;
        kept_.assign(ids, ids + count);
        members_.resize(count);
        std::iota(members_.begin(), members_.end(), 0);
        std::vector<int64_t> bounds{offset, offset + count};
        for (int layer = 0; layer < layers; ++layer, node *= 2) {
            std::vector<int64_t> halves;
            for (size_t slice = 0; slice + 1 < bounds.size(); ++slice) {
                const int64_t from = bounds[slice], to = bounds[slice + 1];
                const int64_t middle = (from + to) / 2;
                KmeansOptions inner = options;
                inner.seed = derive_seed(options.seed, node + slice);
                split(members_.data() + (from - offset), middle - from, to - from, inner);
                done.add(to - from, worker);
                halves.push_back(from);
                halves.push_back(middle);
            }
            halves.push_back(offset + count);
            bounds = std::move(halves);
        }
        for (int64_t place = 0; place < count; ++place) ids[place] = kept_[members_[place]];
    }

private:
    // Rearranges members[0 .. count): the first `left` are the left half, each half ascending.
    void split(int32_t* members, int64_t left, int64_t count, const KmeansOptions& options) {
        if (count < 2) return;
        const int64_t m = rows_.features(), width = dense_.cols;
        const int threads = worthwhile(options.threads, count);
        Random random(options.seed);
        const uint32_t p = random.below(static_cast<uint32_t>(count));
        uint32_t q = random.below(static_cast<uint32_t>(count - 1));
        if (q >= p) ++q;
        // Vectors over features hold the sparse features first, then the dense ones.
        direction_.assign(m + width, 0.0f);
        rows_.add(members[q], 1.0f, direction_.data());
        rows_.add(members[p], -1.0f, direction_.data());
        right_.assign(rows_.rows(), 0);
        total_.assign(m + width, 0.0);
        right_sum_.assign(m + width, 0.0);
        if (width > 0) {
            dense_row_add(dense_, kept_[members[q]], 1.0, 0, width, right_sum_.data() + m);
            dense_row_add(dense_, kept_[members[p]], -1.0, 0, width, right_sum_.data() + m);
            for (int64_t f = m; f < m + width; ++f) {
                direction_[f] = static_cast<float>(std::exchange(right_sum_[f], 0.0));
            }
        }
        moved_.assign(members, members + count);
        accumulate(total_.data(), threads, [](int32_t) { return 1.0; });
        for (int iteration = 0; iteration < options.max_iterations; ++iteration) {
            assign_halves(members, left, count, threads);
            if (iteration > 0 && moved_.empty()) break;
            // Only rows that changed sides change the sum; late iterations move few of them.
            accumulate(right_sum_.data(), threads,
                       [this](int32_t row) { return right_[row] ? 1.0 : -1.0; });
            aim();
        }
        std::stable_partition(members, members + count,
                              [this](int32_t row) { return !right_[row]; });
    }

    // As many threads as have enough to do: each iteration starts them twice.
    int worthwhile(int threads, int64_t count) const {
        const int64_t entries = rows_.nnz() / rows_.rows() + dense_.cols;
        const int64_t useful = count * entries / kEntriesPerThread + 1;
        return static_cast<int>(std::min<int64_t>(resolve_threads(threads), useful));
    }

    // Sends the rows with the higher scores right; of equal scores the lower row goes left.
    void assign_halves(const int32_t* members, int64_t left, int64_t count, int threads) {
        scored_.resize(count);
        const int64_t block = std::max<int64_t>(64, count / 64 + 1);
        parallel_for((count + block - 1) / block, threads, [&](int64_t piece, int) {
            const int64_t last = std::min(count, (piece + 1) * block);
            for (int64_t k = piece * block; k < last; ++k) {
                if (k + 1 < count) rows_.prefetch_row(members[k + 1]);
                float score = rows_.dot(members[k], direction_.data());
                if (dense_.cols > 0) {
                    score += dense_row_dot(dense_, kept_[members[k]],
                                           direction_.data() + rows_.features());
                }
                scored_[k] = {score, members[k]};
            }
        });
        auto before = [](const Scored& a, const Scored& b) {
            return a.score != b.score ? a.score < b.score : a.row < b.row;
        };
        std::nth_element(scored_.begin(), scored_.begin() + left, scored_.end(), before);
        moved_.clear();
        for (int64_t place = 0; place < count; ++place) {
            const uint8_t side = place >= left;
            if (right_[scored_[place].row] != side) moved_.push_back(scored_[place].row);
            right_[scored_[place].row] = side;
        }
        std::sort(moved_.begin(), moved_.end());
    }

    // sum += sign(row) * row for the moved rows. Each thread sums its own features, so that every
    // feature is summed in the same order for any number of threads.
    template <class Sign>
    void accumulate(double* sum, int threads, Sign sign) {
        const int pieces = resolve_threads(threads);
        const int64_t m = rows_.features(), width = dense_.cols;
        parallel_for(pieces, threads, [&](int64_t piece, int) {
            const int64_t from = width * piece / pieces, to = width * (piece + 1) / pieces;
            for (int32_t row : moved_) {
                const double factor = sign(row);
                for (const auto* entry = rows_.begin(row); entry != rows_.end(row); ++entry) {
                    if (pieces == 1 || entry->feature % pieces == piece) {
                        sum[entry->feature] += factor * entry->value;
                    }
                }
                if (from < to) dense_row_add(dense_, kept_[row], factor, from, to, sum + m);
            }
        });
    }

    // direction = right centre - left centre, both of unit length. For unit vectors, halving by
    // <direction, z> is the best balanced assignment to the two centres.
    void aim() {
        const int64_t m = static_cast<int64_t>(direction_.size());
        double right_square = 0, left_square = 0;
        for (int64_t f = 0; f < m; ++f) {
            const double left = total_[f] - right_sum_[f];
            right_square += right_sum_[f] * right_sum_[f];
            left_square += left * left;
        }
        const double right_scale = right_square > 0 ? 1.0 / std::sqrt(right_square) : 0.0;
        const double left_scale = left_square > 0 ? 1.0 / std::sqrt(left_square) : 0.0;
        for (int64_t f = 0; f < m; ++f) {
            direction_[f] = static_cast<float>(right_sum_[f] * right_scale -
                                               (total_[f] - right_sum_[f]) * left_scale);
        }
    }

    struct Scored {
        float score;
        int32_t row;
    };

    Submatrix rows_;
    Dense dense_;  // member m has the row kept_[m]
    std::vector<float> direction_;
    std::vector<double> total_, right_sum_;
    std::vector<uint8_t> right_;
    std::vector<Scored> scored_;
    std::vector<int32_t> members_, moved_, kept_;
};

// The number of layers that are split on one copy of the rows. Copying costs about as much as a
// few iterations, but vectors over features become shorter with each copy.
inline constexpr int kLayersPerCopy = 3;

// An order of the rows in which the 2^depth clusters are consecutive. A slice [s, e) is halved at
// floor((s + e) / 2), layer by layer, so sizes differ by at most one.
//
// `root` is the number of the node that has all rows: 1, or that of a node of a larger tree. The
// subtree below a node of the larger tree comes out the same from that node's rows alone, in their
// order, if the node's depth there is a multiple of kLayersPerCopy: then both copy the same rows.
inline std::vector<int32_t> balanced_kmeans(const Points& points, int depth, uint64_t root,
                                            const KmeansOptions& options,
                                            const OnWork& report = {}) {
    WorkReport done(report, points.rows() * depth);
    std::vector<int32_t> order(points.rows());
    std::iota(order.begin(), order.end(), 0);
    std::vector<int64_t> bounds{0, points.rows()};
    const int workers = resolve_threads(options.threads);
    std::vector<HalvingKmeans> scratch(workers);
    for (int layer = 0; layer < depth; layer += kLayersPerCopy) {
        const int layers = std::min(kLayersPerCopy, depth - layer);
        const int64_t nodes = static_cast<int64_t>(bounds.size()) - 1;
        auto grow = [&](int64_t node, int worker, int inner_threads) {
            const HalvingKmeans::Part part{.order = order.data(),
                                           .offset = bounds[node],
                                           .end = bounds[node + 1],
                                           .node = nodes * root + node};
            KmeansOptions inner = options;
            inner.threads = inner_threads;
            scratch[worker].grow(points, part, layers, inner, done, worker);
        };
        // Nodes have the same size: if there are fewer than threads, each gets an equal share.
        const int outer = static_cast<int>(std::min<int64_t>(nodes, workers));
        parallel_for(nodes, outer,
                     [&](int64_t node, int worker) { grow(node, worker, workers / outer); });
        for (int halving = 0; halving < layers; ++halving) {
            std::vector<int64_t> halves;
            for (size_t part = 0; part + 1 < bounds.size(); ++part) {
                halves.push_back(bounds[part]);
                halves.push_back((bounds[part] + bounds[part + 1]) / 2);
            }
            halves.push_back(points.rows());
            bounds = std::move(halves);
        }
    }
    return order;
}

}  // namespace labelgrove
