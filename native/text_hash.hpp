// The hash of a term, for the vocabulary's table.
//
// Pad the term's UTF-8 bytes with zeros to a multiple of 8, at least 16, and read them as
// little-endian 64-bit words w. Then (modulo 2^64)
//     h = length * A;   for each w: h = (h ^ w) * B, h = h ^ (h >> 32);   hash = h * C
// Only the upper bits of the hash are good.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace labelgrove {

constexpr uint64_t kHashA = 0x9E3779B97F4A7C15ull;
constexpr uint64_t kHashB = 0xD6E8FEB86659FD93ull;
constexpr uint64_t kHashC = 0xC2B2AE3D27D4EB4Full;

// Terms are read 16 bytes at a time, so every buffer with terms has this much room at its end.
constexpr int64_t kTermPadding = 16;

inline uint64_t load_word(const char* bytes) {
    uint64_t word;
    std::memcpy(&word, bytes, sizeof word);
    if constexpr (std::endian::native == std::endian::big) {
        uint64_t swapped = 0;
        for (int i = 0; i < 8; ++i) swapped |= ((word >> (8 * i)) & 0xFF) << (56 - 8 * i);
        word = swapped;
    }
    return word;
}

// A term ready to be looked up. Terms of up to 16 bytes, nearly all words, are stored in lo and hi;
// for longer terms lo repeats the hash.
struct TermKey {
    const char* bytes;
    uint64_t lo;
    uint64_t hi;
    uint64_t hash;
    uint32_t length;

    bool is_short() const { return length <= 16; }
};

inline uint64_t hash_round(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * kHashB;
    return hash ^ (hash >> 32);
}

inline uint64_t low_bytes(uint64_t word, uint32_t count) {
    return count >= 8 ? word : word & ((1ull << (8 * count)) - 1);
}

// Masks for the two words of a term of 0 to 16 bytes; a table avoids unpredictable branches.
struct ShortMasks {
    uint64_t lo[17] = {}, hi[17] = {};
    constexpr ShortMasks() {
        for (int length = 0; length <= 16; ++length) {
            lo[length] = length >= 8 ? ~0ull : (1ull << (8 * length)) - 1;
            hi[length] = length <= 8 ? 0 : length == 16 ? ~0ull : (1ull << (8 * (length - 8))) - 1;
        }
    }
};
inline constexpr ShortMasks kShortMasks;

inline uint64_t hash_short(uint64_t lo, uint64_t hi, uint32_t length) {
    return hash_round(hash_round(length * kHashA, lo), hi) * kHashC;
}

// Reads up to kTermPadding bytes past the end of the term.
inline TermKey term_key(const char* bytes, uint32_t length) {
    if (length <= 16) {
        const uint64_t lo = load_word(bytes) & kShortMasks.lo[length];
        const uint64_t hi = load_word(bytes + 8) & kShortMasks.hi[length];
        return {bytes, lo, hi, hash_short(lo, hi, length), length};
    }
    uint64_t hash = length * kHashA;
    for (uint32_t at = 0; at < length; at += 8) {
        hash = hash_round(hash, low_bytes(load_word(bytes + at), length - at));
    }
    hash *= kHashC;
    return {bytes, hash, 0, hash, length};
}

}  // namespace labelgrove
