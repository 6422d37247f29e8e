"""From states to labels: label tables, candidates, losses."""

from labelgrove.nn import need_torch

need_torch("a neural model")
