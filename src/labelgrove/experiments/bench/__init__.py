"""Several methods on one corpus, measured alike, in one table."""
