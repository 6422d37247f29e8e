"""The label space: trees, what labels look like, masks."""
