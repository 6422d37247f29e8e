#include <nanobind/stl/optional.h>

#include <optional>

#include "cluster.hpp"
#include "common.hpp"

namespace labelgrove {
namespace {

// The Python side's RowLists: indptr, rows and weights.
using ListArrays = std::tuple<Vector<int64_t>, Vector<int32_t>, Vector<float>>;

RowLists lists_view(const ListArrays& arrays) {
    const auto& [indptr, rows, weights] = arrays;
    return {.indptr = indptr.data(), .rows = rows.data(), .weights = weights.data()};
}

// Weights per child to regularise towards: sparse and dense ones, and a bias.
using CentreArrays = std::tuple<FeatureArrays, Vector<float>>;

Centre centre_view(const CentreArrays& arrays) {
    const auto& [features, bias] = arrays;
    const Points weights = points_view(features);
    return {.sparse = weights.sparse, .dense = weights.dense, .bias = bias.data()};
}

nb::dict to_dict(Chunks chunks) {
    nb::dict out;
    out["chunk_rows"] = to_numpy(std::move(chunks.chunk_rows));
    out["chunk_entries"] = to_numpy(std::move(chunks.chunk_entries));
    out["features"] = to_numpy(std::move(chunks.features));
    out["row_start"] = to_numpy(std::move(chunks.row_start));
    out["children"] = to_numpy(std::move(chunks.children));
    out["values"] = to_numpy(std::move(chunks.values));
    out["bias"] = to_numpy(std::move(chunks.bias));
    out["dense"] = to_numpy(std::move(chunks.dense));
    return out;
}

void bind_options(nb::module_& module) {
    nb::class_<SolverOptions>(module, "SolverOptions")
        .def(
            "__init__",
            [](SolverOptions* self, int loss, float cost_positive, float cost_negative, float bias,
               float eps, int max_iterations, float threshold, int64_t max_nonzeros,
               float dense_scale, float dense_threshold, int64_t dense_max_nonzeros) {
                new (self) SolverOptions{
                    .loss = static_cast<Loss>(loss),
                    .cost_positive = cost_positive,
                    .cost_negative = cost_negative,
                    .bias = bias,
                    .eps = eps,
                    .max_iterations = max_iterations,
                    .dense_scale = dense_scale,
                    .sparse = {.threshold = threshold, .most = max_nonzeros},
                    .dense = {.threshold = dense_threshold, .most = dense_max_nonzeros}};
            },
            nb::kw_only(), nb::arg("loss"), nb::arg("cost_positive"), nb::arg("cost_negative"),
            nb::arg("bias"), nb::arg("eps"), nb::arg("max_iterations"), nb::arg("threshold"),
            nb::arg("max_nonzeros"), nb::arg("dense_scale"), nb::arg("dense_threshold"),
            nb::arg("dense_max_nonzeros"));
}

}  // namespace

void bind_solver(nb::module_& module) {
    bind_options(module);
    module.def("gram_pays", &gram_pays);  // for tests: which route a cluster takes
    module.def(
        "solve_clusters",
        [](const FeatureArrays& features, const ListArrays& instances, const ListArrays& positives,
           std::optional<ListArrays> negatives, std::optional<CentreArrays> centre,
           const Vector<int64_t>& children, const SolverOptions& options, uint64_t seed,
           int threads, const std::optional<nb::callable>& on_work) {
            const LevelProblem level{.features = points_view(features),
                                     .instances = lists_view(instances),
                                     .positives = lists_view(positives),
                                     .negatives = negatives ? lists_view(*negatives) : RowLists{},
                                     .centre = centre ? centre_view(*centre) : Centre{},
                                     .children = children.data(),
                                     .options = options,
                                     .seed = seed};
            const OnWork report = work_report(on_work);
            const auto parents = static_cast<int64_t>(children.size()) - 1;
            Chunks chunks;
            {
                nb::gil_scoped_release released;
                chunks = solve_clusters(level, parents, threads, report);
            }
            return to_dict(std::move(chunks));
        },
        nb::kw_only(), nb::arg("features"), nb::arg("instances"), nb::arg("positives"),
        nb::arg("negatives").none(), nb::arg("centre").none(), nb::arg("children"),
        nb::arg("options"), nb::arg("seed"), nb::arg("threads"), nb::arg("on_work").none());
}

}  // namespace labelgrove
