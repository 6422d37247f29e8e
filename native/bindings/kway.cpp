#include "kway.hpp"

#include "common.hpp"

namespace labelgrove {

void bind_kway(nb::module_& module) {
    module.def("kway_kmeans", [](const Vector<int64_t>& indptr, const Vector<int32_t>& indices,
                                 const Vector<float>& data, int64_t cols, const DenseArray& dense,
                                 const Vector<int32_t>& order, const Vector<int64_t>& bounds,
                                 int32_t clusters, int64_t max_leaf_size, int max_iterations,
                                 uint64_t seed, uint64_t first_node, int threads) {
        const Points points{csr_view(indptr, indices, data, cols), dense_view(dense)};
        std::vector<int32_t> cluster;
        {
            nb::gil_scoped_release released;
            cluster = kway_kmeans(points, order.data(), bounds.data(),
                                  static_cast<int64_t>(bounds.shape(0)) - 1, clusters,
                                  max_leaf_size, max_iterations, seed, first_node, threads);
        }
        return to_numpy(std::move(cluster));
    });
}

}  // namespace labelgrove
