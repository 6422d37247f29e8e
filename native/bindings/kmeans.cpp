#include "kmeans.hpp"

#include "common.hpp"

namespace labelgrove {

void bind_kmeans(nb::module_& module) {
    module.def(
        "balanced_kmeans",
        [](const FeatureArrays& points, int depth, int max_iterations, uint64_t seed, int threads) {
            const Points view = points_view(points);
            const KmeansOptions options{
                .max_iterations = max_iterations, .seed = seed, .threads = threads};
            std::vector<int32_t> order;
            {
                nb::gil_scoped_release released;
                order = balanced_kmeans(view, depth, options);
            }
            return to_numpy(std::move(order));
        },
        nb::arg("points"), nb::kw_only(), nb::arg("depth"), nb::arg("max_iterations"),
        nb::arg("seed"), nb::arg("threads"));
}

}  // namespace labelgrove
