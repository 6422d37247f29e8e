#include "pifa.hpp"

#include "common.hpp"

namespace labelgrove {

void bind_pifa(nb::module_& module) {
    module.def("pifa", [](const Vector<int64_t>& indptr, const Vector<int32_t>& indices,
                          const Vector<float>& data, int64_t cols, const DenseArray& dense,
                          const Vector<int64_t>& label_ptr, const Vector<int32_t>& label_documents,
                          const Vector<float>& label_weights, int64_t documents, int threads) {
        const Points points{csr_view(indptr, indices, data, cols), dense_view(dense)};
        std::pair<SparseRows, DenseRows> sums;
        {
            nb::gil_scoped_release released;
            sums = pifa(points, csr_view(label_ptr, label_documents, label_weights, documents),
                        threads);
        }
        auto& [rows, block] = sums;
        // Half precision travels as integers; the caller looks at the same bits as float16.
        return nb::make_tuple(to_numpy(std::move(rows.indptr)), to_numpy(std::move(rows.indices)),
                              to_numpy(std::move(rows.data)),
                              points.dense.single == nullptr ? to_numpy(std::move(block.half))
                                                             : to_numpy(std::move(block.single)));
    });
}

}  // namespace labelgrove
