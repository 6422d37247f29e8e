// The k best entries of every row of a dense or sparse score matrix, ordered by (-score, column).
//
// A score of -inf means "never predict" and is skipped. NaN and +inf cannot be ranked: the first
// row with one is reported, and its output must not be used.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <vector>

#include "csr.hpp"
#include "parallel.hpp"
#include "topk_output.hpp"

namespace labelgrove {

// Collects the k best entries, which must be offered in ascending order of their columns.
class BestK {
public:
    explicit BestK(int64_t k) : k_(static_cast<size_t>(k)), full_(std::max<size_t>(2 * k_, 64)) {}

    // Only entries above this can still matter: an equal score loses, because its column is higher.
    float threshold() const { return threshold_; }

    void offer(float score, int32_t column) {
        if (!(score > threshold_)) return;
        kept_.push_back({score, column});
        if (kept_.size() == full_) keep_best();
    }

    // Writes one row and resets for the next.
    void finish(int64_t row, const TopkOutput& out) {
        if (kept_.size() > k_) keep_best();
        std::sort(kept_.begin(), kept_.end(), better);
        for (size_t place = 0; place < kept_.size(); ++place) {
            out.set(row, static_cast<int64_t>(place), kept_[place].column, kept_[place].score);
        }
        out.finish_row(row, static_cast<int64_t>(kept_.size()));
        kept_.clear();
        threshold_ = kNever;
    }

private:
    struct Entry {
        float score;
        int32_t column;
    };
    static constexpr float kNever = -std::numeric_limits<float>::infinity();

    static bool better(const Entry& a, const Entry& b) {
        return a.score != b.score ? a.score > b.score : a.column < b.column;
    }

    void keep_best() {
        std::nth_element(kept_.begin(), kept_.begin() + (k_ - 1), kept_.end(), better);
        kept_.resize(k_);
        threshold_ = kept_.back().score;
    }

    size_t k_;
    size_t full_;
    float threshold_ = kNever;
    std::vector<Entry> kept_;
};

// Offers one dense row; returns false if it has NaN or +inf. Most blocks have nothing above the
// threshold, so each block is first tested as a whole, in a loop that compilers vectorise.
inline bool offer_dense_row(const float* scores, int64_t cols, BestK& best) {
    constexpr int64_t kBlock = 32;
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    unsigned wrong = 0;
    int64_t start = 0;
    for (; start + kBlock <= cols; start += kBlock) {
        const float threshold = best.threshold();
        unsigned above = 0;
        for (int64_t j = start; j < start + kBlock; ++j) {
            above |= static_cast<unsigned>(scores[j] > threshold);
            wrong |= static_cast<unsigned>(!(scores[j] < kInfinity));
        }
        if (!above) continue;
        for (int64_t j = start; j < start + kBlock; ++j) {
            best.offer(scores[j], static_cast<int32_t>(j));
        }
    }
    for (; start < cols; ++start) {
        wrong |= static_cast<unsigned>(!(scores[start] < kInfinity));
        best.offer(scores[start], static_cast<int32_t>(start));
    }
    return !wrong;
}

inline bool offer_sparse_row(const Csr& matrix, int64_t row, BestK& best) {
    bool fine = true;
    for (int64_t at = matrix.indptr[row]; at < matrix.indptr[row + 1]; ++at) {
        fine &= matrix.data[at] < std::numeric_limits<float>::infinity();
        best.offer(matrix.data[at], matrix.indices[at]);
    }
    return fine;
}

// Calls offer_row(row, best) for every row; returns the first row for which it is false, or -1.
template <class OfferRow>
int64_t topk_rows(int64_t rows, int64_t rows_per_piece, const TopkOutput& out, int threads,
                  OfferRow&& offer_row) {
    std::atomic<int64_t> first_refused{rows};
    parallel_for((rows + rows_per_piece - 1) / rows_per_piece, threads, [&](int64_t piece, int) {
        BestK best(out.width);
        const int64_t end = std::min(rows, (piece + 1) * rows_per_piece);
        for (int64_t row = piece * rows_per_piece; row < end; ++row) {
            if (!offer_row(row, best)) {
                int64_t seen = first_refused.load();
                while (row < seen && !first_refused.compare_exchange_weak(seen, row)) {
                }
            }
            best.finish(row, out);
        }
    });
    return first_refused == rows ? -1 : first_refused.load();
}

// Both need out.width >= 1; the width is k.
inline int64_t topk_dense(const float* scores, int64_t rows, int64_t cols, const TopkOutput& out,
                          int threads) {
    const int64_t rows_per_piece = std::max<int64_t>(1, 65536 / std::max<int64_t>(1, cols));
    return topk_rows(rows, rows_per_piece, out, threads, [&](int64_t row, BestK& best) {
        return offer_dense_row(scores + row * cols, cols, best);
    });
}

inline int64_t topk_sparse(const Csr& matrix, const TopkOutput& out, int threads) {
    return topk_rows(matrix.rows, 256, out, threads,
                     [&](int64_t row, BestK& best) { return offer_sparse_row(matrix, row, best); });
}

}  // namespace labelgrove
