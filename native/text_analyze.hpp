// Cuts one text into terms: words, word n-grams, character n-grams.
//
// The rules are those of scikit-learn's CountVectorizer. Every term is a slice of one buffer that
// lives until the next text, so terms cost no allocation and no copy of their own.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>

#include "text_hash.hpp"
#include "text_normalize.hpp"

namespace labelgrove {

enum class Analyzer { word, space, characters, characters_in_words, tokens };

constexpr char kTokenSeparator = '\xFF';  // between the tokens of a Python analyser; never in UTF-8

// Positions are kept in 32 bits, and padding words with spaces can triple a text.
constexpr int64_t kMaxTextBytes = 1 << 30;

struct AnalyzerOptions {
    Analyzer analyzer = Analyzer::word;
    int32_t min_n = 1;
    int32_t max_n = 1;
    int64_t min_token_length = 2;  // in characters, for Analyzer::word
    int64_t max_tokens = -1;       // words, or characters for the two character analysers
    bool lowercase = true;
};

constexpr int kBordersPerStep = 8;

// Writes the positions where runs of word bytes begin and end, alternately, and returns their number.
// There must be room for kBordersPerStep more than there are, and 64 zero classes behind the last.
LABELGROVE_MULTIVERSION
inline int64_t word_borders(const uint8_t* classes, int64_t size, uint32_t* borders) {
    int64_t count = 0;
    uint64_t inside = 0;  // 1 while a run continues from the block before
    for (int64_t base = 0; base <= size; base += 64) {
        uint64_t word = 0;  // bit i says whether byte i belongs to a word
        for (int i = 0; i < 8; ++i) {
            const uint64_t flags = load_word(reinterpret_cast<const char*>(classes) + base + 8 * i);
            word |= ((flags & 0x0101010101010101ull) * 0x0102040810204080ull >> 56) << (8 * i);
        }
        uint64_t left = word ^ (word << 1 | inside);
        inside = word >> 63;
        // Always writing a whole step and moving on by as many as were real avoids a branch for each.
        for (int todo = std::popcount(left); todo > 0; todo -= kBordersPerStep) {
            for (int i = 0; i < kBordersPerStep; ++i) {
                borders[count + i] = static_cast<uint32_t>(base + std::countr_zero(left));
                left &= left - 1;
            }
            count += std::min(todo, kBordersPerStep);
        }
    }
    return count;
}

class TextAnalyzer {
public:
    explicit TextAnalyzer(const AnalyzerOptions& options) : options_(options) {}

    // Calls emit(bytes, length) for every term of the text, in no particular order.
    template <class Emit>
    void analyze(std::string_view text, const CharTables* tables, Emit&& emit) {
        if (options_.analyzer == Analyzer::tokens) {
            text_.assign_raw(text, kTokenSeparator);
        } else {
            text_.assign(text, options_.lowercase, tables);
        }
        if (text_.size() > kMaxTextBytes) throw std::length_error("a text is larger than 1 GB");
        switch (options_.analyzer) {
            case Analyzer::word: return emit_words(options_.min_token_length, emit);
            case Analyzer::tokens: return emit_words(1, emit);
            case Analyzer::space: text_.mark_separator(' '); return emit_words(1, emit);
            case Analyzer::characters: return emit_characters(emit);
            case Analyzer::characters_in_words: return emit_characters_in_words(emit);
        }
    }

private:
    struct Span {
        uint32_t start;
        uint32_t length;
    };

    template <class Emit>
    void emit_words(int64_t min_length, Emit&& emit) {
        const int64_t count = find_words(min_length);
        if (options_.max_n == 1) {
            for (int64_t i = 0; i < count; ++i) emit(text_.bytes() + spans_[i].start, spans_[i].length);
            return;
        }
        // With the words packed and one space between them, an n-gram is a slice.
        buffer_.reserve(text_.size() + count + NormalizedText::kPadding);
        uint32_t size = 0;
        for (int64_t i = 0; i < count; ++i) {
            std::memcpy(buffer_.data() + size, text_.bytes() + spans_[i].start, spans_[i].length);
            spans_[i].start = size;
            size += spans_[i].length;
            buffer_[size++] = ' ';
        }
        std::memset(buffer_.data() + size, 0, kTermPadding);
        for (int64_t n = options_.min_n; n <= std::min<int64_t>(options_.max_n, count); ++n) {
            for (int64_t i = 0; i + n <= count; ++i) {
                const Span last = spans_[i + n - 1];
                emit(buffer_.data() + spans_[i].start, last.start + last.length - spans_[i].start);
            }
        }
    }

    // Fills spans_ with the runs of word bytes that are long enough.
    int64_t find_words(int64_t min_length) {
        borders_.reserve(text_.size() + kBordersPerStep + 1);
        spans_.reserve(text_.size() / 2 + 1);
        const int64_t words = word_borders(text_.classes(), text_.size(), borders_.data()) / 2;
        int64_t count = 0;
        for (int64_t i = 0; i < words; ++i) {
            const Span span = {borders_[2 * i], borders_[2 * i + 1] - borders_[2 * i]};
            spans_[count] = span;
            count += long_enough(span, min_length);
        }
        return options_.max_tokens < 0 ? count : std::min(count, options_.max_tokens);
    }

    bool long_enough(Span span, int64_t min_length) const {
        const char* bytes = text_.bytes() + span.start;
        if (span.length < min_length) return false;
        if (text_.is_ascii() || span.length >= 4 * min_length) return true;
        if (span.length <= 8 && !(low_bytes(load_word(bytes), span.length) & kHighBits)) return true;
        int64_t characters = 0;
        for (uint32_t i = 0; i < span.length; ++i) {
            characters += !is_continuation(static_cast<uint8_t>(bytes[i]));
        }
        return characters >= min_length;
    }

    template <class Emit>
    void emit_characters(Emit&& emit) {
        const int64_t count = collapse_spaces();
        emit_slices(starts_.data(), count, emit);
    }

    // All n-grams over `count` characters that begin at starts[0..count) and end at starts[count].
    template <class Emit>
    void emit_slices(const uint32_t* starts, int64_t count, Emit&& emit) {
        for (int64_t n = options_.min_n; n <= std::min<int64_t>(options_.max_n, count); ++n) {
            for (int64_t i = 0; i + n <= count; ++i) {
                emit(buffer_.data() + starts[i], starts[i + n] - starts[i]);
            }
        }
    }

    // Copies the text to buffer_ with each run of two or more spaces as one ' ' (a single white-space
    // character stays what it is) and lists where characters start. Returns their number.
    int64_t collapse_spaces() {
        const int64_t limit = options_.max_tokens < 0 ? text_.size() : options_.max_tokens;
        const auto* classes = text_.classes();
        buffer_.reserve(text_.size() + NormalizedText::kPadding);
        starts_.reserve(text_.size() + 1);
        int64_t count = 0;
        uint32_t size = 0;
        for (int64_t at = 0; at < text_.size() && count < limit;) {
            int64_t next = next_character(at);
            starts_[count++] = size;
            if ((classes[at] & kSpace) && (classes[next] & kSpace)) {
                while (classes[next] & kSpace) ++next;
                buffer_[size++] = ' ';
            } else {
                std::memcpy(buffer_.data() + size, text_.bytes() + at, next - at);
                size += next - at;
            }
            at = next;
        }
        starts_[count] = size;
        std::memset(buffer_.data() + size, 0, kTermPadding);
        return count;
    }

    int64_t next_character(int64_t at) const {
        ++at;
        while (at < text_.size() && is_continuation(static_cast<uint8_t>(text_.bytes()[at]))) ++at;
        return at;
    }

    // N-grams that never cross a word's border: each word with one space before and one behind.
    template <class Emit>
    void emit_characters_in_words(Emit&& emit) {
        const int64_t limit = options_.max_tokens < 0 ? text_.size() : options_.max_tokens;
        const auto* classes = text_.classes();
        // A word of one byte becomes three, with the spaces: room for that, and for all starts.
        buffer_.reserve(3 * text_.size() + NormalizedText::kPadding);
        starts_.reserve(3 * text_.size() + 1);
        uint32_t size = 0;
        int64_t characters = 0;
        int64_t first = 0;
        for (int64_t at = 0; at < text_.size() && characters < limit;) {
            if (classes[at] & kSpace) {
                while (classes[at] & kSpace) ++at;
                ++characters;
                continue;
            }
            int64_t count = 0;
            const auto add = [&](const char* bytes, int64_t length) {
                starts_[first + count++] = size;
                std::memcpy(buffer_.data() + size, bytes, length);
                size += length;
            };
            add(" ", 1);
            while (at < text_.size() && !(classes[at] & kSpace) && characters < limit) {
                const int64_t next = next_character(at);
                add(text_.bytes() + at, next - at);
                at = next;
                ++characters;
            }
            add(" ", 1);
            starts_[first + count] = size;
            // A word no longer than n is one term, and longer n-grams add nothing.
            for (int64_t n = options_.min_n; n <= options_.max_n; ++n) {
                for (int64_t i = 0; i == 0 || i + n <= count; ++i) {
                    const int64_t end = first + std::min(i + n, count);
                    emit(buffer_.data() + starts_[first + i], starts_[end] - starts_[first + i]);
                }
                if (n >= count) break;
            }
            first += count;
        }
    }

    AnalyzerOptions options_;
    NormalizedText text_;
    Scratch<uint32_t> borders_;
    Scratch<Span> spans_;
    Scratch<char> buffer_;
    Scratch<uint32_t> starts_;
};

}  // namespace labelgrove
