// Positive instance feature aggregation: the unit-length, weighted sum of each label's documents.
//
// A label's sum is collected in a dense vector. Bitmaps mark the places in use, which can then be
// read in order and cleared without looking at the others.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "parallel.hpp"
#include "points.hpp"

namespace labelgrove {

struct SparseRows {
    std::vector<int64_t> indptr{0};
    std::vector<int32_t> indices;
    std::vector<float> data;
};

// The dense block of the labels, with the precision of the documents' one.
struct DenseRows {
    std::vector<float> single;
    std::vector<uint16_t> half;
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

    // Appends the sum as one row without zeros, and resets it. `square` is the squared length of
    // the row's dense part; both parts together get unit length. Returns the scale.
    double take(SparseRows& out, double square) {
        const size_t first = out.data.size();
        for (size_t group = 0; group < used_words_.size(); ++group) {
            for (uint64_t words = std::exchange(used_words_[group], 0); words; words &= words - 1) {
                const size_t word = group * 64 + std::countr_zero(words);
                for (uint64_t places = std::exchange(used_[word], 0); places;
                     places &= places - 1) {
                    const size_t place = word * 64 + std::countr_zero(places);
                    const float value = std::exchange(sum_[place], 0.0f);
                    if (value == 0.0f) continue;
                    square += static_cast<double>(value) * value;
                    out.indices.push_back(static_cast<int32_t>(place));
                    out.data.push_back(value);
                }
            }
        }
        const double scale = square > 0.0 ? 1.0 / std::sqrt(square) : 0.0;
        for (size_t k = first; k < out.data.size(); ++k) out.data[k] *= static_cast<float>(scale);
        out.indptr.push_back(static_cast<int64_t>(out.data.size()));
        return scale;
    }

private:
    std::vector<float> sum_;
    std::vector<uint64_t> used_, used_words_;  // a bit per place, a bit per word of used_
};

// Row l of the result belongs to row l of `by_label`, whose columns are documents.
inline std::pair<SparseRows, DenseRows> pifa(const Points& documents, const Csr& by_label,
                                             int threads) {
    constexpr int64_t kLabels = 256;  // per piece
    const int64_t pieces = (by_label.rows + kLabels - 1) / kLabels, width = documents.width();
    const int workers = static_cast<int>(std::clamp<int64_t>(pieces, 1, resolve_threads(threads)));
    std::vector<RowSum> sums(workers, RowSum(documents.sparse.cols));
    std::vector<std::vector<double>> dense_sums(workers, std::vector<double>(width));
    std::vector<SparseRows> parts(pieces);
    DenseRows dense;
    const bool half = documents.dense.single == nullptr;
    if (half) {
        dense.half.resize(by_label.rows * width);
    } else {
        dense.single.resize(by_label.rows * width);
    }
    parallel_for(pieces, workers, [&](int64_t piece, int worker) {
        const int64_t last = std::min(by_label.rows, (piece + 1) * kLabels);
        std::vector<double>& dense_sum = dense_sums[worker];
        for (int64_t label = piece * kLabels; label < last; ++label) {
            std::fill(dense_sum.begin(), dense_sum.end(), 0.0);
            for (int64_t k = by_label.indptr[label]; k < by_label.indptr[label + 1]; ++k) {
                sums[worker].add(documents.sparse, by_label.indices[k], by_label.data[k]);
                if (width > 0) {
                    dense_row_add(documents.dense, by_label.indices[k], by_label.data[k], 0, width,
                                  dense_sum.data());
                }
            }
            double square = 0.0;
            for (double value : dense_sum) square += value * value;
            const double scale = sums[worker].take(parts[piece], square);
            for (int64_t f = 0; f < width; ++f) {
                const float value = static_cast<float>(dense_sum[f] * scale);
                if (half) {
                    dense.half[label * width + f] = float_to_half(value);
                } else {
                    dense.single[label * width + f] = value;
                }
            }
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
        for (size_t row = 1; row < part.indptr.size(); ++row) {
            all.indptr.push_back(before + part.indptr[row]);
        }
        all.indices.insert(all.indices.end(), part.indices.begin(), part.indices.end());
        all.data.insert(all.data.end(), part.data.begin(), part.data.end());
        part = SparseRows();  // freed at once, so that there are never two full copies
    }
    return {std::move(all), std::move(dense)};
}

}  // namespace labelgrove
