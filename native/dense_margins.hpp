// The dense features' part of margins: documents x features times features x children.
//
// Every sum adds the features in order, in its own accumulator, so the bits are the same whether
// documents come alone or together. For one document a chunk's weights are read once as they are;
// for several, they are converted from half precision first, 16 children at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "beam_model.hpp"
#include "dispatch.hpp"
#include "weights.hpp"

namespace labelgrove {

inline constexpr int kPanel = 16;         // children per step
inline constexpr int kTileDocuments = 4;  // documents per step

// A chunk's weights; the row of a feature has `width` children side by side.
struct DenseChunk {
    const Half* weights;
    int64_t features;
    int64_t width;
    const Half* end;  // of the readable weights
};

// The weights of `lanes` children from `first` on, for every feature; missing children get 0.
LABELGROVE_MULTIVERSION
inline void convert_panel(const DenseChunk& chunk, int64_t first, float* __restrict panel) {
    const int64_t lanes = std::min<int64_t>(kPanel, chunk.width - first);
    const Half* row = chunk.weights + first;
    for (int64_t f = 0; f < chunk.features; ++f, row += chunk.width, panel += kPanel) {
#if LABELGROVE_VECTOR_TYPE
        if (lanes == kPanel) {
            for (int c = 0; c < kPanel; c += kRegister) {
                store<kRegister>(panel + c, load_floats<kRegister>(row + c));
            }
            continue;
        }
#endif
        for (int64_t c = 0; c < kPanel; ++c) panel[c] = c < lanes ? to_float(row[c]) : 0.0f;
    }
}

template <int Documents>
LABELGROVE_INLINE void multiply_tile(const float* panel, int64_t features,
                                     const float* const* documents, float* out, int64_t stride) {
#if LABELGROVE_VECTOR_TYPE
    Sums<kPanel> sums[Documents];
    for (int64_t f = 0; f < features; ++f) {
        for (int d = 0; d < Documents; ++d) sums[d].add(panel + f * kPanel, documents[d][f]);
    }
    for (int d = 0; d < Documents; ++d) sums[d].write(out + d * stride);
#else
    for (int d = 0; d < Documents; ++d) {
        float sums[kPanel] = {};
        for (int64_t f = 0; f < features; ++f) {
            for (int c = 0; c < kPanel; ++c) sums[c] += panel[f * kPanel + c] * documents[d][f];
        }
        std::copy_n(sums, kPanel, out + d * stride);
    }
#endif
}

LABELGROVE_MULTIVERSION
inline void multiply_panel(const float* panel, int64_t features, const float* const* documents,
                           int64_t count, float* out, int64_t stride) {
    int64_t d = 0;
    for (; d + kTileDocuments <= count; d += kTileDocuments) {
        multiply_tile<kTileDocuments>(panel, features, documents + d, out + d * stride, stride);
    }
    for (; d < count; ++d) {
        multiply_tile<1>(panel, features, documents + d, out + d * stride, stride);
    }
}

// One document: all of the chunk's weights in one pass per 64 children.
LABELGROVE_MULTIVERSION
inline void multiply_alone(const DenseChunk& chunk, const float* document, float* __restrict out) {
    int64_t first = 0;
#if LABELGROVE_VECTOR_TYPE
    // Reading past a row's end is harmless, except after the last row, where memory may end.
    constexpr int kWide = 4;
    const int64_t padded = (chunk.width + kPanel - 1) / kPanel * kPanel;
    const Half* last_row = chunk.weights + (chunk.features - 1) * chunk.width;
    for (; first < padded;) {
        const int panels = static_cast<int>(std::min<int64_t>(kWide, (padded - first) / kPanel));
        if (last_row + first + panels * kPanel > chunk.end) break;
        Sums<kPanel> sums[kWide];
        const Half* row = chunk.weights + first;
        if (panels == kWide) {
            for (int64_t f = 0; f < chunk.features; ++f, row += chunk.width) {
                for (int p = 0; p < kWide; ++p) sums[p].add(row + p * kPanel, document[f]);
            }
            for (int p = 0; p < kWide; ++p) sums[p].write(out + first + p * kPanel);
            first += kWide * kPanel;
        } else {
            for (int64_t f = 0; f < chunk.features; ++f, row += chunk.width) {
                sums[0].add(row, document[f]);
            }
            sums[0].write(out + first);
            first += kPanel;
        }
    }
#endif
    for (; first < chunk.width; ++first) {
        float sum = 0.0f;
        const Half* weight = chunk.weights + first;
        for (int64_t f = 0; f < chunk.features; ++f) {
            sum += to_float(weight[f * chunk.width]) * document[f];
        }
        out[first] = sum;
    }
}

// The dense part for some documents that visit one chunk. One per thread, which keeps its memory.
class DenseMargins {
public:
    // How many documents to pass at once, so that their margins stay in the cache.
    static int64_t batch(int64_t width) { return std::clamp<int64_t>((1 << 17) / width, 32, 512); }

    // The margins of document d begin at [d * stride()].
    const float* operator()(const BeamLevel& level, int64_t parent, const float* const* documents,
                            int64_t count) {
        const int64_t width = level.width(parent), features = level.dense_cols;
        const DenseChunk chunk{level.dense + features * level.child_ptr[parent], features, width,
                               level.dense + features * level.nodes};
        stride_ = (width + kPanel - 1) / kPanel * kPanel;
        if (static_cast<int64_t>(margins_.size()) < count * stride_) {
            margins_.resize(count * stride_);
        }
        if (count == 1) {
            multiply_alone(chunk, documents[0], margins_.data());
            return margins_.data();
        }
        if (static_cast<int64_t>(panel_.size()) < features * kPanel) {
            panel_.resize(features * kPanel);
        }
        for (int64_t first = 0; first < width; first += kPanel) {
            convert_panel(chunk, first, panel_.data());
            multiply_panel(panel_.data(), features, documents, count, margins_.data() + first,
                           stride_);
        }
        return margins_.data();
    }

    int64_t stride() const { return stride_; }

private:
    std::vector<float> panel_, margins_;
    int64_t stride_ = 0;
};

}  // namespace labelgrove
