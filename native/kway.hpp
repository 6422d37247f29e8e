// Spherical k-means with k centres and clusters of any size, for many nodes of a tree at a time.
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

namespace labelgrove {

// Stop when the mean cosine between rows and their centres improves by less than this.
inline constexpr double kKwayTolerance = 1e-4;

// The number of dense rows that are compared with the centres together, so that the centres are
// read once for all of them.
inline constexpr int kKwayRows = 4;

// scores[r * k + c] += <rows + r * width, centre c>; k is a multiple of the lanes and centres are
// width x k.
LABELGROVE_MULTIVERSION
static void add_dense_scores(const float* rows, int64_t width, const float* centres, int64_t k,
                             float* scores) {
    for (int64_t c = 0; c < k; c += kPointLanes) {
        PointLanes sum[kKwayRows] = {};
        for (int64_t f = 0; f < width; ++f) {
            const PointLanes centre = load_lanes(centres + f * k + c);
            for (int r = 0; r < kKwayRows; ++r) sum[r] += centre * rows[r * width + f];
        }
        for (int r = 0; r < kKwayRows; ++r) {
            for (int i = 0; i < kPointLanes; ++i) scores[r * k + c + i] += sum[r][i];
        }
    }
}

// Splits one set of rows into up to k clusters; keeps its memory for the next set.
class KwayKmeans {
public:
    // Writes the cluster of ids[i] to cluster[i]. Centres start at k different rows. A cluster
    // without rows disappears. Rows without features are spread evenly, so that unused labels do
    // not all end up in one cluster.
    void split(const Points& points, const int32_t* ids, int64_t count, int32_t k,
               const KmeansOptions& options, int32_t* cluster) {
        filled_.clear();
        for (int64_t i = 0; i < count; ++i) {
            if (points.has_features(ids[i])) filled_.push_back(static_cast<int32_t>(i));
        }
        const int64_t rows = static_cast<int64_t>(filled_.size());
        k_ = static_cast<int32_t>(std::min<int64_t>(k, std::max<int64_t>(rows, 1)));
        if (rows > 0) cluster_rows(points, ids, options);
        for (int64_t row = 0; row < rows; ++row) cluster[filled_[row]] = nearest_[row];
        deal_empty_rows(points, ids, count, rows > 0 ? k_ : k, cluster);
    }

private:
    void cluster_rows(const Points& points, const int32_t* ids, const KmeansOptions& options) {
        const int threads = options.threads;
        const int64_t rows = static_cast<int64_t>(filled_.size());
        std::vector<int32_t> chosen(rows);
        for (int64_t row = 0; row < rows; ++row) chosen[row] = ids[filled_[row]];
        rows_.assign(points.sparse, chosen.data(), rows);
        dense_ = points.dense;
        chosen_ = std::move(chosen);
        padded_ = (k_ + kPointLanes - 1) / kPointLanes * kPointLanes;
        dense_centres_.assign(static_cast<size_t>(dense_.cols) * padded_, 0.0f);
        dense_sums_.assign(static_cast<size_t>(dense_.cols) * k_, 0.0);
        const size_t size = static_cast<size_t>(rows_.features()) * k_;
        centres_.assign(size, 0.0f);
        sums_.assign(size, 0.0);
        start(options.seed);
        nearest_.assign(rows, -1);
        scores_.resize(rows);
        double before = -2.0;
        for (int iteration = 0; iteration < options.max_iterations; ++iteration) {
            assign(threads);
            // Summed row by row, for the same bits with any number of threads.
            const double mean = std::accumulate(scores_.begin(), scores_.end(), 0.0) / rows;
            if (moved_.empty() || mean - before < kKwayTolerance) break;
            before = mean;
            move_sums(threads);
            normalise_centres(threads);
        }
    }

    // Centres start at the first k rows of a random order, scaled to unit length.
    void start(uint64_t seed) {
        Random random(seed);
        const int64_t width = dense_.cols;
        std::vector<float> dense_row(width);
        std::vector<int32_t> order(rows_.rows());
        std::iota(order.begin(), order.end(), 0);
        for (int32_t c = 0; c < k_; ++c) {
            std::swap(order[c], order[c + random.below(static_cast<uint32_t>(order.size() - c))]);
            double square = 0;
            for (const auto* e = rows_.begin(order[c]); e != rows_.end(order[c]); ++e) {
                square += e->value * e->value;
            }
            if (width > 0) dense_.copy_row(chosen_[order[c]], dense_row.data());
            for (float value : dense_row) square += static_cast<double>(value) * value;
            const float scale = square > 0 ? static_cast<float>(1.0 / std::sqrt(square)) : 0.0f;
            for (const auto* e = rows_.begin(order[c]); e != rows_.end(order[c]); ++e) {
                centres_[static_cast<size_t>(e->feature) * k_ + c] = scale * e->value;
            }
            for (int64_t f = 0; f < width; ++f) {
                dense_centres_[f * padded_ + c] = scale * dense_row[f];
            }
        }
    }

    // Assigns every row to its best centre, the first of equals, and lists the rows that moved.
    void assign(int threads) {
        const int64_t rows = rows_.rows(), block = std::max<int64_t>(16, rows / 256 + 1);
        moves_.resize(rows);
        parallel_for((rows + block - 1) / block, threads, [&](int64_t piece, int) {
            std::vector<float> scores(kKwayRows * static_cast<size_t>(padded_));
            std::vector<float> dense_rows(kKwayRows * static_cast<size_t>(dense_.cols));
            const int64_t last = std::min(rows, (piece + 1) * block);
            for (int64_t first = piece * block; first < last; first += kKwayRows) {
                const int64_t end = std::min(last, first + kKwayRows);
                std::fill(scores.begin(), scores.end(), 0.0f);
                for (int64_t row = first; row < end; ++row) {
                    add_sparse_scores(row, scores.data() + (row - first) * padded_);
                    if (dense_.cols == 0) continue;
                    dense_.copy_row(chosen_[row], dense_rows.data() + (row - first) * dense_.cols);
                }
                if (dense_.cols > 0) {
                    add_dense_scores(dense_rows.data(), dense_.cols, dense_centres_.data(), padded_,
                                     scores.data());
                }
                for (int64_t row = first; row < end; ++row) {
                    const float* score = scores.data() + (row - first) * padded_;
                    const float* best = std::max_element(score, score + k_);
                    moves_[row] = {nearest_[row], static_cast<int32_t>(best - score)};
                    scores_[row] = *best;
                    nearest_[row] = moves_[row].second;
                }
            }
        });
        moved_.clear();
        for (int64_t row = 0; row < rows; ++row) {
            if (moves_[row].first != moves_[row].second) {
                moved_.push_back(static_cast<int32_t>(row));
            }
        }
    }

    void add_sparse_scores(int64_t row, float* score) const {
        for (const auto* e = rows_.begin(row); e != rows_.end(row); ++e) {
            const float* centre = centres_.data() + static_cast<size_t>(e->feature) * k_;
            for (int32_t c = 0; c < k_; ++c) score[c] += e->value * centre[c];
        }
    }

    // Only rows that moved change the sums. Each thread sums its own features, so that every sum
    // has the same order for any number of threads.
    void move_sums(int threads) {
        const int pieces = resolve_threads(threads);
        const int64_t width = dense_.cols;
        parallel_for(pieces, threads, [&](int64_t piece, int) {
            const int64_t first = width * piece / pieces, last = width * (piece + 1) / pieces;
            for (int32_t row : moved_) {
                const auto [from, to] = moves_[row];
                for (const auto* e = rows_.begin(row); e != rows_.end(row); ++e) {
                    if (pieces > 1 && e->feature % pieces != piece) continue;
                    double* sum = sums_.data() + static_cast<size_t>(e->feature) * k_;
                    if (from >= 0) sum[from] -= e->value;
                    sum[to] += e->value;
                }
                if (first == last) continue;
                if (from >= 0) {
                    dense_row_add(dense_, chosen_[row], -1.0, first, last,
                                  dense_sums_.data() + from * width);
                }
                dense_row_add(dense_, chosen_[row], 1.0, first, last,
                              dense_sums_.data() + to * width);
            }
        });
    }

    // A centre without rows becomes zero, even if rounding left something in its sum.
    void normalise_centres(int threads) {
        std::vector<int64_t> members(k_, 0);
        for (int32_t c : nearest_) ++members[c];
        std::vector<double> scale(k_, 0.0);
        const int64_t features = rows_.features();
        for (int64_t f = 0; f < features; ++f) {
            for (int32_t c = 0; c < k_; ++c) scale[c] += sums_[f * k_ + c] * sums_[f * k_ + c];
        }
        const int64_t width = dense_.cols;
        for (int32_t c = 0; c < k_; ++c) {
            for (int64_t f = 0; f < width; ++f) {
                scale[c] += dense_sums_[c * width + f] * dense_sums_[c * width + f];
            }
            scale[c] = members[c] > 0 && scale[c] > 0 ? 1.0 / std::sqrt(scale[c]) : 0.0;
        }
        for (int32_t c = 0; c < k_; ++c) {
            for (int64_t f = 0; f < width; ++f) {
                dense_centres_[f * padded_ + c] =
                    static_cast<float>(dense_sums_[c * width + f] * scale[c]);
            }
        }
        const int64_t block = 1024;
        parallel_for((features + block - 1) / block, threads, [&](int64_t piece, int) {
            for (int64_t f = piece * block; f < std::min(features, (piece + 1) * block); ++f) {
                for (int32_t c = 0; c < k_; ++c) {
                    centres_[f * k_ + c] = static_cast<float>(sums_[f * k_ + c] * scale[c]);
                }
            }
        });
    }

    void deal_empty_rows(const Points& points, const int32_t* ids, int64_t count, int32_t k,
                         int32_t* cluster) const {
        std::vector<uint8_t> used(k, filled_.empty());
        for (int32_t i : filled_) used[cluster[i]] = 1;
        int32_t next = 0;
        for (int64_t i = 0; i < count; ++i) {
            if (points.has_features(ids[i])) continue;
            while (!used[next % k]) ++next;
            cluster[i] = next++ % k;
            next %= k;
        }
    }

    int32_t k_ = 0;
    int32_t padded_ = 0;  // k, rounded up to whole lanes
    Submatrix rows_;
    Dense dense_;  // row r has the dense row chosen_[r]
    std::vector<int32_t> chosen_;
    std::vector<float> dense_centres_;  // columns x padded k
    std::vector<double> dense_sums_;    // k x columns
    std::vector<int32_t> filled_;       // places in ids of the rows that have features
    std::vector<float> centres_;        // features x k
    std::vector<double> sums_;          // features x k
    std::vector<int32_t> nearest_, moved_;
    std::vector<std::pair<int32_t, int32_t>> moves_;
    std::vector<float> scores_;
};

// The nodes of one level of a tree: node n has the rows order[bounds[n] .. bounds[n + 1]).
struct KwayNodes {
    const int32_t* order;
    const int64_t* bounds;
    int64_t count;
    uint64_t first_number;  // of node 0; the number picks the seed
};

// Splits the nodes with more than max_leaf_size rows into up to k clusters; the others are one
// cluster (0) each. Returns the cluster at each place of `order`.
inline std::vector<int32_t> kway_kmeans(const Points& points, const KwayNodes& nodes, int32_t k,
                                        int64_t max_leaf_size, const KmeansOptions& options) {
    std::vector<int32_t> cluster(nodes.bounds[nodes.count], 0);
    const int workers = resolve_threads(options.threads);
    std::vector<KwayKmeans> scratch(workers);
    auto split = [&](int64_t node, int worker, int inner_threads) {
        const int64_t begin = nodes.bounds[node], count = nodes.bounds[node + 1] - begin;
        if (count <= max_leaf_size) return;
        const KmeansOptions inner{.max_iterations = options.max_iterations,
                                  .seed = derive_seed(options.seed, nodes.first_number + node),
                                  .threads = inner_threads};
        scratch[worker].split(points, nodes.order + begin, count, k, inner, cluster.data() + begin);
    };
    if (nodes.count >= workers) {
        parallel_for(nodes.count, workers,
                     [&](int64_t node, int worker) { split(node, worker, 1); });
    } else {
        for (int64_t node = 0; node < nodes.count; ++node) split(node, 0, workers);
    }
    return cluster;
}

}  // namespace labelgrove
