#include "common.hpp"

#include "cluster.hpp"

namespace labelgrove {

// Optional parts come as empty arrays: no dense columns, no lists of negatives, no weights to start
// from.
void bind_solver(nb::module_& module) {
    module.def("gram_pays", &gram_pays);  // for tests: which route a cluster takes
    module.def(
        "solve_clusters",
        [](const Vector<int64_t>& indptr, const Vector<int32_t>& indices, const Vector<float>& data,
           int64_t cols, const DenseArray& dense, const Vector<int64_t>& instance_ptr,
           const Vector<int32_t>& instances, const Vector<float>& instance_weights,
           const Vector<int64_t>& positive_ptr, const Vector<int32_t>& positives,
           const Vector<float>& positive_weights, const Vector<int64_t>& negative_ptr,
           const Vector<int32_t>& negatives, const Vector<float>& negative_weights,
           const Vector<int64_t>& start_ptr, const Vector<int32_t>& start_indices,
           const Vector<float>& start_data, int64_t start_cols, const DenseArray& start_dense,
           const Vector<float>& start_bias, const Vector<int64_t>& children, int64_t first,
           int64_t last, int loss, int start, float cost_positive, float cost_negative, float bias,
           float eps, int max_iterations, float threshold, int64_t max_nonzeros, float dense_scale,
           float dense_threshold, int64_t dense_max_nonzeros, uint64_t seed, int threads) {
            LevelProblem level;
            level.features = csr_view(indptr, indices, data, cols);
            level.dense = dense_view(dense);
            level.instances = {instance_ptr.data(), instances.data(), instance_weights.data()};
            level.positives = {positive_ptr.data(), positives.data(), positive_weights.data()};
            if (negative_ptr.shape(0) > 0) {
                level.negatives = {negative_ptr.data(), negatives.data(), negative_weights.data()};
            }
            if (start_ptr.shape(0) > 0) {
                level.start.sparse = csr_view(start_ptr, start_indices, start_data, start_cols);
            }
            level.start.dense = dense_view(start_dense);
            if (start_bias.shape(0) > 0) level.start.bias = start_bias.data();
            level.children = children.data();
            level.options = {static_cast<Loss>(loss),
                             cost_positive,
                             cost_negative,
                             bias,
                             eps,
                             max_iterations,
                             threshold,
                             max_nonzeros,
                             dense_scale,
                             dense_threshold,
                             dense_max_nonzeros,
                             static_cast<Start>(start)};
            level.seed = seed;
            Chunks chunks;
            {
                nb::gil_scoped_release released;
                chunks = solve_clusters(level, first, last, threads);
            }
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
        });
}

}  // namespace labelgrove
