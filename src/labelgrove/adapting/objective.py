"""The network that learns: an encoder and a layer that guesses hidden tokens from its states.

The output table is the table of word embeddings. Only hidden tokens are guessed, so the scores of
all tokens are computed for a share of the places.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from labelgrove.adapting.masking import MaskedBatch
from labelgrove.nn.batches.packing import PackedBatch
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.packed_bert import pooled_states

MOST_SCORES = 1 << 28  # at a time, a gigabyte; more are computed twice to save memory

# Where encoders have the layer they were pretrained with: its matrix, its norm and its bias.
_OWN_HEADS = (
    ("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions"),
    ("lm_head.dense", "lm_head.layer_norm", "lm_head"),
    ("vocab_transform", "vocab_layer_norm", "vocab_projector"),
)


class MaskedModel(nn.Module):
    """An encoder that guesses tokens: ``dense``, ``norm`` and the word embeddings, transposed.

    A new layer starts as the identity, so the guess of a token begins with the word embeddings
    nearest to its state. With ``own``, weights of the encoder's own pretraining, it starts as they
    are.
    """

    def __init__(self, encoder: Encoder, own: dict[str, Tensor] | None = None) -> None:
        super().__init__()
        self.encoder = encoder
        tokens, width = self.table.shape
        self.dense = nn.Linear(encoder.width, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(tokens))
        self._activates = own is not None
        with torch.no_grad():
            nn.init.eye_(self.dense.weight)
            nn.init.zeros_(self.dense.bias)
        if own is not None:
            self.load_state_dict(own, strict=False)

    @property
    def table(self) -> Tensor:
        """A row per token."""
        table: Tensor = self.encoder.model.get_input_embeddings().weight
        return table

    def states(self, batch: MaskedBatch) -> Tensor:
        """The states of all tokens of a batch, in a row; padding included."""
        inner = batch.batch
        if isinstance(inner, PackedBatch):
            return self.encoder.packed_tokens(inner)
        output = self.encoder.model(input_ids=inner.ids, attention_mask=inner.attention)
        return output.last_hidden_state.flatten(0, 1)  # type: ignore[no-any-return]

    def guess_loss(self, states: Tensor, batch: MaskedBatch) -> Tensor:
        """The sum of the losses of all hidden tokens."""
        rows = states.index_select(0, batch.places)
        size = max(1, MOST_SCORES // len(self.table))
        if len(rows) <= size:
            return self._loss(rows, batch.targets)
        total = rows.new_zeros((), dtype=torch.float32)
        for begin in range(0, len(rows), size):
            part, targets = rows[begin : begin + size], batch.targets[begin : begin + size]
            total = total + checkpoint(self._loss, part, targets, use_reentrant=False)
        return total

    def _loss(self, rows: Tensor, targets: Tensor) -> Tensor:
        hidden = self.dense(rows.to(self.dense.weight.dtype))
        hidden = self.norm(functional.gelu(hidden) if self._activates else hidden)
        scores = functional.linear(hidden, self.table, self.bias)
        return functional.cross_entropy(scores.float(), targets, reduction="sum")


def loss_of(
    model: MaskedModel, batch: MaskedBatch, *, contrast: float = 0.0, temperature: float = 0.05
) -> Tensor:
    """The mean loss of the hidden tokens, and ``contrast`` times that of the views."""
    states = model.states(batch)
    loss = model.guess_loss(states, batch) / max(1, len(batch.targets))
    if contrast and isinstance(batch.batch, PackedBatch) and len(batch.pairs) > 1:
        vectors = pooled_states(states, batch.batch.bounds, model.encoder.pooling)
        first, second = vectors[2 * batch.pairs], vectors[2 * batch.pairs + 1]
        loss = loss + contrast * contrast_loss(first, second, temperature)
    return loss


def contrast_loss(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """How hard it is to find each view's other view among those of all documents (InfoNCE)."""
    first, second = functional.normalize(first.float()), functional.normalize(second.float())
    with torch.autocast(first.device.type, enabled=False):
        scores = first @ second.T / temperature
    same = torch.arange(len(scores), device=scores.device)
    return (functional.cross_entropy(scores, same) + functional.cross_entropy(scores.T, same)) / 2


def own_head(folder: Path, tokens: int, width: int) -> dict[str, Tensor] | None:
    """The layer that an encoder was pretrained with, if its files have it; else None."""
    stored = {name: file for file in folder.glob("*.safetensors") for name in _names(file)}
    for dense, norm, bias in _OWN_HEADS:
        places = {
            "dense.weight": f"{dense}.weight",
            "dense.bias": f"{dense}.bias",
            "norm.weight": f"{norm}.weight",
            "norm.bias": f"{norm}.bias",
            "bias": f"{bias}.bias",
        }
        if all(name in stored for name in places.values()):
            head = {ours: _read(stored[name], name) for ours, name in places.items()}
            if head["dense.weight"].shape[0] == width and len(head["bias"]) == tokens:
                return head
    return None


def _names(file: Path) -> Iterator[str]:
    with safe_open(file, "pt") as opened:
        yield from opened.keys()


def _read(file: Path, name: str) -> Tensor:
    with safe_open(file, "pt") as opened:
        tensor: Any = opened.get_tensor(name)
    return tensor.float()  # type: ignore[no-any-return]


def grow_table(encoder: Encoder, parts: list[list[int]], first: int) -> None:
    """Rows for new tokens, numbered from ``first`` on: each the mean of the rows of its parts."""
    model = encoder.model
    old = model.get_input_embeddings()
    rows = max(first + len(parts), old.num_embeddings)
    with torch.no_grad():
        weight = old.weight.new_zeros(rows, old.embedding_dim)
        weight[: old.num_embeddings] = old.weight
        weight[first : first + len(parts)] = mean_rows(old.weight, parts)
    new = nn.Embedding(rows, old.embedding_dim, padding_idx=old.padding_idx, _weight=weight)
    model.set_input_embeddings(new.to(weight.device))
    model.config.vocab_size = rows


def mean_rows(table: Tensor, parts: list[list[int]]) -> Tensor:
    """The mean of some rows of a table (or numbers of a vector) for each list of their numbers."""
    means = [table[numbers].mean(0) for numbers in parts]
    return torch.stack(means) if means else table[:0]


def grown_head(head: dict[str, Tensor], parts: list[list[int]], first: int) -> dict[str, Tensor]:
    """An encoder's own layer with a bias for new tokens."""
    bias = head["bias"]
    longer = bias.new_zeros(max(first + len(parts), len(bias)))
    longer[: len(bias)] = bias
    longer[first : first + len(parts)] = mean_rows(bias, parts)
    return head | {"bias": longer}
