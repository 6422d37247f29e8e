// A hash table from terms to numbers: open addressing, with short terms stored in the slots.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "text_hash.hpp"

namespace labelgrove {

class TermTable {
public:
    TermTable() : slots_(kFirstSlots), shift_(shift_for(kFirstSlots)) { offsets_.push_back(0); }

    int32_t size() const { return static_cast<int32_t>(offsets_.size() - 1); }

    std::string_view term(int32_t id) const {
        return {bytes_.data() + offsets_[id], static_cast<size_t>(offsets_[id + 1] - offsets_[id])};
    }

    void prefetch(const TermKey& key) const {
#if defined(__GNUC__)
        __builtin_prefetch(&slots_[key.hash >> shift_]);
#endif
    }

    // The term's number, or -1.
    int32_t find(const TermKey& key) const { return slots_[slot_of(key)].id; }

    // The term's number; a new term gets the next one.
    int32_t insert(const TermKey& key) {
        const size_t at = slot_of(key);
        return slots_[at].id >= 0 ? slots_[at].id : insert_new(key, at);
    }

    // Reserves slots for so many terms, so that insertions never rehash.
    void reserve(int64_t terms) {
        const size_t slots = std::bit_ceil(static_cast<size_t>(std::max<int64_t>(2 * terms, 1)));
        if (slots > slots_.size()) rehash(slots);
    }

private:
    // Half a cache line, aligned, so that a look-up touches one line unless it collides.
    struct alignas(32) Slot {
        uint64_t lo = 0;
        uint64_t hi = 0;
        uint32_t length = 0;  // no term is empty: 0 marks a free slot
        int32_t id = -1;
    };
    static constexpr size_t kFirstSlots = 1024;

    static int shift_for(size_t slots) { return 64 - std::countr_zero(slots); }

    // Where the term is, or the free slot where it would go.
    size_t slot_of(const TermKey& key) const {
        const size_t mask = slots_.size() - 1;
        for (size_t at = key.hash >> shift_;; at = (at + 1) & mask) {
            const Slot& slot = slots_[at];
            const bool equal =
                ((slot.lo ^ key.lo) | (slot.hi ^ key.hi) | (slot.length ^ key.length)) == 0;
            if (equal && (key.is_short() || same_bytes(slot.id, key))) return at;
            if (slot.length == 0) return at;
        }
    }

    bool same_bytes(int32_t id, const TermKey& key) const {
        return std::memcmp(bytes_.data() + offsets_[id], key.bytes, key.length) == 0;
    }

    int32_t insert_new(const TermKey& key, size_t at) {
        if (size() == std::numeric_limits<int32_t>::max()) {
            throw std::length_error("more than 2^31 - 1 terms");
        }
        const int32_t id = size();
        slots_[at] = {key.lo, key.hi, key.length, id};
        bytes_.insert(bytes_.end(), key.bytes, key.bytes + key.length);
        offsets_.push_back(static_cast<int64_t>(bytes_.size()));
        if (2 * static_cast<size_t>(size()) > slots_.size()) rehash(2 * slots_.size());
        return id;
    }

    void rehash(size_t slots) {
        std::vector<Slot> old(slots);
        old.swap(slots_);
        shift_ = shift_for(slots);
        for (const Slot& slot : old) {
            if (slot.length == 0) continue;
            const uint64_t hash =
                slot.length <= 16 ? hash_short(slot.lo, slot.hi, slot.length) : slot.lo;
            size_t at = hash >> shift_;
            while (slots_[at].length != 0) at = (at + 1) & (slots - 1);
            slots_[at] = slot;
        }
    }

    std::vector<Slot> slots_;
    int shift_;
    std::vector<char> bytes_;  // all terms one after the other, by number
    std::vector<int64_t> offsets_;
};

// The numbers of the terms, sorted by code points, which in UTF-8 means by bytes.
inline std::vector<int32_t> sorted_terms(const TermTable& table, const std::vector<int32_t>& ids) {
    struct Entry {
        uint64_t prefix;  // the first eight bytes, which nearly always decide
        int32_t id;
    };
    std::vector<Entry> entries;
    entries.reserve(ids.size());
    for (const int32_t id : ids) {
        const std::string_view term = table.term(id);
        uint64_t prefix = 0;
        for (size_t i = 0; i < 8; ++i) {
            prefix = prefix << 8 | (i < term.size() ? static_cast<uint8_t>(term[i]) : 0);
        }
        entries.push_back({prefix, id});
    }
    std::sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
        return a.prefix != b.prefix ? a.prefix < b.prefix : table.term(a.id) < table.term(b.id);
    });
    std::vector<int32_t> order;
    order.reserve(entries.size());
    for (const Entry& entry : entries) order.push_back(entry.id);
    return order;
}

}  // namespace labelgrove
