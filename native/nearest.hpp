// The rows of a collection that have the largest products with each query, by an inverted index.
//
// A row of `postings` has the documents of a term. Every query adds up the products of its terms in
// their order, so the sums do not depend on the threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "csr.hpp"
#include "parallel.hpp"
#include "topk.hpp"
#include "topk_output.hpp"

namespace labelgrove {

// queries.cols must be postings.rows, and out.width at least 1.
inline void nearest_rows(const Csr& queries, const Csr& postings, const TopkOutput& out,
                         int threads) {
    constexpr int64_t kQueriesPerPiece = 16;
    const int64_t pieces = (queries.rows + kQueriesPerPiece - 1) / kQueriesPerPiece;
    parallel_for(pieces, threads, [&](int64_t piece, int) {
        std::vector<float> sums(static_cast<size_t>(postings.cols));
        BestK best(out.width);
        const int64_t end = std::min(queries.rows, (piece + 1) * kQueriesPerPiece);
        for (int64_t query = piece * kQueriesPerPiece; query < end; ++query) {
            std::fill(sums.begin(), sums.end(), 0.0f);
            for (int64_t at = queries.indptr[query]; at < queries.indptr[query + 1]; ++at) {
                const int64_t term = queries.indices[at];
                const float value = queries.data[at];
                for (int64_t p = postings.indptr[term]; p < postings.indptr[term + 1]; ++p) {
                    sums[static_cast<size_t>(postings.indices[p])] += value * postings.data[p];
                }
            }
            offer_dense_row(sums.data(), postings.cols, best);
            best.finish(query, out);
        }
    });
}

}  // namespace labelgrove
