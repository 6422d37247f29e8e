"""A model behind HTTP (extra: serve): batching, limits, metrics, reload; ``labelgrove serve``."""
