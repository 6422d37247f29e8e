"""The neural core: encoders, batches, heads and the training loop (extra: torch).

Imports only go down: network and embed, training, heads, batches, encoders.
"""
