// Learns a vocabulary from texts, and turns texts into tf-idf rows.
//
// Both take texts in batches, split into pieces of consecutive texts for the threads. Results
// depend on the texts only: terms are numbered after sorting, counts are whole numbers, and every
// row is computed by one thread in the order of its terms.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel.hpp"
#include "text_analyze.hpp"
#include "text_rows.hpp"
#include "text_vocabulary.hpp"

namespace labelgrove {

using Texts = std::vector<std::string_view>;

constexpr int64_t kTextsPerPiece = 64;

inline int64_t piece_count(const Texts& texts) {
    return (static_cast<int64_t>(texts.size()) + kTextsPerPiece - 1) / kTextsPerPiece;
}

template <class Each>
void each_text(const Texts& texts, int64_t piece, Each&& each) {
    const int64_t end = std::min<int64_t>(texts.size(), (piece + 1) * kTextsPerPiece);
    for (int64_t i = piece * kTextsPerPiece; i < end; ++i) each(texts[i]);
}

constexpr int kKeysPerBlock = 32;

// Computes the keys of terms and calls use(keys, count) for blocks of them, after prefetching their
// slots in the table.
template <class Use>
void each_key_block(const char* buffer, const Slice* slices, int64_t total, const TermTable& table,
                    Use&& use) {
    TermKey keys[kKeysPerBlock];
    for (int64_t begin = 0; begin < total; begin += kKeysPerBlock) {
        const int count = static_cast<int>(std::min<int64_t>(kKeysPerBlock, total - begin));
        for (int i = 0; i < count; ++i) {
            keys[i] = term_key(buffer + slices[begin + i].start, slices[begin + i].length);
            table.prefetch(keys[i]);
        }
        use(keys, count);
    }
}

// Learns: counts in how many texts each term occurs, and how often.
class TermCounter {
public:
    // keep_counts: remember each text's counts, for rows() without reading the texts again.
    TermCounter(const AnalyzerOptions& options, bool binary, bool keep_counts, int threads)
        : options_(options),
          binary_(binary),
          keep_counts_(keep_counts),
          threads_(resolve_threads(threads)) {
        need_workers(1);
    }

    TermCounter(const TermCounter&) = delete;

    void add(const Texts& texts, const CharTables* tables) {
        if (is_merged_) throw std::logic_error("the counter is already closed");
        const int64_t pieces = piece_count(texts);
        const size_t first = pieces_.size();
        need_workers(std::min<int64_t>(threads_, pieces));
        if (keep_counts_) pieces_.resize(first + pieces);
        parallel_for(pieces, threads_, [&](int64_t piece, int worker_number) {
            Worker& worker = *workers_[worker_number];
            Counts* kept = keep_counts_ ? &pieces_[first + piece] : nullptr;
            if (kept) kept->worker = worker_number;
            each_text(texts, piece,
                      [&](std::string_view text) { count(text, tables, worker, kept); });
        });
    }

    struct Totals {
        std::vector<int64_t> occurrences;  // over all texts; with `binary` the same as texts
        std::vector<int64_t> texts;
    };

    // Totals of the terms that occur in min_texts..max_texts texts, in sorted order. Nothing can
    // be added after this.
    Totals totals(double min_texts, double max_texts) {
        merge();
        std::vector<Stats>& stats = workers_[0]->stats;
        std::vector<int32_t> kept;
        for (int32_t id = 0; id < static_cast<int32_t>(stats.size()); ++id) {
            if (stats[id].texts >= min_texts && stats[id].texts <= max_texts) kept.push_back(id);
        }
        sorted_ = sorted_terms(workers_[0]->table, kept);
        Totals totals;
        for (const int32_t id : sorted_) {
            totals.occurrences.push_back(stats[id].occurrences);
            totals.texts.push_back(stats[id].texts);
        }
        return totals;
    }

    // Keeps the chosen ones of the sorted terms (one flag each); positions become numbers.
    void choose(const std::vector<uint8_t>& chosen) {
        size_t count = 0;
        for (size_t i = 0; i < sorted_.size(); ++i) {
            if (chosen[i]) sorted_[count++] = sorted_[i];
        }
        sorted_.resize(count);
    }

    // The chosen terms one after the other, and where each begins and ends.
    void terms(std::vector<uint8_t>& blob, std::vector<int64_t>& offsets) const {
        offsets.assign(1, 0);
        blob.clear();
        for (const int32_t id : sorted_) {
            const std::string_view term = workers_[0]->table.term(id);
            blob.insert(blob.end(), term.begin(), term.end());
            offsets.push_back(static_cast<int64_t>(blob.size()));
        }
    }

    // The rows of all texts. The counter cannot be used afterwards.
    RowArrays rows(const float* idf, const WeightOptions& options) {
        std::vector<int32_t> number(workers_[0]->stats.size(), -1);
        for (size_t i = 0; i < sorted_.size(); ++i) number[sorted_[i]] = static_cast<int32_t>(i);
        const CountWeights weights(options);
        const auto features = static_cast<int64_t>(sorted_.size());
        std::vector<std::unique_ptr<RowBuilder>> builders(threads_);
        std::vector<RowBlock> blocks(pieces_.size());
        parallel_for(
            static_cast<int64_t>(pieces_.size()), threads_, [&](int64_t piece, int worker) {
                if (!builders[worker]) builders[worker] = std::make_unique<RowBuilder>(features);
                RowBuilder& builder = *builders[worker];
                const Counts counts = std::move(pieces_[piece]);
                const std::vector<int32_t>& merged = workers_[counts.worker]->merged;
                blocks[piece].reserve(static_cast<int64_t>(counts.ids.size()) + 64);
                size_t at = 0;
                for (const uint32_t size : counts.row_sizes) {
                    for (const size_t end = at + size; at < end; ++at) {
                        const int32_t id = merged.empty() ? counts.ids[at] : merged[counts.ids[at]];
                        if (number[id] >= 0) builder.add(number[id], counts.counts[at]);
                    }
                    builder.finish_row(idf, weights, options.norm, blocks[piece]);
                }
            });
        pieces_.clear();
        return join_blocks(std::move(blocks));
    }

private:
    struct Stats {
        int64_t occurrences = 0;
        int64_t texts = 0;
    };
    struct Worker {
        explicit Worker(const AnalyzerOptions& options) : analyzer(options) {}
        void grow(size_t terms) {
            if (terms <= stats.size()) return;
            stats.resize(terms);
            in_text.resize(terms, 0);
        }
        TextAnalyzer analyzer;
        TermTable table;  // numbers terms as they appear
        std::vector<Stats> stats;
        std::vector<uint32_t> in_text;  // count of each term in the current text
        Scratch<int32_t> touched;       // the terms with such a count
        std::vector<int32_t> merged;    // own number -> number in worker 0; empty: the same
    };
    struct Counts {  // of the texts of one piece, in the numbers of the worker that counted them
        int worker = 0;
        std::vector<int32_t> ids;
        std::vector<uint32_t> counts;
        std::vector<uint32_t> row_sizes;
    };

    void need_workers(size_t count) {
        while (workers_.size() < count) workers_.push_back(std::make_unique<Worker>(options_));
    }

    void count(std::string_view text, const CharTables* tables, Worker& worker, Counts* kept) {
        int64_t touched = 0;
        const auto count_keys = [&](const TermKey* keys, int count) {
            int32_t ids[kKeysPerBlock];
            for (int i = 0; i < count; ++i) ids[i] = worker.table.insert(keys[i]);
            worker.grow(worker.table.size());
            worker.touched.reserve(touched + count, touched);
            for (int i = 0; i < count; ++i) {
                // No branch: whether a word is new in its text is unpredictable.
                worker.touched[touched] = ids[i];
                touched += worker.in_text[ids[i]]++ == 0;
            }
        };
        worker.analyzer.analyze(text, tables,
                                [&](const char* buffer, const Slice* slices, int64_t total) {
                                    each_key_block(buffer, slices, total, worker.table, count_keys);
                                });
        for (int64_t i = 0; i < touched; ++i) {
            const int32_t id = worker.touched[i];
            worker.stats[id].occurrences += binary_ ? 1 : worker.in_text[id];
            worker.stats[id].texts += 1;
            if (kept) {
                kept->ids.push_back(id);
                kept->counts.push_back(worker.in_text[id]);
            }
            worker.in_text[id] = 0;
        }
        if (kept) kept->row_sizes.push_back(static_cast<uint32_t>(touched));
    }

    // Copies the terms of all workers into the first worker's table.
    void merge() {
        if (std::exchange(is_merged_, true)) return;
        Worker& into = *workers_[0];
        for (size_t w = 1; w < workers_.size(); ++w) {
            Worker& from = *workers_[w];
            from.merged.resize(from.stats.size());
            std::vector<char> padded;
            for (int32_t id = 0; id < from.table.size(); ++id) {
                const std::string_view term = from.table.term(id);
                padded.assign(term.begin(), term.end());
                padded.resize(term.size() + kTermPadding);
                const int32_t there =
                    into.table.insert(term_key(padded.data(), static_cast<uint32_t>(term.size())));
                into.grow(into.table.size());
                into.stats[there].occurrences += from.stats[id].occurrences;
                into.stats[there].texts += from.stats[id].texts;
                from.merged[id] = there;
            }
        }
    }

    AnalyzerOptions options_;
    bool binary_;
    bool keep_counts_;
    int threads_;
    bool is_merged_ = false;
    std::vector<std::unique_ptr<Worker>> workers_;
    std::vector<Counts> pieces_;
    std::vector<int32_t> sorted_;  // worker 0's numbers in the order of the final ones
};

// Terms one after the other: term i is blob[offsets[i] .. offsets[i + 1]).
struct TermList {
    const uint8_t* blob;
    const int64_t* offsets;
    int64_t count;
};

// Applies what was learnt. Immutable except for a pool of scratch memory, so it can be shared.
class TfidfModel {
public:
    // `terms` is the sorted vocabulary; `idf` has one weight per term.
    TfidfModel(const AnalyzerOptions& analyzer, const WeightOptions& weights, const TermList& terms,
               std::vector<float> idf)
        : analyzer_(analyzer), norm_(weights.norm), weights_(weights), idf_(std::move(idf)) {
        // Insert frequent terms first, so that they get the first slots of their chains.
        std::vector<int32_t> order(terms.count);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [&](int32_t a, int32_t b) { return idf_[a] < idf_[b]; });
        table_.reserve(terms.count);
        feature_.assign(1, -1);
        std::vector<char> padded;
        for (const int32_t id : order) {
            padded.assign(terms.blob + terms.offsets[id], terms.blob + terms.offsets[id + 1]);
            const auto length = static_cast<uint32_t>(padded.size());
            padded.resize(padded.size() + kTermPadding);
            if (length == 0 || table_.insert(term_key(padded.data(), length)) + 1 !=
                                   static_cast<int32_t>(feature_.size())) {
                throw std::runtime_error("the vocabulary has an empty or a repeated term");
            }
            feature_.push_back(id);
        }
    }

    int64_t features() const { return static_cast<int64_t>(idf_.size()); }

    // One thread's scratch memory. It is as large as the vocabulary, so it is kept and reused.
    struct Worker {
        Worker(const AnalyzerOptions& options, int64_t features)
            : analyzer(options), builder(features) {}
        TextAnalyzer analyzer;
        RowBuilder builder;
    };
    std::unique_ptr<Worker> borrow() {
        const std::lock_guard<std::mutex> guard(lock_);
        if (idle_.empty()) return std::make_unique<Worker>(analyzer_, features());
        auto worker = std::move(idle_.back());
        idle_.pop_back();
        return worker;
    }
    void give_back(std::unique_ptr<Worker> worker) {
        const std::lock_guard<std::mutex> guard(lock_);
        if (idle_.size() < kMaxIdle) idle_.push_back(std::move(worker));
    }

    // Appends the rows of `texts`, in order, as new blocks.
    void transform(const Texts& texts, const CharTables* tables,
                   const std::vector<std::unique_ptr<Worker>>& workers,
                   std::vector<RowBlock>& blocks) const {
        const size_t first = blocks.size();
        const int64_t pieces = piece_count(texts);
        blocks.resize(first + pieces);
        parallel_for(pieces, static_cast<int>(workers.size()), [&](int64_t piece, int worker) {
            int64_t bytes = 0;
            each_text(texts, piece,
                      [&](std::string_view text) { bytes += static_cast<int64_t>(text.size()); });
            blocks[first + piece].reserve(bytes / kBytesPerEntry);
            each_text(texts, piece, [&](std::string_view text) {
                transform(text, tables, *workers[worker], blocks[first + piece]);
            });
        });
    }

private:
    static constexpr size_t kMaxIdle = 64;
    static constexpr int64_t kBytesPerEntry = 16;  // typical; a first estimate of the size

    void transform(std::string_view text, const CharTables* tables, Worker& worker,
                   RowBlock& block) const {
        const auto look_up = [&](const TermKey* keys, int count) {
            int32_t ids[kKeysPerBlock];
            for (int i = 0; i < count; ++i) ids[i] = feature_[table_.find(keys[i]) + 1];
            worker.builder.add(ids, count);
        };
        worker.analyzer.analyze(text, tables,
                                [&](const char* buffer, const Slice* slices, int64_t total) {
                                    each_key_block(buffer, slices, total, table_, look_up);
                                });
        worker.builder.finish_row(idf_.data(), weights_, norm_, block);
    }

    AnalyzerOptions analyzer_;
    Norm norm_;
    CountWeights weights_;
    std::vector<float> idf_;
    TermTable table_;
    std::vector<int32_t> feature_;  // [1 + number in the table]; [0] is -1, for unknown terms
    std::mutex lock_;
    std::vector<std::unique_ptr<Worker>> idle_;
};

}  // namespace labelgrove
