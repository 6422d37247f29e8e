"""What each token of a text gives to a number that a network makes of it.

Integrated gradients (Sundararajan et al. 2017): the gradient is averaged on the way from padding to
the token's own embedding, and multiplied with the way. What all tokens give then adds up to what
the number would lose without them. With one step it is gradient times input, taken at the end of
the way only: exact where the number is linear in the embeddings, and misleading in deep networks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from labelgrove.model.explanation import Reason, Span
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.tokens import TokenPlace

SMALLEST_PADDING = 0.1  # length of a learnt padding's embedding beside that of words
SAMPLE = 4096  # words that an average is taken of

# From token numbers (documents x tokens) to numbers to be explained, a tensor of documents each.
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

    ``read`` runs the encoder, in evaluation mode, in this thread; it is called once, with a copy of
    the text for every step. Tokens that are ``special`` stay as they are, and give nothing.
    """
    fixed = torch.zeros(ids.shape[1], dtype=torch.bool, device=ids.device)
    if special is not None:
        fixed = torch.tensor(list(special), device=ids.device)
    # All steps are one batch; the last document is the text as it is.
    scales = [(step + 0.5) / steps for step in range(steps)] if steps > 1 else []
    shares = []
    with torch.enable_grad(), _embeddings_between(encoder, fixed, [*scales, 1.0]) as seen:
        numbers = list(read(ids.repeat(len(scales) + 1, 1)))
        for number in numbers:
            gradient = torch.autograd.grad(number.sum(), seen["leaf"], retain_graph=True)[0]
            given = (gradient * seen["way"]).detach().double().sum(-1)
            by_step = given.T if _batch_behind(encoder) else given
            shares.append(by_step[: max(1, len(scales))].mean(0).cpu().numpy())
    return Attribution([float(number[-1].detach()) for number in numbers], np.stack(shares))


def _batch_behind(encoder: Encoder) -> bool:
    """Whether words are looked up as tokens x documents."""
    return bool(encoder.model.config.model_type == "xlnet")


def _no_word(encoder: Encoder) -> Tensor:
    """What stands for a word that is not there: padding, or an average word.

    Padding comes nearest to leaving words out. Where it was never learnt it is 0, which will not
    do: encoders that normalise embeddings first do not see how long an embedding is, and on the way
    from 0 all gradients along it are 0.
    """
    table: Tensor = encoder.model.get_input_embeddings().weight.detach()
    padding = table[encoder.pad_id]
    sample = table[:: max(1, len(table) // SAMPLE)]
    if padding.norm() > SMALLEST_PADDING * sample.norm(dim=1).median():
        return padding
    return sample.mean(0)


@contextmanager
def _embeddings_between(
    encoder: Encoder, fixed: Tensor, scales: Sequence[float]
) -> Iterator[dict[str, Tensor]]:
    """Has the encoder read embeddings on the way from no word, a share of it done per document.

    ``leaf`` is what it reads and takes the gradient, ``way`` the whole way of each token.
    """
    seen: dict[str, Tensor] = {}
    here = threading.get_ident()
    start = _no_word(encoder)

    def swap(_module: Any, _inputs: Any, output: Tensor) -> Tensor | None:
        if threading.get_ident() != here:
            return None  # other threads may be predicting with this very model
        whole = output.detach()
        done = torch.tensor(scales, dtype=whole.dtype, device=whole.device)
        behind = _batch_behind(encoder)
        still, left = fixed[:, None, None], (1.0 - done)[None, :, None]
        if not behind:
            still, left = fixed[None, :, None], (1.0 - done)[:, None, None]
        seen["way"] = (whole - start).masked_fill(still, 0.0)
        seen["leaf"] = (whole - left * seen["way"]).requires_grad_()
        return seen["leaf"]

    handle = encoder.model.get_input_embeddings().register_forward_hook(swap)
    try:
        yield seen
    finally:
        handle.remove()


def word_reasons(
    text: str, places: Sequence[TokenPlace], shares: npt.NDArray[np.float64]
) -> tuple[tuple[Reason, ...], float]:
    """What every word of the text gives, tokens of a word added up; and what special tokens give."""
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
