#include "pifa.hpp"

#include "common.hpp"

namespace labelgrove {

void bind_pifa(nb::module_& module) {
    module.def("pifa", [](const Vector<int64_t>& indptr, const Vector<int32_t>& indices,
                          const Vector<float>& data, int64_t cols, const Vector<int64_t>& label_ptr,
                          const Vector<int32_t>& label_documents, const Vector<float>& label_weights,
                          int64_t documents, int threads) {
        SparseRows rows;
        {
            nb::gil_scoped_release released;
            rows = pifa(csr_view(indptr, indices, data, cols),
                        csr_view(label_ptr, label_documents, label_weights, documents), threads);
        }
        return nb::make_tuple(to_numpy(std::move(rows.indptr)), to_numpy(std::move(rows.indices)),
                              to_numpy(std::move(rows.data)));
    });
}

}  // namespace labelgrove
