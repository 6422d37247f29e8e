// Lower-cases and folds a text, and records the class of every byte of the result.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "dispatch.hpp"
#include "text_unicode.hpp"

namespace labelgrove {

// Uninitialised memory that grows, reused from text to text.
template <class T>
class Scratch {
public:
    T* data() { return data_.get(); }
    const T* data() const { return data_.get(); }
    T& operator[](int64_t i) { return data_[i]; }
    const T& operator[](int64_t i) const { return data_[i]; }

    void reserve(int64_t size, int64_t keep = 0) {
        if (size <= capacity_) return;
        const int64_t capacity = std::max(size, capacity_ + capacity_ / 2);
        auto bigger = std::make_unique_for_overwrite<T[]>(capacity);
        if (keep > 0) std::memcpy(bigger.get(), data_.get(), keep * sizeof(T));
        data_ = std::move(bigger);
        capacity_ = capacity;
    }

private:
    std::unique_ptr<T[]> data_;
    int64_t capacity_ = 0;
};

// Only comparisons, no branches and no tables, so that compilers vectorise it.
LABELGROVE_MULTIVERSION
inline void normalize_ascii(const uint8_t* in, int64_t count, uint8_t upper_to_lower, uint8_t* out,
                            uint8_t* classes) {
    for (int64_t i = 0; i < count; ++i) {
        const uint8_t c = in[i];
        const uint8_t upper = static_cast<uint8_t>(c - 'A') < 26;
        const uint8_t lower = static_cast<uint8_t>(c - 'a') < 26;
        const uint8_t digit = static_cast<uint8_t>(c - '0') < 10;
        const uint8_t control_space = static_cast<uint8_t>(c - 9) < 5;
        const uint8_t separator = static_cast<uint8_t>(c - 0x1C) < 5;  // and the space
        out[i] = c + upper * upper_to_lower;
        classes[i] = (upper | lower | digit | (c == '_')) | (control_space | separator) << 1;
    }
}

inline int64_t ascii_prefix(const uint8_t* text, int64_t count) {
    int64_t i = 0;
    for (uint64_t word; i + 8 <= count; i += 8) {
        std::memcpy(&word, text + i, 8);
        if (word & kHighBits) break;
    }
    while (i < count && text[i] < 0x80) ++i;
    return i;
}

class NormalizedText {
public:
    // Room at the end, for whole 64-bit masks and for reading terms 16 bytes at a time.
    static constexpr int64_t kPadding = 64;

    const char* bytes() const { return bytes_.data(); }
    const uint8_t* classes() const { return classes_.data(); }
    uint8_t* classes() { return classes_.data(); }
    int64_t size() const { return size_; }
    bool is_ascii() const { return ascii_; }

    // `tables` may be missing as long as all texts are ASCII.
    void assign(std::string_view text, bool lowercase, const CharTables* tables) {
        const auto* begin = reinterpret_cast<const uint8_t*>(text.data());
        const auto* end = begin + text.size();
        const uint8_t upper_to_lower = lowercase ? 'a' - 'A' : 0;
        start(text.size());
        for (const uint8_t* at = begin; at < end;) {
            const int64_t run = ascii_prefix(at, end - at);
            normalize_ascii(at, run, upper_to_lower, unsigned_bytes() + size_,
                            classes_.data() + size_);
            size_ += run;
            at += run;
            if (at == end) break;
            if (tables == nullptr) {
                throw std::logic_error("text is not ASCII and there are no tables");
            }
            ascii_ = false;
            for (; at < end && *at >= 0x80;) {
                const CodePoint c = decode(at, end);
                const uint8_t* after = at + c.bytes;
                if (c.value == kCapitalSigma && lowercase) {
                    append(tables->is_final_sigma(begin, at, after, end) ? "\xCF\x82" : "\xCF\x83",
                           2, kWord);
                } else if (tables->changes(c.value)) {
                    append(tables->output(c.value), end - after);
                } else if (c.value == kReplacement) {
                    append("\xEF\xBF\xBD", 3, tables->classes(kReplacement));
                } else {
                    append(reinterpret_cast<const char*>(at), c.bytes, tables->classes(c.value));
                }
                at = after;
            }
        }
        finish();
    }

    // Copies the bytes unchanged; every byte except `separator` belongs to a word.
    void assign_raw(std::string_view text, char separator) {
        start(text.size());
        std::memcpy(bytes_.data(), text.data(), text.size());
        size_ = text.size();
        finish();
        mark_separator(separator);
    }

    void mark_separator(char separator) {
        for (int64_t i = 0; i < size_; ++i) classes_[i] = bytes_[i] != separator;
    }

private:
    uint8_t* unsigned_bytes() { return reinterpret_cast<uint8_t*>(bytes_.data()); }

    // A byte of input becomes at most three, except through tables, which reserve more room.
    void reserve(int64_t output, int64_t input_left) {
        const int64_t size = size_ + output + 3 * input_left + kPadding;
        bytes_.reserve(size, size_);
        classes_.reserve(size, size_);
    }

    void start(int64_t input) {
        size_ = 0;
        ascii_ = true;
        reserve(0, input);
    }

    void finish() {
        std::memset(bytes_.data() + size_, 0, kPadding);
        std::memset(classes_.data() + size_, 0, kPadding);
    }

    void append(const char* bytes, int64_t count, uint8_t char_class) {
        for (int64_t i = 0; i < count; ++i) {
            bytes_[size_] = bytes[i];
            classes_[size_++] = char_class;
        }
    }

    void append(const CharTables::Output& output, int64_t input_left) {
        reserve(output.length, input_left);
        for (int64_t i = 0; i < output.length; ++i) {
            bytes_[size_] = output.bytes[i];
            classes_[size_++] = output.classes[i];
        }
    }

    Scratch<char> bytes_;
    Scratch<uint8_t> classes_;
    int64_t size_ = 0;
    bool ascii_ = true;
};

}  // namespace labelgrove
