// What one classifier minimises, and the solver for logistic loss; block.hpp has the hinge losses.
//
//     min_w  1/2 |w|^2 + sum_i C_i loss(y_i (w.x_i + b * bias)),   b is part of w.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "random.hpp"
#include "submatrix.hpp"

namespace labelgrove {

enum class Loss : int { squared_hinge = 0, hinge = 1, logistic = 2 };

struct SolverOptions {
    Loss loss = Loss::squared_hinge;
    float cost_positive = 1.0f;
    float cost_negative = 1.0f;
    float bias = 1.0f;
    float eps = 0.3f;  // stop when projected gradients differ by no more than this
    int max_iterations = 100;
    float threshold = 0.1f;  // smaller weights are dropped
};

// One label's problem and the memory to solve it; kept between labels.
struct LabelProblem {
    std::vector<float> sign;  // +1 or -1 per instance
    std::vector<float> cost;  // C_i
    std::vector<float> alpha;
    std::vector<int32_t> order;
    std::vector<float> weights;
};

// The dual of logistic loss has no bound that is reached: alpha_i lies in (0, C_i). Each variable is
// solved by Newton steps on z ln z + (C - z) ln(C - z) + a/2 (z - z0)^2 + b (z - z0), where z is
// alpha or C - alpha, whichever keeps the logarithm's argument away from cancellation (Yu, Huang and
// Lin 2011). Leaves the weights in problem.weights and returns the bias weight.
inline float descend_logistic(const Submatrix& rows, const float* squared_norms, LabelProblem& problem,
                              const SolverOptions& options, uint64_t seed) {
    const int32_t n = static_cast<int32_t>(problem.sign.size());
    auto& alpha = problem.alpha;
    auto& order = problem.order;
    problem.weights.assign(rows.features(), 0.0f);
    float* const weights = problem.weights.data();
    float bias_weight = 0.0f;
    auto add = [&](int32_t i, float change) {
        rows.add(i, change, weights);
        bias_weight += change * options.bias;
    };
    alpha.resize(n);
    order.resize(n);
    for (int32_t i = 0; i < n; ++i) {
        order[i] = i;
        alpha[i] = std::min(0.001f * problem.cost[i], 1e-8f);
        add(i, alpha[i] * problem.sign[i]);
    }
    Random random(seed);
    double inner_eps = 1e-2;
    const double inner_eps_least = std::min(1e-8, static_cast<double>(options.eps));
    for (int sweep = 0; sweep < options.max_iterations; ++sweep) {
        for (int32_t s = 0; s < n; ++s) std::swap(order[s], order[s + random.below(n - s)]);
        int64_t newton_steps = 0;
        double worst = 0.0;
        for (int32_t s = 0; s < n; ++s) {
            const int32_t i = order[s];
            const double cost = problem.cost[i];
            const double a = squared_norms[i];
            const double b = problem.sign[i] * (rows.dot(i, weights) + bias_weight * options.bias);
            const double first = alpha[i], second = cost - first;
            const bool mirrored = 0.5 * a * (second - first) + b < 0.0;
            const double start = mirrored ? second : first, slope = mirrored ? -b : b;
            double z = start;
            if (cost - z < 0.5 * cost) z *= 0.1;
            double gradient = a * (z - start) + slope + std::log(z / (cost - z));
            worst = std::max(worst, std::abs(gradient));
            int step = 0;
            for (; step < 100 && std::abs(gradient) >= inner_eps; ++step) {
                const double curvature = a + cost / (cost - z) / z;
                const double next = z - gradient / curvature;
                z = next <= 0.0 ? z * 0.1 : std::min(next, cost * (1.0 - 1e-12));
                gradient = a * (z - start) + slope + std::log(z / (cost - z));
            }
            newton_steps += step;
            if (step > 0) {
                const float updated = static_cast<float>(mirrored ? cost - z : z);
                add(i, (updated - alpha[i]) * problem.sign[i]);
                alpha[i] = updated;
            }
        }
        if (worst < options.eps) break;
        if (newton_steps <= n / 10) inner_eps = std::max(inner_eps_least, 0.1 * inner_eps);
    }
    return bias_weight;
}

}  // namespace labelgrove
