// Dual coordinate descent (Hsieh et al. 2008) for the two hinge losses, for W labels at once.
//
// The labels of a cluster share their instances. Their weights lie side by side, w[feature][label], so
// one walk along an instance's row serves W labels: the row, its feature numbers and the cache line
// with a feature's weights are fetched once, and the arithmetic is one instruction for all of them.
// An instance takes part as long as any label of the block needs it; what a label does with an
// instance that it could have left out only brings it nearer to its optimum.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "dispatch.hpp"
#include "lanes.hpp"
#include "random.hpp"
#include "solver.hpp"
#include "submatrix.hpp"

namespace labelgrove {

// W labels' problem and the memory to solve it; kept between blocks.
struct BlockProblem {
    // Most instances are negative for all W labels; they share slot 0 of the targets.
    std::vector<int32_t> slot;
    std::vector<float> slot_weights;  // factors on the costs of negatives
    LaneArray targets;  // per slot W signs, W diagonals, W upper bounds of alpha
    LaneArray alpha;    // per instance
    LaneArray weights;  // per feature
    LaneArray bias;     // the W bias weights
    std::vector<int32_t> active;

    template <int W>
    void start(int64_t instances, int64_t features) {
        alpha.assign(instances * W, 0.0f);
        weights.assign(features * W, 0.0f);
        bias.assign(W, 0.0f);
    }

    // Hinge: D_i = 0 and alpha_i <= C_i. Squared hinge: D_i = 1 / (2 C_i) and no upper bound.
    template <int W>
    void set_target(int32_t slot_number, int lane, float sign, float cost, bool squared) {
        float* target = targets.data() + static_cast<int64_t>(slot_number) * 3 * W + lane;
        target[0] = sign;
        target[W] = squared ? 0.5f / cost : 0.0f;
        target[2 * W] = squared ? std::numeric_limits<float>::infinity() : cost;
    }
};

template <int W>
struct BlockSweep {
    const Submatrix& rows;
    const float* squared_norms;
    float bias;
    BlockProblem& problem;
    int32_t size;  // of the active set
    // Projected gradients: the extremes of this sweep, and those of the last, which say who may rest.
    Lanes<W> highest, lowest, highest_before, lowest_before;
};

template <int W>
LABELGROVE_INLINE Lanes<W> block_margin(const Submatrix::Entry* entry, const Submatrix::Entry* end,
                                        const Lanes<W>* weights, Lanes<W> start) {
    Lanes<W> a = start, b{}, c{}, d{};  // four sums hide the latency of addition
    for (; end - entry >= 4; entry += 4) {
        a += weights[entry[0].feature] * entry[0].value;
        b += weights[entry[1].feature] * entry[1].value;
        c += weights[entry[2].feature] * entry[2].value;
        d += weights[entry[3].feature] * entry[3].value;
    }
    for (; entry != end; ++entry) a += weights[entry->feature] * entry->value;
    return (a + b) + (c + d);
}

template <int W>
LABELGROVE_INLINE void sweep_block(BlockSweep<W>& sweep) {
    using Vec = Lanes<W>;
    const Vec zero{};
    int32_t* const active = sweep.problem.active.data();
    const int32_t* const slot = sweep.problem.slot.data();
    const Vec* const targets = sweep.problem.targets.template lanes<W>();
    Vec* const weights = sweep.problem.weights.template lanes<W>();
    Vec* const alphas = sweep.problem.alpha.template lanes<W>();
    Vec bias_weight = *sweep.problem.bias.template lanes<W>();
    Vec highest = zero - std::numeric_limits<float>::infinity();
    Vec lowest = zero + std::numeric_limits<float>::infinity();
    for (int32_t s = 0; s < sweep.size; ++s) {
        const int32_t i = active[s];
        if (s + 1 < sweep.size) {
            sweep.rows.prefetch_row(active[s + 1]);
            prefetch(alphas + active[s + 1]);
        }
        const auto *const begin = sweep.rows.begin(i), *const end = sweep.rows.end(i);
        const Vec* const target = targets + 3 * static_cast<int64_t>(slot[i]);
        const Vec sign = target[0], diagonal = target[1], upper = target[2], alpha = alphas[i];
        const Vec margin = block_margin<W>(begin, end, weights, bias_weight * sweep.bias);
        const Vec gradient = sign * margin - 1.0f + diagonal * alpha;
        const auto at_zero = alpha == zero, at_upper = alpha == upper;
        const auto pushed_out = (at_zero & (gradient > zero)) | (at_upper & (gradient < zero));
        const Vec projected = select(pushed_out, zero, gradient);
        highest = select(projected > highest, projected, highest);
        lowest = select(projected < lowest, projected, lowest);
        // A variable at its bound whose gradient pushes it further out rests until the end.
        const auto resting = (at_zero & (gradient > sweep.highest_before)) |
                             (at_upper & (gradient < sweep.lowest_before));
        if (all_of<W>(resting)) {
            std::swap(active[s--], active[--sweep.size]);
            continue;
        }
        const Vec curvature = diagonal + sweep.squared_norms[i];
        // Without features and bias a hinge instance cannot be served; its variable is free.
        const Vec wanted = select(curvature > zero, alpha - gradient / curvature, upper);
        const Vec least = select(wanted < zero, zero, wanted);
        const Vec updated = select(least > upper, upper, least);
        const Vec change = (updated - alpha) * sign;
        if (!any_of<W>(change != zero)) continue;
        alphas[i] = updated;
        for (auto* entry = begin; entry != end; ++entry) weights[entry->feature] += change * entry->value;
        bias_weight += change * sweep.bias;
    }
    *sweep.problem.bias.template lanes<W>() = bias_weight;
    sweep.highest = highest;
    sweep.lowest = lowest;
}

// The loader cannot choose among versions of a template.
LABELGROVE_MULTIVERSION inline void sweep_lanes(BlockSweep<16>& sweep) { sweep_block<16>(sweep); }
LABELGROVE_MULTIVERSION inline void sweep_lanes(BlockSweep<8>& sweep) { sweep_block<8>(sweep); }
LABELGROVE_MULTIVERSION inline void sweep_lanes(BlockSweep<4>& sweep) { sweep_block<4>(sweep); }

// The problem's targets are set; its weights and bias weights are the answer.
template <int W>
void descend_block(const Submatrix& rows, const float* squared_norms, BlockProblem& problem,
                   const SolverOptions& options, uint64_t seed) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const Lanes<W> zero{}, everything = zero + infinity;
    const int32_t n = static_cast<int32_t>(rows.rows());
    problem.start<W>(n, rows.features());
    auto& active = problem.active;
    active.resize(n);
    for (int32_t i = 0; i < n; ++i) active[i] = i;
    BlockSweep<W> sweep{rows, squared_norms, options.bias, problem, n,
                        zero, zero,          everything,   zero - infinity};
    Random random(seed);
    for (int round = 0; round < options.max_iterations; ++round) {
        for (int32_t s = 0; s < sweep.size; ++s) {
            std::swap(active[s], active[s + random.below(sweep.size - s)]);
        }
        sweep_lanes(sweep);
        float widest = 0.0f;
        for (int lane = 0; lane < W; ++lane) {
            widest = std::max(widest, sweep.highest[lane] - sweep.lowest[lane]);
        }
        if (widest > options.eps) {
            sweep.highest_before = select(sweep.highest > zero, sweep.highest, everything);
            sweep.lowest_before = select(sweep.lowest < zero, sweep.lowest, zero - infinity);
            continue;
        }
        if (sweep.size == n) break;
        sweep.size = n;
        sweep.highest_before = everything;
        sweep.lowest_before = zero - infinity;
    }
}

}  // namespace labelgrove
