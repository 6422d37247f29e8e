// Beam search down a tree of linear classifiers, and the scores of given labels.
//
// Documents are searched in blocks. The (document, chunk) pairs of a block are processed chunk by
// chunk, so that a chunk's weights are loaded into the cache once. A child's score is at most its
// parent's, so each document visits its best parents first and skips parents whose own score is
// below everything it would keep. Neither changes a result.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "beam_best.hpp"
#include "beam_model.hpp"
#include "chunk_margins.hpp"
#include "csr.hpp"
#include "dense.hpp"
#include "dense_margins.hpp"
#include "parallel.hpp"
#include "points.hpp"
#include "topk_output.hpp"

namespace labelgrove {

struct BeamTree {
    std::vector<BeamLevel> levels;
    const int32_t* leaf_labels;
};

// Dense rows of some documents in single precision.
class SingleRows {
public:
    void open(const Dense& dense, int64_t first, int64_t count) {
        cols_ = dense.cols;
        rows_ = dense.single == nullptr ? nullptr : dense.single + first * cols_;
        if (cols_ == 0 || rows_ != nullptr) return;
        converted_.resize(count * cols_);
        for (int64_t row = 0; row < count; ++row) {
            dense.copy_row(first + row, converted_.data() + row * cols_);
        }
        rows_ = converted_.data();
    }

    const float* operator[](int64_t row) const { return rows_ + row * cols_; }

private:
    int64_t cols_ = 0;
    const float* rows_ = nullptr;
    std::vector<float> converted_;
};

struct BeamRequest {
    int64_t k = 10;
    std::vector<int64_t> beams;  // per level, the last one ignored; 0: keep everything
    // allowed[j] is the number of allowed labels at the leaves before position j. Null: all labels.
    const int32_t* allowed = nullptr;
    BeamOptions options;
};

// Searches blocks of documents; one per thread, keeps its memory between blocks.
class BeamSearcher {
public:
    void search(const BeamTree& tree, const Points& documents, int64_t first, int64_t last,
                const BeamRequest& request, const TopkOutput& out) {
        documents_ = &documents.sparse;
        first_ = first;
        request_ = &request;
        const int64_t count = last - first;
        dense_rows_.open(documents.dense, first, count);
        best_.resize(count);
        kept_.assign(count, {0, 0.0f});  // every document starts at the root
        kept_ptr_.resize(count + 1);
        for (int64_t document = 0; document <= count; ++document) kept_ptr_[document] = document;
        for (size_t t = 0; t < tree.levels.size(); ++t) {
            const BeamLevel& level = tree.levels[t];
            const bool last_level = t + 1 == tree.levels.size();
            // `limit` nodes certainly have k leaves, so the beam never needs more.
            const int64_t fewest =
                request.allowed == nullptr ? std::max<int64_t>(level.fewest_leaves, 1) : 1;
            const int64_t beam = last_level ? request.k : request.beams[t];
            const int64_t limit = beam == 0 ? 0 : std::max(beam, (request.k + fewest - 1) / fewest);
            for (BestNodes& best : best_) best.reset(limit);
            visit_children({.level = level,
                            .leaf_labels = last_level ? tree.leaf_labels : nullptr,
                            .own_margin = request.options.own_margin(last_level)});
            if (last_level) {
                for (int64_t document = 0; document < count; ++document) {
                    write_best(document, out);
                }
            } else {
                kept_.clear();
                for (int64_t document = 0; document < count; ++document) {
                    keep_best(level, best_[document].sorted(), beam);
                    kept_ptr_[document + 1] = static_cast<int64_t>(kept_.size());
                }
            }
        }
    }

private:
    // One level of the search.
    struct Visit {
        const BeamLevel& level;
        const int32_t* leaf_labels;  // null above the last level
        bool own_margin;             // see BeamOptions
    };

    // Offers the children of all kept nodes. The first round visits the best few parents of each
    // document. Later rounds, each larger than the last, visit those parents that can still matter.
    void visit_children(const Visit& visit) {
        const int64_t count = static_cast<int64_t>(best_.size());
        int64_t from = 0, to = visit.own_margin ? std::numeric_limits<int64_t>::max() : 2;
        for (;;) {
            pairs_.clear();
            bool more = false;
            for (int64_t document = 0; document < count; ++document) {
                const int64_t kept = kept_ptr_[document + 1] - kept_ptr_[document];
                const Scored* parents = kept_.data() + kept_ptr_[document];
                if (from >= kept) continue;
                if (from > 0) best_[document].tighten();
                const float threshold = best_[document].threshold();
                for (int64_t rank = from; rank < std::min(to, kept); ++rank) {
                    if (!visit.own_margin && parents[rank].score < threshold) break;
                    pairs_.push_back(
                        {parents[rank].node, static_cast<int32_t>(document), parents[rank].score});
                }
                more |= to < kept;
            }
            visit_pairs(visit);
            if (!more) return;
            from = to;
            to *= 3;
        }
    }

    struct Pair {
        int32_t parent;
        int32_t document;
        float score;
    };

    // Sorts by parent. Documents are ascending before, and within each parent also afterwards.
    void sort_pairs(const BeamLevel& level) {
        if (best_.size() <= 1 || pairs_.empty()) return;
        if (static_cast<int64_t>(pairs_.size()) < level.parents / 4) {
            std::stable_sort(pairs_.begin(), pairs_.end(),
                             [](const Pair& a, const Pair& b) { return a.parent < b.parent; });
            return;
        }
        places_.assign(level.parents + 1, 0);
        for (const Pair& pair : pairs_) ++places_[pair.parent + 1];
        for (int64_t parent = 0; parent < level.parents; ++parent) {
            places_[parent + 1] += places_[parent];
        }
        sorted_.resize(pairs_.size());
        for (const Pair& pair : pairs_) sorted_[places_[pair.parent]++] = pair;
        pairs_.swap(sorted_);
    }

    void visit_pairs(const Visit& visit) {
        const BeamLevel& level = visit.level;
        sort_pairs(level);
        for (size_t from = 0, to; from < pairs_.size(); from = to) {
            const int32_t parent = pairs_[from].parent;
            for (to = from + 1; to < pairs_.size() && pairs_[to].parent == parent;) ++to;
            margins_.open_chunk(level, parent, documents_->cols, static_cast<int64_t>(to - from));
            if (level.dense_cols == 0) {
                visit_chunk(visit, from, to, nullptr, 0);
                continue;
            }
            const size_t batch = static_cast<size_t>(DenseMargins::batch(level.width(parent)));
            for (size_t p = from; p < to; p += batch) {
                const size_t end = std::min(to, p + batch);
                dense_documents_.clear();
                for (size_t d = p; d < end; ++d) {
                    dense_documents_.push_back(dense_rows_[pairs_[d].document]);
                }
                const float* dense =
                    dense_(level, parent, dense_documents_.data(), static_cast<int64_t>(end - p));
                visit_chunk(visit, p, end, dense, dense_.stride());
            }
        }
    }

    // Pairs [from, to), all of one parent; `dense` has a row for each of them, or is null.
    void visit_chunk(const Visit& visit, size_t from, size_t to, const float* dense,
                     int64_t stride) {
        const BeamLevel& level = visit.level;
        const int64_t parent = pairs_[from].parent;
        for (size_t p = from; p < to; ++p, dense += stride) {
            float* scores = margins_(level, parent, *documents_, first_ + pairs_[p].document,
                                     request_->options.bias, dense);
            score_margins(request_->options.post_processor, visit.own_margin, pairs_[p].score,
                          scores, level.width(parent));
            offer(level, parent, scores, visit.leaf_labels, best_[pairs_[p].document]);
        }
    }

    void offer(const BeamLevel& level, int64_t parent, const float* scores,
               const int32_t* leaf_labels, BestNodes& best) const {
        const int64_t first_child = level.child_ptr[parent], width = level.width(parent);
        const float before = best.threshold();
        unsigned any = 0;
        for (int64_t c = 0; c < width; ++c) any |= static_cast<unsigned>(scores[c] >= before);
        if (!any) return;
        for (int64_t c = 0; c < width; ++c) {
            if (!(scores[c] >= best.threshold())) continue;
            const int32_t node = static_cast<int32_t>(first_child + c);
            if (request_->allowed != nullptr && allowed_below(level, node) == 0) continue;
            best.offer(leaf_labels == nullptr ? node : leaf_labels[node], scores[c]);
        }
    }

    int64_t allowed_below(const BeamLevel& level, int32_t node) const {
        const int64_t from = level.leaf_ptr[node], to = level.leaf_ptr[node + 1];
        return request_->allowed == nullptr ? to - from
                                            : request_->allowed[to] - request_->allowed[from];
    }

    // Keeps the best `beam` nodes, and more until there are k labels below them.
    void keep_best(const BeamLevel& level, const std::vector<uint64_t>& candidates, int64_t beam) {
        const int64_t all = static_cast<int64_t>(candidates.size());
        const int64_t least = beam == 0 ? all : std::min(beam, all);
        int64_t labels = 0;
        for (int64_t c = 0; c < all && (c < least || labels < request_->k); ++c) {
            kept_.push_back(from_sort_key(candidates[c]));
            labels += allowed_below(level, kept_.back().node);
        }
    }

    void write_best(int64_t document, const TopkOutput& out) {
        std::vector<uint64_t>& keys = best_[document].sorted();
        const int64_t count = static_cast<int64_t>(keys.size());
        if (request_->options.product()) {
            // Different logarithms can round to the same product; then the lower column wins.
            for (uint64_t& key : keys) {
                const Scored label = from_sort_key(key);
                key = sort_key({label.node, std::exp(label.score)});
            }
            if (!std::is_sorted(keys.begin(), keys.end())) sort_keys(keys);
        }
        for (int64_t c = 0; c < count; ++c) {
            const Scored label = from_sort_key(keys[c]);
            out.set(first_ + document, c, label.node, label.score);
        }
        out.finish_row(first_ + document, count);
    }

    const Csr* documents_ = nullptr;
    int64_t first_ = 0;
    const BeamRequest* request_ = nullptr;
    std::vector<BestNodes> best_;  // per document of the block
    std::vector<Scored> kept_;     // best first within a document
    std::vector<int64_t> kept_ptr_;
    std::vector<Pair> pairs_, sorted_;
    std::vector<int64_t> places_;
    ChunkMargins margins_;
    SingleRows dense_rows_;
    std::vector<const float*> dense_documents_;
    DenseMargins dense_;
};

inline void beam_search(const BeamTree& tree, const Points& documents, const BeamRequest& request,
                        const TopkOutput& out, int threads) {
    const int64_t rows = documents.sparse.rows;
    const int workers = resolve_threads(threads);
    const int64_t share = (rows + workers - 1) / workers;
    // In a large block more documents share a chunk; several blocks per thread balance the load.
    const int64_t block = std::clamp<int64_t>(workers == 1 ? share : share / 4, 1, 4096);
    const int64_t blocks = (rows + block - 1) / block;
    std::vector<BeamSearcher> searchers(std::min<int64_t>(workers, std::max<int64_t>(blocks, 1)));
    parallel_for(blocks, workers, [&](int64_t piece, int worker) {
        searchers[worker].search(tree, documents, piece * block,
                                 std::min(rows, (piece + 1) * block), request, out);
    });
}

// The labels to score: row i's leaves are leaves[indptr[i] .. indptr[i + 1]), ascending, and their
// scores go to the same places of `scores`.
struct LabelRequest {
    const int64_t* indptr;
    const int32_t* leaves;
    float* scores;
    BeamOptions options;
};

// Scores given labels of one document: visits only the chunks on their paths, and computes the
// same numbers as a search.
class LabelScorer {
public:
    void score(const BeamTree& tree, const Points& documents, const LabelRequest& request,
               int64_t document) {
        const BeamOptions& options = request.options;
        const int32_t* const leaves = request.leaves + request.indptr[document];
        float* const scores = request.scores + request.indptr[document];
        const int64_t count = request.indptr[document + 1] - request.indptr[document];
        dense_row_.open(documents.dense, document, 1);
        const float* row = dense_row_[0];
        kept_.assign(count > 0 ? 1 : 0, {0, 0.0f});
        for (size_t t = 0; t < tree.levels.size(); ++t) {
            const BeamLevel& level = tree.levels[t];
            const bool last_level = t + 1 == tree.levels.size();
            next_.clear();
            int64_t at = 0;  // parents and leaves are both ascending
            for (const Scored& parent : kept_) {
                const float* dense =
                    level.dense_cols == 0 ? nullptr : dense_(level, parent.node, &row, 1);
                margins_.open_chunk(level, parent.node, documents.sparse.cols, 1);
                float* margins =
                    margins_(level, parent.node, documents.sparse, document, options.bias, dense);
                score_margins(options.post_processor, options.own_margin(last_level), parent.score,
                              margins, level.width(parent.node));
                const int64_t first_child = level.child_ptr[parent.node];
                for (int64_t node = first_child; node < level.child_ptr[parent.node + 1]; ++node) {
                    if (at == count || leaves[at] >= level.leaf_ptr[node + 1]) continue;
                    next_.push_back({static_cast<int32_t>(node), margins[node - first_child]});
                    while (at < count && leaves[at] < level.leaf_ptr[node + 1]) {
                        if (last_level) scores[at] = next_.back().score;
                        ++at;
                    }
                }
            }
            kept_.swap(next_);
        }
        if (options.product()) {
            for (int64_t j = 0; j < count; ++j) scores[j] = std::exp(scores[j]);
        }
    }

private:
    std::vector<Scored> kept_, next_;
    ChunkMargins margins_;
    SingleRows dense_row_;
    DenseMargins dense_;
};

inline void score_labels(const BeamTree& tree, const Points& documents, const LabelRequest& request,
                         int threads) {
    std::vector<LabelScorer> scorers(resolve_threads(threads));
    constexpr int64_t block = 16;
    const int64_t rows = documents.rows();
    parallel_for((rows + block - 1) / block, threads, [&](int64_t piece, int worker) {
        for (int64_t row = piece * block; row < std::min(rows, (piece + 1) * block); ++row) {
            scorers[worker].score(tree, documents, request, row);
        }
    });
}

}  // namespace labelgrove
