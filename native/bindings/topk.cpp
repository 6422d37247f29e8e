#include "topk.hpp"

#include "common.hpp"

namespace labelgrove {
namespace {

TopkOutput output_view(MutableMatrix<int32_t>& columns, MutableMatrix<float>& scores,
                       MutableVector<int32_t>& counts) {
    return {static_cast<int64_t>(columns.shape(1)), columns.data(), scores.data(), counts.data()};
}

}  // namespace

void bind_topk(nb::module_& module) {
    module.def(
        "topk_dense",
        [](const Matrix<float>& matrix, MutableMatrix<int32_t> columns, MutableMatrix<float> scores,
           MutableVector<int32_t> counts, int threads) {
            const TopkOutput out = output_view(columns, scores, counts);
            const auto rows = static_cast<int64_t>(matrix.shape(0));
            const auto cols = static_cast<int64_t>(matrix.shape(1));
            nb::gil_scoped_release release;
            return topk_dense(matrix.data(), rows, cols, out, threads);
        },
        nb::arg("matrix").noconvert(), nb::arg("columns").noconvert(),
        nb::arg("scores").noconvert(), nb::arg("counts").noconvert(), nb::arg("threads"),
        "Fills columns, scores and counts; returns the first row with NaN or +inf, or -1.");
    module.def(
        "topk_sparse",
        [](const Vector<int64_t>& indptr, const Vector<int32_t>& indices, const Vector<float>& data,
           MutableMatrix<int32_t> columns, MutableMatrix<float> scores,
           MutableVector<int32_t> counts, int threads) {
            const TopkOutput out = output_view(columns, scores, counts);
            const Csr matrix = csr_view(indptr, indices, data, 0);
            nb::gil_scoped_release release;
            return topk_sparse(matrix, out, threads);
        },
        nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(), nb::arg("data").noconvert(),
        nb::arg("columns").noconvert(), nb::arg("scores").noconvert(),
        nb::arg("counts").noconvert(), nb::arg("threads"),
        "Fills columns, scores and counts; returns the first row with NaN or +inf, or -1.");
}

}  // namespace labelgrove
