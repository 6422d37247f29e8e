"""Tokenised documents in batches, padded or packed."""

from labelgrove.nn.encoders import need_torch

need_torch("batches for a neural encoder")
