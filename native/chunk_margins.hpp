// The margins of all children of one parent for one document: the inner loop of prediction.
//
// About half of a document's features are in a chunk, at random places; rows have one to many
// entries, and the model is larger than the caches. So the work is split into passes without
// unpredictable branches: find the rows, look up and prefetch their entries, add full rows, copy
// the entries of the other rows end to end, add those. The order of a sum depends on the document
// and the chunk only.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "beam_model.hpp"
#include "csr.hpp"
#include "dispatch.hpp"
#include "prefetch.hpp"
#include "weights.hpp"

namespace labelgrove {

// A row of the chunk whose feature the document has, and the document's value of it.
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

// The hits of one document in one chunk: rows that have an entry for every child, and others.
struct Spans {
    std::vector<Span> full, sparse;
    int64_t full_count, sparse_count;
    int64_t entries;  // of the sparse ones
};

// The entries of a chunk. `readable` is the number of entries that may be read from the first one
// on: reads take eight or sixteen at once and can pass a row's end.
template <class Value, class Child>
struct Entries {
    const Value* values;
    const Child* children;
    int64_t readable;
};

inline constexpr int64_t kStep = 8;

inline int64_t padded_width(int64_t width) { return (width + kStep - 1) / kStep * kStep; }

template <class Value, class Child>
LABELGROVE_INLINE void find_spans(const Hit* hits, int64_t count, const uint32_t* row_start,
                                  const Entries<Value, Child>& entries, uint32_t width,
                                  Spans& spans) {
    int64_t full_count = 0, sparse_count = 0, total = 0;
    Span *const full = spans.full.data(), *const sparse = spans.sparse.data();
    const int64_t last_full = entries.readable - padded_width(width);
    for (int64_t h = 0; h < count; ++h) {
        const uint32_t start = row_start[hits[h].row];
        const uint32_t size = row_start[hits[h].row + 1] - start;
        const bool is_full = (size == width) & (static_cast<int64_t>(start) <= last_full);
        prefetch(entries.values + start);
        prefetch(is_full ? static_cast<const void*>(entries.values + start + width - 1)
                         : static_cast<const void*>(entries.children + start));
        full[full_count] = sparse[sparse_count] = {start, size, hits[h].value};
        full_count += is_full;
        sparse_count += !is_full;
        total += is_full ? 0 : size;
    }
    spans.full_count = full_count;
    spans.sparse_count = sparse_count;
    spans.entries = total;
}

#if LABELGROVE_VECTOR_TYPE
// margins[0 .. N) += value * row for every row; the sums stay in registers.
template <int N, class Value>
LABELGROVE_INLINE void add_columns(const Span* rows, int64_t count, const Value* values,
                                   float* margins) {
    Sums<N> sums;
    sums.start_with(margins);
    for (int64_t r = 0; r < count; ++r) sums.add(values + rows[r].start, rows[r].value);
    sums.write(margins);
}
#endif

// `margins` has room for the padded width.
template <class Value>
LABELGROVE_INLINE void add_full_rows(const Span* rows, int64_t count, const Value* values,
                                     float* margins, int64_t width) {
#if LABELGROVE_VECTOR_TYPE
    int64_t c = 0;
    for (; c + 16 <= width; c += 16) add_columns<16>(rows, count, values + c, margins + c);
    for (; c < width; c += kStep) add_columns<kStep>(rows, count, values + c, margins + c);
#else
    for (int64_t r = 0; r < count; ++r) {
        const Value* row = values + rows[r].start;
        for (int64_t c = 0; c < width; ++c) margins[c] += rows[r].value * to_float(row[c]);
    }
#endif
}

// Copies the entries of all rows end to end, eight at a time. The next row overwrites what was
// written past a row's end.
template <class Value, class Child>
LABELGROVE_INLINE void lay_out_rows(const Span* rows, int64_t count,
                                    const Entries<Value, Child>& entries, Child* __restrict to,
                                    float* __restrict terms) {
    for (int64_t r = 0; r < count; ++r) {
        const int64_t size = rows[r].size;
        const float value = rows[r].value;
        const Child* row_children = entries.children + rows[r].start;
        const Value* row_values = entries.values + rows[r].start;
#if LABELGROVE_VECTOR_TYPE
        if (rows[r].start + size + kStep <= entries.readable) {
            constexpr int W = std::min<int>(kStep, kRegister);
            for (int64_t e = 0; e < size; e += kStep) {
                for (int64_t w = e; w < e + kStep; w += W) {
                    store<W>(terms + w, load_floats<W>(row_values + w) * value);
                }
                *reinterpret_cast<Packed<Child, kStep>*>(to + e) =
                    load<Child, kStep>(row_children + e);
            }
            to += size;
            terms += size;
            continue;
        }
#endif
        for (int64_t e = 0; e < size; ++e) {
            terms[e] = value * to_float(row_values[e]);
            to[e] = row_children[e];
        }
        to += size;
        terms += size;
    }
}

// One thread's working memory, kept between documents.
struct MarginScratch {
    std::vector<Hit> hits;
    Spans spans;
    std::vector<uint16_t> to;  // children, of one or two bytes each
    std::vector<float> terms, margins;
};

template <class Value, class Child>
LABELGROVE_INLINE void add_hits(const BeamLevel& level, int64_t parent, int64_t found,
                                const uint32_t* row_start, MarginScratch& scratch) {
    const int64_t width = level.width(parent), first_entry = level.chunk_entries[parent];
    const Entries<Value, Child> entries{static_cast<const Value*>(level.values) + first_entry,
                                        static_cast<const Child*>(level.children) + first_entry,
                                        level.entries - first_entry};
    Spans& spans = scratch.spans;
    find_spans(scratch.hits.data(), found, row_start, entries, static_cast<uint32_t>(width), spans);
    if (static_cast<int64_t>(scratch.terms.size()) < spans.entries + kStep) {
        scratch.terms.resize(2 * spans.entries + kStep);
        scratch.to.resize(2 * spans.entries + kStep);
    }
    float* __restrict margins = scratch.margins.data();
    add_full_rows(spans.full.data(), spans.full_count, entries.values, margins, width);
    Child* const to = reinterpret_cast<Child*>(scratch.to.data());
    float* const terms = scratch.terms.data();
    lay_out_rows(spans.sparse.data(), spans.sparse_count, entries, to, terms);
    for (int64_t e = 0; e < spans.entries; ++e) margins[to[e]] += terms[e];
}

LABELGROVE_MULTIVERSION
inline void add_hits_of(const BeamLevel& level, int64_t parent, int64_t found,
                        const uint32_t* row_start, MarginScratch& scratch) {
    const bool bytes = level.child_type == ChildType::byte;
    if (level.value_type == ValueType::single) {
        bytes ? add_hits<float, uint8_t>(level, parent, found, row_start, scratch)
              : add_hits<float, uint16_t>(level, parent, found, row_start, scratch);
    } else {
        bytes ? add_hits<Half, uint8_t>(level, parent, found, row_start, scratch)
              : add_hits<Half, uint16_t>(level, parent, found, row_start, scratch);
    }
}

// Looks features up in a bitmap. Half of the look-ups fail, unpredictably. Writing each result and
// advancing only on success avoids mispredicted branches.
LABELGROVE_MULTIVERSION
inline int64_t find_by_rank(const RankWord* words, const int32_t* features, const float* data,
                            int64_t count, const uint32_t* row_start, Hit* __restrict hits) {
    int64_t found = 0;
    for (int64_t k = 0; k < count; ++k) {
        const RankWord word = words[features[k] >> 5];
        const uint32_t bit = 1u << (features[k] & 31);
        const uint32_t row =
            word.rank + static_cast<uint32_t>(std::popcount(word.bits & (bit - 1)));
        prefetch(row_start + row);
        hits[found] = {row, data[k]};
        found += (word.bits & bit) != 0;
    }
    return found;
}

// Computes margins. Each thread has one, which keeps its memory.
class ChunkMargins {
public:
    // Call this before the documents of a chunk. A chunk without a bitmap gets one if enough
    // documents follow.
    void open_chunk(const BeamLevel& level, int64_t parent, int64_t cols, int64_t documents) {
        words_ = nullptr;
        if (level.index->shift[parent] == FeatureIndex::kRanks) {
            words_ = level.index->ranks.data() + level.index->ptr[parent];
        } else if (documents >= 8) {
            ranks_.assign(rank_words(cols), {0, 0});
            fill_rank_words(level.features + level.chunk_rows[parent],
                            level.chunk_rows[parent + 1] - level.chunk_rows[parent],
                            rank_words(cols), ranks_.data());
            words_ = ranks_.data();
        }
    }

    // The margins of all children of the open chunk's parent. `dense` is the part of the dense
    // features, or null.
    float* operator()(const BeamLevel& level, int64_t parent, const Csr& documents,
                      int64_t document, float bias, const float* dense) {
        const int64_t from = documents.indptr[document], count = documents.row_nnz(document);
        const int32_t* features = documents.indices + from;
        const float* data = documents.data + from;
        reserve(count, level.width(parent));
        const uint32_t* row_start = level.row_start + level.chunk_rows[parent] + parent;
        const int64_t found =
            words_ != nullptr
                ? find_by_rank(words_, features, data, count, row_start, scratch_.hits.data())
                : find_by_bucket(level, parent, features, data, count, row_start);
        const int64_t width = level.width(parent);
        const float* node_bias = level.bias + level.child_ptr[parent];
        float* margins = scratch_.margins.data();
        for (int64_t c = 0; c < width; ++c) margins[c] = node_bias[c] * bias;
        add_hits_of(level, parent, found, row_start, scratch_);
        if (dense != nullptr) {
            for (int64_t c = 0; c < width; ++c) margins[c] += dense[c];
        }
        return margins;
    }

private:
    void reserve(int64_t count, int64_t width) {
        if (static_cast<int64_t>(scratch_.hits.size()) < count + 1) {
            scratch_.hits.resize(2 * count + 1);
            scratch_.spans.full.resize(2 * count + 1);
            scratch_.spans.sparse.resize(2 * count + 1);
            places_.resize(2 * count + 1);
        }
        // The sums after the last child are meaningless and never read.
        if (static_cast<int64_t>(scratch_.margins.size()) < padded_width(width)) {
            scratch_.margins.resize(padded_width(width));
        }
    }

    int64_t find_by_bucket(const BeamLevel& level, int64_t parent, const int32_t* features,
                           const float* data, int64_t count, const uint32_t* row_start) {
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
            scratch_.hits[found] = {row, data[k]};
            found += row < end && rows[row] == features[k];
        }
        return found;
    }

    struct Place {
        uint32_t row, end;
    };

    MarginScratch scratch_;
    std::vector<Place> places_;
    std::vector<RankWord> ranks_;
    const RankWord* words_ = nullptr;  // of the open chunk; null: search its buckets
};

}  // namespace labelgrove
