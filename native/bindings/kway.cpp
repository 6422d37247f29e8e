#include "kway.hpp"

#include "common.hpp"

namespace labelgrove {

void bind_kway(nb::module_& module) {
    module.def(
        "kway_kmeans",
        [](const FeatureArrays& points, const Vector<int32_t>& order, const Vector<int64_t>& bounds,
           int32_t clusters, int64_t max_leaf_size, int max_iterations, uint64_t seed,
           uint64_t first_node, int threads) {
            const Points view = points_view(points);
            const KwayNodes nodes{.order = order.data(),
                                  .bounds = bounds.data(),
                                  .count = static_cast<int64_t>(bounds.shape(0)) - 1,
                                  .first_number = first_node};
            const KmeansOptions options{
                .max_iterations = max_iterations, .seed = seed, .threads = threads};
            std::vector<int32_t> cluster;
            {
                nb::gil_scoped_release released;
                cluster = kway_kmeans(view, nodes, clusters, max_leaf_size, options);
            }
            return to_numpy(std::move(cluster));
        },
        nb::arg("points"), nb::kw_only(), nb::arg("order"), nb::arg("bounds"), nb::arg("clusters"),
        nb::arg("max_leaf_size"), nb::arg("max_iterations"), nb::arg("seed"), nb::arg("first_node"),
        nb::arg("threads"));
}

}  // namespace labelgrove
