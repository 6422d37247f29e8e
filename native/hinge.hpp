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

// With coarse stopping, half of the changes are much smaller than the gradients at which descent
// stops. An instance whose projected gradients are all below this share of eps keeps its variables,
// and rests until all instances are asked again.
inline constexpr float kTolerance = 0.05f;
// Resting instances are asked again until their gradients differ by no more than this times eps:
// the changes that they need then are made at once, and asking all of them costs a full sweep.
inline constexpr float kSettled = 3.0f;
inline constexpr int32_t kFewest = 4;  // rest begins if at least 1 / kFewest of all instances can

template <int W>
struct HingeSweep {
    int32_t all, size;  // number of instances, and of those that are not resting
    float tolerance;
    bool full, woken, settled;  // this sweep visits all; not the first to do so; nearly optimal
    Lanes<W> highest, lowest;   // extremes of the projected gradients in this sweep

    void begin(int32_t instances, float eps) {
        all = size = instances;
        tolerance = kTolerance * eps;
        full = true;
        woken = settled = false;
    }

    // Call this after a sweep; returns whether it was the last.
    bool converged(float eps) {
        float widest = 0.0f;
        for (int lane = 0; lane < W; ++lane) {
            widest = std::max(widest, highest[lane] - lowest[lane]);
        }
        if (full && woken) settled = widest <= kSettled * eps;
        // Asking again would cost more than the rest of so few saves.
        if (full && all - size < all / kFewest) size = all;
        if (widest <= eps) {
            if (full || settled) return true;
            size = all;
            woken = true;
        }
        full = size == all;
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
    const Vec tolerance = zero + sweep.tolerance;
    for (int32_t s = 0; s < sweep.size; ++s) {
        const int32_t i = active[s];
        // The row after the next one, and what the next row needs of other arrays.
        if (s + 2 < sweep.size) route.fetch(active[s + 2]);
        if (s + 1 < sweep.size) {
            const int32_t next = active[s + 1];
            route.fetch_weights(next);
            prefetch(alphas + next);
            prefetch(targets + 3 * static_cast<int64_t>(slot[next]));
        }
        const Vec* const target = targets + 3 * static_cast<int64_t>(slot[i]);
        const Vec sign = target[0], diagonal = target[1], upper = target[2], alpha = alphas[i];
        const Vec gradient = sign * route.margin(i, sign * alpha) - 1.0f + diagonal * alpha;
        const auto at_zero = alpha == zero, at_upper = alpha == upper;
        const auto pushed_out = (at_zero & (gradient > zero)) | (at_upper & (gradient < zero));
        const Vec projected = select(pushed_out, zero, gradient);
        highest = select(projected > highest, projected, highest);
        lowest = select(projected < lowest, projected, lowest);
        if (!any_of<W>((projected > tolerance) | (projected < zero - tolerance))) {
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
