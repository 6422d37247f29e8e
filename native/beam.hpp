// Beam search down a tree of linear classifiers whose weights are stored in chunks.
//
// A kept parent always needs the margins of all its children, so their weights lie together, by
// feature (a chunk, see cluster.hpp). One walk over a document's features serves all children.
// Documents are worked on in blocks, and a block's (document, chunk) pairs are taken chunk by chunk:
// a chunk's weights come into cache once, and its features are looked up in a table. A chunk
// that only one document asks for is searched instead. Both ways add in the order of the document's
// features, so a document's scores do not depend on its company.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "csr.hpp"
#include "dispatch.hpp"
#include "parallel.hpp"
#include "prefetch.hpp"

namespace labelgrove {

struct BeamLevel {
    const int64_t* chunk_rows;
    const int64_t* chunk_entries;
    const int32_t* features;
    const uint32_t* row_start;
    const uint16_t* children;
    const float* values;
    const float* bias;
    const int64_t* child_ptr;  // parent p has nodes [child_ptr[p], child_ptr[p + 1])
    const int64_t* leaf_ptr;   // node j has leaves [leaf_ptr[j], leaf_ptr[j + 1])
    const int64_t* bucket_ptr;  // see BucketIndex
    const int32_t* bucket_shift;
    const uint32_t* buckets;
};

// Where to look for a feature among a chunk's sorted features: buckets[feature >> shift] is the first
// row that can hold it. There are one to two times as many buckets as rows, so looking costs
// one or two steps, without hashing.
struct BucketIndex {
    std::vector<int64_t> ptr;
    std::vector<int32_t> shift;
    std::vector<uint32_t> buckets;

    BucketIndex(const int64_t* chunk_rows, const int32_t* features, int64_t parents, int64_t cols) : ptr(1, 0) {
        for (int64_t parent = 0; parent < parents; ++parent) {
            const int64_t rows = chunk_rows[parent + 1] - chunk_rows[parent];
            const int32_t* first = features + chunk_rows[parent];
            int bits = 0;
            while ((cols >> bits) > 2 * rows) ++bits;
            shift.push_back(bits);
            const int64_t count = (cols >> bits) + 2;
            uint32_t row = 0;
            for (int64_t bucket = 0; bucket < count; ++bucket) {
                while (row < rows && (first[row] >> bits) < bucket) ++row;
                buckets.push_back(row);
            }
            ptr.push_back(static_cast<int64_t>(buckets.size()));
        }
    }
};

// Scores are added as logarithms: a product over many levels would underflow and tie.
enum class PostProcessor : int { noop = 0, l1_hinge, l2_hinge, l3_hinge, l4_hinge, sigmoid, log_sigmoid };

struct BeamOptions {
    int64_t k = 10;
    int64_t beam = 10;  // 0: keep everything
    PostProcessor post_processor = PostProcessor::l3_hinge;
    bool raw_last_level = false;  // rank labels by their own margin; the tree only shortlists
    float bias = 1.0f;
};

struct BeamResults {
    int32_t* columns;  // documents x k, filled with -1
    float* scores;     // documents x k, filled with -inf
    int32_t* counts;
};

inline float log_score(PostProcessor kind, float margin) {
    const float gap = std::max(0.0f, 1.0f - margin);
    switch (kind) {
        case PostProcessor::l1_hinge: return -gap;
        case PostProcessor::l2_hinge: return -gap * gap;
        case PostProcessor::l3_hinge: return -gap * gap * gap;
        case PostProcessor::l4_hinge: return -(gap * gap) * (gap * gap);
        case PostProcessor::sigmoid:
        case PostProcessor::log_sigmoid:
            return margin >= 0.0f ? -std::log1p(std::exp(-margin)) : margin - std::log1p(std::exp(margin));
        default: return margin;
    }
}

// A row of the chunk that the document meets, and the document's value there.
struct Hit {
    uint32_t row;
    float value;
};

// margins += value * row for every hit. A row that has an entry for every child is added as a whole.
// Rows lie scattered over a model larger than the caches, so those ahead are fetched early.
LABELGROVE_MULTIVERSION
inline void add_rows(const Hit* hits, int64_t count, const uint32_t* row_start, const uint16_t* children,
                     const float* values, float* __restrict margins, int64_t width) {
    constexpr int64_t ahead = 6;
    for (int64_t h = 0; h < std::min(count, 2 * ahead); ++h) prefetch(row_start + hits[h].row);
    for (int64_t h = 0; h < std::min(count, ahead); ++h) {
        prefetch(values + row_start[hits[h].row]);
        prefetch(children + row_start[hits[h].row]);
    }
    for (int64_t h = 0; h < count; ++h) {
        if (h + 2 * ahead < count) prefetch(row_start + hits[h + 2 * ahead].row);
        if (h + ahead < count) {
            prefetch(values + row_start[hits[h + ahead].row]);
            prefetch(children + row_start[hits[h + ahead].row]);
        }
        const float value = hits[h].value;
        uint32_t e = row_start[hits[h].row];
        const uint32_t end = row_start[hits[h].row + 1];
        if (end - e == width) {
            const float* row = values + e;
            for (int64_t c = 0; c < width; ++c) margins[c] += value * row[c];
            continue;
        }
        do {  // a row has at least one entry
            margins[children[e]] += value * values[e];
        } while (++e < end);
    }
}

// Searches blocks of documents; one per thread, keeps its memory between blocks.
class BeamSearcher {
public:
    void search(const std::vector<BeamLevel>& levels, const int32_t* leaf_labels, const Csr& documents,
                int64_t first, int64_t last, const BeamOptions& options, const BeamResults& results) {
        documents_ = &documents;
        first_ = first;
        options_ = options;
        const int64_t count = last - first;
        kept_.assign(count, {0, 0.0f});  // every document starts at the root
        kept_ptr_.resize(count + 1);
        std::iota(kept_ptr_.begin(), kept_ptr_.end(), int64_t{0});
        for (size_t t = 0; t < levels.size(); ++t) {
            const bool leaves = t + 1 == levels.size();
            compute_margins(levels[t]);
            next_kept_.clear();
            next_ptr_.assign(1, 0);
            for (int64_t document = 0; document < count; ++document) {
                score_candidates(levels[t], document, leaves);
                if (leaves) {
                    write_best(leaf_labels, first + document, results);
                } else {
                    keep_best(levels[t]);
                }
            }
            kept_.swap(next_kept_);
            kept_ptr_.swap(next_ptr_);
        }
    }

private:
    struct Scored {
        int32_t node;
        float score;
    };
    static bool better(const Scored& a, const Scored& b) {
        return a.score != b.score ? a.score > b.score : a.node < b.node;
    }

    // margins_[margin_ptr_[pair] ...] = margins of all children of the pair's parent.
    void compute_margins(const BeamLevel& level) {
        const int64_t pairs = static_cast<int64_t>(kept_.size());
        margin_ptr_.resize(pairs + 1);
        margin_ptr_[0] = 0;
        for (int64_t pair = 0; pair < pairs; ++pair) {
            const int64_t parent = kept_[pair].node;
            margin_ptr_[pair + 1] = margin_ptr_[pair] + level.child_ptr[parent + 1] - level.child_ptr[parent];
        }
        margins_.resize(margin_ptr_[pairs]);
        by_chunk_.resize(pairs);
        for (int64_t document = 0; document + 1 < static_cast<int64_t>(kept_ptr_.size()); ++document) {
            for (int64_t pair = kept_ptr_[document]; pair < kept_ptr_[document + 1]; ++pair) {
                by_chunk_[pair] = {kept_[pair].node, static_cast<int32_t>(document), pair};
            }
        }
        if (kept_ptr_.size() > 2) {
            std::sort(by_chunk_.begin(), by_chunk_.end(), [](const Pair& a, const Pair& b) {
                return a.parent != b.parent ? a.parent < b.parent : a.index < b.index;
            });
        }
        for (int64_t from = 0; from < pairs;) {
            int64_t to = from + 1;
            while (to < pairs && by_chunk_[to].parent == by_chunk_[from].parent) ++to;
            const int64_t parent = by_chunk_[from].parent;
            const int32_t* features = level.features + level.chunk_rows[parent];
            const int64_t rows = level.chunk_rows[parent + 1] - level.chunk_rows[parent];
            // Filling the table writes each of the chunk's features twice; searching costs more per
            // document feature.
            if (to - from >= 4) {
                if (static_cast<int64_t>(row_of_.size()) < documents_->cols) {
                    row_of_.resize(documents_->cols, -1);
                }
                for (int64_t row = 0; row < rows; ++row) row_of_[features[row]] = static_cast<int32_t>(row);
                for (int64_t p = from; p < to; ++p) add_by_table(level, by_chunk_[p]);
                for (int64_t row = 0; row < rows; ++row) row_of_[features[row]] = -1;
            } else {
                for (int64_t p = from; p < to; ++p) add_by_search(level, by_chunk_[p], features);
            }
            from = to;
        }
    }

    struct Pair {
        int32_t parent;
        int32_t document;
        int64_t index;
    };

    // Half of all look-ups fail at random: writing every one and advancing only on success spares a
    // mispredicted branch each.
    void add_by_table(const BeamLevel& level, const Pair& pair) {
        const int64_t document = first_ + pair.document;
        const int64_t from = documents_->indptr[document], to = documents_->indptr[document + 1];
        if (static_cast<int64_t>(hits_.size()) < to - from) hits_.resize(to - from);
        int64_t found = 0;
        for (int64_t k = from; k < to; ++k) {
            const int32_t row = row_of_[documents_->indices[k]];
            hits_[found] = {static_cast<uint32_t>(row), documents_->data[k]};
            found += row >= 0;
        }
        add_hits(level, pair, found);
    }

    void add_by_search(const BeamLevel& level, const Pair& pair, const int32_t* features) {
        const int64_t document = first_ + pair.document;
        const int64_t from = documents_->indptr[document], to = documents_->indptr[document + 1];
        if (static_cast<int64_t>(hits_.size()) < to - from) hits_.resize(to - from);
        const uint32_t* buckets = level.buckets + level.bucket_ptr[pair.parent];
        const int shift = level.bucket_shift[pair.parent];
        int64_t found = 0;
        for (int64_t k = from; k < to; ++k) {
            const int32_t feature = documents_->indices[k];
            uint32_t row = buckets[feature >> shift];
            const uint32_t end = buckets[(feature >> shift) + 1];
            while (row < end && features[row] < feature) ++row;
            hits_[found] = {row, documents_->data[k]};
            found += row < end && features[row] == feature;
        }
        add_hits(level, pair, found);
    }

    void add_hits(const BeamLevel& level, const Pair& pair, int64_t found) {
        float* margins = margins_.data() + margin_ptr_[pair.index];
        const int64_t first_child = level.child_ptr[pair.parent];
        const int64_t width = level.child_ptr[pair.parent + 1] - first_child;
        for (int64_t c = 0; c < width; ++c) margins[c] = level.bias[first_child + c] * options_.bias;
        const uint32_t* row_start = level.row_start + level.chunk_rows[pair.parent] + pair.parent;
        const uint16_t* children = level.children + level.chunk_entries[pair.parent];
        const float* values = level.values + level.chunk_entries[pair.parent];
        add_rows(hits_.data(), found, row_start, children, values, margins, width);
    }

    void score_candidates(const BeamLevel& level, int64_t document, bool leaves) {
        const bool own_margin = options_.post_processor == PostProcessor::noop ||
                                (leaves && options_.raw_last_level);
        candidates_.clear();
        for (int64_t pair = kept_ptr_[document]; pair < kept_ptr_[document + 1]; ++pair) {
            const int64_t first_child = level.child_ptr[kept_[pair].node];
            const float* margins = margins_.data() + margin_ptr_[pair];
            const int64_t width = margin_ptr_[pair + 1] - margin_ptr_[pair];
            for (int64_t c = 0; c < width; ++c) {
                const float score = own_margin ? margins[c]
                                               : kept_[pair].score + log_score(options_.post_processor, margins[c]);
                candidates_.push_back({static_cast<int32_t>(first_child + c), score});
            }
        }
    }

    // The best `beam` nodes, and further ones until there are leaves enough below them for k labels.
    void keep_best(const BeamLevel& level) {
        const int64_t all = static_cast<int64_t>(candidates_.size());
        int64_t keep = options_.beam == 0 ? all : std::min(options_.beam, all);
        if (keep < all) std::nth_element(candidates_.begin(), candidates_.begin() + keep, candidates_.end(), better);
        int64_t leaves = 0;
        auto leaves_below = [&](int64_t c) {
            return level.leaf_ptr[candidates_[c].node + 1] - level.leaf_ptr[candidates_[c].node];
        };
        for (int64_t c = 0; c < keep; ++c) leaves += leaves_below(c);
        if (leaves < options_.k && keep < all) {
            std::sort(candidates_.begin() + keep, candidates_.end(), better);
            while (keep < all && leaves < options_.k) leaves += leaves_below(keep++);
        }
        // By position: neighbours in memory come after each other at the next level.
        std::sort(candidates_.begin(), candidates_.begin() + keep,
                  [](const Scored& a, const Scored& b) { return a.node < b.node; });
        next_kept_.insert(next_kept_.end(), candidates_.begin(), candidates_.begin() + keep);
        next_ptr_.push_back(static_cast<int64_t>(next_kept_.size()));
    }

    void write_best(const int32_t* leaf_labels, int64_t document, const BeamResults& results) {
        for (Scored& candidate : candidates_) candidate.node = leaf_labels[candidate.node];
        const int64_t count = std::min<int64_t>(options_.k, static_cast<int64_t>(candidates_.size()));
        std::partial_sort(candidates_.begin(), candidates_.begin() + count, candidates_.end(), better);
        const bool product = options_.post_processor != PostProcessor::noop &&
                             options_.post_processor != PostProcessor::log_sigmoid &&
                             !options_.raw_last_level;
        if (product) {
            // Different logarithms may round to the same product; then the column decides.
            for (int64_t c = 0; c < count; ++c) candidates_[c].score = std::exp(candidates_[c].score);
            std::sort(candidates_.begin(), candidates_.begin() + count, better);
        }
        int32_t* columns = results.columns + document * options_.k;
        float* scores = results.scores + document * options_.k;
        for (int64_t c = 0; c < count; ++c) {
            columns[c] = candidates_[c].node;
            scores[c] = candidates_[c].score;
        }
        std::fill(columns + count, columns + options_.k, -1);
        std::fill(scores + count, scores + options_.k, -std::numeric_limits<float>::infinity());
        results.counts[document] = static_cast<int32_t>(count);
    }

    const Csr* documents_ = nullptr;
    int64_t first_ = 0;
    BeamOptions options_;
    std::vector<Scored> kept_, next_kept_, candidates_;
    std::vector<int64_t> kept_ptr_, next_ptr_, margin_ptr_;
    std::vector<float> margins_;
    std::vector<Pair> by_chunk_;
    std::vector<Hit> hits_;
    std::vector<int32_t> row_of_;  // feature -> row of the current chunk; -1 everywhere between chunks
};

inline void beam_search(const std::vector<BeamLevel>& levels, const int32_t* leaf_labels,
                        const Csr& documents, const BeamOptions& options, const BeamResults& results,
                        int threads) {
    const int workers = resolve_threads(threads);
    const int64_t share = (documents.rows + workers - 1) / workers;
    const int64_t block = std::clamp<int64_t>(share / 4, 1, 2048);
    const int64_t blocks = (documents.rows + block - 1) / block;
    std::vector<BeamSearcher> searchers(std::min<int64_t>(workers, std::max<int64_t>(blocks, 1)));
    parallel_for(blocks, workers, [&](int64_t piece, int worker) {
        searchers[worker].search(levels, leaf_labels, documents, piece * block,
                                 std::min(documents.rows, (piece + 1) * block), options, results);
    });
}

}  // namespace labelgrove
