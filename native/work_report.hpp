// Tells a caller how much of a kernel's work is done.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

namespace labelgrove {

// Gets the finished share, from 0 to 1.
using OnWork = std::function<void(double)>;

// Reports the finished share of the work, from the calling thread alone, ten times a second.
class WorkReport {
public:
    WorkReport(const OnWork& report, int64_t total)
        : report_(report), total_(total), last_(std::chrono::steady_clock::now()) {}

    // Of several threads, worker 0 is the calling one.
    void add(int64_t work, int worker) {
        const int64_t done = done_.fetch_add(work, std::memory_order_relaxed) + work;
        if (!report_ || worker != 0) return;
        const auto now = std::chrono::steady_clock::now();
        if (now - last_ < std::chrono::milliseconds(100)) return;
        last_ = now;
        report_(static_cast<double>(done) / static_cast<double>(total_));
    }

private:
    const OnWork& report_;
    const int64_t total_;
    std::atomic<int64_t> done_{0};
    std::chrono::steady_clock::time_point last_;
};

}  // namespace labelgrove
