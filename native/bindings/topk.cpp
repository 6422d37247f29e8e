#include "topk.hpp"

#include "common.hpp"

namespace labelgrove {

void bind_topk(nb::module_& module) {
    module.def(
        "topk_dense",
        [](const Matrix<float>& matrix, TopkArrays best, int threads) {
            const TopkOutput out = output_view(best);
            const auto rows = static_cast<int64_t>(matrix.shape(0));
            const auto cols = static_cast<int64_t>(matrix.shape(1));
            nb::gil_scoped_release release;
            return topk_dense(matrix.data(), rows, cols, out, threads);
        },
        nb::arg("matrix").noconvert(), nb::arg("best").noconvert(), nb::arg("threads"),
        "Fills `best`; returns the first row with NaN or +inf, or -1.");
    module.def(
        "topk_sparse",
        [](const CsrArrays& matrix, TopkArrays best, int threads) {
            const TopkOutput out = output_view(best);
            const Csr view = csr_view(matrix);
            nb::gil_scoped_release release;
            return topk_sparse(view, out, threads);
        },
        nb::arg("matrix").noconvert(), nb::arg("best").noconvert(), nb::arg("threads"),
        "Fills `best`; returns the first row with NaN or +inf, or -1.");
}

}  // namespace labelgrove
