"""X-Transformer: clusters of labels, a neural matcher, linear rankers."""

from labelgrove.methods.xtransformer.method import XTransformer as XTransformer
