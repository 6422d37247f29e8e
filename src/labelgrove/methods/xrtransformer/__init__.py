"""XR-Transformer: an encoder fine-tuned from coarse to fine labels."""
