// Small, seedable random numbers whose sequence is the same on every platform.
#pragma once

#include <cstdint>

namespace labelgrove {

// SplitMix64: a counter and a mixing function, so every 64-bit seed is equally good.
inline uint64_t mix64(uint64_t x) {
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

// The seed of one piece of work (a node, a label). It depends on the piece alone, so the order in
// which threads take pieces does not matter.
inline uint64_t derive_seed(uint64_t seed, uint64_t piece) { return mix64(mix64(seed) ^ piece); }

class Random {
public:
    explicit Random(uint64_t seed) : state_(seed) {}

    uint32_t next() {
        const uint64_t value = mix64(state_);
        state_ += 0x9E3779B97F4A7C15ull;
        return static_cast<uint32_t>(value >> 32);
    }

    // A number in 0 .. bound-1 by multiplication; its bias is below 2^-32 * bound.
    uint32_t below(uint32_t bound) {
        return static_cast<uint32_t>((static_cast<uint64_t>(next()) * bound) >> 32);
    }

private:
    uint64_t state_;
};

}  // namespace labelgrove
