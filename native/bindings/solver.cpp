#include "common.hpp"

#include "cluster.hpp"

namespace labelgrove {

void bind_solver(nb::module_& module) {
    module.def("solve_clusters", [](const Vector<int64_t>& indptr, const Vector<int32_t>& indices,
                                    const Vector<float>& data, int64_t cols,
                                    const Vector<int64_t>& instance_ptr, const Vector<int32_t>& instances,
                                    const Vector<float>& instance_weights,
                                    const Vector<int64_t>& positive_ptr, const Vector<int32_t>& positives,
                                    const Vector<float>& positive_weights,
                                    const Vector<int64_t>& children, int64_t first, int64_t last, int loss,
                                    float cost_positive, float cost_negative, float bias, float eps,
                                    int max_iterations, float threshold, int64_t max_nonzeros,
                                    uint64_t seed, int threads) {
        LevelProblem level;
        level.features = csr_view(indptr, indices, data, cols);
        level.instances = {instance_ptr.data(), instances.data(), instance_weights.data()};
        level.positives = {positive_ptr.data(), positives.data(), positive_weights.data()};
        level.children = children.data();
        level.options = {static_cast<Loss>(loss), cost_positive, cost_negative, bias, eps,
                         max_iterations, threshold};
        level.seed = seed;
        level.max_nonzeros = max_nonzeros;
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
        return out;
    });
}

}  // namespace labelgrove
