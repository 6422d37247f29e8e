// Half precision as plain 16-bit integers, without support from hardware or compiler.
//
// Both conversions consist of shifts, a product and selections, so compilers vectorise loops over
// them on any target, and the bits are the same everywhere. Weights are finite: numbers that are
// too large become the largest half.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace labelgrove {

inline constexpr float kLargestHalf = 65504.0f;

// Moves exponent and fraction to where a float has them. The product corrects the exponent's offset
// and, for subnormal halves, the missing leading one.
inline float half_to_float(uint16_t half) {
    const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fffu) << 13;
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const float value =
        std::bit_cast<float>(magnitude) * std::bit_cast<float>(0x77800000u);  // 2^112
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

// Rounds to the nearest half, and ties to even.
inline uint16_t float_to_half(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const float magnitude = std::min(std::bit_cast<float>(bits & 0x7fffffffu), kLargestHalf);
    // Adding a number 2^13 times as large as the float rounds to the last bit of the half, and
    // subtracting it again leaves the rounded number. The last bit of subnormal halves is 2^-24.
    const uint32_t exponent =
        std::max(std::bit_cast<uint32_t>(magnitude) & 0x7f800000u, 0x38800000u);
    const float base = std::bit_cast<float>(exponent + (13u << 23));
    const float rounded = (magnitude + base) - base;
    const float scaled = rounded * std::bit_cast<float>(0x07800000u);  // 2^-112
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(scaled) >> 13));
}

}  // namespace labelgrove
