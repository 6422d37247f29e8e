// Turns counts into weighted, sorted, normalised rows of a sparse matrix.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "text_normalize.hpp"

namespace labelgrove {

enum class Norm { none, l1, l2 };

struct WeightOptions {
    bool sublinear_tf = false;
    bool binary = false;
    Norm norm = Norm::l2;
};

// The weight of a term that occurs `count` times in a text, before idf and normalisation.
class CountWeights {
public:
    explicit CountWeights(const WeightOptions& options) : options_(options), table_(kTable) {
        for (uint32_t count = 1; count < kTable; ++count) table_[count] = weigh(count);
    }
    float operator()(uint32_t count) const { return count < kTable ? table_[count] : weigh(count); }

private:
    static constexpr uint32_t kTable = 1024;  // computing each logarithm would dominate

    float weigh(uint32_t count) const {
        const double occurrences = options_.binary ? 1.0 : static_cast<double>(count);
        return static_cast<float>(options_.sublinear_tf ? 1.0 + std::log(occurrences)
                                                        : occurrences);
    }

    WeightOptions options_;
    std::vector<float> table_;
};

// Rows of consecutive texts.
struct RowBlock {
    Scratch<int32_t> indices;
    Scratch<float> data;
    std::vector<int64_t> row_sizes;
    int64_t size = 0;

    void reserve(int64_t entries) {
        indices.reserve(entries, size);
        data.reserve(entries, size);
    }
};

// Counts the terms of one text and writes them out in the order of their numbers.
//
// A bitmap with a summary marks the numbers that occur. Reading it gives them sorted, in time
// proportional to their count; sorting a list would be the most expensive step of all.
class RowBuilder {
public:
    explicit RowBuilder(int64_t features)
        : counts_(features, 0), used_(features / 64 + 1, 0), summary_(features / 4096 + 1, 0) {}

    void add(int32_t id, uint32_t count) {
        counts_[id] += count;
        used_[id >> 6] |= 1ull << (id & 63);
        summary_[id >> 12] |= 1ull << (id >> 6 & 63);
    }

    // Adds one of each; negative numbers are unknown terms.
    void add(const int32_t* ids, int count) {
        uint32_t* const counts = counts_.data();
        uint64_t* const used = used_.data();
        uint64_t* const summary = summary_.data();
        for (int i = 0; i < count; ++i) {
            const int32_t id = ids[i];
            if (id < 0) continue;
            counts[id] += 1;
            used[id >> 6] |= 1ull << (id & 63);
            summary[id >> 12] |= 1ull << (id >> 6 & 63);
        }
    }

    // Appends the row to the block and resets it. `idf` has one weight per feature.
    void finish_row(const float* idf, const CountWeights& weights, Norm norm, RowBlock& block) {
        const int64_t begin = block.size;
        double total = 0.0;
        for (size_t s = 0; s < summary_.size(); ++s) {
            for (; summary_[s] != 0; summary_[s] &= summary_[s] - 1) {
                const int64_t word = 64 * static_cast<int64_t>(s) + std::countr_zero(summary_[s]);
                block.reserve(block.size + 64);
                for (uint64_t bits = used_[word]; bits != 0; bits &= bits - 1) {
                    const int64_t id = 64 * word + std::countr_zero(bits);
                    const float weight = weights(counts_[id]) * idf[id];
                    counts_[id] = 0;
                    block.indices[block.size] = static_cast<int32_t>(id);
                    block.data[block.size] = weight;
                    block.size += weight != 0.0f;  // an idf of zero leaves no entry
                    total +=
                        norm == Norm::l2 ? static_cast<double>(weight) * weight : std::fabs(weight);
                }
                used_[word] = 0;
            }
        }
        if (norm != Norm::none && total > 0.0) {
            const double scale = 1.0 / (norm == Norm::l2 ? std::sqrt(total) : total);
            for (int64_t i = begin; i < block.size; ++i) {
                block.data[i] = static_cast<float>(block.data[i] * scale);
            }
        }
        block.row_sizes.push_back(block.size - begin);
    }

private:
    std::vector<uint32_t> counts_;
    std::vector<uint64_t> used_;     // bit per feature
    std::vector<uint64_t> summary_;  // bit per word of used_
};

// The finished matrix, with three arrays for NumPy to own.
struct RowArrays {
    int64_t rows = 0;
    std::unique_ptr<int64_t[]> indptr;
    std::unique_ptr<int32_t[]> indices;
    std::unique_ptr<float[]> data;

    int64_t nnz() const { return indptr[rows]; }
};

// Joins blocks, freeing each as soon as it is copied.
inline RowArrays join_blocks(std::vector<RowBlock>&& blocks) {
    RowArrays result;
    int64_t nnz = 0;
    for (const RowBlock& block : blocks) {
        result.rows += static_cast<int64_t>(block.row_sizes.size());
        nnz += block.size;
    }
    result.indptr = std::make_unique_for_overwrite<int64_t[]>(result.rows + 1);
    result.indices = std::make_unique_for_overwrite<int32_t[]>(nnz);
    result.data = std::make_unique_for_overwrite<float[]>(nnz);
    int64_t row = 0, at = 0;
    result.indptr[0] = 0;
    for (RowBlock& taken : blocks) {
        const RowBlock block = std::move(taken);
        if (block.size > 0) {
            std::memcpy(result.indices.get() + at, block.indices.data(),
                        block.size * sizeof(int32_t));
            std::memcpy(result.data.get() + at, block.data.data(), block.size * sizeof(float));
        }
        at += block.size;
        for (const int64_t size : block.row_sizes) {
            result.indptr[row + 1] = result.indptr[row] + size;
            ++row;
        }
    }
    blocks.clear();
    return result;
}

}  // namespace labelgrove
