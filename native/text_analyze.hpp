// Splits a text into terms: words, word n-grams or character n-grams.
//
// The rules are those of scikit-learn's CountVectorizer; only Analyzer::mixed is our own. Every
// term is a slice of a buffer that is valid until the next text, so terms need no allocation and no
// copy.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "text_hash.hpp"
#include "text_normalize.hpp"

namespace labelgrove {

enum class Analyzer { word, space, characters, characters_in_words, mixed, tokens };

constexpr char kTokenSeparator = '\xFF';  // between the tokens of a Python analyser; never in UTF-8

// Positions have 32 bits, and padding words with spaces can triple the length of a text.
constexpr int64_t kMaxTextBytes = 1 << 30;

struct AnalyzerOptions {
    Analyzer analyzer = Analyzer::word;
    int32_t min_n = 1;
    int32_t max_n = 1;
    int64_t min_token_length = 2;  // in characters, for Analyzer::word and mixed
    int64_t max_tokens = -1;       // words, or characters for the two character analysers, or both
    bool lowercase = true;
};

// A term: where it starts in its buffer, and its length.
struct Slice {
    uint32_t start;
    uint32_t length;
};

constexpr int kBordersPerStep = 8;

// Writes the positions where runs of word bytes start and end, alternately, and returns their
// number. `borders` needs room for kBordersPerStep more, and 64 zeros must follow the classes.
LABELGROVE_MULTIVERSION
inline int64_t word_borders(const uint8_t* classes, int64_t size, uint32_t* borders) {
    int64_t count = 0;
    uint64_t inside = 0;  // 1 if a run continues from the block before
    for (int64_t base = 0; base <= size; base += 64) {
        uint64_t word = 0;  // bit i is set if byte i belongs to a word
        for (int i = 0; i < 8; ++i) {
            const uint64_t flags = load_word(reinterpret_cast<const char*>(classes) + base + 8 * i);
            word |= ((flags & 0x0101010101010101ull) * 0x0102040810204080ull >> 56) << (8 * i);
        }
        uint64_t left = word ^ (word << 1 | inside);
        inside = word >> 63;
        // Write a full step every time and advance by the number of real borders: no branch each.
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

    // Calls use(buffer, slices, count) with all terms of the text, in batches.
    template <class Use>
    void analyze(std::string_view text, const CharTables* tables, Use&& use) {
        if (options_.analyzer == Analyzer::tokens) {
            text_.assign_raw(text, kTokenSeparator);
        } else {
            text_.assign(text, options_.lowercase, tables);
        }
        if (text_.size() > kMaxTextBytes) throw std::length_error("a text is larger than 1 GB");
        switch (options_.analyzer) {
            case Analyzer::word: return words(options_.min_token_length, use);
            case Analyzer::tokens: return words(1, use);
            case Analyzer::space: text_.mark_separator(' '); return words(1, use);
            case Analyzer::characters: return characters(use);
            case Analyzer::characters_in_words: return characters_in_words(use);
            case Analyzer::mixed: return mixed(use);
        }
    }

private:
    template <class Use>
    void words(int64_t min_length, Use&& use) {
        const int64_t count = find_words(min_length);
        if (options_.max_n == 1) return use(text_.bytes(), words_.data(), count);
        // Copy the words with one space between them, so that every n-gram is a slice.
        buffer_.reserve(text_.size() + count + NormalizedText::kPadding);
        starts_.reserve(count + 1);
        uint32_t size = 0;
        for (int64_t i = 0; i < count; ++i) {
            std::memcpy(buffer_.data() + size, text_.bytes() + words_[i].start, words_[i].length);
            starts_[i] = size;
            size += words_[i].length;
            buffer_[size++] = ' ';
        }
        starts_[count] = size;
        std::memset(buffer_.data() + size, 0, kTermPadding);
        slices(0, count, 1, use);
        flush(use);
    }

    // Fills words_ with the runs of word bytes that are long enough.
    int64_t find_words(int64_t min_length) {
        borders_.reserve(text_.size() + kBordersPerStep + 1);
        words_.reserve(text_.size() / 2 + 1);
        const int64_t runs = word_borders(text_.classes(), text_.size(), borders_.data()) / 2;
        int64_t count = 0;
        for (int64_t i = 0; i < runs; ++i) {
            words_[count] = {borders_[2 * i], borders_[2 * i + 1] - borders_[2 * i]};
            count += long_enough(words_[count], min_length);
        }
        return options_.max_tokens < 0 ? count : std::min(count, options_.max_tokens);
    }

    bool long_enough(Slice word, int64_t min_length) const {
        const char* bytes = text_.bytes() + word.start;
        if (word.length < min_length) return false;
        if (text_.is_ascii() || word.length >= 4 * min_length) return true;
        if (word.length <= 8 && !(low_bytes(load_word(bytes), word.length) & kHighBits)) {
            return true;
        }
        int64_t characters = 0;
        for (uint32_t i = 0; i < word.length; ++i) {
            characters += !is_continuation(static_cast<uint8_t>(bytes[i]));
        }
        return characters >= min_length;
    }

    template <class Use>
    void characters(Use&& use) {
        slices(0, collapse_spaces(), 0, use);
        flush(use);
    }

    // All n-grams of `count` units that start at starts_[first..first + count); after the last unit
    // comes starts_[first + count]. Each unit ends `gap` bytes before the next one starts.
    template <class Use>
    void slices(int64_t first, int64_t count, uint32_t gap, Use&& use) {
        for (int64_t n = options_.min_n; n <= std::min<int64_t>(options_.max_n, count); ++n) {
            for (int64_t i = first; i + n <= first + count; ++i) {
                add({starts_[i], starts_[i + n] - starts_[i] - gap}, use);
            }
        }
    }

    template <class Use>
    void add(Slice slice, Use&& use) {
        pending_[pending_count_++] = slice;
        if (pending_count_ == kPending) flush(use);
    }

    template <class Use>
    void flush(Use&& use) {
        use(buffer_.data(), pending_, std::exchange(pending_count_, 0));
    }

    // Copies the text to buffer_ with each run of two or more spaces as one ' ' (a single
    // white-space character stays unchanged). Lists where characters start; returns their number.
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

    // N-grams within words: each word gets one space before and one after it.
    template <class Use>
    void characters_in_words(Use&& use) {
        const int64_t limit = options_.max_tokens < 0 ? text_.size() : options_.max_tokens;
        const auto* classes = text_.classes();
        // With its spaces, a word of one byte becomes three bytes and three starts.
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
            const auto append = [&](const char* bytes, int64_t length) {
                starts_[first + count++] = size;
                std::memcpy(buffer_.data() + size, bytes, length);
                size += length;
            };
            append(" ", 1);
            while (at < text_.size() && !(classes[at] & kSpace) && characters < limit) {
                const int64_t next = next_character(at);
                append(text_.bytes() + at, next - at);
                at = next;
                ++characters;
            }
            append(" ", 1);
            starts_[first + count] = size;
            slices(first, count, 0, use);
            // A word that is shorter than the shortest n-gram becomes one term.
            if (count < options_.min_n) add({starts_[first], size - starts_[first]}, use);
            first += count;
        }
        flush(use);
    }

    // 1 to kUnspacedGram characters in a row where a script has no spaces between words. These
    // characters belong to no word then, and the rest of the text is read by words.
    template <class Use>
    void mixed(Use&& use) {
        const int64_t limit = options_.max_tokens < 0 ? text_.size() : options_.max_tokens;
        auto* classes = text_.classes();
        words_.reserve(text_.size());  // such a character has three bytes or more, and three terms
        int64_t starts[kUnspacedGram];
        int64_t count = 0, characters = 0, run = 0;
        for (int64_t at = 0; at < text_.size();) {
            const int64_t next = next_character(at);
            if (!(classes[at] & kUnspaced)) {
                run = 0;
            } else {
                if (characters++ < limit) {
                    starts[run++ % kUnspacedGram] = at;
                    for (int64_t n = 1; n <= std::min(run, kUnspacedGram); ++n) {
                        const int64_t start = starts[(run - n) % kUnspacedGram];
                        words_[count++] = {static_cast<uint32_t>(start),
                                           static_cast<uint32_t>(next - start)};
                    }
                }
                std::memset(classes + at, 0, next - at);
            }
            at = next;
        }
        use(text_.bytes(), words_.data(), count);
        words(options_.min_token_length, use);
    }

    static constexpr int64_t kUnspacedGram = 3;
    static constexpr int64_t kPending = 1024;

    AnalyzerOptions options_;
    NormalizedText text_;
    Scratch<uint32_t> borders_;
    Scratch<Slice> words_;
    Scratch<char> buffer_;
    Scratch<uint32_t> starts_;
    Slice pending_[kPending];
    int64_t pending_count_ = 0;
};

}  // namespace labelgrove
