// Balanced spherical 2-means, applied again and again until there are 2^depth clusters.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "csr.hpp"
#include "parallel.hpp"
#include "random.hpp"
#include "submatrix.hpp"

namespace labelgrove {

// Splits one set of rows into two halves; keeps its memory for the next set.
class HalvingKmeans {
public:
    // Rearranges ids[0 .. count): the first floor(count/2) are the left half, each half ascending.
    void split(const Csr& points, int32_t* ids, int64_t count, int max_iterations, uint64_t seed,
               int threads) {
        if (count < 2) return;
        rows_.assign(points, ids, count);
        const int32_t m = rows_.features();
        Random random(seed);
        const uint32_t p = random.below(static_cast<uint32_t>(count));
        uint32_t q = random.below(static_cast<uint32_t>(count - 1));
        if (q >= p) ++q;
        direction_.assign(m, 0.0f);
        rows_.add(q, 1.0f, direction_.data());
        rows_.add(p, -1.0f, direction_.data());
        right_.assign(count, 0);
        total_.assign(m, 0.0);
        right_sum_.assign(m, 0.0);
        moved_.resize(count);
        std::iota(moved_.begin(), moved_.end(), 0);
        accumulate(total_.data(), threads, [](int32_t) { return 1.0; });
        for (int iteration = 0; iteration < max_iterations; ++iteration) {
            assign_halves(count, threads);
            if (iteration > 0 && moved_.empty()) break;
            // Only rows that changed sides change the sum; late iterations move few of them.
            accumulate(right_sum_.data(), threads,
                       [this](int32_t row) { return right_[row] ? 1.0 : -1.0; });
            aim(m);
        }
        arrange(ids, count);
    }

private:
    // Sends the rows with the higher scores right; of equal scores the lower row goes left.
    void assign_halves(int64_t count, int threads) {
        scored_.resize(count);
        const int64_t block = std::max<int64_t>(64, count / 64 + 1);
        parallel_for((count + block - 1) / block, threads, [&](int64_t piece, int) {
            const int64_t last = std::min(count, (piece + 1) * block);
            for (int64_t row = piece * block; row < last; ++row) {
                scored_[row] = {rows_.dot(row, direction_.data()), static_cast<int32_t>(row)};
            }
        });
        auto before = [](const Scored& a, const Scored& b) {
            return a.score != b.score ? a.score < b.score : a.row < b.row;
        };
        std::nth_element(scored_.begin(), scored_.begin() + count / 2, scored_.end(), before);
        moved_.clear();
        for (int64_t place = 0; place < count; ++place) {
            const uint8_t side = place >= count / 2;
            if (right_[scored_[place].row] != side) moved_.push_back(scored_[place].row);
            right_[scored_[place].row] = side;
        }
        std::sort(moved_.begin(), moved_.end());
    }

    // sum += sign(row) * row for the moved rows. Threads share the features out among them, so
    // every feature is summed in the same order whatever their number.
    template <class Sign>
    void accumulate(double* sum, int threads, Sign sign) {
        const int pieces = resolve_threads(threads);
        parallel_for(pieces, threads, [&](int64_t piece, int) {
            for (int32_t row : moved_) {
                const double factor = sign(row);
                for (const auto* entry = rows_.begin(row); entry != rows_.end(row); ++entry) {
                    if (pieces == 1 || entry->feature % pieces == piece) {
                        sum[entry->feature] += factor * entry->value;
                    }
                }
            }
        });
    }

    // direction = right centre - left centre, both of unit length. For unit vectors, halving by
    // <direction, z> is the best balanced assignment to the two centres.
    void aim(int32_t m) {
        double right_square = 0, left_square = 0;
        for (int32_t f = 0; f < m; ++f) {
            const double left = total_[f] - right_sum_[f];
            right_square += right_sum_[f] * right_sum_[f];
            left_square += left * left;
        }
        const double right_scale = right_square > 0 ? 1.0 / std::sqrt(right_square) : 0.0;
        const double left_scale = left_square > 0 ? 1.0 / std::sqrt(left_square) : 0.0;
        for (int32_t f = 0; f < m; ++f) {
            direction_[f] = static_cast<float>(right_sum_[f] * right_scale -
                                               (total_[f] - right_sum_[f]) * left_scale);
        }
    }

    void arrange(int32_t* ids, int64_t count) {
        kept_.assign(ids, ids + count);
        int64_t left = 0, right = count / 2;
        for (int64_t row = 0; row < count; ++row) ids[right_[row] ? right++ : left++] = kept_[row];
    }

    struct Scored {
        float score;
        int32_t row;
    };

    Submatrix rows_;
    std::vector<float> direction_;
    std::vector<double> total_, right_sum_;
    std::vector<uint8_t> right_;
    std::vector<Scored> scored_;
    std::vector<int32_t> moved_, kept_;
};

// Order of the rows in which 2^depth clusters lie one after another. A slice [s, e) is halved at
// floor((s + e) / 2), layer by layer, so sizes differ by at most one.
inline std::vector<int32_t> balanced_kmeans(const Csr& points, int depth, int max_iterations,
                                            uint64_t seed, int threads) {
    std::vector<int32_t> order(points.rows);
    std::iota(order.begin(), order.end(), 0);
    std::vector<int64_t> bounds{0, points.rows};
    const int workers = resolve_threads(threads);
    std::vector<HalvingKmeans> scratch(workers);
    uint64_t first_node = 1;  // nodes are numbered as in a heap; the number picks the seed
    for (int layer = 0; layer < depth; ++layer) {
        const int64_t nodes = static_cast<int64_t>(bounds.size()) - 1;
        auto split = [&](int64_t node, int worker, int inner_threads) {
            scratch[worker].split(points, order.data() + bounds[node], bounds[node + 1] - bounds[node],
                                  max_iterations, derive_seed(seed, first_node + node), inner_threads);
        };
        if (nodes >= workers) {
            parallel_for(nodes, workers, [&](int64_t node, int worker) { split(node, worker, 1); });
        } else {
            for (int64_t node = 0; node < nodes; ++node) split(node, 0, workers);
        }
        std::vector<int64_t> halves;
        halves.reserve(2 * nodes + 1);
        for (int64_t node = 0; node < nodes; ++node) {
            halves.push_back(bounds[node]);
            halves.push_back((bounds[node] + bounds[node + 1]) / 2);
        }
        halves.push_back(points.rows);
        bounds = std::move(halves);
        first_node *= 2;
    }
    return order;
}

}  // namespace labelgrove
