#include "common.hpp"

namespace labelgrove {

// For tests: how kernels read a dense block, and how they round weights.
void bind_dense(nb::module_& module) {
    module.def("dense_rows", [](const DenseArray& array) {
        const Dense dense = dense_view(array);
        std::vector<float> rows(dense.rows * dense.cols);
        for (int64_t row = 0; row < dense.rows; ++row) {
            dense.copy_row(row, rows.data() + row * dense.cols);
        }
        return to_numpy(std::move(rows));
    });
    module.def("to_half", [](const Vector<float>& values) {
        std::vector<uint16_t> halves(values.shape(0));
        for (size_t k = 0; k < halves.size(); ++k) halves[k] = float_to_half(values.data()[k]);
        return to_numpy(std::move(halves));
    });
}

}  // namespace labelgrove
