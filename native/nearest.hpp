// The rows of a collection that have the largest products with each query, by an inverted index.
//
// A row of `postings` has the documents of a term. Queries are compared in blocks: a posting is
// read once for all queries of the block that have its term, and one instruction adds its products
// to their sums, sums[document][query]. Tiles of documents keep the sums in a fast cache. Every
// query adds up its products in the order of its terms, so the sums depend on neither the block
// nor the threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "csr.hpp"
#include "dispatch.hpp"
#include "lanes.hpp"
#include "parallel.hpp"
#include "topk.hpp"
#include "topk_output.hpp"

namespace labelgrove {

inline constexpr int kQueries = 16;     // in a block
inline constexpr int32_t kTile = 4096;  // documents whose sums are in the cache
// A posting costs a block so many times what it costs a query alone.
inline constexpr int64_t kBlockCost = 2;

// What is left of the postings of a term that some queries of a block have.
struct QueryTerm {
    int64_t from, end;
};

// Adds the products of documents [first, first + kTile) to their sums.
LABELGROVE_MULTIVERSION
inline void add_tile(std::vector<QueryTerm>& terms, const Lanes<kQueries>* values,
                     const Csr& postings, int32_t first, Lanes<kQueries>* sums) {
    const int32_t last = first + kTile;
    const int32_t* const documents = postings.indices;
    const float* const data = postings.data;
    for (QueryTerm& term : terms) {
        const Lanes<kQueries> value = *values++;  // in each query
        const int64_t end = term.end;
        int64_t p = term.from;
        for (; p < end && documents[p] < last; ++p) sums[documents[p] - first] += value * data[p];
        term.from = p;
    }
}

// Writes the documents that have a sum above a threshold; returns how many these are.
LABELGROVE_MULTIVERSION
inline int64_t above(const Lanes<kQueries>* sums, int64_t documents,
                     const Lanes<kQueries>& thresholds, int32_t* __restrict out) {
    int64_t found = 0;
    for (int64_t document = 0; document < documents; ++document) {
        out[found] = static_cast<int32_t>(document);
        found += any_of<kQueries>(sums[document] > thresholds);
    }
    return found;
}

// Compares up to kQueries queries; one per thread and piece.
class NearestBlock {
public:
    NearestBlock(const Csr& queries, const Csr& postings, const TopkOutput& out)
        : queries_(queries), postings_(postings), out_(out) {}

    void compare(int64_t first, int64_t count) {
        first_ = first;
        count_ = count;
        if (list_terms()) {
            compare_together();
        } else {
            for (int64_t query = first; query < first + count; ++query) compare_one(query);
        }
    }

private:
    // Returns whether enough queries have the same terms.
    bool list_terms() {
        std::vector<Entry> entries;
        int64_t alone = 0, together = 0;
        for (int64_t query = 0; query < count_; ++query) {
            const int64_t end = queries_.indptr[first_ + query + 1];
            for (int64_t at = queries_.indptr[first_ + query]; at < end; ++at) {
                const int32_t term = queries_.indices[at];
                entries.push_back({term, static_cast<int32_t>(query), queries_.data[at]});
                alone += postings_.row_nnz(term);
            }
        }
        std::sort(entries.begin(), entries.end(),
                  [](const Entry& a, const Entry& b) { return a.term < b.term; });
        values_.assign(entries.size() * kQueries, 0.0f);
        int32_t before = -1;
        for (const Entry& entry : entries) {
            if (entry.term != before) {
                const int64_t* const at = postings_.indptr + entry.term;
                terms_.push_back({at[0], at[1]});
                together += at[1] - at[0];
                before = entry.term;
            }
            values_.data()[(terms_.size() - 1) * kQueries + entry.query] = entry.value;
        }
        return alone > kBlockCost * together;
    }

    void compare_together() {
        std::vector<BestK> best(count_, BestK(out_.width));
        std::vector<int32_t> found(kTile + 1);
        LaneArray tile, thresholds;
        thresholds.assign(kQueries, 0.0f);
        for (int64_t from = 0; from < postings_.cols; from += kTile) {
            const int64_t documents = std::min<int64_t>(kTile, postings_.cols - from);
            tile.assign(static_cast<size_t>(kTile) * kQueries, 0.0f);
            const auto* const sums = tile.lanes<kQueries>();
            add_tile(terms_, values_.lanes<kQueries>(), postings_, static_cast<int32_t>(from),
                     tile.lanes<kQueries>());
            for (int64_t query = 0; query < count_; ++query) {
                thresholds.data()[query] = best[query].threshold();
            }
            const int64_t some =
                above(sums, documents, *thresholds.lanes<kQueries>(), found.data());
            for (int64_t f = 0; f < some; ++f) {
                const float* const row = tile.data() + int64_t{found[f]} * kQueries;
                for (int64_t query = 0; query < count_; ++query) {
                    best[query].offer(row[query], static_cast<int32_t>(from) + found[f]);
                }
            }
        }
        for (int64_t query = 0; query < count_; ++query) best[query].finish(first_ + query, out_);
    }

    void compare_one(int64_t query) {
        BestK best(out_.width);
        sums_.assign(static_cast<size_t>(postings_.cols), 0.0f);
        for (int64_t at = queries_.indptr[query]; at < queries_.indptr[query + 1]; ++at) {
            const int64_t term = queries_.indices[at];
            const float value = queries_.data[at];
            for (int64_t p = postings_.indptr[term]; p < postings_.indptr[term + 1]; ++p) {
                sums_[static_cast<size_t>(postings_.indices[p])] += value * postings_.data[p];
            }
        }
        offer_dense_row(sums_.data(), postings_.cols, best);
        best.finish(query, out_);
    }

    struct Entry {
        int32_t term, query;
        float value;
    };
    const Csr &queries_, &postings_;
    const TopkOutput& out_;
    int64_t first_ = 0, count_ = 0;
    std::vector<QueryTerm> terms_;
    LaneArray values_;  // per term
    std::vector<float> sums_;
};

// queries.cols must be postings.rows, and out.width at least 1.
inline void nearest_rows(const Csr& queries, const Csr& postings, const TopkOutput& out,
                         int threads) {
    const int64_t pieces = (queries.rows + kQueries - 1) / kQueries;
    parallel_for(pieces, threads, [&](int64_t piece, int) {
        const int64_t first = piece * kQueries;
        const int64_t count = std::min<int64_t>(kQueries, queries.rows - first);
        NearestBlock(queries, postings, out).compare(first, count);
    });
}

}  // namespace labelgrove
