// Asks for a cache line before it is needed.
#pragma once

namespace labelgrove {

inline void prefetch(const void* address) {
#if defined(__GNUC__) || defined(__clang__)
    __builtin_prefetch(address);
#else
    (void)address;
#endif
}

}  // namespace labelgrove
