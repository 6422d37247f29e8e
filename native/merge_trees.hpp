// Merges the best labels of several trees or models into one list per row.
#pragma once

#include <algorithm>
#include <bit>
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

// Merges one row after the other and keeps its memory between them. The labels of a row are found
// in a small hash table: sorting all that the trees found would take five times as long.
class TreeMerger {
public:
    explicit TreeMerger(const TreeResults& found) : found_(found) {
        const auto most = static_cast<uint64_t>(found.trees * found.width);
        bits_ = std::bit_width(2 * most + 1);  // at most half full
        labels_.reserve(most);
    }

    void merge(int64_t row, const TopkOutput& out) {
        labels_.clear();
        slots_.assign(size_t{1} << bits_, 0);
        double least = 0.0, total = 0.0;
        for (int64_t tree = 0; tree < found_.trees; ++tree) {
            const double weight = found_.weights[tree];
            const int64_t begin = (tree * found_.rows + row) * found_.width;
            const int32_t* const columns = found_.columns + begin;
            const float* const scores = found_.scores + begin;
            int64_t filled = 0;
            while (filled < found_.width && columns[filled] >= 0) ++filled;
            double last = 0.0;
            if (found_.combine == Combine::mean_or_last && filled > 0) last = scores[filled - 1];
            for (int64_t place = 0; place < filled; ++place) {
                Label& label = label_of(columns[place]);
                label.sum += weight * (scores[place] - last);
                label.largest = std::max(label.largest, scores[place]);
            }
            total += weight;
            least += weight * last;
        }
        best_.reset(out.width);
        for (const Label& label : labels_) {
            const float score = found_.combine == Combine::largest
                                    ? label.largest
                                    : static_cast<float>((label.sum + least) / total);
            if (score >= best_.threshold()) best_.offer(label.column, score);
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
    struct Label {
        int32_t column;
        float largest;
        double sum;
    };

    // The label of a column, which is added if it is new.
    Label& label_of(int32_t column) {
        const uint64_t mask = slots_.size() - 1;
        uint64_t slot = (static_cast<uint32_t>(column) * 0x9E3779B97F4A7C15u) >> (64 - bits_);
        for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
            Label& label = labels_[slots_[slot] - 1];
            if (label.column == column) return label;
        }
        labels_.push_back({column, -std::numeric_limits<float>::infinity(), 0.0});
        slots_[slot] = static_cast<uint32_t>(labels_.size());
        return labels_.back();
    }

    const TreeResults& found_;
    int bits_;                     // of a slot's number
    std::vector<uint32_t> slots_;  // 1 + a position in labels_, or 0
    std::vector<Label> labels_;
    BestNodes best_;
};

inline void merge_trees(const TreeResults& found, const TopkOutput& out, int threads) {
    std::vector<TreeMerger> mergers(resolve_threads(threads), TreeMerger(found));
    constexpr int64_t block = 64;
    const int64_t rows = found.rows;
    parallel_for((rows + block - 1) / block, threads, [&](int64_t piece, int worker) {
        for (int64_t row = piece * block; row < std::min(rows, (piece + 1) * block); ++row) {
            mergers[worker].merge(row, out);
        }
    });
}

}  // namespace labelgrove
