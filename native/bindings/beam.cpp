#include "beam.hpp"

#include <nanobind/stl/optional.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "common.hpp"
#include "merge_trees.hpp"

namespace labelgrove {

// Weights or children; their dtype tells how they are stored.
using AnyVector = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

ValueType value_type(const AnyVector& values) {
    if (values.dtype() == nb::dtype<float>()) return ValueType::single;
    if (is_half(values.dtype())) return ValueType::half;
    throw std::invalid_argument("weights must be float32 or float16");
}

ChildType child_type(const AnyVector& children) {
    if (children.dtype() == nb::dtype<uint8_t>()) return ChildType::byte;
    if (children.dtype() == nb::dtype<uint16_t>()) return ChildType::word;
    throw std::invalid_argument("children must be uint8 or uint16");
}

// Keeps the arrays of a ranker, which may be memory-mapped, so that searches only pass documents.
class BeamModel {
public:
    explicit BeamModel(Vector<int32_t> leaf_labels) : leaf_labels_(std::move(leaf_labels)) {
        tree_.leaf_labels = leaf_labels_.data();
    }
    BeamModel(const BeamModel&) = delete;

    void add_level(Vector<int64_t> chunk_rows, Vector<int64_t> chunk_entries,
                   Vector<int32_t> features, Vector<uint32_t> row_start, AnyVector children,
                   AnyVector values, Vector<float> bias, AnyVector dense, Vector<int64_t> child_ptr,
                   Vector<int64_t> leaf_ptr, int64_t cols, int64_t dense_cols) {
        if (dense_cols > 0 && !is_half(dense.dtype())) {
            throw std::invalid_argument("dense weights must be float16");
        }
        if (cols < 0 || cols > std::numeric_limits<int32_t>::max()) {  // features are int32
            throw std::invalid_argument("the number of features must be below 2^31");
        }
        const int64_t parents = static_cast<int64_t>(chunk_rows.shape(0)) - 1;
        const int64_t nodes = static_cast<int64_t>(bias.shape(0));
        int64_t fewest = std::numeric_limits<int64_t>::max();
        for (int64_t j = 0; j < nodes; ++j) {
            fewest = std::min(fewest, leaf_ptr.data()[j + 1] - leaf_ptr.data()[j]);
        }
        indexes_.push_back(std::make_unique<const FeatureIndex>(chunk_rows.data(), features.data(),
                                                                parents, cols));
        tree_.levels.push_back({.chunk_rows = chunk_rows.data(),
                                .chunk_entries = chunk_entries.data(),
                                .features = features.data(),
                                .row_start = row_start.data(),
                                .children = children.data(),
                                .child_type = child_type(children),
                                .values = values.data(),
                                .value_type = value_type(values),
                                .bias = bias.data(),
                                .dense = static_cast<const Half*>(dense.data()),
                                .child_ptr = child_ptr.data(),
                                .leaf_ptr = leaf_ptr.data(),
                                .entries = static_cast<int64_t>(values.shape(0)),
                                .parents = parents,
                                .nodes = nodes,
                                .fewest_leaves = fewest,
                                .dense_cols = dense_cols,
                                .index = indexes_.back().get()});
        const auto keep = [this](const auto&... array) { (arrays_.emplace_back(array), ...); };
        keep(chunk_rows, chunk_entries, features, row_start, children, values, bias, dense,
             child_ptr, leaf_ptr);
    }

    void search(const FeatureArrays& documents, std::vector<int64_t> beams, int post_processor,
                bool raw_last_level, float bias, std::optional<Vector<int32_t>> allowed,
                TopkArrays best, int threads) const {
        const Points points = points_view(documents);
        const TopkOutput out = output_view(best);
        const BeamRequest request{
            .k = out.width,
            .beams = std::move(beams),
            .allowed = allowed ? allowed->data() : nullptr,
            .options = {.post_processor = static_cast<PostProcessor>(post_processor),
                        .raw_last_level = raw_last_level,
                        .bias = bias}};
        nb::gil_scoped_release released;
        beam_search(tree_, points, request, out, threads);
    }

    void score(const FeatureArrays& documents, int post_processor, bool raw_last_level, float bias,
               const Vector<int64_t>& indptr, const Vector<int32_t>& leaves,
               MutableVector<float> scores, int threads) const {
        const Points points = points_view(documents);
        const LabelRequest request{
            .indptr = indptr.data(),
            .leaves = leaves.data(),
            .scores = scores.data(),
            .options = {.post_processor = static_cast<PostProcessor>(post_processor),
                        .raw_last_level = raw_last_level,
                        .bias = bias}};
        nb::gil_scoped_release released;
        score_labels(tree_, points, request, threads);
    }

private:
    Vector<int32_t> leaf_labels_;
    BeamTree tree_;
    std::vector<nb::ndarray<nb::ro>> arrays_;  // what the tree points to
    std::vector<std::unique_ptr<const FeatureIndex>> indexes_;
};

template <class T>
using Cube = nb::ndarray<const T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

void merge(const Cube<int32_t>& columns, const Cube<float>& scores, const Vector<double>& weights,
           int combine, TopkArrays best, int threads) {
    const TreeResults results{.columns = columns.data(),
                              .scores = scores.data(),
                              .trees = static_cast<int64_t>(columns.shape(0)),
                              .rows = static_cast<int64_t>(columns.shape(1)),
                              .width = static_cast<int64_t>(columns.shape(2)),
                              .weights = weights.data(),
                              .combine = static_cast<Combine>(combine)};
    const TopkOutput out = output_view(best);
    nb::gil_scoped_release released;
    merge_trees(results, out, threads);
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
    module.def("merge_trees", &merge, nb::kw_only(), nb::arg("columns"), nb::arg("scores"),
               nb::arg("weights"), nb::arg("combine"), nb::arg("best").noconvert(),
               nb::arg("threads"));
    module.def("csr_is_sound", &csr_is_sound<int32_t>, nb::arg("indptr").noconvert(),
               nb::arg("indices").noconvert(), nb::arg("data").noconvert(), nb::arg("cols"));
    module.def("csr_is_sound", &csr_is_sound<int64_t>, nb::arg("indptr").noconvert(),
               nb::arg("indices").noconvert(), nb::arg("data").noconvert(), nb::arg("cols"));
    nb::class_<BeamModel>(module, "BeamModel")
        .def(nb::init<Vector<int32_t>>(), nb::arg("leaf_labels"))
        .def("add_level", &BeamModel::add_level, nb::kw_only(), nb::arg("chunk_rows"),
             nb::arg("chunk_entries"), nb::arg("features"), nb::arg("row_start"),
             nb::arg("children"), nb::arg("values"), nb::arg("bias"), nb::arg("dense"),
             nb::arg("child_ptr"), nb::arg("leaf_ptr"), nb::arg("cols"), nb::arg("dense_cols"))
        .def("search", &BeamModel::search, nb::arg("documents"), nb::kw_only(), nb::arg("beams"),
             nb::arg("post_processor"), nb::arg("raw_last_level"), nb::arg("bias"),
             nb::arg("allowed").none(), nb::arg("best").noconvert(), nb::arg("threads"))
        .def("score", &BeamModel::score, nb::arg("documents"), nb::kw_only(),
             nb::arg("post_processor"), nb::arg("raw_last_level"), nb::arg("bias"),
             nb::arg("indptr"), nb::arg("leaves"), nb::arg("scores").noconvert(),
             nb::arg("threads"));
}

}  // namespace labelgrove
