// The best scored nodes of a document, as numbers that sort by score.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

namespace labelgrove {

// A node, or at the last level a label column, with its score.
struct Scored {
    int32_t node;
    float score;
};

// A scored node as a number: smaller is better. Ordered by score, then by node; 0 equals -0.
inline uint64_t sort_key(Scored scored) {
    const uint32_t bits = std::bit_cast<uint32_t>(scored.score + 0.0f);
    const uint32_t rising =
        bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u);
    return static_cast<uint64_t>(~rising) << 32 | static_cast<uint32_t>(scored.node);
}

inline Scored from_sort_key(uint64_t key) {
    const uint32_t rising = ~static_cast<uint32_t>(key >> 32);
    const uint32_t bits = rising ^ (rising & 0x80000000u ? 0x80000000u : 0xffffffffu);
    return {static_cast<int32_t>(static_cast<uint32_t>(key)), std::bit_cast<float>(bits)};
}

// Sorts short lists by insertion. std::sort does the same, but with calls to memmove.
inline void sort_keys(std::vector<uint64_t>& keys) {
    const size_t count = keys.size();
    if (count > 64) {
        std::sort(keys.begin(), keys.end());
        return;
    }
    for (size_t i = 1; i < count; ++i) {
        const uint64_t key = keys[i];
        size_t at = i;
        for (; at > 0 && keys[at - 1] > key; --at) keys[at] = keys[at - 1];
        keys[at] = key;
    }
}

// Collects the best `limit` of the nodes offered, in any order; 0: all.
class BestNodes {
public:
    void reset(int64_t limit) {
        limit_ = static_cast<size_t>(limit);
        threshold_ = -std::numeric_limits<float>::infinity();
        keys_.clear();
    }

    // Scores below this are certainly not among the best.
    float threshold() const { return threshold_; }

    void offer(int32_t node, float score) {
        keys_.push_back(sort_key({node, score}));
        if (limit_ > 0 && keys_.size() >= 2 * limit_ + 16) tighten();
    }

    void tighten() {
        if (limit_ == 0 || keys_.size() < limit_) return;
        if (keys_.size() > limit_) {
            std::nth_element(keys_.begin(), keys_.begin() + (limit_ - 1), keys_.end());
            keys_.resize(limit_);
        }
        threshold_ = from_sort_key(*std::max_element(keys_.begin(), keys_.end())).score;
    }

    // Best first.
    std::vector<uint64_t>& sorted() {
        tighten();
        sort_keys(keys_);
        return keys_;
    }

private:
    size_t limit_ = 0;
    float threshold_ = 0.0f;
    std::vector<uint64_t> keys_;
};

}  // namespace labelgrove
