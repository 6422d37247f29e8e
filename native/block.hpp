// Dual coordinate descent for W labels at once.
//
// The labels of a cluster share their instances. Their weights lie side by side, w[feature][label],
// so one walk along an instance's row serves W labels: the row, its feature numbers and the cache
// line with a feature's weights are fetched once, and the arithmetic is one instruction for all of
// them. An instance is visited as long as any label of the block needs it; for the other labels the
// visit is not necessary, but it only brings them closer to their optimum.
//
// Margins are found in one of two ways: from the instance's row of features and the weights, or by
// keeping all margins and updating them with a row of a Gram matrix when a variable changes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "cluster_rows.hpp"
#include "dispatch.hpp"
#include "gram.hpp"
#include "hinge.hpp"
#include "interrupt.hpp"
#include "lanes.hpp"
#include "logistic.hpp"
#include "random.hpp"
#include "solver.hpp"

namespace labelgrove {

template <int W>
struct ByWeights {
    const ClusterRows& rows;
    Lanes<W>* const weights;
    Lanes<W> constant = weights[rows.features() - 1];  // in a register: every visit needs it

    LABELGROVE_INLINE void fetch(int32_t i) const { rows.fetch(i); }
    // The first weights of a row, which would stall its margin; the processor sees to the others.
    LABELGROVE_INLINE void fetch_weights(int32_t i) const {
        const Submatrix::Entry *entry = rows.sparse().begin(i), *lone = rows.sparse().lone(i);
        const Submatrix::Entry* const end = lone - entry > 24 ? entry + 24 : lone;
        for (; entry != end; ++entry) prefetch(weights + entry->feature);
    }
    LABELGROVE_INLINE Lanes<W> margin(int32_t i, const Lanes<W>& factor) const {
        return rows.margin_in_sweep<W>(i, weights, constant * rows.bias(), factor);
    }
    LABELGROVE_INLINE void add(int32_t i, const Lanes<W>& change) {
        rows.add_in_sweep<W>(i, change, weights);
        constant += change * rows.bias();
    }
    LABELGROVE_INLINE void finish() const { weights[rows.features() - 1] = constant; }
};

template <int W>
struct ByMargins {
    const Gram& gram;
    Lanes<W>* const margins;
    const int64_t count;

    LABELGROVE_INLINE void fetch(int32_t i) const { prefetch(margins + i); }
    LABELGROVE_INLINE void fetch_weights(int32_t) const {}
    LABELGROVE_INLINE Lanes<W> margin(int32_t i, const Lanes<W>&) const { return margins[i]; }
    LABELGROVE_INLINE void add(int32_t i, const Lanes<W>& change) const {
        const float* const products = gram.row(i);
        for (int64_t j = 0; j < count; ++j) margins[j] += change * products[j];
    }
    LABELGROVE_INLINE void finish() const {}
};

template <int W>
struct BlockTask {
    const ClusterRows& rows;
    const Gram* gram;  // null: margins come from the weights
    BlockProblem& problem;
    Loss loss;
    HingeSweep<W> hinge;
    LogisticSweep<W> logistic;
};

template <int W>
LABELGROVE_INLINE void sweep_by_either_route(BlockTask<W>& task) {
    Lanes<W>* const weights = task.problem.weights.template lanes<W>();
    Lanes<W>* const margins = task.problem.margins.template lanes<W>();
    const float* const norms = task.rows.squared_norms();
    if (task.loss == Loss::logistic) {
        if (task.gram == nullptr) {
            sweep_logistic<W>(task.logistic, task.problem, norms, ByWeights<W>{task.rows, weights});
        } else {
            sweep_logistic<W>(task.logistic, task.problem, norms,
                              ByMargins<W>{*task.gram, margins, task.rows.rows()});
        }
    } else if (task.gram == nullptr) {
        sweep_hinge<W>(task.hinge, task.problem, norms, ByWeights<W>{task.rows, weights});
    } else {
        sweep_hinge<W>(task.hinge, task.problem, norms,
                       ByMargins<W>{*task.gram, margins, task.rows.rows()});
    }
}

// Templates cannot have several versions, so these are plain functions.
LABELGROVE_MULTIVERSION
inline void sweep_lanes(BlockTask<16>& task) { sweep_by_either_route<16>(task); }
LABELGROVE_MULTIVERSION
inline void sweep_lanes(BlockTask<8>& task) { sweep_by_either_route<8>(task); }
LABELGROVE_MULTIVERSION
inline void sweep_lanes(BlockTask<4>& task) { sweep_by_either_route<4>(task); }

// Expects the targets, and w0 in the weights. Makes the variables consistent with the weights
// (without a Gram matrix) or with the margins (with one).
template <int W>
void begin_block(BlockTask<W>& task, bool centred) {
    BlockProblem& problem = task.problem;
    const int32_t n = static_cast<int32_t>(task.rows.rows());
    const bool logistic = task.loss == Loss::logistic;
    problem.alpha.assign(static_cast<int64_t>(n) * W, 0.0f);
    if (task.gram != nullptr || logistic) {
        problem.margins.assign(static_cast<int64_t>(n) * W, 0.0f);
    }
    Lanes<W>* const weights = problem.weights.lanes<W>();
    Lanes<W>* const margins = problem.margins.lanes<W>();
    if (logistic) {
        start_logistic<W>(problem, n);
        problem.factors_to_margins<W>(n);
        sum_rows(task.rows, margins, weights);
    }
    if (task.gram != nullptr && (centred || logistic)) row_margins(task.rows, 0, weights, margins);
}

template <int W>
void set_lone_weights(const ClusterRows& rows, BlockProblem& problem) {
    const Lanes<W>* const targets = problem.targets.lanes<W>();
    const Lanes<W>* const alphas = problem.alpha.lanes<W>();
    for (int64_t i = 0; i < rows.rows(); ++i) {
        const Lanes<W> sign = targets[3 * static_cast<int64_t>(problem.slot[i])];
        rows.set_lone<W>(i, sign * alphas[i], problem.weights.lanes<W>());
    }
}

// A round over fewer rows ends soon enough without asking for interrupts.
constexpr int32_t kRowsToPoll = 4096;

// Expects the problem's targets, and w0 in its weights, which become the solution; `centred` says
// whether w0 is not 0. Lanes from `used` on are ignored.
template <int W>
void descend_block(const ClusterRows& rows, const Gram* gram, BlockProblem& problem,
                   const SolverOptions& options, bool centred, int used, uint64_t seed) {
    const int32_t n = static_cast<int32_t>(rows.rows());
    BlockTask<W> task{rows, gram, problem, options.loss, {}, {}};
    // Descent with margins overwrites the weights; w0 is needed at the end.
    const bool keep_centre = gram != nullptr && centred;
    const int64_t size_of_weights = rows.features() * W;
    if (keep_centre) {
        problem.centre.assign(size_of_weights, 0.0f);
        std::copy_n(problem.weights.data(), size_of_weights, problem.centre.data());
    }
    begin_block<W>(task, centred);
    problem.list_active<W>(n);
    auto& active = problem.active;
    Random random(seed);
    task.hinge.begin(static_cast<int32_t>(active.size()), options.eps);
    task.logistic.begin(static_cast<int32_t>(active.size()), used, options.eps);
    for (int round = 0; round < options.max_iterations; ++round) {
        const int32_t size = options.loss == Loss::logistic ? task.logistic.size : task.hinge.size;
        if (size > kRowsToPoll) poll_interrupt();
        for (int32_t s = 0; s < size; ++s) std::swap(active[s], active[s + random.below(size - s)]);
        sweep_lanes(task);
        if (options.loss == Loss::logistic ? task.logistic.converged()
                                           : task.hinge.converged(options.eps)) {
            break;
        }
    }
    if (gram == nullptr) {
        set_lone_weights<W>(rows, problem);
        return;
    }
    problem.weights.assign(size_of_weights, 0.0f);
    if (keep_centre) std::copy_n(problem.centre.data(), size_of_weights, problem.weights.data());
    problem.factors_to_margins<W>(n);
    sum_rows(rows, problem.margins.lanes<W>(), problem.weights.lanes<W>());
}

}  // namespace labelgrove
