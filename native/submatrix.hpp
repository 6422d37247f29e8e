// Some rows of a sparse matrix, copied once with their features renumbered 0 .. m-1.
//
// Both the tree and the solver sweep many times over the same few rows. In the copy, vectors over
// features are m long instead of d and stay in cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "csr.hpp"

namespace labelgrove {

class Submatrix {
public:
    // Takes rows[0 .. count) of `source`. When they hold most of the matrix anyway, nothing is copied
    // and features keep their numbers; whether that happens depends on the input alone.
    void assign(const Csr& source, const int32_t* rows, int64_t count) {
        rows_ = count;
        int64_t nnz = 0;
        for (int64_t i = 0; i < count; ++i) nnz += source.row_nnz(rows[i]);
        begin_.resize(count);
        size_.resize(count);
        in_place_ = nnz > source.nnz() / 2;
        if (in_place_) {
            for (int64_t i = 0; i < count; ++i) {
                begin_[i] = source.indptr[rows[i]];
                size_[i] = static_cast<int32_t>(source.row_nnz(rows[i]));
            }
            indices_ = source.indices;
            data_ = source.data;
            features_ = static_cast<int32_t>(source.cols);
            return;
        }
        if (static_cast<int64_t>(local_.size()) < source.cols) local_.resize(source.cols, -1);
        global_.clear();
        for (int64_t i = 0; i < count; ++i) {
            for (int64_t k = source.indptr[rows[i]]; k < source.indptr[rows[i] + 1]; ++k) {
                const int32_t feature = source.indices[k];
                if (local_[feature] < 0) {
                    local_[feature] = 0;
                    global_.push_back(feature);
                }
            }
        }
        // Ascending order keeps rows sorted, and what is learnt comes out sorted by feature.
        std::sort(global_.begin(), global_.end());
        features_ = static_cast<int32_t>(global_.size());
        for (int32_t f = 0; f < features_; ++f) local_[global_[f]] = f;
        own_indices_.resize(nnz);
        own_data_.resize(nnz);
        int64_t at = 0;
        for (int64_t i = 0; i < count; ++i) {
            begin_[i] = at;
            const int64_t first = source.indptr[rows[i]], last = source.indptr[rows[i] + 1];
            size_[i] = static_cast<int32_t>(last - first);
            for (int64_t k = first; k < last; ++k, ++at) {
                own_indices_[at] = local_[source.indices[k]];
                own_data_[at] = source.data[k];
            }
        }
        for (int32_t feature : global_) local_[feature] = -1;
        indices_ = own_indices_.data();
        data_ = own_data_.data();
    }

    int64_t rows() const { return rows_; }
    int32_t features() const { return features_; }
    int32_t row_nnz(int64_t row) const { return size_[row]; }
    const int32_t* indices(int64_t row) const { return indices_ + begin_[row]; }
    const float* data(int64_t row) const { return data_ + begin_[row]; }
    int32_t global_feature(int32_t feature) const { return in_place_ ? feature : global_[feature]; }

    float dot(int64_t row, const float* vector) const {
        const int32_t* index = indices(row);
        const float* value = data(row);
        const int32_t n = size_[row];
        // Four sums hide the latency of addition; their order is fixed, so are the bits.
        float a = 0, b = 0, c = 0, d = 0;
        int32_t k = 0;
        for (; k + 4 <= n; k += 4) {
            a += value[k] * vector[index[k]];
            b += value[k + 1] * vector[index[k + 1]];
            c += value[k + 2] * vector[index[k + 2]];
            d += value[k + 3] * vector[index[k + 3]];
        }
        for (; k < n; ++k) a += value[k] * vector[index[k]];
        return (a + b) + (c + d);
    }

    template <class T>
    void add(int64_t row, T factor, T* vector) const {
        const int32_t* index = indices(row);
        const float* value = data(row);
        const int32_t n = size_[row];
        for (int32_t k = 0; k < n; ++k) vector[index[k]] += factor * static_cast<T>(value[k]);
    }

private:
    int64_t rows_ = 0;
    int32_t features_ = 0;
    bool in_place_ = false;
    std::vector<int64_t> begin_;
    std::vector<int32_t> size_;
    const int32_t* indices_ = nullptr;
    const float* data_ = nullptr;
    std::vector<int32_t> own_indices_;
    std::vector<float> own_data_;
    std::vector<int32_t> global_;  // local feature -> feature
    std::vector<int32_t> local_;   // feature -> local feature; -1 everywhere between calls
};

}  // namespace labelgrove
