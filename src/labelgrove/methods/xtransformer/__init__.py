"""X-Transformer: clusters of labels, a neural matcher, linear rankers."""
