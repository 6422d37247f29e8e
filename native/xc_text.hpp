// Parses svmlight-like lines, "label,label index:value index:value", in one pass over the bytes.
//
// The text is split at line ends into pieces that are parsed independently. Where it is split
// depends on the text only, so results are the same for any number of threads.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "parallel.hpp"

namespace labelgrove {

enum class XcFault : int32_t {
    label_syntax = 1,    // not a whole number, or a comma without a label beside it
    label_range = 2,     // label number beyond the limit
    feature_syntax = 3,  // not index:value
    feature_range = 4,   // feature index beyond the limit
    value_range = 5,     // value that a float cannot hold
};

struct XcLimits {
    int64_t labels;    // label numbers must be below this
    int64_t features;  // feature indices must be below this
    bool blank_lines_are_rows;
};

// The rows of one piece of text. Faulty lines add no row; they are listed with their line number
// (counted from the start of the piece) and the byte where reading stopped.
struct XcPiece {
    int64_t lines = 0;
    std::vector<int64_t> label_counts, feature_counts;
    std::vector<int32_t> labels, features;
    std::vector<float> values;
    std::vector<int64_t> fault_lines, fault_bytes;
    std::vector<int32_t> fault_codes;
};

namespace xc_detail {

inline bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Reads digits; false if there are none. Numbers too long for an int64 become its maximum.
inline bool read_integer(const char*& p, const char* end, int64_t& out) {
    const char* first = p;
    uint64_t number = 0;
    for (; p < end && is_digit(*p); ++p) number = number * 10 + static_cast<uint64_t>(*p - '0');
    out = p - first <= 18 ? static_cast<int64_t>(number) : std::numeric_limits<int64_t>::max();
    return p > first;
}

// Reads the number with the standard library: correct for any number, but slow.
inline double read_float_slowly(const char* first, const char* last) {
#if defined(__cpp_lib_to_chars)
    double number = 0.0;
    const auto result = std::from_chars(first, last, number);
    if (result.ec == std::errc::result_out_of_range) {
        // strtod tells numbers that are too small (zero) from those too large (infinity).
        return std::strtod(std::string(first, last).c_str(), nullptr);
    }
    return number;
#else
    return std::strtod(std::string(first, last).c_str(), nullptr);
#endif
}

// Reads [+-]digits[.digits][e[+-]digits]. A mantissa below 2^53 with a small power of ten, as in
// nearly every number of such files, needs one operation on doubles and is exact.
inline bool read_float(const char*& p, const char* end, double& out) {
    static constexpr double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                        1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                        1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    bool negative = false;
    if (p < end && (*p == '+' || *p == '-')) negative = *p++ == '-';
    const char* first = p;
    uint64_t mantissa = 0;  // overflows if there are too many digits; then it is not used
    for (; p < end && is_digit(*p); ++p) mantissa = mantissa * 10 + static_cast<uint64_t>(*p - '0');
    int64_t digits = p - first;
    int64_t exponent = 0;
    if (p < end && *p == '.') {
        const char* fraction = ++p;
        for (; p < end && is_digit(*p); ++p) {
            mantissa = mantissa * 10 + static_cast<uint64_t>(*p - '0');
        }
        exponent = fraction - p;
        digits -= exponent;
    }
    if (digits == 0) return false;
    if (p < end && (*p == 'e' || *p == 'E')) {
        ++p;
        bool minus = false;
        if (p < end && (*p == '+' || *p == '-')) minus = *p++ == '-';
        int64_t power = 0;
        if (!read_integer(p, end, power)) return false;
        power = std::min<int64_t>(power, 1'000'000'000);
        exponent += minus ? -power : power;
    }
    const bool simple = digits <= 18 && mantissa <= (uint64_t{1} << 53);
    double number;
    if (simple && exponent >= -22 && exponent <= 22) {
        const auto whole = static_cast<double>(mantissa);
        number = exponent < 0 ? whole / powers[-exponent] : whole * powers[exponent];
    } else {
        number = read_float_slowly(first, p);
    }
    out = negative ? -number : number;
    return true;
}

// Reads one line without its line end. Returns 0 or the fault, with p where it was found.
inline int32_t read_line(const char*& p, const char* end, const XcLimits& limits, XcPiece& piece) {
    auto fault = [](XcFault code) { return static_cast<int32_t>(code); };
    int64_t number = 0;
    bool in_labels = true;
    bool after_label = false, after_comma = false;
    while (true) {
        while (p < end && is_space(*p)) ++p;
        if (p == end || *p == '#') {
            return after_comma ? fault(XcFault::label_syntax) : 0;
        }
        if (*p == ',') {
            if (!after_label) return fault(XcFault::label_syntax);
            after_label = false;
            after_comma = true;
            ++p;
            continue;
        }
        const char* token = p;
        if (!read_integer(p, end, number)) {
            p = token;
            return fault(in_labels ? XcFault::label_syntax : XcFault::feature_syntax);
        }
        if (p < end && *p == ':') {
            if (after_comma) {
                p = token;
                return fault(XcFault::label_syntax);
            }
            in_labels = after_label = false;
            ++p;
            double value = 0.0;
            if (!read_float(p, end, value) || (p < end && !is_space(*p))) {
                p = token;
                return fault(XcFault::feature_syntax);
            }
            const auto narrow = static_cast<float>(value);
            if (number >= limits.features || !std::isfinite(narrow)) {
                p = token;
                return fault(number >= limits.features ? XcFault::feature_range
                                                       : XcFault::value_range);
            }
            piece.features.push_back(static_cast<int32_t>(number));
            piece.values.push_back(narrow);
        } else {
            if (!in_labels || (p < end && !is_space(*p) && *p != ',')) {
                p = token;
                return fault(in_labels ? XcFault::label_syntax : XcFault::feature_syntax);
            }
            if (number >= limits.labels) {
                p = token;
                return fault(XcFault::label_range);
            }
            piece.labels.push_back(static_cast<int32_t>(number));
            after_label = true;
            after_comma = false;
        }
    }
}

inline bool is_blank(const char* p, const char* end) {
    while (p < end && is_space(*p)) ++p;
    return p == end;
}

inline void read_piece(const char* begin, const char* end, const XcLimits& limits, XcPiece& piece) {
    const auto colons = static_cast<size_t>(std::count(begin, end, ':'));
    piece.features.reserve(colons);
    piece.values.reserve(colons);
    for (const char* line = begin; line < end; ++piece.lines) {
        const auto* stop = static_cast<const char*>(std::memchr(line, '\n', end - line));
        if (stop == nullptr) stop = end;
        const size_t labels = piece.labels.size(), features = piece.features.size();
        if (limits.blank_lines_are_rows || !is_blank(line, stop)) {
            const char* p = line;
            if (const int32_t code = read_line(p, stop, limits, piece)) {
                piece.labels.resize(labels);
                piece.features.resize(features);
                piece.values.resize(features);
                piece.fault_lines.push_back(piece.lines);
                piece.fault_bytes.push_back(p - begin);
                piece.fault_codes.push_back(code);
            } else {
                piece.label_counts.push_back(static_cast<int64_t>(piece.labels.size() - labels));
                piece.feature_counts.push_back(
                    static_cast<int64_t>(piece.features.size() - features));
            }
        }
        line = stop + (stop < end ? 1 : 0);
    }
}

}  // namespace xc_detail

struct XcParsed {
    std::vector<XcPiece> pieces;
    std::vector<int64_t> first_bytes;  // where each piece starts in the text
};

inline XcParsed parse_xc_text(const char* text, int64_t size, const XcLimits& limits, int threads) {
    constexpr int64_t piece_size = 1 << 19;
    XcParsed parsed;
    std::vector<int64_t>& starts = parsed.first_bytes;
    for (int64_t start = 0; start < size;) {
        starts.push_back(start);
        const int64_t wanted = std::min(size, start + piece_size);
        const void* stop = std::memchr(text + wanted - 1, '\n', size - wanted + 1);
        start = stop == nullptr ? size : static_cast<const char*>(stop) - text + 1;
    }
    parsed.pieces.resize(starts.size());
    parallel_for(static_cast<int64_t>(starts.size()), threads, [&](int64_t i, int) {
        const int64_t stop = i + 1 < static_cast<int64_t>(starts.size()) ? starts[i + 1] : size;
        xc_detail::read_piece(text + starts[i], text + stop, limits, parsed.pieces[i]);
    });
    return parsed;
}

}  // namespace labelgrove
