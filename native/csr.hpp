// A read-only view of a sparse matrix in compressed rows, the currency between kernels.
#pragma once

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

}  // namespace labelgrove
