"""Label tables that start from the text vectors of the labels' names (``heads.name_logit``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labelgrove.core.arrays import Int64
from labelgrove.data.corpus import LabelIndex
from labelgrove.disk.stages import CachedResult, Stages
from labelgrove.labels.documents import labels_with_words
from labelgrove.methods.preparation import tokens_stage
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.tokens import Tokens
from labelgrove.nn.network import Runner

ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class NamedLabels:
    """The tokens of labels' texts or names, and the columns of these labels."""

    tokens: Tokens
    columns: Int64


def named_labels(
    stages: Stages, index: LabelIndex, encoder: Encoder
) -> CachedResult[NamedLabels] | None:
    """The labels whose text or name has words; None if there are none."""
    columns = np.array(labels_with_words(index), np.int64)
    if not len(columns):
        stages.reporter.message("heads.name_logit: no effect, because labels have no words")
        return None
    source = index.words
    texts = [source[column] for column in columns.tolist()]
    tokens = tokens_stage(stages, "label-tokens", texts, encoder)
    return stages.derive(lambda: NamedLabels(tokens.value, columns), tokens=tokens, columns=columns)


@torch.no_grad()
def start_from_names(runner: Runner, names: NamedLabels, logit: float) -> None:
    """Makes the text vector of each name its label's row of the output layer, scaled.

    The vector is what the output layer reads of the name, so it fits heads on one layer, on
    several, and behind a bottleneck. What all names share says nothing about a label and is
    subtracted. A text with the vector of a name gets ``logit`` for it, if the vector has the mean
    length of those of names. Other labels keep their random rows.
    """
    heads = runner.network.heads
    vectors = torch.zeros(len(names.tokens), heads.text_width)

    def use(batch: Any, states: list[Tensor]) -> None:
        vectors[torch.from_numpy(np.asarray(batch.rows))] = heads.text(states).float().cpu()

    runner.each(names.tokens, use)
    vectors -= vectors.mean(0)
    lengths = vectors.norm(dim=1, keepdim=True)
    vectors *= logit / (lengths.clamp(min=1e-12) * lengths.mean().clamp(min=1e-12))
    columns = torch.from_numpy(names.columns)
    for start in range(0, len(columns), ROWS_AT_ONCE):
        piece = slice(start, start + ROWS_AT_ONCE)
        heads.set_rows(columns[piece], vectors[piece])
