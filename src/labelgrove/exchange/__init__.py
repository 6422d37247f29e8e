"""Models that come and go: loading, the Hub, ONNX, models of other software."""
