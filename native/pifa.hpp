// Positive instance feature aggregation: the unit-length, weighted sum of each label's documents.
//
// A label's sum is collected in a dense vector; bitmaps remember which places are used, so they can be
// read in order and cleared without looking at the rest.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "csr.hpp"
#include "parallel.hpp"

namespace labelgrove {

struct SparseRows {
    std::vector<int64_t> indptr{0};
    std::vector<int32_t> indices;
    std::vector<float> data;
};

class RowSum {
public:
    explicit RowSum(int64_t cols)
        : sum_(cols, 0.0f), used_((cols + 63) / 64, 0), used_words_((used_.size() + 63) / 64, 0) {}

    void add(const Csr& matrix, int32_t row, float factor) {
        for (int64_t k = matrix.indptr[row]; k < matrix.indptr[row + 1]; ++k) {
            const uint32_t place = static_cast<uint32_t>(matrix.indices[k]), word = place / 64;
            sum_[place] += factor * matrix.data[k];
            used_[word] |= uint64_t{1} << (place % 64);
            used_words_[word / 64] |= uint64_t{1} << (word % 64);
        }
    }

    // Appends the sum, scaled to unit length, as one row without zeros; starts again from nothing.
    void take(SparseRows& out) {
        const size_t first = out.data.size();
        double square = 0.0;
        for (size_t group = 0; group < used_words_.size(); ++group) {
            for (uint64_t words = std::exchange(used_words_[group], 0); words; words &= words - 1) {
                const size_t word = group * 64 + std::countr_zero(words);
                for (uint64_t places = std::exchange(used_[word], 0); places; places &= places - 1) {
                    const size_t place = word * 64 + std::countr_zero(places);
                    const float value = std::exchange(sum_[place], 0.0f);
                    if (value == 0.0f) continue;
                    square += static_cast<double>(value) * value;
                    out.indices.push_back(static_cast<int32_t>(place));
                    out.data.push_back(value);
                }
            }
        }
        const float scale = square > 0.0 ? static_cast<float>(1.0 / std::sqrt(square)) : 0.0f;
        for (size_t k = first; k < out.data.size(); ++k) out.data[k] *= scale;
        out.indptr.push_back(static_cast<int64_t>(out.data.size()));
    }

private:
    std::vector<float> sum_;
    std::vector<uint64_t> used_, used_words_;  // a bit per place, a bit per word of used_
};

// Row l of the result belongs to row l of `by_label`, whose columns are documents.
inline SparseRows pifa(const Csr& documents, const Csr& by_label, int threads) {
    constexpr int64_t kLabels = 256;  // per piece
    const int64_t pieces = (by_label.rows + kLabels - 1) / kLabels;
    const int workers = static_cast<int>(std::clamp<int64_t>(pieces, 1, resolve_threads(threads)));
    std::vector<RowSum> sums(workers, RowSum(documents.cols));
    std::vector<SparseRows> parts(pieces);
    parallel_for(pieces, workers, [&](int64_t piece, int worker) {
        const int64_t last = std::min(by_label.rows, (piece + 1) * kLabels);
        for (int64_t label = piece * kLabels; label < last; ++label) {
            for (int64_t k = by_label.indptr[label]; k < by_label.indptr[label + 1]; ++k) {
                sums[worker].add(documents, by_label.indices[k], by_label.data[k]);
            }
            sums[worker].take(parts[piece]);
        }
        parts[piece].indices.shrink_to_fit();
        parts[piece].data.shrink_to_fit();
    });
    size_t nnz = 0;
    for (const SparseRows& part : parts) nnz += part.data.size();
    SparseRows all;
    all.indptr.reserve(by_label.rows + 1);
    all.indices.reserve(nnz);
    all.data.reserve(nnz);
    for (SparseRows& part : parts) {
        const int64_t before = all.indptr.back();
        for (size_t row = 1; row < part.indptr.size(); ++row) all.indptr.push_back(before + part.indptr[row]);
        all.indices.insert(all.indices.end(), part.indices.begin(), part.indices.end());
        all.data.insert(all.data.end(), part.data.begin(), part.data.end());
        part = SparseRows();  // free as we go: the peak is one copy and a bit
    }
    return all;
}

}  // namespace labelgrove
