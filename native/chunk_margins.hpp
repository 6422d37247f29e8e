// The margins of all children of one parent for one document: the innermost work of prediction.
//
// A document meets about half of a chunk's rows at random places, rows have one to many entries, and
// the model is larger than the caches. So the work is cut into passes without unpredictable branches:
// find the rows, look up and prefetch their entries, add full rows, lay the entries of the other
// rows end to end, add those. The sum's order depends on the document and the chunk alone.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "beam_model.hpp"
#include "csr.hpp"
#include "dispatch.hpp"
#include "prefetch.hpp"

namespace labelgrove {

// Eight or sixteen floats, as vectors where the compiler knows them: left to itself, GCC 12 turns
// loops of known length over short rows into long shuffles across rows.
#if defined(__GNUC__) || defined(__clang__)
typedef float Float8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float Float16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint16_t Short8 __attribute__((vector_size(16), aligned(2), may_alias));
#define LABELGROVE_VECTORS 1
#endif

// A row of the chunk that the document meets, and the document's value there.
struct Hit {
    uint32_t row;
    float value;
};

// The entries of a hit.
struct Span {
    uint32_t start;
    uint32_t size;
    float value;
};

// Splits hits into rows that have an entry for every child and others.
inline void find_spans(const Hit* hits, int64_t count, const uint32_t* row_start, const uint16_t* children,
                       const float* values, uint32_t width, std::vector<Span>& full, int64_t& full_count,
                       std::vector<Span>& sparse, int64_t& sparse_count, int64_t& entries) {
    full_count = sparse_count = entries = 0;
    if (static_cast<int64_t>(full.size()) < count + 1) {
        full.resize(2 * count + 1);
        sparse.resize(2 * count + 1);
    }
    for (int64_t h = 0; h < count; ++h) {
        const uint32_t start = row_start[hits[h].row];
        const uint32_t size = row_start[hits[h].row + 1] - start;
        const bool is_full = size == width;
        prefetch(values + start);
        prefetch(is_full ? static_cast<const void*>(values + start + width - 1)
                         : static_cast<const void*>(children + start));
        full[full_count] = sparse[sparse_count] = {start, size, hits[h].value};
        full_count += is_full;
        sparse_count += !is_full;
        entries += is_full ? 0 : size;
    }
}

// margins += value * row for every full row.
LABELGROVE_MULTIVERSION
inline void add_full_rows(const Span* rows, int64_t count, const float* values, float* __restrict margins,
                          int64_t width) {
#ifdef LABELGROVE_VECTORS
    if (width == 16) {  // the usual branching: sums stay in registers
        Float16 sums = *reinterpret_cast<const Float16*>(margins);
        for (int64_t r = 0; r < count; ++r) {
            sums += *reinterpret_cast<const Float16*>(values + rows[r].start) * rows[r].value;
        }
        *reinterpret_cast<Float16*>(margins) = sums;
        return;
    }
#endif
    for (int64_t r = 0; r < count; ++r) {
        const float* row = values + rows[r].start;
        const float value = rows[r].value;
        int64_t c = 0;
#ifdef LABELGROVE_VECTORS
        for (; c + 8 <= width; c += 8) {
            *reinterpret_cast<Float8*>(margins + c) += *reinterpret_cast<const Float8*>(row + c) * value;
        }
#endif
        for (; c < width; ++c) margins[c] += value * row[c];
    }
}

// Lays the entries of all rows end to end, eight at a time: what is written past a row's end is
// overwritten by the next. `readable` is how far eight entries may be read from `children`, `values`.
LABELGROVE_MULTIVERSION
inline void lay_out_rows(const Span* rows, int64_t count, const uint16_t* children, const float* values,
                         int64_t readable, uint16_t* __restrict to, float* __restrict terms) {
    for (int64_t r = 0; r < count; ++r) {
        const int64_t size = rows[r].size;
        const float value = rows[r].value;
        const uint16_t* row_children = children + rows[r].start;
        const float* row_values = values + rows[r].start;
#ifdef LABELGROVE_VECTORS
        if (rows[r].start + size + 8 <= readable) {
            for (int64_t e = 0; e < size; e += 8) {
                *reinterpret_cast<Float8*>(terms + e) = *reinterpret_cast<const Float8*>(row_values + e) * value;
                *reinterpret_cast<Short8*>(to + e) = *reinterpret_cast<const Short8*>(row_children + e);
            }
            to += size;
            terms += size;
            continue;
        }
#endif
        for (int64_t e = 0; e < size; ++e) {
            terms[e] = value * row_values[e];
            to[e] = row_children[e];
        }
        to += size;
        terms += size;
    }
}

// Looks features up in a bitmap. Half of all look-ups fail at random: writing every one and advancing
// only on success spares a mispredicted branch each.
LABELGROVE_MULTIVERSION
inline int64_t find_by_rank(const RankWord* words, const int32_t* features, const float* data, int64_t count,
                            const uint32_t* row_start, Hit* __restrict hits) {
    int64_t found = 0;
    for (int64_t k = 0; k < count; ++k) {
        const RankWord word = words[features[k] >> 5];
        const uint32_t bit = 1u << (features[k] & 31);
        const uint32_t row = word.rank + static_cast<uint32_t>(std::popcount(word.bits & (bit - 1)));
        prefetch(row_start + row);
        hits[found] = {row, data[k]};
        found += (word.bits & bit) != 0;
    }
    return found;
}

// Computes margins; one per thread, keeps its memory.
class ChunkMargins {
public:
    // Call before a chunk's documents. A chunk without a bitmap gets one if it is going to be used
    // often enough.
    void open_chunk(const BeamLevel& level, int64_t parent, int64_t cols, int64_t documents) {
        words_ = nullptr;
        if (level.index->shift[parent] == FeatureIndex::kRanks) {
            words_ = level.index->ranks.data() + level.index->ptr[parent];
        } else if (documents >= 8) {
            ranks_.assign(rank_words(cols), {0, 0});
            fill_rank_words(level.features + level.chunk_rows[parent],
                            level.chunk_rows[parent + 1] - level.chunk_rows[parent], rank_words(cols),
                            ranks_.data());
            words_ = ranks_.data();
        }
    }

    // Margins of all children of the open chunk's parent.
    float* operator()(const BeamLevel& level, int64_t parent, const Csr& documents, int64_t document, float bias) {
        const int64_t from = documents.indptr[document], count = documents.row_nnz(document);
        const int32_t* features = documents.indices + from;
        const float* data = documents.data + from;
        if (static_cast<int64_t>(hits_.size()) < count + 1) hits_.resize(2 * count + 1);
        const uint32_t* row_start = level.row_start + level.chunk_rows[parent] + parent;
        const int64_t found =
            words_ != nullptr
                ? find_by_rank(words_, features, data, count, row_start, hits_.data())
                : find_by_bucket(level, parent, features, data, count, row_start);
        return add(level, parent, found, row_start, bias);
    }

private:
    int64_t find_by_bucket(const BeamLevel& level, int64_t parent, const int32_t* features, const float* data,
                           int64_t count, const uint32_t* row_start) {
        if (static_cast<int64_t>(places_.size()) < count) places_.resize(2 * count);
        const int32_t* rows = level.features + level.chunk_rows[parent];
        const uint32_t* buckets = level.index->buckets.data() + level.index->ptr[parent];
        const int shift = level.index->shift[parent];
        for (int64_t k = 0; k < count; ++k) {
            const int32_t bucket = features[k] >> shift;
            places_[k] = {buckets[bucket], buckets[bucket + 1]};
            prefetch(rows + buckets[bucket]);
            prefetch(row_start + buckets[bucket]);
        }
        int64_t found = 0;
        for (int64_t k = 0; k < count; ++k) {
            auto [row, end] = places_[k];
            while (row < end && rows[row] < features[k]) ++row;
            hits_[found] = {row, data[k]};
            found += row < end && rows[row] == features[k];
        }
        return found;
    }

    struct Place {
        uint32_t row, end;
    };

    float* add(const BeamLevel& level, int64_t parent, int64_t found, const uint32_t* row_start, float bias) {
        const int64_t first_child = level.child_ptr[parent];
        const int64_t width = level.width(parent);
        if (static_cast<int64_t>(margins_.size()) < width) margins_.resize(width);
        float* margins = margins_.data();
        for (int64_t c = 0; c < width; ++c) margins[c] = level.bias[first_child + c] * bias;
        const uint16_t* children = level.children + level.chunk_entries[parent];
        const float* values = level.values + level.chunk_entries[parent];
        int64_t full, sparse, entries;
        find_spans(hits_.data(), found, row_start, children, values, static_cast<uint32_t>(width), full_, full, sparse_, sparse, entries);
        add_full_rows(full_.data(), full, values, margins, width);
        if (static_cast<int64_t>(terms_.size()) < entries + 8) {
            terms_.resize(2 * entries + 8);
            to_.resize(2 * entries + 8);
        }
        lay_out_rows(sparse_.data(), sparse, children, values, level.entries - level.chunk_entries[parent],
                     to_.data(), terms_.data());
        for (int64_t e = 0; e < entries; ++e) margins[to_[e]] += terms_[e];
        return margins;
    }

    std::vector<Hit> hits_;
    std::vector<Place> places_;
    std::vector<Span> full_, sparse_;
    std::vector<uint16_t> to_;
    std::vector<float> terms_, margins_;
    std::vector<RankWord> ranks_;
    const RankWord* words_ = nullptr;  // of the open chunk; null: search its buckets
};

}  // namespace labelgrove
