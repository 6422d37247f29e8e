// What beam search reads: the weights of a tree's levels, and how margins become scores.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "dispatch.hpp"
#include "weights.hpp"

namespace labelgrove {

// 32 features of a chunk: which of them it has, and how many rows come before them.
struct RankWord {
    uint32_t bits;
    uint32_t rank;
};

inline int64_t rank_words(int64_t cols) { return (cols + 31) / 32; }

// `words` must be zero.
LABELGROVE_MULTIVERSION
inline void fill_rank_words(const int32_t* features, int64_t rows, int64_t count, RankWord* words) {
    for (int64_t row = 0; row < rows; ++row) {
        words[features[row] >> 5].bits |= 1u << (features[row] & 31);
    }
    uint32_t rank = 0;
    for (int64_t w = 0; w < count; ++w) {
        words[w].rank = rank;
        rank += static_cast<uint32_t>(std::popcount(words[w].bits));
    }
}

// Finds the row of a feature in a chunk. A chunk with many features has a bitmap with ranks: one
// look-up tells whether the feature is there, and where. Other chunks have buckets:
// buckets[feature >> shift] is the first row that can hold the feature, and there are one to two
// times as many buckets as rows.
struct FeatureIndex {
    static constexpr int32_t kRanks = -1;  // instead of a shift
    std::vector<int64_t> ptr;              // into ranks or into buckets
    std::vector<int32_t> shift;
    std::vector<RankWord> ranks;
    std::vector<uint32_t> buckets;

    FeatureIndex(const int64_t* chunk_rows, const int32_t* features, int64_t parents,
                 int64_t cols) {
        for (int64_t parent = 0; parent < parents; ++parent) {
            const int64_t rows = chunk_rows[parent + 1] - chunk_rows[parent];
            const int32_t* first = features + chunk_rows[parent];
            if (rows >= cols / 32) {  // then the bitmap is no larger than buckets can be
                ptr.push_back(static_cast<int64_t>(ranks.size()));
                shift.push_back(kRanks);
                ranks.resize(ranks.size() + rank_words(cols), {0, 0});
                fill_rank_words(first, rows, rank_words(cols), ranks.data() + ptr.back());
                continue;
            }
            ptr.push_back(static_cast<int64_t>(buckets.size()));
            int bits = 0;
            while ((cols >> bits) > 2 * rows) ++bits;
            shift.push_back(bits);
            const int64_t count = (cols >> bits) + 2;
            uint32_t row = 0;
            for (int64_t bucket = 0; bucket < count; ++bucket) {
                while (row < rows && (first[row] >> bits) < bucket) ++row;
                buckets.push_back(row);
            }
        }
    }
};

// One level's weights, in chunks (see cluster.hpp).
struct BeamLevel {
    const int64_t* chunk_rows;
    const int64_t* chunk_entries;
    const int32_t* features;
    const uint32_t* row_start;
    const void* children;
    ChildType child_type;
    const void* values;
    ValueType value_type;
    const float* bias;
    const Half* dense;         // `dense_cols` x width matrices, one per parent
    const int64_t* child_ptr;  // parent p has nodes [child_ptr[p], child_ptr[p + 1])
    const int64_t* leaf_ptr;   // node j has leaves [leaf_ptr[j], leaf_ptr[j + 1])
    int64_t entries;           // length of children and values
    int64_t parents;
    int64_t nodes;
    int64_t fewest_leaves;  // the smallest number of leaves below a node
    int64_t dense_cols;
    const FeatureIndex* index;

    int64_t width(int64_t parent) const { return child_ptr[parent + 1] - child_ptr[parent]; }
};

// Scores are added as logarithms: products over many levels would underflow and become equal.
enum class PostProcessor : int { noop = 0, l1_hinge, l2_hinge, l3_hinge, l4_hinge, sigmoid };

struct BeamOptions {
    PostProcessor post_processor = PostProcessor::l3_hinge;
    bool raw_last_level = false;  // rank labels by their own margin; the tree only shortlists
    float bias = 1.0f;

    // Whether a node's score is its own margin, independent of its parent's score.
    bool own_margin(bool last_level) const {
        return post_processor == PostProcessor::noop || (last_level && raw_last_level);
    }
    // Whether final scores are products, kept as logarithms until the end.
    bool product() const { return post_processor != PostProcessor::noop && !raw_last_level; }
};

inline float log_sigmoid(float margin) {
    return margin >= 0.0f ? -std::log1p(std::exp(-margin)) : margin - std::log1p(std::exp(margin));
}

// Turns margins into scores in place; with own margins, they already are the scores.
LABELGROVE_MULTIVERSION
inline void score_margins(PostProcessor kind, bool own_margin, float parent,
                          float* __restrict margins, int64_t width) {
    if (own_margin) return;
    switch (kind) {
        case PostProcessor::noop: return;
        case PostProcessor::sigmoid:
            for (int64_t c = 0; c < width; ++c) margins[c] = parent + log_sigmoid(margins[c]);
            return;
        default: break;
    }
    for (int64_t c = 0; c < width; ++c) margins[c] = std::max(0.0f, 1.0f - margins[c]);
    switch (kind) {
        case PostProcessor::l1_hinge:
            for (int64_t c = 0; c < width; ++c) margins[c] = parent - margins[c];
            return;
        case PostProcessor::l2_hinge:
            for (int64_t c = 0; c < width; ++c) margins[c] = parent - margins[c] * margins[c];
            return;
        case PostProcessor::l3_hinge:
            for (int64_t c = 0; c < width; ++c) {
                margins[c] = parent - margins[c] * margins[c] * margins[c];
            }
            return;
        default:
            for (int64_t c = 0; c < width; ++c) {
                const float square = margins[c] * margins[c];
                margins[c] = parent - square * square;
            }
    }
}

}  // namespace labelgrove
