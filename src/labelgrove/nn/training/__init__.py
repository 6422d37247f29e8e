"""The training loop and its parts."""

from labelgrove.nn.encoders import need_torch

need_torch("training a neural model")
