// The native module. Each kernel is registered in a file of its own.
#include <string>

#include "common.hpp"
#include "dispatch.hpp"
#include "parallel.hpp"

#ifndef LABELGROVE_CXX_FLAGS
#define LABELGROVE_CXX_FLAGS "unknown"
#endif

namespace {

void throw_if_signalled() {
    nb::gil_scoped_acquire held;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

}  // namespace

NB_MODULE(_native, module) {
#ifdef NDEBUG
    // Other libraries (torch with CUDA) keep a user's objects alive until the process ends. That is
    // no leak of ours, and nothing that a user could mend.
    nb::set_leak_warnings(false);
#endif
    labelgrove::main_thread = std::this_thread::get_id();
    labelgrove::throw_if_interrupted = &throw_if_signalled;
    module.doc() =
        "labelgrove's C++ kernels; call them through the Python modules that check their input.";
    module.def("build_info", [] {
        nb::dict info;
#if defined(__VERSION__)
        info["compiler"] = __VERSION__;
#else
        info["compiler"] = "unknown";
#endif
        info["flags"] = LABELGROVE_CXX_FLAGS;
        info["simd"] = labelgrove::simd_level();
        info["threads"] = labelgrove::resolve_threads(0);
        return info;
    });
    labelgrove::bind_topk(module);
    labelgrove::bind_nearest(module);
    labelgrove::bind_xc_text(module);
    labelgrove::bind_text(module);
    labelgrove::bind_beam(module);
    labelgrove::bind_kmeans(module);
    labelgrove::bind_pifa(module);
    labelgrove::bind_kway(module);
    labelgrove::bind_dense(module);
    labelgrove::bind_solver(module);
}
