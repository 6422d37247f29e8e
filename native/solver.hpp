// The problem that each classifier solves, and the data of a block of labels.
//
//     min_w  1/2 |w - w0|^2 + sum_i C_i loss(y_i (w.x_i + b * bias))
//
// where b is part of w, and w0, the centre, is 0 unless weights are given.
// In the dual every instance has a variable alpha_i, and w = w0 + sum_i alpha_i y_i x_i.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "chunks.hpp"
#include "lanes.hpp"

namespace labelgrove {

enum class Loss : int { squared_hinge = 0, hinge = 1, logistic = 2 };

struct SolverOptions {
    Loss loss = Loss::squared_hinge;
    float cost_positive = 1.0f;
    float cost_negative = 1.0f;
    float bias = 1.0f;
    // Stop when projected gradients differ by no more than this; those of resting instances may
    // differ by a little more (hinge.hpp).
    float eps = 0.3f;
    int max_iterations = 100;
    float dense_scale = 1.0f;  // factor on the dense features while solving
    Pruning sparse{.threshold = 0.1f, .most = 0};
    Pruning dense{.threshold = 0.0f, .most = 0};
};

// The problem of W labels and the memory for solving it, which is kept between blocks.
struct BlockProblem {
    // Most instances are negatives of all W labels; they share slot 0 of the targets.
    std::vector<int32_t> slot;
    std::vector<float> slot_weights;  // factors on the costs of negatives
    LaneArray targets;  // per slot W signs, W diagonals, W upper bounds of alpha (0: ignored)
    LaneArray alpha;    // per instance
    LaneArray weights;  // per feature
    LaneArray centre;   // per feature: a copy of w0
    LaneArray margins;  // per instance; used at the start, and throughout with a Gram matrix
    std::vector<int32_t> active;

    // Hinge: D_i = 0 and alpha_i <= C_i. Squared hinge: D_i = 1 / (2 C_i) and no upper bound.
    // Logistic: alpha_i < C_i.
    template <int W>
    void set_target(int32_t slot_number, int lane, float sign, float cost, Loss loss) {
        const bool squared = loss == Loss::squared_hinge && cost > 0.0f;
        float* target = targets.data() + static_cast<int64_t>(slot_number) * 3 * W + lane;
        target[0] = sign;
        target[W] = squared ? 0.5f / cost : 0.0f;
        target[2 * W] = squared ? std::numeric_limits<float>::infinity() : cost;
    }

    // The W signs, diagonals and bounds of an instance.
    template <int W>
    const float* target(int64_t i) const {
        return targets.data() + static_cast<int64_t>(slot[i]) * 3 * W;
    }

    // Lists the instances that matter to at least one label of the block.
    template <int W>
    void list_active(int32_t instances) {
        active.clear();
        for (int32_t i = 0; i < instances; ++i) {
            const float* const upper = target<W>(i) + 2 * W;
            if (std::any_of(upper, upper + W, [](float bound) { return bound > 0.0f; })) {
                active.push_back(i);
            }
        }
    }

    // margins = alpha_i y_i, the factors of the rows in the weights.
    template <int W>
    void factors_to_margins(int32_t instances) {
        for (int64_t i = 0; i < instances; ++i) {
            const float* const sign = target<W>(i);
            for (int lane = 0; lane < W; ++lane) {
                margins.data()[i * W + lane] = alpha.data()[i * W + lane] * sign[lane];
            }
        }
    }
};

}  // namespace labelgrove
