"""How long the texts of a corpus are in tokens, from a sample."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from labelgrove.core.arrays import Int64
from labelgrove.data.records import is_record
from labelgrove.nn.encoders.encoder import load_tokenizer
from labelgrove.nn.encoders.files import EncoderParams
from labelgrove.nn.encoders.tokens import read_record, tokenize

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SAMPLED_TEXTS = 1000  # whose tokens are counted


class LengthSample:
    """Tokens of texts that are spread over the corpus: the same ones whenever it is asked."""

    def __init__(self, texts: Sequence[str], encoder: EncoderParams) -> None:
        count = min(len(texts), SAMPLED_TEXTS)
        sample = [texts[row * len(texts) // count] for row in range(count)]
        self.texts = [
            read_record(text, encoder.fields, "\n") if is_record(text) else text for text in sample
        ]
        self.encoder = encoder

    @cached_property
    def _tokenizer(self) -> PreTrainedTokenizerFast:
        return load_tokenizer(self.encoder)

    def lengths(self, most: int) -> Int64:
        """How many tokens are read of each text, at most ``most``."""
        tokens = tokenize(self.texts, self._tokenizer, most)
        return np.asarray(tokens.lengths, np.int64)
