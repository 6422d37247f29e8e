"""New word pieces: a WordPiece vocabulary learns the frequent words and stems of a corpus.

Candidates come from a WordPiece vocabulary trained on the corpus, with the normaliser and the
pre-tokeniser of the encoder's own tokenizer. A piece is kept if it saves many tokens: the number of
its uses times the old pieces that it replaces, less one. Needs no torch.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from labelgrove.core.arrays import Int64
from labelgrove.core.nfc import nfc
from labelgrove.core.part import Part
from labelgrove.errors import ConfigError, MissingExtraError

FEWEST_USES = 20  # of a piece: a row of the table learns little from less
MOST_TEXTS = 30_000  # to learn pieces from, evenly spread; more texts hardly change them
MULTIPLE, MANY = 8, 100  # of the number of tokens, if many are new: products are faster on GPUs
_TEXTS_PER_CHUNK = 4096


@dataclass(frozen=True)
class NewPieces:
    """Pieces to append to a vocabulary, and the old tokens that spell each of them."""

    names: list[str]
    parts: list[list[int]]

    def __len__(self) -> int:
        return len(self.names)

    def state(self) -> Part:
        return Part({"names": self.names, "parts": self.parts})

    @classmethod
    def from_state(cls, part: Part) -> NewPieces:
        return cls(list(part.config["names"]), [list(row) for row in part.config["parts"]])


def is_word_piece(tokenizer: Any) -> bool:
    """Whether a tokenizer has a vocabulary that new pieces can be appended to."""
    return bool(_settings(tokenizer)["model"].get("type") == "WordPiece")


def find_pieces(texts: Sequence[str], tokenizer: Any, most: int, gain: float) -> NewPieces:
    """The pieces that save the most tokens in ``texts``; at most ``most``.

    ``tokenizer`` is a ``tokenizers.Tokenizer`` with a WordPiece model. Each piece saves at least
    the share ``gain`` of all tokens and has at least ``FEWEST_USES`` uses.
    """
    if not is_word_piece(tokenizer):
        raise ConfigError("new pieces need a WordPiece tokenizer; set pieces to 0")
    sample = [texts[i] for i in _spread(len(texts), MOST_TEXTS)]
    old = tokenizer.get_vocab(True)
    candidates = sorted(_trained(sample, tokenizer, len(old) + most) - old.keys())
    speller = Speller.of(tokenizer)
    parts = {name: speller.parts(name) for name in candidates}
    least = gain * float(token_counts(sample, tokenizer).sum())
    names = candidates
    for _ in range(2):  # without the other candidates, those that are left have other uses
        counts = token_counts(sample, with_pieces(tokenizer, names))
        uses = counts[len(counts) - len(names) :]
        # To know a word is worth as much as to save a token.
        saved = [max(len(parts[name]) - 1, parts[name] == [speller.unknown]) for name in names]
        gains = uses * np.array(saved, np.int64)
        order = np.argsort(-gains, kind="stable")[:most]
        enough = (uses >= FEWEST_USES) & (gains > 0) & (gains >= least)
        names = [names[i] for i in order if enough[i]]
    if len(names) >= MANY:
        del names[len(names) - (next_number(tokenizer) + len(names)) % MULTIPLE :]
    return NewPieces(names, [parts[name] for name in names])


def with_pieces(tokenizer: Any, names: Sequence[str]) -> Any:
    """A copy of a tokenizer with new pieces, numbered from after its last token on."""
    settings = _settings(tokenizer)
    first = next_number(tokenizer)
    settings["model"]["vocab"].update({name: first + i for i, name in enumerate(names)})
    return _tokenizers().Tokenizer.from_str(json.dumps(settings, ensure_ascii=False))


@dataclass(frozen=True)
class Speller:
    """Spells pieces with a WordPiece vocabulary: the longest known beginning first."""

    vocabulary: Mapping[str, int]
    prefix: str
    unknown: int

    @classmethod
    def of(cls, tokenizer: Any) -> Speller:
        model = tokenizer.model
        vocabulary = tokenizer.get_vocab(False)
        return cls(vocabulary, model.continuing_subword_prefix, vocabulary[model.unk_token])

    def parts(self, piece: str) -> list[int]:
        """The tokens of a piece; the unknown token alone if a character is not known."""
        inside = piece.startswith(self.prefix) and len(piece) > len(self.prefix)
        rest = piece[len(self.prefix) :] if inside else piece
        numbers: list[int] = []
        while rest:
            marked = f"{self.prefix if inside or numbers else ''}{rest}"
            shortest = len(marked) - len(rest) + 1
            ends = range(len(marked), shortest - 1, -1)
            end = next((end for end in ends if marked[:end] in self.vocabulary), None)
            if end is None:
                return [self.unknown]
            numbers.append(self.vocabulary[marked[:end]])
            rest = marked[end:]
        return numbers


def token_counts(texts: Sequence[str], tokenizer: Any) -> Int64:
    """How often each token occurs in whole texts, special tokens that frame a text excluded."""
    counts = np.zeros(next_number(tokenizer), np.int64)
    reader = without_length(tokenizer)
    encode = getattr(reader, "encode_batch_fast", reader.encode_batch)
    for chunk in _chunks(texts):
        numbers = array("q")
        for encoding in encode(chunk, add_special_tokens=False):
            numbers.extend(encoding.ids)
        counts += np.bincount(np.asarray(numbers, np.int64), minlength=len(counts))
    return counts


def without_length(tokenizer: Any) -> Any:
    """A copy of a tokenizer that neither cuts nor pads texts, as some do by their files."""
    copy = _tokenizers().Tokenizer.from_str(tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy


def _trained(texts: Sequence[str], tokenizer: Any, size: int) -> set[str]:
    """The pieces of a vocabulary of this size that is trained on the texts alone."""
    tokenizers = _tokenizers()
    model = tokenizer.model
    student = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token=model.unk_token))
    student.normalizer, student.pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=FEWEST_USES,
        show_progress=False,
        continuing_subword_prefix=model.continuing_subword_prefix,
    )
    student.train_from_iterator(_chunks(texts), trainer, length=len(texts))
    return set(student.get_vocab(False))


def _spread(count: int, most: int) -> Int64:
    """``most`` of ``count`` numbers, evenly spread."""
    return np.arange(count) if count <= most else np.arange(most) * count // most


def next_number(tokenizer: Any) -> int:
    """The number after the last token."""
    numbers: Iterable[int] = tokenizer.get_vocab(True).values()
    return max(numbers) + 1


def _chunks(texts: Sequence[str]) -> Iterator[list[str]]:
    source = iter(texts)
    while chunk := list(islice(source, _TEXTS_PER_CHUNK)):
        yield [nfc(text).encode("utf-8", "replace").decode() for text in chunk]


def _settings(tokenizer: Any) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(tokenizer.to_str())
    return settings


def _tokenizers() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise MissingExtraError("torch", "new word pieces") from error
    return tokenizers
