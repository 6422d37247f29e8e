"""From states to labels: label tables, candidates, losses."""

from labelgrove.nn.encoders import need_torch

need_torch("a neural model")
