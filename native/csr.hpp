// A read-only view of a sparse matrix in compressed rows, as all kernels use it.
#pragma once

#include <bit>
#include <cstdint>

namespace labelgrove {

struct Csr {
    int64_t rows = 0;
    int64_t cols = 0;
    const int64_t* indptr = nullptr;   // rows + 1 entries, always 64 bit
    const int32_t* indices = nullptr;  // sorted within a row, no duplicates
    const float* data = nullptr;

    int64_t nnz() const { return indptr[rows]; }
    int64_t row_nnz(int64_t row) const { return indptr[row + 1] - indptr[row]; }
};

// Whether arrays of unknown origin are rows with sorted, unique columns and finite numbers.
template <class Pointer>
bool is_sound(const Pointer* indptr, int64_t rows, const int32_t* indices, const float* data,
              int64_t stored, int64_t cols) {
    if (indptr[0] != 0) return false;
    for (int64_t row = 0; row < rows; ++row) {
        if (indptr[row + 1] < indptr[row] || indptr[row + 1] > stored) return false;
        int64_t before = -1;
        for (int64_t k = indptr[row]; k < indptr[row + 1]; ++k) {
            if (indices[k] <= before || indices[k] >= cols) return false;
            before = indices[k];
        }
    }
    const int64_t used = static_cast<int64_t>(indptr[rows]);
    bool finite = true;
    for (int64_t k = 0; k < used; ++k) {
        // Infinity and NaN have all bits of the exponent set.
        finite &= (std::bit_cast<uint32_t>(data[k]) & 0x7f800000u) != 0x7f800000u;
    }
    return finite;
}

}  // namespace labelgrove
