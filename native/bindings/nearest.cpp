#include "nearest.hpp"

#include "common.hpp"

namespace labelgrove {

void bind_nearest(nb::module_& module) {
    module.def(
        "nearest_rows",
        [](const CsrArrays& queries, const CsrArrays& postings, TopkArrays best, int threads) {
            const TopkOutput out = output_view(best);
            const Csr from = csr_view(queries);
            const Csr among = csr_view(postings);
            nb::gil_scoped_release release;
            nearest_rows(from, among, out, threads);
        },
        nb::arg("queries").noconvert(), nb::arg("postings").noconvert(),
        nb::arg("best").noconvert(), nb::arg("threads"),
        "Fills `best` with the columns of `postings` that have the largest products.");
}

}  // namespace labelgrove
