// The best labels by mean score over several trees, of what each of them found.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "beam_best.hpp"
#include "parallel.hpp"

namespace labelgrove {

// What trees found: trees x rows x width, every place filled, best first.
struct TreeResults {
    const int32_t* columns;
    const float* scores;
    int64_t trees, rows, width;
};

class TreeMerger {
public:
    // A label that a tree did not find counts as 0 there, or as much as the last one it found.
    int32_t merge(const TreeResults& found, int64_t row, bool last_counts, int64_t k, int32_t* columns,
                  float* scores) {
        places_.clear();
        double least = 0.0;
        for (int64_t tree = 0; tree < found.trees; ++tree) {
            const int64_t begin = (tree * found.rows + row) * found.width;
            if (last_counts) least += found.scores[begin + found.width - 1];
            for (int64_t place = 0; place < found.width; ++place) {
                places_.push_back(static_cast<uint64_t>(found.columns[begin + place]) << 32 |
                                  static_cast<uint64_t>(tree * found.width + place));
            }
        }
        std::sort(places_.begin(), places_.end());  // by label, and its trees in order
        best_.reset(k);
        for (size_t from = 0, to; from < places_.size(); from = to) {
            const uint64_t column = places_[from] >> 32;
            double sum = 0.0;
            for (to = from; to < places_.size() && places_[to] >> 32 == column; ++to) {
                const int64_t at = static_cast<int64_t>(places_[to] & 0xffffffffu);
                const int64_t begin = (at / found.width * found.rows + row) * found.width;
                const double last = last_counts ? found.scores[begin + found.width - 1] : 0.0;
                sum += found.scores[begin + at % found.width] - last;
            }
            const float mean = static_cast<float>((sum + least) / static_cast<double>(found.trees));
            if (mean >= best_.threshold()) best_.offer(static_cast<int32_t>(column), mean);
        }
        const std::vector<uint64_t>& sorted = best_.sorted();
        const int64_t count = static_cast<int64_t>(sorted.size());
        for (int64_t c = 0; c < count; ++c) {
            const Scored label = from_sort_key(sorted[c]);
            columns[c] = label.node;
            scores[c] = label.score;
        }
        std::fill(columns + count, columns + k, -1);
        std::fill(scores + count, scores + k, -std::numeric_limits<float>::infinity());
        return static_cast<int32_t>(count);
    }

private:
    std::vector<uint64_t> places_;
    BestNodes best_;
};

inline void merge_trees(const TreeResults& found, bool last_counts, int64_t k, int32_t* columns, float* scores,
                        int32_t* counts, int threads) {
    std::vector<TreeMerger> mergers(resolve_threads(threads));
    constexpr int64_t block = 64;
    parallel_for((found.rows + block - 1) / block, static_cast<int>(mergers.size()), [&](int64_t piece, int worker) {
        for (int64_t row = piece * block; row < std::min(found.rows, (piece + 1) * block); ++row) {
            counts[row] = mergers[worker].merge(found, row, last_counts, k, columns + row * k, scores + row * k);
        }
    });
}

}  // namespace labelgrove
