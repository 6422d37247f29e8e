// Bindings of the text kernels; tfidf.py is the only caller and checks the arguments.
#include <nanobind/stl/shared_ptr.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common.hpp"
#include "text_tfidf.hpp"

namespace labelgrove {
namespace {

bool is_ascii(PyObject* string) {
#if defined(Py_LIMITED_API)
    static PyObject* const name = PyUnicode_InternFromString("isascii");
    return nb::cast<bool>(nb::steal(PyObject_CallMethodObjArgs(string, name, nullptr)));
#else
    return PyUnicode_IS_ASCII(string);
#endif
}

// Views of the strings as UTF-8. ASCII strings already are UTF-8; others are encoded temporarily,
// because PyUnicode_AsUTF8AndSize would keep a second copy inside every string.
struct PinnedTexts {
    explicit PinnedTexts(const nb::list& strings) {
        texts.reserve(strings.size());
        for (nb::handle item : strings) {
            PyObject* string = item.ptr();
            if (!PyUnicode_Check(string)) throw nb::type_error("texts must be strings");
            Py_ssize_t size = 0;
            char* bytes = nullptr;
            if (is_ascii(string)) {
                bytes = const_cast<char*>(PyUnicode_AsUTF8AndSize(string, &size));
                if (bytes == nullptr) throw nb::python_error();
            } else {
                encoded.push_back(
                    nb::steal(PyUnicode_AsEncodedString(string, "utf-8", "surrogatepass")));
                if (!encoded.back().is_valid()) throw nb::python_error();
                if (PyBytes_AsStringAndSize(encoded.back().ptr(), &bytes, &size) != 0) {
                    throw nb::python_error();
                }
            }
            texts.emplace_back(bytes, static_cast<size_t>(size));
        }
    }
    Texts texts;
    std::vector<nb::object> encoded;
};

Texts blob_texts(const Vector<uint8_t>& blob, const Vector<int64_t>& offsets) {
    Texts texts;
    texts.reserve(offsets.shape(0));
    const auto* bytes = reinterpret_cast<const char*>(blob.data());
    for (size_t i = 0; i + 1 < offsets.shape(0); ++i) {
        const int64_t begin = offsets.data()[i], end = offsets.data()[i + 1];
        if (begin < 0 || end < begin || end > static_cast<int64_t>(blob.shape(0))) {
            throw std::runtime_error("string table: offsets do not describe the blob");
        }
        texts.emplace_back(bytes + begin, static_cast<size_t>(end - begin));
    }
    return texts;
}

template <class T>
nb::object owned_array(std::unique_ptr<T[]> values, int64_t size) {
    T* raw = values.release();
    nb::capsule owner(raw, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return nb::cast(
        nb::ndarray<nb::numpy, T, nb::ndim<1>>(raw, {static_cast<size_t>(size)}, owner));
}

nb::tuple to_tuple(RowArrays rows) {
    const int64_t nnz = rows.nnz();
    return nb::make_tuple(owned_array(std::move(rows.indptr), rows.rows + 1),
                          owned_array(std::move(rows.indices), nnz),
                          owned_array(std::move(rows.data), nnz));
}

// A running transform: borrows scratch memory from the model and collects rows.
class TfidfRows {
public:
    TfidfRows(std::shared_ptr<TfidfModel> model, int threads)
        : model_(std::move(model)), threads_(resolve_threads(threads)) {}
    TfidfRows(const TfidfRows&) = delete;

    void add(const Texts& texts, const CharTables* tables) {
        if (texts.empty()) return;
        // Holding the GIL here keeps other threads from forking while the pool is locked.
        const auto wanted = static_cast<size_t>(std::min<int64_t>(threads_, piece_count(texts)));
        while (workers_.size() < wanted) workers_.push_back(model_->borrow());
        nb::gil_scoped_release release;
        model_->transform(texts, tables, workers_, blocks_);
    }

    RowArrays finish() {
        for (auto& worker : workers_) model_->give_back(std::move(worker));
        workers_.clear();
        nb::gil_scoped_release release;
        return join_blocks(std::move(blocks_));
    }

private:
    std::shared_ptr<TfidfModel> model_;
    int threads_;
    std::vector<std::unique_ptr<TfidfModel::Worker>> workers_;
    std::vector<RowBlock> blocks_;
};

Analyzer analyzer_named(const std::string& name) {
    if (name == "word") return Analyzer::word;
    if (name == "space") return Analyzer::space;
    if (name == "char") return Analyzer::characters;
    if (name == "char_wb") return Analyzer::characters_in_words;
    if (name == "mixed") return Analyzer::mixed;
    if (name == "tokens") return Analyzer::tokens;
    throw nb::value_error("unknown analyzer");
}

Norm norm_named(const std::string& name) {
    if (name == "none") return Norm::none;
    if (name == "l1") return Norm::l1;
    if (name == "l2") return Norm::l2;
    throw nb::value_error("unknown norm");
}

void bind_options(nb::module_& module) {
    nb::class_<CharTables>(module, "CharTables")
        .def("__init__", [](CharTables* self, Vector<uint8_t> classes, Vector<int32_t> changed,
                            Vector<uint8_t> outputs, Vector<int64_t> offsets) {
            if (classes.shape(0) != kCodePoints || offsets.shape(0) != changed.shape(0) + 1) {
                throw nb::value_error("character tables have the wrong size");
            }
            new (self)
                CharTables(classes.data(), changed.data(), static_cast<int64_t>(changed.shape(0)),
                           reinterpret_cast<const char*>(outputs.data()), offsets.data());
        });
    nb::class_<AnalyzerOptions>(module, "AnalyzerOptions")
        .def(
            "__init__",
            [](AnalyzerOptions* self, const std::string& analyzer, int32_t min_n, int32_t max_n,
               int64_t min_token_length, int64_t max_tokens, bool lowercase) {
                new (self) AnalyzerOptions{analyzer_named(analyzer), min_n,      max_n,
                                           min_token_length,         max_tokens, lowercase};
            },
            nb::kw_only(), nb::arg("analyzer"), nb::arg("min_n"), nb::arg("max_n"),
            nb::arg("min_token_length"), nb::arg("max_tokens"), nb::arg("lowercase"));
    nb::class_<WeightOptions>(module, "WeightOptions")
        .def(
            "__init__",
            [](WeightOptions* self, bool sublinear_tf, bool binary, const std::string& norm) {
                new (self) WeightOptions{sublinear_tf, binary, norm_named(norm)};
            },
            nb::kw_only(), nb::arg("sublinear_tf"), nb::arg("binary"), nb::arg("norm"));
}

void bind_counter(nb::module_& module) {
    nb::class_<TermCounter>(module, "TermCounter")
        .def(nb::init<const AnalyzerOptions&, bool, bool, int>(), nb::arg("options"), nb::kw_only(),
             nb::arg("binary"), nb::arg("keep_counts"), nb::arg("threads"))
        .def(
            "add",
            [](TermCounter& self, nb::list strings, const CharTables* tables) {
                const PinnedTexts pinned(strings);
                nb::gil_scoped_release release;
                self.add(pinned.texts, tables);
            },
            nb::arg("strings"), nb::arg("tables").none())
        .def(
            "add_blob",
            [](TermCounter& self, Vector<uint8_t> blob, Vector<int64_t> offsets,
               const CharTables* tables) {
                const Texts texts = blob_texts(blob, offsets);
                nb::gil_scoped_release release;
                self.add(texts, tables);
            },
            nb::arg("blob"), nb::arg("offsets"), nb::arg("tables").none())
        .def("totals",
             [](TermCounter& self, double min_texts, double max_texts) {
                 TermCounter::Totals totals;
                 {
                     nb::gil_scoped_release release;
                     totals = self.totals(min_texts, max_texts);
                 }
                 return nb::make_tuple(to_numpy(std::move(totals.occurrences)),
                                       to_numpy(std::move(totals.texts)));
             })
        .def("choose",
             [](TermCounter& self, Vector<uint8_t> chosen) {
                 self.choose({chosen.data(), chosen.data() + chosen.shape(0)});
             })
        .def("terms",
             [](const TermCounter& self) {
                 std::vector<uint8_t> blob;
                 std::vector<int64_t> offsets;
                 self.terms(blob, offsets);
                 return nb::make_tuple(to_numpy(std::move(blob)), to_numpy(std::move(offsets)));
             })
        .def("rows", [](TermCounter& self, Vector<float> idf, const WeightOptions& weights) {
            RowArrays rows;
            {
                nb::gil_scoped_release release;
                rows = self.rows(idf.data(), weights);
            }
            return to_tuple(std::move(rows));
        });
}

void bind_model(nb::module_& module) {
    nb::class_<TfidfModel>(module, "TfidfModel")
        .def_static(
            "build",
            [](const AnalyzerOptions& analyzer, const WeightOptions& weights, Vector<uint8_t> blob,
               Vector<int64_t> offsets, Vector<float> idf) {
                blob_texts(blob, offsets);
                const TermList terms{.blob = blob.data(),
                                     .offsets = offsets.data(),
                                     .count = static_cast<int64_t>(offsets.shape(0)) - 1};
                if (static_cast<int64_t>(idf.shape(0)) != terms.count) {
                    throw std::runtime_error("one idf weight per term is needed");
                }
                nb::gil_scoped_release release;
                return std::make_shared<TfidfModel>(
                    analyzer, weights, terms,
                    std::vector<float>(idf.data(), idf.data() + idf.shape(0)));
            },
            nb::arg("analyzer"), nb::arg("weights"), nb::kw_only(), nb::arg("blob"),
            nb::arg("offsets"), nb::arg("idf"));
    nb::class_<TfidfRows>(module, "TfidfRows")
        .def(nb::init<std::shared_ptr<TfidfModel>, int>(), nb::arg("model"), nb::kw_only(),
             nb::arg("threads"))
        .def(
            "add",
            [](TfidfRows& self, nb::list strings, const CharTables* tables) {
                const PinnedTexts pinned(strings);
                self.add(pinned.texts, tables);
            },
            nb::arg("strings"), nb::arg("tables").none())
        .def(
            "add_blob",
            [](TfidfRows& self, Vector<uint8_t> blob, Vector<int64_t> offsets,
               const CharTables* tables) { self.add(blob_texts(blob, offsets), tables); },
            nb::arg("blob"), nb::arg("offsets"), nb::arg("tables").none())
        .def("finish", [](TfidfRows& self) { return to_tuple(self.finish()); });
}

}  // namespace

void bind_text(nb::module_& module) {
    bind_options(module);
    bind_counter(module);
    bind_model(module);
}

}  // namespace labelgrove
