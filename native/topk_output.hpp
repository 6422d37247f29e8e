// Where the k best entries of every row go.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace labelgrove {

// Arrays of rows x width, best first. Unused places get column -1 and score -inf.
struct TopkOutput {
    int64_t width = 0;
    int32_t* columns = nullptr;
    float* scores = nullptr;
    int32_t* counts = nullptr;  // used places per row

    void set(int64_t row, int64_t place, int32_t column, float score) const {
        columns[row * width + place] = column;
        scores[row * width + place] = score;
    }

    // Marks the places after the first `count` as unused.
    void finish_row(int64_t row, int64_t count) const {
        constexpr float kNever = -std::numeric_limits<float>::infinity();
        std::fill_n(columns + row * width + count, width - count, -1);
        std::fill_n(scores + row * width + count, width - count, kNever);
        counts[row] = static_cast<int32_t>(count);
    }
};

}  // namespace labelgrove
