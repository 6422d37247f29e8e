"""Neural parts: encoders, batches, heads and the training loop (extra: torch).

Nothing here is imported by the linear path. The modules that hold settings alone
(:mod:`labelgrove.nn.encoder_files`) import without torch, so that every method's parameters can be
read, checked and listed where torch is not installed.
"""
