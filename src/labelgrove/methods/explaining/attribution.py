"""What each token of a text contributes to a number that a network computes from it.

Integrated gradients (Sundararajan et al. 2017): the gradient is averaged along the line from
padding to the token's own embedding, and multiplied with the difference of both. The contributions
of all tokens then add up to what the number would lose without them. With one step this is gradient
times input: exact if the number is linear in the embeddings, and misleading in deep networks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from labelgrove.methods.explaining.explanation import Reason, Span
from labelgrove.nn.encoders.encoder import Encoder
from labelgrove.nn.encoders.tokens import TokenPlace

SMALLEST_PADDING = 0.1  # least length of a learnt padding's embedding, relative to that of words
SAMPLE = 4096  # words in the average word

# From token ids (documents x tokens) to the numbers to explain, each a tensor over documents.
Read = Callable[[Tensor], Sequence[Tensor]]


@dataclass(frozen=True)
class Attribution:
    """The numbers that were read, and the contribution (share) of every token to each of them."""

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
    """What the tokens ``ids`` (1 x tokens) contribute to the numbers that ``read`` returns.

    ``read`` runs the encoder, in evaluation mode, in this thread; it is called once, with a copy of
    the text for every step. ``special`` tokens do not change and contribute nothing.
    """
    fixed = torch.zeros(ids.shape[1], dtype=torch.bool, device=ids.device)
    if special is not None:
        fixed = torch.tensor(list(special), device=ids.device)
    # All steps are one batch; the last document is the text itself.
    scales = [(step + 0.5) / steps for step in range(steps)] if steps > 1 else []
    shares = []
    with torch.enable_grad(), _embeddings_between(encoder, fixed, [*scales, 1.0]) as seen:
        numbers = list(read(ids.repeat(len(scales) + 1, 1)))
        for number in numbers:
            gradient = torch.autograd.grad(number.sum(), seen["leaf"], retain_graph=True)[0]
            products = (gradient * seen["way"]).detach().double().sum(-1)
            by_step = products.T if _batch_last(encoder) else products
            shares.append(by_step[: max(1, len(scales))].mean(0).cpu().numpy())
    return Attribution([float(number[-1].detach()) for number in numbers], np.stack(shares))


def _batch_last(encoder: Encoder) -> bool:
    """Whether embeddings are looked up as tokens x documents."""
    return bool(encoder.model.config.model_type == "xlnet")


def _no_word(encoder: Encoder) -> Tensor:
    """The embedding that stands for a missing word: padding, or an average word.

    Padding comes closest to leaving words out. If it was never learnt it is 0, which does not work:
    for encoders that first normalise embeddings, all gradients along the line from 0 are 0.
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
    """Let the encoder read embeddings between no word and the word, one share per document.

    ``leaf`` is what it reads, with gradients; ``way`` is the difference of each token to no word.
    """
    seen: dict[str, Tensor] = {}
    here = threading.get_ident()
    start = _no_word(encoder)

    def swap(_module: object, _inputs: object, output: Tensor) -> Tensor | None:
        if threading.get_ident() != here:
            return None  # other threads may predict with the same model
        whole = output.detach()
        left = 1.0 - torch.tensor(scales, dtype=whole.dtype, device=whole.device)
        token, document = (0, 1) if _batch_last(encoder) else (1, 0)
        still = fixed[:, None, None].movedim(0, token)
        seen["way"] = (whole - start).masked_fill(still, 0.0)
        seen["leaf"] = whole - left[:, None, None].movedim(0, document) * seen["way"]
        seen["leaf"].requires_grad_()
        return seen["leaf"]

    handle = encoder.model.get_input_embeddings().register_forward_hook(swap)
    try:
        yield seen
    finally:
        handle.remove()


def word_reasons(
    text: str, places: Sequence[TokenPlace], shares: npt.NDArray[np.float64]
) -> tuple[tuple[Reason, ...], float]:
    """The contribution of every word (the sum of its tokens), and that of special tokens."""
    words: list[tuple[int, Span, float]] = []
    others = 0.0
    for place, share in zip(places, shares.tolist(), strict=True):
        if place.word < 0:
            others += share
            continue
        if words and words[-1][0] == place.word:
            number, span, before = words[-1]
            joined = Span(span.start, max(span.end, place.end))
            # To some tokenizers the whole text is one word; then tokens stay separate.
            if not any(char.isspace() for char in text[joined.start : joined.end]):
                words[-1] = number, joined, before + share
                continue
        words.append((place.word, Span(place.start, place.end), share))
    reasons = tuple(
        Reason(text[span.start : span.end], share, kind="token", spans=(span,))
        for _, span, share in words
    )
    return reasons, others
