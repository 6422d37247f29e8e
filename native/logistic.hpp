// One sweep of dual coordinate descent for logistic loss, W labels at once.
//
// In the dual of logistic loss, alpha_i is in the open interval (0, C_i). Each variable is solved
// with Newton steps on z ln z + (C - z) ln(C - z) + a/2 (z - z0)^2 + b (z - z0), where z is alpha
// or C - alpha, whichever avoids cancellation in the logarithm (Yu, Huang and Lin 2011). Margins
// and changes are computed for the block, Newton steps for each label.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "lanes.hpp"
#include "prefetch.hpp"
#include "solver.hpp"

namespace labelgrove {

// The state of one label of the block.
struct LogisticLane {
    double inner_eps = 1e-2;   // Newton steps stop at gradients below this
    double worst = 0.0;        // the largest gradient that a variable had in this sweep
    int64_t newton_steps = 0;  // in this sweep
    bool done = false;
};

template <int W>
struct LogisticSweep {
    int32_t size;  // number of instances
    double eps;
    LogisticLane lanes[W];

    void begin(int32_t instances, int used, float tolerance) {
        size = instances;
        eps = tolerance;
        for (int lane = 0; lane < W; ++lane) lanes[lane] = {.done = lane >= used};
    }

    // Call this after a sweep; returns whether it was the last.
    bool converged() {
        bool all = true;
        for (LogisticLane& lane : lanes) {
            if (lane.worst < eps) lane.done = true;
            if (lane.newton_steps <= size / 10) {
                lane.inner_eps = std::max(std::min(1e-8, eps), 0.1 * lane.inner_eps);
            }
            lane.worst = 0.0;
            lane.newton_steps = 0;
            all = all && lane.done;
        }
        return all;
    }
};

template <int W>
void start_logistic(BlockProblem& problem, int32_t instances) {
    for (int64_t i = 0; i < instances; ++i) {
        const float* const costs = problem.target<W>(i) + 2 * W;
        for (int lane = 0; lane < W; ++lane) {
            problem.alpha.data()[i * W + lane] = std::min(0.001f * costs[lane], 1e-8f);
        }
    }
}

// The best value of one variable. Counts the Newton steps and records the first gradient.
inline double newton_logistic(double alpha, double cost, double a, double b, LogisticLane& lane) {
    const double other = cost - alpha;
    const bool mirrored = 0.5 * a * (other - alpha) + b < 0.0;
    const double start = mirrored ? other : alpha, slope = mirrored ? -b : b;
    double z = start;
    if (cost - z < 0.5 * cost) z *= 0.1;
    double gradient = a * (z - start) + slope + std::log(z / (cost - z));
    lane.worst = std::max(lane.worst, std::abs(gradient));
    int step = 0;
    for (; step < 100 && std::abs(gradient) >= lane.inner_eps; ++step) {
        const double curvature = a + cost / (cost - z) / z;
        const double next = z - gradient / curvature;
        z = next <= 0.0 ? z * 0.1 : std::min(next, cost * (1.0 - 1e-12));
        gradient = a * (z - start) + slope + std::log(z / (cost - z));
    }
    lane.newton_steps += step;
    if (step == 0) return alpha;
    return mirrored ? cost - z : z;
}

template <int W, class Route>
LABELGROVE_INLINE void sweep_logistic(LogisticSweep<W>& sweep, BlockProblem& problem,
                                      const float* squared_norms, Route route) {
    for (int32_t s = 0; s < sweep.size; ++s) {
        const int32_t i = problem.active[s];
        if (s + 1 < sweep.size) route.fetch(problem.active[s + 1]);
        const float* const target = problem.template target<W>(i);
        float* const alpha = problem.alpha.data() + static_cast<int64_t>(i) * W;
        float changes[W], factors[W];
        for (int lane = 0; lane < W; ++lane) factors[lane] = target[lane] * alpha[lane];
        Lanes<W> factor;
        std::memcpy(&factor, factors, sizeof(factor));
        const Lanes<W> margin = route.margin(i, factor);
        std::fill_n(changes, W, 0.0f);
        bool any = false;
        for (int lane = 0; lane < W; ++lane) {
            const float sign = target[lane], cost = target[2 * W + lane];
            if (sweep.lanes[lane].done || cost == 0.0f) continue;
            const double slope = static_cast<double>(sign) * margin[lane];
            const double best =
                newton_logistic(alpha[lane], cost, squared_norms[i], slope, sweep.lanes[lane]);
            // Stay between the bounds in single precision too.
            const float updated =
                std::min(std::max(static_cast<float>(best), 1e-30f * cost), (1.0f - 1e-7f) * cost);
            changes[lane] = (updated - alpha[lane]) * sign;
            any = any || changes[lane] != 0.0f;
            alpha[lane] = updated;
        }
        if (!any) continue;
        Lanes<W> change;
        std::memcpy(&change, changes, sizeof(change));
        route.add(i, change);
    }
    route.finish();
}

}  // namespace labelgrove
