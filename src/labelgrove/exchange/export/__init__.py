"""Models that predict without torch and transformers: an ONNX encoder, heads in NumPy, rankers."""
