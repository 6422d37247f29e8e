#include "pifa.hpp"

#include "common.hpp"

namespace labelgrove {

void bind_pifa(nb::module_& module) {
    module.def(
        "pifa",
        [](const FeatureArrays& documents, const CsrArrays& labels, int threads) {
            const Points points = points_view(documents);
            std::pair<SparseRows, DenseRows> sums;
            {
                nb::gil_scoped_release released;
                sums = pifa(points, csr_view(labels), threads);
            }
            auto& [rows, block] = sums;
            // Half precision travels as integers; the caller views the same bits as float16.
            return nb::make_tuple(to_numpy(std::move(rows.indptr)),
                                  to_numpy(std::move(rows.indices)), to_numpy(std::move(rows.data)),
                                  points.dense.single == nullptr
                                      ? to_numpy(std::move(block.half))
                                      : to_numpy(std::move(block.single)));
        },
        nb::arg("documents"), nb::arg("labels"), nb::kw_only(), nb::arg("threads"));
}

}  // namespace labelgrove
