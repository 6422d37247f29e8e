"""What each token of a text gives to a number that a network makes of it.

Gradient times input: how the number would change on the way from an average word's embedding to the
token's. That is exact where the number is linear in the embeddings and a first-order guess
elsewhere. With ``steps`` the gradient is averaged along that way (integrated gradients,
Sundararajan et al. 2017): then what all tokens give adds up to what an average text would lack.

The way does not begin at zero, as it often does: encoders that normalise embeddings first (XLNet,
ModernBERT) do not see how long an embedding is, and gradient times embedding would always be 0.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from labelgrove.explanation import Reason, Span
from labelgrove.nn.encoder import Encoder
from labelgrove.nn.tokens import TokenPlace

_AVERAGES: WeakKeyDictionary[Encoder, tuple[int, Tensor]] = WeakKeyDictionary()

# From token numbers (1 x tokens) to numbers to be explained.
Read = Callable[[Tensor], Sequence[Tensor]]


@dataclass(frozen=True)
class Attribution:
    """The numbers that were read, and for each of them what every token gives to it."""

    values: list[float]
    shares: npt.NDArray[np.float64]


def attribute(
    encoder: Encoder,
    ids: Tensor,
    read: Read,
    *,
    special: Sequence[bool] | None = None,
    steps: int = 1,
) -> Attribution:
    """What the tokens ``ids`` (1 x tokens) give to what ``read`` makes of them.

    ``read`` runs the encoder, in evaluation mode, in this thread. A pass forward and a pass back
    per number are taken for every step, and one more forward where there are several steps.
    Tokens that are ``special`` stay as they are, and give nothing.

    >>> from labelgrove.nn.encoder import EncoderParams, load_encoder
    >>> encoder = load_encoder(EncoderParams(max_tokens=16)).eval()
    >>> ids = torch.tensor([encoder.tokenizer.encode("a red shoe").ids[:5]])
    >>> found = attribute(encoder, ids, lambda ids: [encoder(ids, None)[0][0, 3]])
    >>> found.shares.shape
    (1, 5)
    """
    values: list[float] = []
    total: npt.NDArray[np.float64] | None = None
    fixed = torch.zeros(ids.shape[1], dtype=torch.bool, device=ids.device)
    if special is not None:
        fixed = torch.tensor(list(special), device=ids.device)
    average = _average_embedding(encoder)
    scales = [1.0] if steps == 1 else [(step + 0.5) / steps for step in range(steps)]
    for scale in scales:
        with torch.enable_grad(), _embeddings_between(encoder, average, fixed, scale) as seen:
            numbers = list(read(ids))
            values = [float(number.detach()) for number in numbers]
            shares = [
                (torch.autograd.grad(number, seen["leaf"], retain_graph=True)[0] * seen["way"])
                for number in numbers
            ]
        found = np.stack([_per_token(share, ids.shape[1]) for share in shares])
        total = found if total is None else total + found
    if steps > 1:
        with torch.no_grad():
            values = [float(number) for number in read(ids)]
    assert total is not None
    return Attribution(values, total / len(scales))


def _per_token(share: Tensor, tokens: int) -> npt.NDArray[np.float64]:
    return share.detach().double().sum(-1).reshape(tokens).cpu().numpy()


def _average_embedding(encoder: Encoder) -> Tensor:
    """The mean over the vocabulary; worked out once, for fitted encoders do not change."""
    table = encoder.model.get_input_embeddings().weight
    kept = _AVERAGES.get(encoder)
    if kept is None or kept[0] != table._version or kept[1].device != table.device:
        kept = table._version, table.detach().mean(0)
        _AVERAGES[encoder] = kept
    return kept[1]


@contextmanager
def _embeddings_between(
    encoder: Encoder, average: Tensor, fixed: Tensor, scale: float
) -> Iterator[dict[str, Tensor]]:
    """Has the encoder read embeddings on the way from an average word, ``scale`` of it done.

    ``leaf`` is what it reads and takes the gradient, ``way`` the whole way of each token.
    """
    seen: dict[str, Tensor] = {}
    here = threading.get_ident()

    def swap(_module: Any, _inputs: Any, output: Tensor) -> Tensor | None:
        if threading.get_ident() != here:
            return None  # other threads may be predicting with this very model
        whole = output.detach()
        # Some look words up with the batch behind the tokens.
        still = fixed.reshape(*whole.shape[:-1], 1)
        seen["way"] = torch.where(still, torch.zeros_like(whole), whole - average)
        seen["leaf"] = (whole - (1.0 - scale) * seen["way"]).requires_grad_()
        return seen["leaf"]

    handle = encoder.model.get_input_embeddings().register_forward_hook(swap)
    try:
        yield seen
    finally:
        handle.remove()


def word_reasons(
    text: str, places: Sequence[TokenPlace], shares: npt.NDArray[np.float64]
) -> tuple[tuple[Reason, ...], float]:
    """What every word of the text gives, tokens of a word added up; and what special tokens give.

    >>> places = [TokenPlace(0, 0, -1), TokenPlace(0, 4, 0), TokenPlace(4, 5, 0)]
    >>> reasons, others = word_reasons("shoes", places, np.array([0.5, 1.0, 0.25]))
    >>> reasons[0].text, reasons[0].contribution, others
    ('shoes', 1.25, 0.5)
    """
    words: list[tuple[int, Span, float]] = []
    others = 0.0
    for place, share in zip(places, shares.tolist(), strict=True):
        if place.word < 0:
            others += share
            continue
        if words and words[-1][0] == place.word:
            number, span, before = words[-1]
            joined = Span(span.start, max(span.end, place.end))
            # Some tokenizers know no words: then a text is one of them, and tokens stay apart.
            if not any(char.isspace() for char in text[joined.start : joined.end]):
                words[-1] = number, joined, before + share
                continue
        words.append((place.word, Span(place.start, place.end), share))
    reasons = tuple(
        Reason(text[span.start : span.end], share, kind="token", spans=(span,))
        for _, span, share in words
    )
    return reasons, others
