// Trains one level of a label tree: the classifiers of all children of some parent nodes.
//
// All children of a parent have the same instances. Their sub-matrix is copied once, the children
// are solved on the copy, in blocks, and the weights go directly into the chunk for prediction.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "block.hpp"
#include "chunks.hpp"
#include "cluster_rows.hpp"
#include "csr.hpp"
#include "dense.hpp"
#include "gram.hpp"
#include "parallel.hpp"
#include "points.hpp"
#include "random.hpp"
#include "solver.hpp"
#include "work_report.hpp"

namespace labelgrove {

// A list of sorted row numbers per node, optionally with a weight per entry.
struct RowLists {
    const int64_t* indptr = nullptr;  // null: there are no lists
    const int32_t* rows = nullptr;
    const float* weights = nullptr;

    int64_t size(int64_t node) const { return indptr[node + 1] - indptr[node]; }
};

// Weights per child to regularise towards. Missing parts have no columns.
struct Centre {
    Csr sparse;
    Dense dense;
    const float* bias = nullptr;  // null: there is no centre
};

struct LevelProblem {
    Points features;
    RowLists instances;  // per parent; the weights are factors on the cost of a negative
    RowLists positives;  // per child: those of its parent's instances that have the label
    // Per child: those of its parent's instances that are its negatives, with factors on their
    // cost. If missing, all others are negatives, except instances of weight 0.
    RowLists negatives;
    Centre centre;
    const int64_t* children = nullptr;  // parent p has children [children[p], children[p + 1])
    SolverOptions options;
    uint64_t seed = 0;
};

// The most labels in a block: their weights for one feature fill a cache line.
inline constexpr int kBlock = 16;

class ClusterSolver {
public:
    void prepare(const LevelProblem& level, int64_t parent) {
        level_ = &level;
        const SolverOptions& options = level.options;
        first_child_ = level.children[parent];
        instances_ = level.instances.rows + level.instances.indptr[parent];
        count_ = level.instances.size(parent);
        instance_weights_ = level.instances.weights + level.instances.indptr[parent];
        const int64_t children = level.children[parent + 1] - first_child_;
        const bool centred = level.centre.bias != nullptr;
        const int64_t in_centre = level.centre.sparse.cols > 0 ? children : 0;
        rows_.assign({.features = level.features,
                      .dense_scale = options.dense_scale,
                      .bias = options.bias,
                      .rows = instances_,
                      .count = count_,
                      .more = {level.centre.sparse, first_child_, first_child_ + in_centre}});
        chunk_.start(children, level.features.width());
        // Labels without positives get the margin of a certain negative for every document.
        std::fill(chunk_.bias.begin(), chunk_.bias.end(),
                  options.bias != 0.0f ? -1.0f / options.bias : 0.0f);
        by_size_.clear();
        for (int64_t child = 0; child < children; ++child) {
            if (positives(child) > 0 || centred) by_size_.push_back(static_cast<int32_t>(child));
        }
        if (children == 1 && positives(0) == count_ && options.bias != 0.0f && !centred) {
            // An only child that every instance has: its parent's score is enough.
            chunk_.bias[0] = 1.0f / options.bias;
            by_size_.clear();
        }
        // Labels of similar frequency need similar numbers of sweeps, so they share a block.
        std::stable_sort(by_size_.begin(), by_size_.end(),
                         [&](int32_t a, int32_t b) { return positives(a) > positives(b); });
        const double terms = static_cast<double>(rows_.sparse().nnz()) /
                             static_cast<double>(std::max<int64_t>(count_, 1));
        by_margins_ = gram_pays(count_, blocks(), terms, rows_.width());
        if (by_margins_) gram_.assign(rows_);
    }

    int64_t blocks() const { return (static_cast<int64_t>(by_size_.size()) + kBlock - 1) / kBlock; }

    void solve(int64_t block, BlockProblem& problem) {
        const int32_t* children = by_size_.data() + block * kBlock;
        const int width =
            static_cast<int>(std::min<int64_t>(kBlock, by_size_.size() - block * kBlock));
        if (width <= 4) {
            solve_block<4>(children, width, problem);
        } else if (width <= 8) {
            solve_block<8>(children, width, problem);
        } else {
            solve_block<16>(children, width, problem);
        }
    }

    void collect(Chunks& out) { chunk_.collect(rows_.sparse(), out); }

private:
    int64_t positives(int64_t child) const { return level_->positives.size(first_child_ + child); }

    // use(i, weight) for the instances in a child's list.
    template <class Use>
    void for_listed(const RowLists& lists, int64_t child, Use&& use) const {
        const int64_t node = first_child_ + child;
        const int32_t *from = instances_, *const end = instances_ + count_;
        for (int64_t k = lists.indptr[node]; k < lists.indptr[node + 1]; ++k) {
            from = std::lower_bound(from, end, lists.rows[k]);
            if (from == end || *from != lists.rows[k]) {
                throw std::invalid_argument("an instance of a child is missing from its cluster");
            }
            use(from - instances_, lists.weights[k]);
        }
    }

    // Lanes past the last child repeat it.
    template <int W>
    void solve_block(const int32_t* children, int width, BlockProblem& problem) {
        const SolverOptions& options = level_->options;
        std::vector<int32_t> lanes(W);
        for (int lane = 0; lane < W; ++lane) lanes[lane] = children[std::min(lane, width - 1)];
        set_targets<W>(lanes, problem);
        problem.weights.assign(rows_.features() * W, 0.0f);
        const bool centred = level_->centre.bias != nullptr;
        if (centred) set_centre<W>(lanes, problem);
        descend_block<W>(
            rows_, by_margins_ ? &gram_ : nullptr, problem, options, centred, width,
            derive_seed(level_->seed, static_cast<uint64_t>(first_child_ + children[0])));
        const float* const weights = problem.weights.data();
        for (int lane = 0; lane < width; ++lane) {
            chunk_.bias[children[lane]] = weights[(rows_.features() - 1) * W + lane];
        }
        BlockWeights block{.children = children, .count = width, .values = weights, .stride = W};
        chunk_.keep_sparse(block, rows_.sparse(), options.sparse);
        block.values = weights + rows_.terms() * W;
        chunk_.keep_dense(block, options.dense_scale, options.dense);
    }

    // Slot 0 belongs to the plain negatives of every label (or, where labels have lists of
    // negatives, to instances that are in no list). The other instances have their own targets.
    template <int W>
    void set_targets(const std::vector<int32_t>& lanes, BlockProblem& problem) const {
        const SolverOptions& options = level_->options;
        const bool listed = level_->negatives.indptr != nullptr;
        int32_t slots = 1, shared = 0;
        problem.slot.assign(count_, 0);
        problem.slot_weights.assign(1, listed ? 0.0f : 1.0f);
        auto own_slot = [&](int64_t i) {
            if (problem.slot[i] == 0) problem.slot[i] = slots++;
        };
        for (int32_t child : lanes) {
            for_listed(level_->positives, child, [&](int64_t i, float) { own_slot(i); });
            if (listed) {
                for_listed(level_->negatives, child, [&](int64_t i, float) { own_slot(i); });
            }
        }
        problem.slot_weights.resize(slots, listed ? 0.0f : 1.0f);
        // Negatives of other weights share a slot with those before them that weigh the same.
        for (int64_t i = 0; i < count_ && !listed; ++i) {
            const float weight = instance_weights_[i];
            if (weight == 1.0f) continue;
            if (problem.slot[i] != 0) {
                problem.slot_weights[problem.slot[i]] = weight;
                continue;
            }
            if (shared == 0 || problem.slot_weights[shared] != weight) {
                shared = slots++;
                problem.slot_weights.push_back(weight);
            }
            problem.slot[i] = shared;
        }
        problem.targets.assign(static_cast<size_t>(slots) * 3 * W, 0.0f);
        for (int lane = 0; lane < W; ++lane) {
            auto set = [&](int32_t slot, float sign, float cost) {
                problem.set_target<W>(slot, lane, sign, cost, options.loss);
            };
            for (int32_t slot = 0; slot < slots; ++slot) {
                set(slot, -1.0f, options.cost_negative * problem.slot_weights[slot]);
            }
            if (listed) {
                for_listed(level_->negatives, lanes[lane], [&](int64_t i, float weight) {
                    set(problem.slot[i], -1.0f, options.cost_negative * weight);
                });
            }
            for_listed(level_->positives, lanes[lane], [&](int64_t i, float weight) {
                set(problem.slot[i], 1.0f, options.cost_positive * weight);
            });
        }
    }

    template <int W>
    void set_centre(const std::vector<int32_t>& lanes, BlockProblem& problem) const {
        const Centre& centre = level_->centre;
        float* const weights = problem.weights.data();
        float* const dense = weights + rows_.terms() * W;
        std::vector<float> row(centre.dense.cols);
        for (int lane = 0; lane < W; ++lane) {
            if (centre.sparse.cols > 0) {
                const Submatrix& rows = rows_.sparse();
                const int64_t given = count_ + lanes[lane];
                for (const auto* e = rows.begin(given); e != rows.end(given); ++e) {
                    weights[static_cast<int64_t>(e->feature) * W + lane] = e->value;
                }
            }
            if (centre.dense.cols > 0) {
                centre.dense.copy_row(first_child_ + lanes[lane], row.data());
                for (int64_t f = 0; f < centre.dense.cols; ++f) {
                    dense[f * W + lane] = row[f] / level_->options.dense_scale;
                }
            }
            weights[(rows_.features() - 1) * W + lane] = centre.bias[first_child_ + lanes[lane]];
        }
    }

    const LevelProblem* level_ = nullptr;
    int64_t first_child_ = 0, count_ = 0;
    const int32_t* instances_ = nullptr;
    const float* instance_weights_ = nullptr;  // factors on the costs of negatives
    ClusterRows rows_;
    bool by_margins_ = false;
    Gram gram_;
    std::vector<int32_t> by_size_;  // the children to solve, most frequent first
    ChunkBuilder chunk_;
};

// Solves all parents of a level, largest clusters first. The blocks of a cluster so large that one
// thread would still work on it when the others have finished are pieces of their own.
inline Chunks solve_clusters(const LevelProblem& level, int64_t count, int threads,
                             const OnWork& report = {}) {
    const int workers = resolve_threads(threads);
    std::vector<int64_t> work(count);
    for (int64_t c = 0; c < count; ++c) {
        const int64_t labels = level.children[c + 1] - level.children[c];
        work[c] = level.instances.size(c) * labels + 1;
    }
    std::vector<int64_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return work[a] > work[b]; });
    const int64_t total = std::accumulate(work.begin(), work.end(), int64_t{0});
    WorkReport done(report, total);

    std::vector<Chunks> solved(count);
    std::vector<BlockProblem> scratch(workers);
    // The blocks of large clusters come first, then small clusters as a whole.
    int64_t large = 0;
    while (workers > 1 && large < count &&
           4.0 * workers * static_cast<double>(work[order[large]]) > static_cast<double>(total)) {
        ++large;
    }
    std::vector<ClusterSolver> shared(large);
    parallel_for(large, workers, [&](int64_t n, int) { shared[n].prepare(level, order[n]); });
    std::vector<std::pair<int64_t, int64_t>> blocks;
    for (int64_t n = 0; n < large; ++n) {
        for (int64_t block = 0; block < shared[n].blocks(); ++block) blocks.push_back({n, block});
    }
    const int64_t single = static_cast<int64_t>(blocks.size());
    std::vector<ClusterSolver> solvers(workers);
    parallel_for(single + count - large, workers, [&](int64_t piece, int worker) {
        if (piece < single) {
            const auto [n, block] = blocks[piece];
            shared[n].solve(block, scratch[worker]);
            done.add(work[order[n]] / shared[n].blocks(), worker);
            return;
        }
        const int64_t c = order[large + piece - single];
        ClusterSolver& solver = solvers[worker];
        solver.prepare(level, c);
        for (int64_t block = 0; block < solver.blocks(); ++block) {
            solver.solve(block, scratch[worker]);
            done.add(work[c] / solver.blocks(), worker);
        }
        solver.collect(solved[c]);
    });
    parallel_for(large, workers, [&](int64_t n, int) { shared[n].collect(solved[order[n]]); });
    shared.clear();

    Chunks all;
    for (Chunks& chunk : solved) {
        all.append(chunk);
        chunk = Chunks();  // freed at once, so that there are never two full copies
    }
    return all;
}

}  // namespace labelgrove
