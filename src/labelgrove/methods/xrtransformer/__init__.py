"""XR-Transformer: an encoder fine-tuned from coarse to fine labels."""

from labelgrove.methods.xrtransformer.method import XRTransformer as XRTransformer
