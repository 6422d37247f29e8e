#include "kmeans.hpp"

#include <nanobind/stl/optional.h>

#include <optional>

#include "common.hpp"

namespace labelgrove {

void bind_kmeans(nb::module_& module) {
    module.def(
        "balanced_kmeans",
        [](const FeatureArrays& points, int depth, int max_iterations, uint64_t seed, uint64_t root,
           int threads, const std::optional<nb::callable>& on_work) {
            const Points view = points_view(points);
            const KmeansOptions options{
                .max_iterations = max_iterations, .seed = seed, .threads = threads};
            const OnWork report = work_report(on_work);
            std::vector<int32_t> order;
            {
                nb::gil_scoped_release released;
                order = balanced_kmeans(view, depth, root, options, report);
            }
            return to_numpy(std::move(order));
        },
        nb::arg("points"), nb::kw_only(), nb::arg("depth"), nb::arg("max_iterations"),
        nb::arg("seed"), nb::arg("root") = 1, nb::arg("threads"),
        nb::arg("on_work").none() = nb::none());
    module.attr("KMEANS_LAYERS_PER_COPY") = kLayersPerCopy;
}

}  // namespace labelgrove
