#include "xc_text.hpp"

#include "common.hpp"

namespace labelgrove {

void bind_xc_text(nb::module_& module) {
    module.def(
        "parse_xc_text",
        [](const Vector<uint8_t>& text, int64_t label_limit, int64_t feature_limit,
           bool blank_lines_are_rows, int threads) {
            XcParsed parsed;
            {
                nb::gil_scoped_release release;
                parsed = parse_xc_text(reinterpret_cast<const char*>(text.data()),
                                       static_cast<int64_t>(text.shape(0)),
                                       {label_limit, feature_limit, blank_lines_are_rows}, threads);
            }
            nb::list pieces, faults;
            int64_t lines = 0;
            for (size_t i = 0; i < parsed.pieces.size(); ++i) {
                XcPiece& piece = parsed.pieces[i];
                for (size_t f = 0; f < piece.fault_lines.size(); ++f) {
                    faults.append(nb::make_tuple(lines + piece.fault_lines[f],
                                                 parsed.first_bytes[i] + piece.fault_bytes[f],
                                                 piece.fault_codes[f]));
                }
                lines += piece.lines;
                pieces.append(nb::make_tuple(
                    to_numpy(std::move(piece.label_counts)), to_numpy(std::move(piece.labels)),
                    to_numpy(std::move(piece.feature_counts)), to_numpy(std::move(piece.features)),
                    to_numpy(std::move(piece.values))));
            }
            return nb::make_tuple(pieces, faults, lines);
        },
        nb::arg("text"), nb::arg("label_limit"), nb::arg("feature_limit"),
        nb::arg("blank_lines_are_rows"), nb::arg("threads"),
        "Rows of svmlight-like text as arrays per piece, the lines at fault, and the line count.");
}

}  // namespace labelgrove
