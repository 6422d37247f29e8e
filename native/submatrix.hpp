// Some rows of a sparse matrix, copied once with their features renumbered 0 .. m-1.
//
// The tree and the solver both read the same few rows many times. In the copy, vectors over
// features have length m instead of the number of columns. Frequent features get low numbers, so
// that the entries used by most rows share a few cache lines. Words follow Zipf's law, and this
// gains more than any other change to the inner loops.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "csr.hpp"
#include "prefetch.hpp"

namespace labelgrove {

// Rows [first, last) of a matrix.
struct RowRange {
    Csr matrix;
    int64_t first = 0, last = 0;
};

class Submatrix {
public:
    // Copies rows[0 .. count) of `source`, and the rows of `more` after them: rows() does not count
    // these, but begin(count), begin(count + 1) ... read them.
    void assign(const Csr& source, const int32_t* rows, int64_t count, const RowRange& more = {}) {
        if (static_cast<int64_t>(local_.size()) < source.cols) local_.resize(source.cols, 0);
        found_.clear();
        int64_t nnz = 0;
        for (int64_t i = 0; i < count; ++i) nnz += find(source, rows[i]);
        for (int64_t i = more.first; i < more.last; ++i) nnz += find(more.matrix, i);
        number_by_frequency();
        count_ = count;
        begin_.assign(1, 0);
        begin_.reserve(count + more.last - more.first + 1);
        entries_.resize(nnz);
        for (int64_t i = 0; i < count; ++i) copy(source, rows[i]);
        for (int64_t i = more.first; i < more.last; ++i) copy(more.matrix, i);
        for (int32_t feature : global_) local_[feature] = 0;
    }

    struct Entry {
        int32_t feature;
        float value;
    };

    int64_t rows() const { return count_; }
    int32_t features() const { return static_cast<int32_t>(global_.size()); }
    const Entry* begin(int64_t row) const { return entries_.data() + begin_[row]; }
    const Entry* end(int64_t row) const { return entries_.data() + begin_[row + 1]; }
    int64_t nnz() const { return begin_.back(); }
    int32_t global_feature(int32_t feature) const { return global_[feature]; }

    // Moves features that no other row has to the end of their row, from `lone(row)` on.
    void move_lone_features_back() {
        lone_.resize(count_);
        for (int64_t row = 0; row < count_; ++row) {
            Entry *to = entries_.data() + begin_[row], *const last =
                                                           entries_.data() + begin_[row + 1];
            moved_.clear();
            for (const Entry* from = to; from != last; ++from) {
                if (from->feature < first_lone_) {
                    *to++ = *from;
                } else {
                    moved_.push_back(*from);
                }
            }
            lone_[row] = to - entries_.data();
            std::copy(moved_.begin(), moved_.end(), to);
        }
    }
    const Entry* lone(int64_t row) const { return entries_.data() + lone_[row]; }

    // Rows are visited in random order; prefetching the start of the next one hides the latency.
    void prefetch_row(int64_t row) const {
        const char* from = reinterpret_cast<const char*>(begin(row));
        for (int line = 0; line < 12; ++line) prefetch(from + 64 * line);
    }

    float dot(int64_t row, const float* vector) const {
        const Entry* entry = begin(row);
        const Entry* const last = end(row);
        // Four sums hide the latency of addition. Their order is fixed, and so are the bits.
        float a = 0, b = 0, c = 0, d = 0;
        for (; last - entry >= 4; entry += 4) {
            a += entry[0].value * vector[entry[0].feature];
            b += entry[1].value * vector[entry[1].feature];
            c += entry[2].value * vector[entry[2].feature];
            d += entry[3].value * vector[entry[3].feature];
        }
        for (; entry != last; ++entry) a += entry->value * vector[entry->feature];
        return (a + b) + (c + d);
    }

    void add(int64_t row, float factor, float* vector) const {
        for (const Entry* entry = begin(row); entry != end(row); ++entry) {
            vector[entry->feature] += factor * entry->value;
        }
    }

private:
    int64_t find(const Csr& source, int64_t row) {
        for (int64_t k = source.indptr[row]; k < source.indptr[row + 1]; ++k) {
            const int32_t feature = source.indices[k];
            if (local_[feature]++ == 0) found_.push_back(feature);
        }
        return source.row_nnz(row);
    }

    void copy(const Csr& source, int64_t row) {
        Entry* to = entries_.data() + begin_.back();
        for (int64_t k = source.indptr[row]; k < source.indptr[row + 1]; ++k) {
            *to++ = {local_[source.indices[k]], source.data[k]};
        }
        begin_.push_back(to - entries_.data());
    }

    // Orders features by the bit widths of their counts, which is close enough to a full sort.
    void number_by_frequency() {
        std::array<int32_t, 33> start{};
        for (int32_t feature : found_) {
            ++start[32 - std::bit_width(static_cast<uint32_t>(local_[feature])) + 1];
        }
        for (size_t b = 1; b < start.size(); ++b) start[b] += start[b - 1];
        first_lone_ = start[31];  // only a count of 1 is one bit wide
        global_.resize(found_.size());
        for (int32_t feature : found_) {
            int32_t& number = start[32 - std::bit_width(static_cast<uint32_t>(local_[feature]))];
            global_[number] = feature;
            local_[feature] = number++;
        }
    }

    int64_t count_ = 0;
    int32_t first_lone_ = 0;  // features from here on occur once
    std::vector<int64_t> begin_, lone_;
    std::vector<Entry> moved_;
    std::vector<Entry> entries_;
    std::vector<int32_t> found_;
    std::vector<int32_t> global_;  // local feature -> feature
    std::vector<int32_t> local_;   // feature -> count, then local feature; 0 between calls
};

}  // namespace labelgrove
