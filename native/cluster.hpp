// Trains one level of a label tree: the classifiers of all children of some parent nodes.
//
// All children of a parent see the same instances. Their sub-matrix is copied once, each child is
// solved on the copy, and the weights go straight into the chunk that prediction reads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

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
    // The Gram matrix is used where a cluster has at most so many instances per non-zero of a mean
    // row: that is when changing n margins costs less than walking rows. 0: never.
    float gram_factor = 10.0f;
    int64_t max_nonzeros = 0;  // largest weights kept per child; 0: all above the threshold
};

// A chunk's row is stored in full when at least 1 / kFullRow of the children use it.
inline constexpr uint32_t kFullRow = 3;

class ClusterSolver {
public:
    void prepare(const LevelProblem& level, int64_t parent) {
        level_ = &level;
        parent_ = parent;
        first_child_ = level.children[parent];
        instances_ = level.instances.rows + level.instances.indptr[parent];
        count_ = level.instances.size(parent);
        rows_.assign(level.features, instances_, count_);
        use_gram_ = count_ > 0 && count_ <= 4096 &&
                    static_cast<double>(count_) * count_ <= level.gram_factor * static_cast<double>(rows_.nnz());
        if (use_gram_) {
            gram_matrix(rows_, level.options.bias, gram_);
        } else {
            squared_norms_.resize(count_);
            for (int64_t i = 0; i < count_; ++i) {
                float sum = level.options.bias * level.options.bias;
                for (const auto* e = rows_.begin(i); e != rows_.end(i); ++e) sum += e->value * e->value;
                squared_norms_[i] = sum;
            }
        }
        const int64_t children = level.children[parent + 1] - first_child_;
        learnt_.resize(children);
        bias_.resize(children);
    }

    int64_t children() const { return static_cast<int64_t>(bias_.size()); }

    void solve(int64_t child, LabelProblem& problem) {
        const SolverOptions& options = level_->options;
        auto& kept = learnt_[child];
        kept.clear();
        if (!set_targets(first_child_ + child, problem)) {
            // Nothing speaks for this label: the margin of a certain negative, for every document.
            bias_[child] = options.bias != 0.0f ? -1.0f / options.bias : 0.0f;
            return;
        }
        if (children() == 1 && level_->positives.size(first_child_) == count_ && options.bias != 0.0f) {
            // An only child that all bear: its parent has said everything.
            bias_[child] = 1.0f / options.bias;
            return;
        }
        const uint64_t seed = derive_seed(level_->seed, static_cast<uint64_t>(first_child_ + child));
        if (use_gram_) {
            GramSpace space(rows_, gram_, options.bias, problem.weights, problem.margins);
            bias_[child] = solve_label(space, problem, options, seed);
        } else {
            RowSpace space(rows_, squared_norms_.data(), options.bias, problem.weights);
            bias_[child] = solve_label(space, problem, options, seed);
        }
        for (int32_t f = 0; f < rows_.features(); ++f) {
            const float weight = problem.weights[f];
            if (std::abs(weight) >= options.threshold && weight != 0.0f) kept.push_back({f, weight});
        }
        if (level_->max_nonzeros > 0 && static_cast<int64_t>(kept.size()) > level_->max_nonzeros) keep_largest(kept);
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

    // Signs and costs of one label's instances; false when it has no positive instance.
    bool set_targets(int64_t node, LabelProblem& problem) const {
        const RowLists& positives = level_->positives;
        problem.sign.assign(count_, -1.0f);
        const float* weights = level_->instances.weights + level_->instances.indptr[parent_];
        problem.cost.resize(count_);
        for (int64_t i = 0; i < count_; ++i) problem.cost[i] = level_->options.cost_negative * weights[i];
        const int32_t* from = instances_;
        for (int64_t k = positives.indptr[node]; k < positives.indptr[node + 1]; ++k) {
            from = std::lower_bound(from, instances_ + count_, positives.rows[k]);
            if (from == instances_ + count_ || *from != positives.rows[k]) {
                throw std::invalid_argument("a positive instance is missing from its cluster");
            }
            problem.sign[from - instances_] = 1.0f;
            problem.cost[from - instances_] = level_->options.cost_positive * positives.weights[k];
        }
        return positives.size(node) > 0;
    }

    const LevelProblem* level_ = nullptr;
    int64_t parent_ = 0, first_child_ = 0, count_ = 0;
    const int32_t* instances_ = nullptr;
    Submatrix rows_;
    bool use_gram_ = false;
    std::vector<float> gram_, squared_norms_, bias_;
    std::vector<std::vector<Weight>> learnt_;
};

// Solves parents [first, last). Clusters are handed out biggest first; a cluster so big that it would
// keep one thread busy after the others have finished is solved first, its labels shared out.
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
    std::vector<LabelProblem> problems(workers);
    int64_t shared = 0;
    if (workers > 1) {
        ClusterSolver solver;
        for (; shared < count && work[order[shared]] > total / (4.0 * workers); ++shared) {
            solver.prepare(level, first + order[shared]);
            parallel_for(solver.children(), workers,
                         [&](int64_t child, int worker) { solver.solve(child, problems[worker]); });
            solver.collect(solved[order[shared]]);
        }
    }
    std::vector<ClusterSolver> solvers(workers);
    parallel_for(count - shared, workers, [&](int64_t piece, int worker) {
        const int64_t c = order[shared + piece];
        solvers[worker].prepare(level, first + c);
        for (int64_t child = 0; child < solvers[worker].children(); ++child) {
            solvers[worker].solve(child, problems[worker]);
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
