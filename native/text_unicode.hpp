// Reads UTF-8, with tables of the class of each character and of what it becomes.
//
// The tables come from the running Python (see unicode_tables.py), so that words are those of
// Python's `re` and lower case is that of `str.lower`. ASCII needs no tables.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace labelgrove {

constexpr uint64_t kHighBits = 0x8080808080808080ull;  // set in a word of bytes that is not ASCII
constexpr int64_t kCodePoints = 0x110000;
constexpr uint32_t kReplacement = 0xFFFD;  // replaces bytes that are not UTF-8
constexpr uint32_t kCapitalSigma = 0x3A3;  // its lower case depends on its neighbours

enum CharClass : uint8_t {
    kWord = 1,       // \w
    kSpace = 2,      // \s
    kCased = 4,      // upper, lower or title case, and not case-ignorable
    kIgnorable = 8,  // skipped when looking for the neighbours of a sigma
    kUnspaced = 16,  // of a script that has no spaces between words
};

struct CodePoint {
    uint32_t value;
    int32_t bytes;
};

inline bool is_continuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

// Accepts lone surrogates, written as three bytes: JSON can put them into a str.
inline CodePoint decode(const uint8_t* at, const uint8_t* end) {
    const uint8_t lead = at[0];
    const int64_t left = end - at;
    if (lead < 0x80) return {lead, 1};
    if (lead >= 0xC2 && lead <= 0xDF && left >= 2 && is_continuation(at[1])) {
        return {(lead & 0x1Fu) << 6 | (at[1] & 0x3Fu), 2};
    }
    if ((lead & 0xF0) == 0xE0 && left >= 3 && is_continuation(at[1]) && is_continuation(at[2])) {
        const uint32_t value = (lead & 0x0Fu) << 12 | (at[1] & 0x3Fu) << 6 | (at[2] & 0x3Fu);
        if (value >= 0x800) return {value, 3};
    }
    if (lead >= 0xF0 && lead <= 0xF4 && left >= 4 && is_continuation(at[1]) &&
        is_continuation(at[2]) && is_continuation(at[3])) {
        const uint32_t value =
            (lead & 0x07u) << 18 | (at[1] & 0x3Fu) << 12 | (at[2] & 0x3Fu) << 6 | (at[3] & 0x3Fu);
        if (value >= 0x10000 && value < kCodePoints) return {value, 4};
    }
    return {kReplacement, 1};
}

// The start of the character that ends just before `at`.
inline const uint8_t* previous(const uint8_t* begin, const uint8_t* at) {
    const uint8_t* start = at - 1;
    while (start > begin && at - start < 4 && is_continuation(*start)) --start;
    return start + decode(start, at).bytes == at ? start : at - 1;
}

class CharTables {
public:
    // `classes` has a set of CharClass per code point. `changed` lists the code points that are
    // replaced, the k-th by outputs[offsets[k] .. offsets[k + 1]), valid UTF-8, possibly empty.
    CharTables(const uint8_t* classes, const int32_t* changed, int64_t n_changed,
               const char* outputs, const int64_t* offsets)
        : classes_(classes, classes + kCodePoints),
          change_(kCodePoints, 0),
          outputs_(outputs, outputs + offsets[n_changed]),
          output_classes_(outputs_.size()),
          offsets_(offsets, offsets + n_changed + 1) {
        for (int64_t k = 0; k < n_changed; ++k) {
            if (changed[k] < 0 || changed[k] >= kCodePoints) {
                throw std::invalid_argument("no such code point");
            }
            change_[changed[k]] = static_cast<uint32_t>(k + 1);
        }
        const auto* begin = reinterpret_cast<const uint8_t*>(outputs_.data());
        for (size_t at = 0; at < outputs_.size();) {
            const CodePoint c = decode(begin + at, begin + outputs_.size());
            for (int i = 0; i < c.bytes; ++i) output_classes_[at++] = classes_[c.value];
        }
    }

    uint8_t classes(uint32_t code_point) const { return classes_[code_point]; }
    bool changes(uint32_t code_point) const { return change_[code_point] != 0; }

    struct Output {
        const char* bytes;
        const uint8_t* classes;
        int64_t length;
    };
    Output output(uint32_t code_point) const {
        const int64_t k = change_[code_point] - 1;
        return {outputs_.data() + offsets_[k], output_classes_.data() + offsets_[k],
                offsets_[k + 1] - offsets_[k]};
    }

    // Whether the capital sigma at [at, after) ends a word, as Unicode and str.lower define it.
    bool is_final_sigma(const uint8_t* begin, const uint8_t* at, const uint8_t* after,
                        const uint8_t* end) const {
        uint8_t before_class = 0;
        for (const uint8_t* p = at; p > begin;) {
            p = previous(begin, p);
            before_class = classes_[decode(p, end).value];
            if (!(before_class & kIgnorable)) break;
        }
        if (!(before_class & kCased)) return false;
        for (const uint8_t* p = after; p < end;) {
            const CodePoint c = decode(p, end);
            if (!(classes_[c.value] & kIgnorable)) return !(classes_[c.value] & kCased);
            p += c.bytes;
        }
        return true;
    }

private:
    std::vector<uint8_t> classes_;
    std::vector<uint32_t> change_;  // 0: unchanged, else 1 + position in offsets_
    std::vector<char> outputs_;
    std::vector<uint8_t> output_classes_;
    std::vector<int64_t> offsets_;
};

}  // namespace labelgrove
