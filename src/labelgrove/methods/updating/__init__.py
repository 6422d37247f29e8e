"""A fitted model with new labels or documents."""
