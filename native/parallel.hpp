// Runs independent pieces of work on several threads.
//
// Every call starts its threads; there is no pool. A start takes about 15 microseconds and kernels
// run for milliseconds, and without a pool nothing can break when Python forks.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "interrupt.hpp"

namespace labelgrove {

inline int resolve_threads(int requested) {
    if (requested > 0) return std::min(requested, 1024);  // kernels have scratch memory per thread
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Calls work(piece, worker) for piece = 0 .. pieces-1. Threads take the next piece when they are
// ready, so results must depend on the piece alone and never on the worker; `worker` only picks
// scratch memory. When the system refuses to start a thread, the threads that did start do all the
// work. The first exception thrown by any piece is rethrown here after all threads have stopped;
// Ctrl-C is one, noticed between pieces.
template <class Work>
void parallel_for(int64_t pieces, int threads, Work&& work) {
    const int workers = static_cast<int>(std::min<int64_t>(resolve_threads(threads), pieces));
    begin_questions();
    if (workers <= 1) {
        for (int64_t piece = 0; piece < pieces; ++piece) {
            poll_interrupt();
            work(piece, 0);
        }
        return;
    }
    std::atomic<bool> stop{false};
    std::atomic<int64_t> next{0};
    std::exception_ptr failure;
    std::mutex failure_lock;
    auto loop = [&](int worker) {
        const std::atomic<bool>* const outer = std::exchange(stop_flag, &stop);
        try {
            for (int64_t piece; (piece = next.fetch_add(1)) < pieces;) {
                poll_interrupt();
                work(piece, worker);
            }
        } catch (...) {
            std::lock_guard<std::mutex> guard(failure_lock);
            if (!failure) failure = std::current_exception();
            next.store(pieces);
            stop.store(true);
        }
        stop_flag = outer;
    };
    std::vector<std::thread> others;
    others.reserve(workers - 1);
    try {
        for (int worker = 1; worker < workers; ++worker) others.emplace_back(loop, worker);
    } catch (const std::system_error&) {  // at the limit of threads, or of memory for their stacks
    } catch (const std::bad_alloc&) {
    }
    loop(0);
    for (auto& thread : others) thread.join();
    if (failure) std::rethrow_exception(failure);
}

}  // namespace labelgrove
