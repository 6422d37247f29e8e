"""The neural core: encoders, batches, heads, losses and the training loop (extra: torch)."""
