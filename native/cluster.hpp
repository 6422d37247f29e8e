// Trains one level of a label tree: the classifiers of all children of some parent nodes.
//
// All children of a parent see the same instances. Their sub-matrix is copied once, the children are
// solved on the copy, in blocks, and the weights go straight into the chunk that prediction reads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "block.hpp"
#include "csr.hpp"
#include "parallel.hpp"
#include "random.hpp"
#include "solver.hpp"
#include "submatrix.hpp"

namespace labelgrove {

// A list of sorted row numbers per node, optionally with a weight per entry.
struct RowLists {
    const int64_t* indptr = nullptr;
    const int32_t* rows = nullptr;
    const float* weights = nullptr;

    int64_t size(int64_t node) const { return indptr[node + 1] - indptr[node]; }
};

// The weights of the children of consecutive parents, parent by parent ("chunks"). A chunk is stored
// by feature: sorted features, and for each the children that use it. See beam.hpp for how they are read.
struct Chunks {
    std::vector<int64_t> chunk_rows{0};     // parents + 1: where a chunk's features begin
    std::vector<int64_t> chunk_entries{0};  // parents + 1: where a chunk's entries begin
    std::vector<int32_t> features;
    std::vector<uint32_t> row_start;  // per chunk its features + 1 offsets into the chunk's entries
    std::vector<uint16_t> children;   // offset from the parent's first child
    std::vector<float> values;
    std::vector<float> bias;  // per child
};

struct LevelProblem {
    Csr features;
    RowLists instances;             // per parent: who takes part, and what an error on a negative costs
    RowLists positives;             // per child: who bears it; a subset of its parent's instances
    const int64_t* children = nullptr;  // parent p has children [children[p], children[p + 1])
    SolverOptions options;
    uint64_t seed = 0;
    int64_t max_nonzeros = 0;  // largest weights kept per child; 0: all above the threshold
};

// A chunk's row is stored in full when at least 1 / kFullRow of the children use it.
inline constexpr uint32_t kFullRow = 3;

// The most labels in a block: their weights for one feature fill a cache line.
inline constexpr int kBlock = 16;

struct Scratch {
    LabelProblem label;
    BlockProblem block;
};

class ClusterSolver {
public:
    void prepare(const LevelProblem& level, int64_t parent) {
        level_ = &level;
        first_child_ = level.children[parent];
        instances_ = level.instances.rows + level.instances.indptr[parent];
        count_ = level.instances.size(parent);
        instance_weights_ = level.instances.weights + level.instances.indptr[parent];
        rows_.assign(level.features, instances_, count_);
        const float bias = level.options.bias;
        squared_norms_.resize(count_);
        for (int64_t i = 0; i < count_; ++i) {
            float sum = bias * bias;
            for (const auto* e = rows_.begin(i); e != rows_.end(i); ++e) sum += e->value * e->value;
            squared_norms_[i] = sum;
        }
        const int64_t children = level.children[parent + 1] - first_child_;
        learnt_.resize(children);
        // Where nothing speaks for a label: the margin of a certain negative, for every document.
        bias_.assign(children, bias != 0.0f ? -1.0f / bias : 0.0f);
        by_size_.clear();
        for (int64_t child = 0; child < children; ++child) {
            learnt_[child].clear();
            if (positives(child) > 0) by_size_.push_back(static_cast<int32_t>(child));
        }
        if (children == 1 && positives(0) == count_ && bias != 0.0f) {
            // An only child that all bear: its parent has said everything.
            bias_[0] = 1.0f / bias;
            by_size_.clear();
        }
        // Labels of like frequency converge alike, so they make good neighbours in a block.
        std::stable_sort(by_size_.begin(), by_size_.end(),
                         [&](int32_t a, int32_t b) { return positives(a) > positives(b); });
    }

    int64_t blocks() const { return (static_cast<int64_t>(by_size_.size()) + kBlock - 1) / kBlock; }

    void solve(int64_t block, Scratch& scratch) {
        const int32_t* children = by_size_.data() + block * kBlock;
        const int width = static_cast<int>(std::min<int64_t>(kBlock, by_size_.size() - block * kBlock));
        if (level_->options.loss == Loss::logistic) {
            for (int c = 0; c < width; ++c) solve_logistic(children[c], scratch.label);
        } else if (width <= 4) {
            solve_hinge<4>(children, width, scratch.block);
        } else if (width <= 8) {
            solve_hinge<8>(children, width, scratch.block);
        } else {
            solve_hinge<16>(children, width, scratch.block);
        }
    }

    // The solved children as one chunk: regrouped from by-child to by-feature by counting. A feature
    // that many children use gets an entry for every child (some zero): such rows are added as a
    // whole in prediction, several children per instruction.
    void collect(Chunks& out) {
        const uint32_t width = static_cast<uint32_t>(learnt_.size());
        std::vector<uint32_t> place(rows_.features(), 0);
        for (const auto& child : learnt_) {
            for (const auto& [feature, weight] : child) ++place[feature];
        }
        std::vector<std::pair<int32_t, int32_t>> used;  // (feature, local feature)
        for (int32_t f = 0; f < rows_.features(); ++f) {
            if (place[f] > 0) used.push_back({rows_.global_feature(f), f});
        }
        std::sort(used.begin(), used.end());
        std::vector<uint8_t> full_row(rows_.features(), 0);
        out.features.resize(used.size());
        out.row_start.assign(used.size() + 1, 0);
        for (size_t row = 0; row < used.size(); ++row) {
            const auto [feature, local] = used[row];
            out.features[row] = feature;
            const bool full = place[local] * kFullRow >= width;
            out.row_start[row + 1] = out.row_start[row] + (full ? width : place[local]);
            place[local] = out.row_start[row];
            full_row[local] = full;
        }
        out.children.assign(out.row_start.back(), 0);
        out.values.assign(out.row_start.back(), 0.0f);
        for (const auto& [feature, local] : used) {
            if (!full_row[local]) continue;
            for (uint32_t c = 0; c < width; ++c) out.children[place[local] + c] = static_cast<uint16_t>(c);
        }
        for (size_t child = 0; child < learnt_.size(); ++child) {
            for (const auto& [feature, weight] : learnt_[child]) {
                const uint32_t at = full_row[feature] ? place[feature] + static_cast<uint32_t>(child) : place[feature]++;
                out.children[at] = static_cast<uint16_t>(child);
                out.values[at] = weight;
            }
        }
        out.bias = bias_;
    }

private:
    struct Weight {
        int32_t feature;
        float value;
    };

    // Of equal weights the one of the lower feature stays.
    void keep_largest(std::vector<Weight>& kept) const {
        const auto last = kept.begin() + level_->max_nonzeros;
        std::nth_element(kept.begin(), last, kept.end(), [this](const Weight& a, const Weight& b) {
            const float x = std::abs(a.value), y = std::abs(b.value);
            return x != y ? x > y : rows_.global_feature(a.feature) < rows_.global_feature(b.feature);
        });
        kept.erase(last, kept.end());
    }

    int64_t positives(int64_t child) const { return level_->positives.size(first_child_ + child); }

    uint64_t seed(int64_t child) const {
        return derive_seed(level_->seed, static_cast<uint64_t>(first_child_ + child));
    }

    // use(i, cost) for every positive instance of a child.
    template <class Use>
    void for_positives(int64_t child, Use&& use) const {
        const RowLists& lists = level_->positives;
        const int64_t node = first_child_ + child;
        const int32_t *from = instances_, *const end = instances_ + count_;
        for (int64_t k = lists.indptr[node]; k < lists.indptr[node + 1]; ++k) {
            from = std::lower_bound(from, end, lists.rows[k]);
            if (from == end || *from != lists.rows[k]) {
                throw std::invalid_argument("a positive instance is missing from its cluster");
            }
            use(from - instances_, level_->options.cost_positive * lists.weights[k]);
        }
    }

    // Lanes past the last child repeat it.
    template <int W>
    void solve_hinge(const int32_t* children, int width, BlockProblem& problem) {
        const SolverOptions& options = level_->options;
        const bool squared = options.loss == Loss::squared_hinge;
        auto child_of = [&](int lane) { return children[std::min(lane, width - 1)]; };
        // Slot 0 is for all that are plain negatives of every label; others have targets of their own.
        int32_t slots = 1;
        problem.slot.assign(count_, 0);
        problem.slot_weights.assign(1, 1.0f);
        for (int64_t i = 0; i < count_; ++i) {
            if (instance_weights_[i] == 1.0f) continue;
            problem.slot[i] = slots++;
            problem.slot_weights.push_back(instance_weights_[i]);
        }
        for (int lane = 0; lane < width; ++lane) {
            for_positives(child_of(lane), [&](int64_t i, float) {
                if (problem.slot[i] == 0) problem.slot[i] = slots++;
            });
        }
        problem.slot_weights.resize(slots, 1.0f);
        problem.targets.assign(static_cast<size_t>(slots) * 3 * W, 0.0f);
        for (int lane = 0; lane < W; ++lane) {
            for (int32_t slot = 0; slot < slots; ++slot) {
                problem.set_target<W>(slot, lane, -1.0f, options.cost_negative * problem.slot_weights[slot], squared);
            }
            for_positives(child_of(lane), [&](int64_t i, float cost) {
                problem.set_target<W>(problem.slot[i], lane, 1.0f, cost, squared);
            });
        }
        descend_block<W>(rows_, squared_norms_.data(), problem, options, seed(children[0]));
        for (int lane = 0; lane < width; ++lane) bias_[children[lane]] = problem.bias.data()[lane];
        keep(children, width, problem.weights.data(), W);
    }

    void solve_logistic(int32_t child, LabelProblem& problem) {
        problem.sign.assign(count_, -1.0f);
        problem.cost.resize(count_);
        for (int64_t i = 0; i < count_; ++i) problem.cost[i] = level_->options.cost_negative * instance_weights_[i];
        for_positives(child, [&](int64_t i, float cost) {
            problem.sign[i] = 1.0f;
            problem.cost[i] = cost;
        });
        bias_[child] = descend_logistic(rows_, squared_norms_.data(), problem, level_->options, seed(child));
        keep(&child, 1, problem.weights.data(), 1);
    }

    // The weights that are large enough, out of an array with `stride` labels per feature.
    void keep(const int32_t* children, int width, const float* weights, int stride) {
        const float threshold = level_->options.threshold;
        for (int32_t f = 0; f < rows_.features(); ++f, weights += stride) {
            for (int c = 0; c < width; ++c) {
                const float weight = weights[c];
                if (std::abs(weight) >= threshold && weight != 0.0f) learnt_[children[c]].push_back({f, weight});
            }
        }
        if (level_->max_nonzeros <= 0) return;
        for (int c = 0; c < width; ++c) {
            auto& kept = learnt_[children[c]];
            if (static_cast<int64_t>(kept.size()) > level_->max_nonzeros) keep_largest(kept);
        }
    }

    const LevelProblem* level_ = nullptr;
    int64_t first_child_ = 0, count_ = 0;
    const int32_t* instances_ = nullptr;
    const float* instance_weights_ = nullptr;  // factors on the costs of negatives
    Submatrix rows_;
    std::vector<int32_t> by_size_;  // children that have positives, the most frequent first
    std::vector<float> squared_norms_, bias_;
    std::vector<std::vector<Weight>> learnt_;
};

// Solves parents [first, last). Clusters are handed out biggest first; a cluster so big that it would
// keep one thread busy after the others have finished is solved first, its blocks shared out.
inline Chunks solve_clusters(const LevelProblem& level, int64_t first, int64_t last, int threads) {
    const int64_t count = last - first;
    const int workers = resolve_threads(threads);
    std::vector<double> work(count);
    for (int64_t c = 0; c < count; ++c) {
        const int64_t labels = level.children[first + c + 1] - level.children[first + c];
        work[c] = static_cast<double>(level.instances.size(first + c)) * labels + 1;
    }
    std::vector<int64_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return work[a] > work[b]; });
    const double total = std::accumulate(work.begin(), work.end(), 0.0);

    std::vector<Chunks> solved(count);
    std::vector<Scratch> scratch(workers);
    int64_t shared = 0;
    if (workers > 1) {
        ClusterSolver solver;
        for (; shared < count && work[order[shared]] > total / (4.0 * workers); ++shared) {
            solver.prepare(level, first + order[shared]);
            parallel_for(solver.blocks(), workers,
                         [&](int64_t block, int worker) { solver.solve(block, scratch[worker]); });
            solver.collect(solved[order[shared]]);
        }
    }
    std::vector<ClusterSolver> solvers(workers);
    parallel_for(count - shared, workers, [&](int64_t piece, int worker) {
        const int64_t c = order[shared + piece];
        solvers[worker].prepare(level, first + c);
        for (int64_t block = 0; block < solvers[worker].blocks(); ++block) {
            solvers[worker].solve(block, scratch[worker]);
        }
        solvers[worker].collect(solved[c]);
    });

    Chunks all;
    for (Chunks& chunk : solved) {
        all.features.insert(all.features.end(), chunk.features.begin(), chunk.features.end());
        all.row_start.insert(all.row_start.end(), chunk.row_start.begin(), chunk.row_start.end());
        all.children.insert(all.children.end(), chunk.children.begin(), chunk.children.end());
        all.values.insert(all.values.end(), chunk.values.begin(), chunk.values.end());
        all.bias.insert(all.bias.end(), chunk.bias.begin(), chunk.bias.end());
        all.chunk_rows.push_back(static_cast<int64_t>(all.features.size()));
        all.chunk_entries.push_back(static_cast<int64_t>(all.values.size()));
        chunk = Chunks();  // free as we go: the peak is one copy and a bit
    }
    return all;
}

}  // namespace labelgrove
