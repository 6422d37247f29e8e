// Lets Ctrl-C end a kernel that runs for long.
//
// Python notes a signal and handles it when the main thread runs Python code again, which may be
// minutes away. So the main thread asks from time to time, inside kernels, and helper threads look
// at a flag that it sets.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace labelgrove {

// What a helper thread throws when the main thread was interrupted.
struct Interrupted {};

// Set by the bindings; throws if a signal's handler raised an exception in Python.
inline void (*throw_if_interrupted)() = nullptr;
inline std::thread::id main_thread;

inline thread_local const std::atomic<bool>* stop_flag = nullptr;
inline thread_local std::chrono::steady_clock::time_point last_question;

// A kernel begins. One that ends within a tenth of a second never asks.
inline void begin_questions() {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_question > std::chrono::seconds(1)) last_question = now;
}

// Throws if this kernel should end. Cheap enough for work of some microseconds.
inline void poll_interrupt() {
    if (stop_flag != nullptr && stop_flag->load(std::memory_order_relaxed)) throw Interrupted{};
    if (throw_if_interrupted == nullptr || std::this_thread::get_id() != main_thread) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - last_question < std::chrono::milliseconds(100)) return;
    last_question = now;
    throw_if_interrupted();
}

}  // namespace labelgrove
