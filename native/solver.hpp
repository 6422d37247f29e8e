// Dual coordinate descent for one L2-regularised linear classifier:
//
//     min_w  1/2 |w|^2 + sum_i C_i loss(y_i (w.x_i + b * bias)),   b is part of w.
//
// Methods: Hsieh et al. 2008 for the two hinge losses, Yu, Huang and Lin 2011 for logistic loss.
// Each is written once, over a Space that knows margins: RowSpace keeps w and computes a margin when
// asked; GramSpace keeps all margins and changes them when a dual variable changes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "dispatch.hpp"
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

LABELGROVE_MULTIVERSION
inline void add_scaled(float* __restrict target, const float* __restrict source, float factor, int64_t n) {
    for (int64_t i = 0; i < n; ++i) target[i] += factor * source[i];
}

// Margins through the weights: a visit costs the row's non-zeros, whatever the number of rows.
class RowSpace {
public:
    RowSpace(const Submatrix& rows, const float* squared_norms, float bias, std::vector<float>& weights)
        : rows_(rows), squared_norms_(squared_norms), bias_(bias), weights_(weights) {
        weights_.assign(rows.features(), 0.0f);
    }
    float margin(int32_t i) const { return rows_.dot(i, weights_.data()) + bias_weight_ * bias_; }
    float squared_norm(int32_t i) const { return squared_norms_[i]; }
    void prefetch(int32_t i) const { rows_.prefetch_row(i); }
    void add(int32_t i, float change) {
        rows_.add(i, change, weights_.data());
        bias_weight_ += change * bias_;
    }
    float finish(const std::vector<float>&, const std::vector<float>&) { return bias_weight_; }

private:
    const Submatrix& rows_;
    const float* squared_norms_;
    float bias_, bias_weight_ = 0.0f;
    std::vector<float>& weights_;
};

// Margins through the Gram matrix: a visit is free, a change costs n contiguous additions. All
// labels of a cluster share the matrix, so in small clusters this wins.
class GramSpace {
public:
    GramSpace(const Submatrix& rows, const std::vector<float>& gram, float bias,
              std::vector<float>& weights, std::vector<float>& margins)
        : rows_(rows), gram_(gram.data()), n_(rows.rows()), bias_(bias), weights_(weights),
          margins_(margins) {
        margins_.assign(n_, 0.0f);
    }
    float margin(int32_t i) const { return margins_[i]; }
    float squared_norm(int32_t i) const { return gram_[i * n_ + i]; }
    void prefetch(int32_t) const {}
    void add(int32_t i, float change) { add_scaled(margins_.data(), gram_ + i * n_, change, n_); }
    float finish(const std::vector<float>& alpha, const std::vector<float>& sign) {
        weights_.assign(rows_.features(), 0.0f);
        float bias_weight = 0.0f;
        for (int64_t i = 0; i < n_; ++i) {
            if (alpha[i] == 0.0f) continue;
            rows_.add(i, alpha[i] * sign[i], weights_.data());
            bias_weight += alpha[i] * sign[i] * bias_;
        }
        return bias_weight;
    }

private:
    const Submatrix& rows_;
    const float* gram_;
    int64_t n_;
    float bias_;
    std::vector<float>& weights_;
    std::vector<float>& margins_;
};

// <x_i, x_j> + bias^2 for all pairs. Walks lists of the rows that hold a feature, so it costs the
// pairs that really meet; a list holds only rows up to i, the other half is mirrored.
inline void gram_matrix(const Submatrix& rows, float bias, std::vector<float>& gram) {
    const int64_t n = rows.rows();
    std::vector<int64_t> begin(rows.features() + 1, 0);
    for (const auto* entry = rows.begin(0); entry != rows.begin(0) + rows.nnz(); ++entry) {
        ++begin[entry->feature + 1];
    }
    for (int32_t f = 0; f < rows.features(); ++f) begin[f + 1] += begin[f];
    std::vector<int64_t> end(begin);
    struct Holder {
        int32_t row;
        float value;
    };
    std::vector<Holder> holders(rows.nnz());
    gram.assign(n * n, bias * bias);
    for (int64_t i = 0; i < n; ++i) {
        float* products = gram.data() + i * n;
        for (const auto* entry = rows.begin(i); entry != rows.end(i); ++entry) {
            holders[end[entry->feature]++] = {static_cast<int32_t>(i), entry->value};
            for (int64_t h = begin[entry->feature]; h < end[entry->feature]; ++h) {
                products[holders[h].row] += entry->value * holders[h].value;
            }
        }
        for (int64_t j = 0; j < i; ++j) gram[j * n + i] = products[j];
    }
}

// One label's problem and the memory to solve it; kept between labels.
struct LabelProblem {
    std::vector<float> sign;  // +1 or -1 per instance
    std::vector<float> cost;  // C_i
    std::vector<float> alpha;
    std::vector<int32_t> active;
    std::vector<float> weights, margins;
};

// Hinge: D_i = 0 and alpha_i <= C_i. Squared hinge: D_i = 1 / (2 C_i) and no upper bound.
template <class Space>
void descend_hinge(Space& space, LabelProblem& problem, const SolverOptions& options, uint64_t seed) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const bool squared = options.loss == Loss::squared_hinge;
    const int32_t n = static_cast<int32_t>(problem.sign.size());
    auto& alpha = problem.alpha;
    auto& active = problem.active;
    alpha.assign(n, 0.0f);
    active.resize(n);
    for (int32_t i = 0; i < n; ++i) active[i] = i;
    Random random(seed);
    int32_t size = n;
    float highest_before = infinity, lowest_before = -infinity;
    for (int sweep = 0; sweep < options.max_iterations; ++sweep) {
        float highest = -infinity, lowest = infinity;
        for (int32_t s = 0; s < size; ++s) std::swap(active[s], active[s + random.below(size - s)]);
        for (int32_t s = 0; s < size; ++s) {
            const int32_t i = active[s];
            if (s + 1 < size) space.prefetch(active[s + 1]);
            const float y = problem.sign[i];
            const float diagonal = squared ? 0.5f / problem.cost[i] : 0.0f;
            const float upper = squared ? infinity : problem.cost[i];
            const float gradient = y * space.margin(i) - 1.0f + diagonal * alpha[i];
            float projected = gradient;
            // A variable at its bound whose gradient pushes it further out rests until the end.
            if (alpha[i] == 0.0f) {
                if (gradient > highest_before) {
                    std::swap(active[s--], active[--size]);
                    continue;
                }
                projected = std::min(gradient, 0.0f);
            } else if (alpha[i] == upper) {
                if (gradient < lowest_before) {
                    std::swap(active[s--], active[--size]);
                    continue;
                }
                projected = std::max(gradient, 0.0f);
            }
            highest = std::max(highest, projected);
            lowest = std::min(lowest, projected);
            if (std::abs(projected) > 1e-12f) {
                const float curvature = space.squared_norm(i) + diagonal;
                // Without features and bias a hinge instance cannot be served; its variable is free.
                const float wanted = curvature > 0.0f ? alpha[i] - gradient / curvature : upper;
                const float updated = std::min(std::max(wanted, 0.0f), upper);
                space.add(i, (updated - alpha[i]) * y);
                alpha[i] = updated;
            }
        }
        if (highest - lowest <= options.eps) {
            if (size == n) break;
            size = n;
            highest_before = infinity;
            lowest_before = -infinity;
            continue;
        }
        highest_before = highest <= 0.0f ? infinity : highest;
        lowest_before = lowest >= 0.0f ? -infinity : lowest;
    }
}

// The dual of logistic loss has no bound that is reached: alpha_i lies in (0, C_i). Each variable is
// solved by Newton steps on z ln z + (C - z) ln(C - z) + a/2 (z - z0)^2 + b (z - z0), where z is
// alpha or C - alpha, whichever keeps the logarithm's argument away from cancellation.
template <class Space>
void descend_logistic(Space& space, LabelProblem& problem, const SolverOptions& options, uint64_t seed) {
    const int32_t n = static_cast<int32_t>(problem.sign.size());
    auto& alpha = problem.alpha;
    auto& active = problem.active;
    alpha.resize(n);
    active.resize(n);
    for (int32_t i = 0; i < n; ++i) {
        active[i] = i;
        alpha[i] = std::min(0.001f * problem.cost[i], 1e-8f);
        space.add(i, alpha[i] * problem.sign[i]);
    }
    Random random(seed);
    double inner_eps = 1e-2;
    const double inner_eps_least = std::min(1e-8, static_cast<double>(options.eps));
    for (int sweep = 0; sweep < options.max_iterations; ++sweep) {
        for (int32_t s = 0; s < n; ++s) std::swap(active[s], active[s + random.below(n - s)]);
        int64_t newton_steps = 0;
        double worst = 0.0;
        for (int32_t s = 0; s < n; ++s) {
            const int32_t i = active[s];
            const double cost = problem.cost[i];
            const double a = space.squared_norm(i), b = problem.sign[i] * space.margin(i);
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
                space.add(i, (updated - alpha[i]) * problem.sign[i]);
                alpha[i] = updated;
            }
        }
        if (worst < options.eps) break;
        if (newton_steps <= n / 10) inner_eps = std::max(inner_eps_least, 0.1 * inner_eps);
    }
}

// Leaves the weights in problem.weights and returns the bias weight.
template <class Space>
float solve_label(Space& space, LabelProblem& problem, const SolverOptions& options, uint64_t seed) {
    if (options.loss == Loss::logistic) {
        descend_logistic(space, problem, options, seed);
    } else {
        descend_hinge(space, problem, options, seed);
    }
    return space.finish(problem.alpha, problem.sign);
}

}  // namespace labelgrove
