// Half precision as plain integers: 16 bits in, 16 bits out, no hardware or compiler support
// needed.
//
// Both ways are shifts, a product and selections, so loops over them become vector code on any
// target and give the same bits everywhere. Weights are finite: what is too large becomes the
// largest half.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace labelgrove {

inline constexpr float kLargestHalf = 65504.0f;

// Exponent and fraction are moved to where a float has them; the product mends the exponent's
// offset and, of numbers too small for a normal half, the missing leading one.
inline float half_to_float(uint16_t half) {
    const uint32_t magnitude = static_cast<uint32_t>(half & 0x7fffu) << 13;
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const float value =
        std::bit_cast<float>(magnitude) * std::bit_cast<float>(0x77800000u);  // 2^112
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

// To the nearest half, of two equally near ones to the even one.
inline uint16_t float_to_half(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const float magnitude = std::min(std::bit_cast<float>(bits & 0x7fffffffu), kLargestHalf);
    // A number added that is 2^13 times as large as the last bit wanted leaves just that bit; below
    // the normal halves the last bit is always 2^-24.
    const uint32_t exponent =
        std::max(std::bit_cast<uint32_t>(magnitude) & 0x7f800000u, 0x38800000u);
    const float base = std::bit_cast<float>(exponent + (13u << 23));
    const float rounded = (magnitude + base) - base;
    const float scaled = rounded * std::bit_cast<float>(0x07800000u);  // 2^-112
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(scaled) >> 13));
}

}  // namespace labelgrove
