// Shared by all bindings: array types, and handing C++ memory to NumPy without a copy.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "csr.hpp"
#include "dense.hpp"
#include "points.hpp"
#include "topk_output.hpp"
#include "work_report.hpp"

namespace nb = nanobind;

namespace labelgrove {

template <class T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using MutableVector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using MutableMatrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// Moves a std::vector into a NumPy array that owns it.
template <class T>
nb::object to_numpy(std::vector<T>&& values) {
    auto* owned = new std::vector<T>(std::move(values));
    nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(owned->data(), {owned->size()}, owner));
}

// Calls a Python function with the finished share of the work; it must outlive the kernel.
inline OnWork work_report(const std::optional<nb::callable>& function) {
    if (!function) return {};
    return [&](double share) {
        nb::gil_scoped_acquire acquired;
        (*function)(share);
    };
}

// float32 or float16, with contiguous rows.
using DenseArray = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

inline bool is_half(nb::dlpack::dtype type) {
    return type.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Float) && type.bits == 16;
}

inline Dense dense_view(const DenseArray& array) {
    Dense view{static_cast<int64_t>(array.shape(0)), static_cast<int64_t>(array.shape(1)), nullptr,
               nullptr};
    if (array.dtype() == nb::dtype<float>()) {
        view.single = static_cast<const float*>(array.data());
    } else if (is_half(array.dtype())) {
        view.half = static_cast<const uint16_t*>(array.data());
    } else {
        throw std::invalid_argument("dense features must be float32 or float16");
    }
    return view;
}

// Groups of arrays come as tuples, so that calls stay short. These are the named tuples CsrParts,
// FeatureParts and TopK of the Python side, which has checked shapes and indices.
using CsrArrays = std::tuple<Vector<int64_t>, Vector<int32_t>, Vector<float>, int64_t>;
using FeatureArrays = std::tuple<CsrArrays, DenseArray>;
using TopkArrays = std::tuple<MutableMatrix<int32_t>, MutableMatrix<float>, MutableVector<int32_t>>;

inline Csr csr_view(const CsrArrays& arrays) {
    const auto& [indptr, indices, data, cols] = arrays;
    return {.rows = static_cast<int64_t>(indptr.shape(0)) - 1,
            .cols = cols,
            .indptr = indptr.data(),
            .indices = indices.data(),
            .data = data.data()};
}

inline Points points_view(const FeatureArrays& arrays) {
    return {csr_view(std::get<0>(arrays)), dense_view(std::get<1>(arrays))};
}

// Bind such an argument with `.noconvert()`: a converted copy would be filled and thrown away.
inline TopkOutput output_view(TopkArrays& arrays) {
    auto& [columns, scores, counts] = arrays;
    return {.width = static_cast<int64_t>(columns.shape(1)),
            .columns = columns.data(),
            .scores = scores.data(),
            .counts = counts.data()};
}

// One per kernel, each in its own file; module.cpp calls them.
void bind_topk(nb::module_& module);
void bind_nearest(nb::module_& module);
void bind_xc_text(nb::module_& module);
void bind_text(nb::module_& module);
void bind_beam(nb::module_& module);
void bind_kmeans(nb::module_& module);
void bind_pifa(nb::module_& module);
void bind_kway(nb::module_& module);
void bind_dense(nb::module_& module);
void bind_solver(nb::module_& module);

}  // namespace labelgrove
