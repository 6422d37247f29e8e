// One sweep of dual coordinate descent for both hinge losses (Hsieh et al. 2008), W labels at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "lanes.hpp"
#include "prefetch.hpp"
#include "solver.hpp"

namespace labelgrove {

template <int W>
struct HingeSweep {
    static constexpr float kInfinity = std::numeric_limits<float>::infinity();
    int32_t all, size;  // number of instances, and of those that are not resting
    // Extremes of the projected gradients in this sweep and in the one before, which decide which
    // instances may rest.
    Lanes<W> highest, lowest, highest_before, lowest_before;

    void begin(int32_t instances) {
        all = instances;
        wake();
    }

    void wake() {
        size = all;
        highest_before = Lanes<W>{} + kInfinity;
        lowest_before = Lanes<W>{} - kInfinity;
    }

    // Call this after a sweep; returns whether it was the last.
    bool converged(float eps) {
        const Lanes<W> zero{};
        float widest = 0.0f;
        for (int lane = 0; lane < W; ++lane) {
            widest = std::max(widest, highest[lane] - lowest[lane]);
        }
        if (widest > eps) {
            highest_before = select(highest > zero, highest, zero + kInfinity);
            lowest_before = select(lowest < zero, lowest, zero - kInfinity);
            return false;
        }
        if (size == all) return true;
        wake();
        return false;
    }
};

template <int W, class Route>
LABELGROVE_INLINE void sweep_hinge(HingeSweep<W>& sweep, BlockProblem& problem,
                                   const float* squared_norms, Route route) {
    using Vec = Lanes<W>;
    const Vec zero{};
    int32_t* const active = problem.active.data();
    const int32_t* const slot = problem.slot.data();
    const Vec* const targets = problem.targets.template lanes<W>();
    Vec* const alphas = problem.alpha.template lanes<W>();
    Vec highest = zero - std::numeric_limits<float>::infinity();
    Vec lowest = zero + std::numeric_limits<float>::infinity();
    for (int32_t s = 0; s < sweep.size; ++s) {
        const int32_t i = active[s];
        if (s + 1 < sweep.size) {
            route.fetch(active[s + 1]);
            prefetch(alphas + active[s + 1]);
        }
        const Vec* const target = targets + 3 * static_cast<int64_t>(slot[i]);
        const Vec sign = target[0], diagonal = target[1], upper = target[2], alpha = alphas[i];
        const Vec gradient = sign * route.margin(i, sign * alpha) - 1.0f + diagonal * alpha;
        const auto at_zero = alpha == zero, at_upper = alpha == upper;
        const auto pushed_out = (at_zero & (gradient > zero)) | (at_upper & (gradient < zero));
        const Vec projected = select(pushed_out, zero, gradient);
        highest = select(projected > highest, projected, highest);
        lowest = select(projected < lowest, projected, lowest);
        // A variable at its bound whose gradient pushes it further out rests until the end. If both
        // bounds are 0, because the label ignores the instance, it always rests.
        const auto resting = (at_zero & ((gradient > sweep.highest_before) | at_upper)) |
                             (at_upper & (gradient < sweep.lowest_before));
        if (all_of<W>(resting)) {
            std::swap(active[s--], active[--sweep.size]);
            continue;
        }
        const Vec curvature = diagonal + squared_norms[i];
        // An instance without features and bias has no curvature: its variable goes to the bound.
        const Vec wanted = select(curvature > zero, alpha - gradient / curvature, upper);
        const Vec least = select(wanted < zero, zero, wanted);
        const Vec updated = select(least > upper, upper, least);
        const Vec change = (updated - alpha) * sign;
        if (!any_of<W>(change != zero)) continue;
        alphas[i] = updated;
        route.add(i, change);
    }
    route.finish();
    sweep.highest = highest;
    sweep.lowest = lowest;
}

}  // namespace labelgrove
