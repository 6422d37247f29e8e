#include "kmeans.hpp"

#include "common.hpp"

namespace labelgrove {

void bind_kmeans(nb::module_& module) {
    module.def("balanced_kmeans",
               [](const Vector<int64_t>& indptr, const Vector<int32_t>& indices,
                  const Vector<float>& data, int64_t cols, const DenseArray& dense, int depth,
                  int max_iterations, uint64_t seed, int threads) {
                   const Points points{csr_view(indptr, indices, data, cols), dense_view(dense)};
                   std::vector<int32_t> order;
                   {
                       nb::gil_scoped_release released;
                       order = balanced_kmeans(points, depth, max_iterations, seed, threads);
                   }
                   return to_numpy(std::move(order));
               });
}

}  // namespace labelgrove
