#include "beam.hpp"

#include <nanobind/stl/optional.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "common.hpp"
#include "merge_trees.hpp"

namespace labelgrove {

// An array whose type says how weights are stored.
using AnyVector = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

ValueType value_type(const AnyVector& values) {
    if (values.dtype() == nb::dtype<float>()) return ValueType::single;
    if (values.dtype() == nb::dtype<int8_t>()) return ValueType::byte;
    if (is_half(values.dtype())) return ValueType::half;
    throw std::invalid_argument("weights must be float32, float16 or int8");
}

ChildType child_type(const AnyVector& children) {
    if (children.dtype() == nb::dtype<uint8_t>()) return ChildType::byte;
    if (children.dtype() == nb::dtype<uint16_t>()) return ChildType::word;
    throw std::invalid_argument("children must be uint8 or uint16");
}

// Holds the arrays of a ranker, which may be memory-mapped, so that a search passes only documents.
class BeamModel {
public:
    explicit BeamModel(Vector<int32_t> leaf_labels) : leaf_labels_(std::move(leaf_labels)) {
        tree_.leaf_labels = leaf_labels_.data();
    }

    void add_level(Vector<int64_t> chunk_rows, Vector<int64_t> chunk_entries,
                   Vector<int32_t> features, Vector<uint32_t> row_start, AnyVector children,
                   AnyVector values, Vector<float> scales, Vector<float> bias, AnyVector dense,
                   Vector<int64_t> child_ptr, Vector<int64_t> leaf_ptr, int64_t cols,
                   int64_t dense_cols) {
        if (dense_cols > 0 && !is_half(dense.dtype())) {
            throw std::invalid_argument("dense weights must be float16");
        }
        const int64_t nodes = static_cast<int64_t>(bias.shape(0));
        int64_t fewest = std::numeric_limits<int64_t>::max();
        for (int64_t j = 0; j < nodes; ++j) {
            fewest = std::min(fewest, leaf_ptr.data()[j + 1] - leaf_ptr.data()[j]);
        }
        auto index = std::make_shared<const FeatureIndex>(
            chunk_rows.data(), features.data(), static_cast<int64_t>(chunk_rows.shape(0)) - 1,
            cols);
        tree_.levels.push_back({chunk_rows.data(), chunk_entries.data(), features.data(),
                                row_start.data(), children.data(), child_type(children),
                                values.data(), value_type(values), scales.data(), bias.data(),
                                static_cast<const Half*>(dense.data()), child_ptr.data(),
                                leaf_ptr.data(), static_cast<int64_t>(values.shape(0)),
                                static_cast<int64_t>(chunk_rows.shape(0)) - 1, nodes, fewest,
                                dense_cols, index.get()});
        owners_.push_back({std::move(chunk_rows), std::move(chunk_entries), std::move(features),
                           std::move(row_start), std::move(children), std::move(values),
                           std::move(scales), std::move(bias), std::move(dense),
                           std::move(child_ptr), std::move(leaf_ptr), std::move(index)});
    }

    void search(const Vector<int64_t>& indptr, const Vector<int32_t>& indices,
                const Vector<float>& data, int64_t cols, const DenseArray& dense,
                std::vector<int64_t> beams, int post_processor, bool raw_last_level, float bias,
                std::optional<Vector<int32_t>> allowed, MutableMatrix<int32_t> columns,
                MutableMatrix<float> scores, MutableVector<int32_t> counts, int threads) const {
        const BeamDocuments documents{csr_view(indptr, indices, data, cols), dense_view(dense)};
        const BeamRequest request{
            static_cast<int64_t>(columns.shape(1)),
            std::move(beams),
            allowed ? allowed->data() : nullptr,
            {static_cast<PostProcessor>(post_processor), raw_last_level, bias}};
        const BeamResults results{columns.data(), scores.data(), counts.data()};
        nb::gil_scoped_release released;
        beam_search(tree_, documents, request, results, threads);
    }

    void score(const Vector<int64_t>& indptr, const Vector<int32_t>& indices,
               const Vector<float>& data, int64_t cols, const DenseArray& dense, int post_processor,
               bool raw_last_level, float bias, const Vector<int64_t>& leaf_indptr,
               const Vector<int32_t>& leaves, MutableVector<float> scores, int threads) const {
        const BeamDocuments documents{csr_view(indptr, indices, data, cols), dense_view(dense)};
        const BeamOptions options{static_cast<PostProcessor>(post_processor), raw_last_level, bias};
        float* out = scores.data();
        nb::gil_scoped_release released;
        score_labels(tree_, documents, options, leaf_indptr.data(), leaves.data(), out, threads);
    }

private:
    struct Owners {
        Vector<int64_t> chunk_rows, chunk_entries;
        Vector<int32_t> features;
        Vector<uint32_t> row_start;
        AnyVector children, values;
        Vector<float> scales, bias;
        AnyVector dense;
        Vector<int64_t> child_ptr, leaf_ptr;
        std::shared_ptr<const FeatureIndex> index;
    };
    Vector<int32_t> leaf_labels_;
    BeamTree tree_;
    std::vector<Owners> owners_;
};

template <class T>
using Cube = nb::ndarray<const T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

void merge(const Cube<int32_t>& found, const Cube<float>& found_scores,
           const Vector<double>& weights, int combine, MutableMatrix<int32_t> columns,
           MutableMatrix<float> scores, MutableVector<int32_t> counts, int threads) {
    const TreeResults results{
        found.data(), found_scores.data(), static_cast<int64_t>(found.shape(0)),
        static_cast<int64_t>(found.shape(1)), static_cast<int64_t>(found.shape(2))};
    const int64_t k = static_cast<int64_t>(columns.shape(1));
    nb::gil_scoped_release released;
    merge_trees(results, weights.data(), static_cast<Combine>(combine), k, columns.data(),
                scores.data(), counts.data(), threads);
}

template <class Pointer>
bool csr_is_sound(const Vector<Pointer>& indptr, const Vector<int32_t>& indices,
                  const Vector<float>& data, int64_t cols) {
    if (indptr.shape(0) == 0) return false;
    const size_t stored = std::min(indices.shape(0), data.shape(0));
    return is_sound(indptr.data(), static_cast<int64_t>(indptr.shape(0)) - 1, indices.data(),
                    data.data(), static_cast<int64_t>(stored), cols);
}

void bind_beam(nb::module_& module) {
    module.def("merge_trees", &merge);
    module.def("csr_is_sound", &csr_is_sound<int32_t>, nb::arg("indptr").noconvert(),
               nb::arg("indices").noconvert(), nb::arg("data").noconvert(), nb::arg("cols"));
    module.def("csr_is_sound", &csr_is_sound<int64_t>, nb::arg("indptr").noconvert(),
               nb::arg("indices").noconvert(), nb::arg("data").noconvert(), nb::arg("cols"));
    nb::class_<BeamModel>(module, "BeamModel")
        .def(nb::init<Vector<int32_t>>())
        .def("add_level", &BeamModel::add_level)
        .def("search", &BeamModel::search, nb::arg("indptr"), nb::arg("indices"), nb::arg("data"),
             nb::arg("cols"), nb::arg("dense"), nb::arg("beams"), nb::arg("post_processor"),
             nb::arg("raw_last_level"), nb::arg("bias"), nb::arg("allowed").none(),
             nb::arg("columns"), nb::arg("scores"), nb::arg("counts"), nb::arg("threads"))
        .def("score", &BeamModel::score);
}

}  // namespace labelgrove
