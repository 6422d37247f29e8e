// The weights of the children of consecutive parents, as training writes and prediction reads them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "half.hpp"
#include "submatrix.hpp"

namespace labelgrove {

// Parent by parent ("chunks"). A chunk is stored by feature: sorted features, and for each the
// children that use it. See beam.hpp for how they are read.
struct Chunks {
    std::vector<int64_t> chunk_rows{0};     // parents + 1: where a chunk's features begin
    std::vector<int64_t> chunk_entries{0};  // parents + 1: where a chunk's entries begin
    std::vector<int32_t> features;
    std::vector<uint32_t> row_start;  // per chunk its features + 1 offsets into the chunk's entries
    std::vector<uint16_t> children;   // offset from the parent's first child
    std::vector<float> values;
    std::vector<float> bias;      // per child
    std::vector<uint16_t> dense;  // halves; per chunk a matrix of dense features x children

    void append(const Chunks& chunk) {
        features.insert(features.end(), chunk.features.begin(), chunk.features.end());
        row_start.insert(row_start.end(), chunk.row_start.begin(), chunk.row_start.end());
        children.insert(children.end(), chunk.children.begin(), chunk.children.end());
        values.insert(values.end(), chunk.values.begin(), chunk.values.end());
        bias.insert(bias.end(), chunk.bias.begin(), chunk.bias.end());
        dense.insert(dense.end(), chunk.dense.begin(), chunk.dense.end());
        chunk_rows.push_back(static_cast<int64_t>(features.size()));
        chunk_entries.push_back(static_cast<int64_t>(values.size()));
    }
};

// A chunk's row is stored in full when at least 1 / kFullRow of the children use it.
inline constexpr uint32_t kFullRow = 3;

struct Weight {
    int32_t feature;  // as the cluster numbers them
    float value;
};

// Weights of some children side by side: the weight of children[c] for feature f is
// values[f * stride + c].
struct BlockWeights {
    const int32_t* children;
    int count;
    const float* values;
    int stride;
};

// Which weights of a child to keep: those of at least `threshold`, and of these the `most` largest
// (0: all).
struct Pruning {
    float threshold;
    int64_t most;
};

// Collects the weights of one cluster. Several threads may add different blocks of children.
class ChunkBuilder {
public:
    void start(int64_t children, int64_t width) {
        width_ = width;
        bias.resize(children);
        learnt_.resize(children);
        for (auto& child : learnt_) child.clear();
        dense_.assign(width * children, 0);
    }

    std::vector<float> bias;  // per child

    void keep_sparse(const BlockWeights& block, const Submatrix& rows, const Pruning& pruning) {
        const float* weights = block.values;
        for (int32_t f = 0; f < rows.features(); ++f, weights += block.stride) {
            for (int c = 0; c < block.count; ++c) {
                const float weight = weights[c];
                if (std::abs(weight) >= pruning.threshold && weight != 0.0f) {
                    learnt_[block.children[c]].push_back({f, weight});
                }
            }
        }
        for (int c = 0; c < block.count; ++c) {
            keep_largest(learnt_[block.children[c]], pruning.most,
                         [&](int32_t feature) { return rows.global_feature(feature); });
        }
    }

    // The same for the dense block, whose weights are scaled first.
    void keep_dense(const BlockWeights& block, float scale, const Pruning& pruning) {
        std::vector<Weight> weights;
        const int64_t siblings = static_cast<int64_t>(learnt_.size());
        for (int c = 0; c < block.count; ++c) {
            weights.clear();
            for (int64_t f = 0; f < width_; ++f) {
                const float weight = block.values[f * block.stride + c] * scale;
                if (std::abs(weight) >= pruning.threshold) {
                    weights.push_back({static_cast<int32_t>(f), weight});
                }
            }
            keep_largest(weights, pruning.most, [](int32_t feature) { return feature; });
            for (const auto& [f, weight] : weights) {
                dense_[f * siblings + block.children[c]] = float_to_half(weight);
            }
        }
    }

    // Regroups weights from by-child to by-feature, with a counting sort. A feature that many
    // children use gets an entry for every child (some zero): prediction adds such rows as a whole,
    // several children per instruction.
    void collect(const Submatrix& rows, Chunks& out) {
        const uint32_t width = static_cast<uint32_t>(learnt_.size());
        std::vector<uint32_t> place(rows.features(), 0);
        for (const auto& child : learnt_) {
            for (const auto& [feature, weight] : child) ++place[feature];
        }
        std::vector<std::pair<int32_t, int32_t>> used;  // (feature, local feature)
        for (int32_t f = 0; f < rows.features(); ++f) {
            if (place[f] > 0) used.push_back({rows.global_feature(f), f});
        }
        std::sort(used.begin(), used.end());
        std::vector<uint8_t> full_row(rows.features(), 0);
        out.features.resize(used.size());
        out.row_start.assign(used.size() + 1, 0);
        for (size_t row = 0; row < used.size(); ++row) {
            const auto [feature, local] = used[row];
            out.features[row] = feature;
            const bool full = place[local] * kFullRow >= width;
            out.row_start[row + 1] = out.row_start[row] + (full ? width : place[local]);
            place[local] = out.row_start[row];
            full_row[local] = full;
        }
        out.children.assign(out.row_start.back(), 0);
        out.values.assign(out.row_start.back(), 0.0f);
        for (const auto& [feature, local] : used) {
            if (!full_row[local]) continue;
            for (uint32_t c = 0; c < width; ++c) {
                out.children[place[local] + c] = static_cast<uint16_t>(c);
            }
        }
        for (size_t child = 0; child < learnt_.size(); ++child) {
            for (const auto& [feature, weight] : learnt_[child]) {
                const uint32_t at = full_row[feature]
                                        ? place[feature] + static_cast<uint32_t>(child)
                                        : place[feature]++;
                out.children[at] = static_cast<uint16_t>(child);
                out.values[at] = weight;
            }
        }
        out.bias = bias;
        out.dense = dense_;
    }

private:
    // Of equal weights, keeps the one of the lower feature.
    template <class Number>
    static void keep_largest(std::vector<Weight>& weights, int64_t most, Number number) {
        if (most <= 0 || static_cast<int64_t>(weights.size()) <= most) return;
        const auto before = [&](const Weight& a, const Weight& b) {
            const float x = std::abs(a.value), y = std::abs(b.value);
            return x != y ? x > y : number(a.feature) < number(b.feature);
        };
        std::nth_element(weights.begin(), weights.begin() + most, weights.end(), before);
        weights.erase(weights.begin() + most, weights.end());
    }

    int64_t width_ = 0;
    std::vector<std::vector<Weight>> learnt_;
    std::vector<uint16_t> dense_;
};

}  // namespace labelgrove
