// Merges the best labels of several trees or models into one list per row.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "beam_best.hpp"
#include "parallel.hpp"
#include "topk_output.hpp"

namespace labelgrove {

// How the scores of a label become one: their weighted mean, where a tree that did not find the
// label counts as 0 or as the last label it found; or the largest of them.
enum class Combine { mean, mean_or_last, largest };

// The labels found by several trees: trees x rows x width, best first. Unused places have column
// -1.
struct TreeResults {
    const int32_t* columns;
    const float* scores;
    int64_t trees, rows, width;
    const double* weights;  // one per tree; their sum must be positive
    Combine combine;
};

class TreeMerger {
public:
    void merge(const TreeResults& found, int64_t row, const TopkOutput& out) {
        const double* const weights = found.weights;
        places_.clear();
        lasts_.assign(found.trees, 0.0);
        double least = 0.0, total = 0.0;
        for (int64_t tree = 0; tree < found.trees; ++tree) {
            const int64_t begin = (tree * found.rows + row) * found.width;
            int64_t filled = 0;
            for (; filled < found.width && found.columns[begin + filled] >= 0; ++filled) {
                places_.push_back(static_cast<uint64_t>(found.columns[begin + filled]) << 32 |
                                  static_cast<uint64_t>(tree * found.width + filled));
            }
            total += weights[tree];
            if (found.combine == Combine::mean_or_last && filled > 0) {
                lasts_[tree] = found.scores[begin + filled - 1];
                least += weights[tree] * lasts_[tree];
            }
        }
        std::sort(places_.begin(), places_.end());  // by label, and its trees in order
        best_.reset(out.width);
        for (size_t from = 0, to; from < places_.size(); from = to) {
            const uint64_t column = places_[from] >> 32;
            double sum = 0.0, largest = -std::numeric_limits<double>::infinity();
            for (to = from; to < places_.size() && places_[to] >> 32 == column; ++to) {
                const int64_t at = static_cast<int64_t>(places_[to] & 0xffffffffu),
                              tree = at / found.width;
                const double score =
                    found.scores[(tree * found.rows + row) * found.width + at % found.width];
                sum += weights[tree] * (score - lasts_[tree]);
                largest = std::max(largest, score);
            }
            const float score = static_cast<float>(
                found.combine == Combine::largest ? largest : (sum + least) / total);
            if (score >= best_.threshold()) best_.offer(static_cast<int32_t>(column), score);
        }
        const std::vector<uint64_t>& sorted = best_.sorted();
        const int64_t count = static_cast<int64_t>(sorted.size());
        for (int64_t c = 0; c < count; ++c) {
            const Scored label = from_sort_key(sorted[c]);
            out.set(row, c, label.node, label.score);
        }
        out.finish_row(row, count);
    }

private:
    std::vector<uint64_t> places_;
    std::vector<double> lasts_;  // the score of the last label that each tree found
    BestNodes best_;
};

inline void merge_trees(const TreeResults& found, const TopkOutput& out, int threads) {
    std::vector<TreeMerger> mergers(resolve_threads(threads));
    constexpr int64_t block = 64;
    const int64_t rows = found.rows;
    parallel_for((rows + block - 1) / block, threads, [&](int64_t piece, int worker) {
        for (int64_t row = piece * block; row < std::min(rows, (piece + 1) * block); ++row) {
            mergers[worker].merge(found, row, out);
        }
    });
}

}  // namespace labelgrove
