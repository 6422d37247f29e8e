// A read-only view of a dense matrix, single or half precision: the dense block of features.
#pragma once

#include <algorithm>
#include <cstdint>

#include "half.hpp"

namespace labelgrove {

struct Dense {
    int64_t rows = 0;
    int64_t cols = 0;  // 0: there is no dense block
    const float* single = nullptr;
    const uint16_t* half = nullptr;  // used where `single` is null

    void copy_row(int64_t row, float* out) const {
        if (single != nullptr) {
            std::copy_n(single + row * cols, cols, out);
        } else {
            const uint16_t* from = half + row * cols;
            for (int64_t f = 0; f < cols; ++f) out[f] = half_to_float(from[f]);
        }
    }
};

}  // namespace labelgrove
