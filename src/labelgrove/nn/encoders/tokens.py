"""Texts as token numbers: two flat arrays that can be mapped from disk. Needs no torch.

Ten million documents never become ten million lists. The fast tokenizer does the work with its own
threads, a chunk of documents at a time.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from labelgrove.core.arrays import Int32, Int64, offsets
from labelgrove.core.nfc import nfc
from labelgrove.core.part import Part
from labelgrove.core.resources import thread_count
from labelgrove.data.records import field_parts, is_record, text_parts
from labelgrove.errors import ConfigError, DataError, MissingExtraError, ModelFormatError

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

_TEXTS_PER_CHUNK = 4096
_LARGEST_GAP = 1 << 20
_SEPARATORS = ("[SEP]", "</s>", "<sep>")
_CHARACTERS_PER_TOKEN = 8  # generous: most languages with spaces have 4 to 5

# An ``Encoder`` or what exported models have instead, a fast tokenizer of transformers, or a
# ``Tokenizer``; the first two have it inside.
AnyTokenizer: TypeAlias = Any
_Prepared: TypeAlias = "tuple[Tokenizer, Callable[[str], str], str]"
_CACHE: WeakKeyDictionary[AnyTokenizer, dict[int, _Prepared]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Tokens:
    """Token numbers of all documents in one array; ``offsets[i : i + 2]`` bounds document i."""

    ids: Int32
    offsets: Int64

    def __post_init__(self) -> None:
        offsets = self.offsets
        if offsets.ndim != 1 or not len(offsets) or offsets[0] != 0:
            raise DataError("tokens: offsets must start at 0")
        if offsets[-1] != len(self.ids) or np.any(offsets[1:] < offsets[:-1]):
            raise DataError("tokens: offsets must rise from 0 to the number of ids")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, i: int) -> Int32:
        """Document i's token numbers."""
        return self.ids[self.offsets[i] : self.offsets[i + 1]]

    @cached_property
    def lengths(self) -> Int32:
        """Number of tokens of each document."""
        return np.diff(self.offsets).astype(np.int32)

    @cached_property
    def longest(self) -> int:
        """Number of tokens of the longest document."""
        return int(self.lengths.max(initial=0))

    def take(self, rows: Int64) -> Tokens:
        """Some of the documents, in the order of ``rows``."""
        ids = np.concatenate([self.ids[:0], *map(self.row, rows)])
        return Tokens(ids, offsets(self.lengths[rows]))

    def state(self) -> Part:
        return Part({}, {"ids": self.ids, "offsets": self.offsets})

    @classmethod
    def from_state(cls, part: Part) -> Tokens:
        """The tokens that :meth:`state` stored; mapped arrays stay mapped."""
        return cls(part.arrays["ids"], part.arrays["offsets"])


def tokenize(texts: Iterable[str], tokenizer: AnyTokenizer, max_tokens: int) -> Tokens:
    """Every text's first ``max_tokens`` token numbers, the encoder's special tokens included."""
    if isinstance(texts, (str, bytes)):
        raise DataError(f"texts is one {type(texts).__name__}; give a list of strings: [text]")
    cutter, shorten, separator = _prepared(tokenizer, max_tokens)
    ids, offsets = bytearray(), array("q", [0])  # one growing block each, no pieces to join
    source, done = iter(texts), 0
    with _rayon(thread_count()):
        while chunk := list(islice(source, _TEXTS_PER_CHUNK)):
            for i, text in enumerate(chunk, done):
                if not isinstance(text, str):
                    raise DataError(f"text {i} is {text!r}, not a string")
            chunk = [_read(nfc(text), tokenizer, separator) for text in chunk]
            for row in _encoded(cutter, chunk, shorten, max_tokens):
                ids += row
                offsets.append(len(ids) // 4)
            done += len(chunk)
    return Tokens(np.frombuffer(ids, dtype=np.int32), np.frombuffer(offsets, dtype=np.int64))


def read_record(text: str, fields: Sequence[str], separator: str) -> str:
    """A document with fields as an encoder reads it: its texts and the chosen fields.

    >>> from labelgrove import records
    >>> rows = [{"title": "Snails", "body": "They are slow.", "by": ["Ada", "Ben"]}]
    >>> record = records(rows, text=["title", "body"], fields="by")[0]
    >>> read_record(record, ["by"], "[SEP]")
    'Snails[SEP]Ada, Ben[SEP]They are slow.'
    """
    values, (*before, last) = field_parts(text), text_parts(text).values()
    chosen = [", ".join(values.get(name, ())) for name in fields]
    return separator.join(piece for piece in (*before, *chosen, last) if piece)


def _read(text: str, tokenizer: AnyTokenizer, separator: str) -> str:
    """The text as the encoder reads it."""
    if is_record(text):
        text = read_record(text, getattr(tokenizer, "fields", ()), separator)
    lowercase = getattr(tokenizer, "lowercase", False)
    if lowercase:
        small = text.lower()
        if len(small) != len(text):  # "İ" would become two characters
            small = "".join(c.lower() if len(c.lower()) == 1 else c for c in text)
        text = small
    if getattr(tokenizer, "markup", "keep") == "sep":
        text = text.replace("_", " ").replace("/sep/" if lowercase else "/SEP/", "[SEP]")
    return text


def _prepared(tokenizer: AnyTokenizer, max_tokens: int) -> _Prepared:
    """A tokenizer that cuts at ``max_tokens``, a function that shortens texts for it, a separator.

    Making one takes a tenth of a second, too long for a single text, so an Encoder's are cached.
    """
    if not hasattr(tokenizer, "tokenizer"):
        return _prepare(tokenizer, max_tokens)
    cache = _CACHE.setdefault(tokenizer, {})
    if max_tokens not in cache:
        cache[max_tokens] = _prepare(tokenizer.tokenizer, max_tokens)
    return cache[max_tokens]


def _prepare(tokenizer: AnyTokenizer, max_tokens: int) -> _Prepared:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtraError("torch", "cutting texts into tokens") from error
    inner = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not isinstance(inner, Tokenizer):
        raise ConfigError(
            f"a {type(tokenizer).__name__} is not a fast tokenizer; give an Encoder, a fast "
            "tokenizer of transformers or a tokenizers.Tokenizer"
        )
    numbers = inner.get_vocab(True).values()
    largest = max(numbers, default=0)
    if largest > _LARGEST_GAP + 16 * len(numbers):  # copying a tokenizer counts up to there
        raise ModelFormatError(
            f"the tokenizer has only {len(numbers):,} tokens but numbers them up to {largest:,}; "
            "tokenizer.json is damaged"
        )
    # The length is a setting of the object, and the caller's object must not change.
    cutter = Tokenizer.from_str(inner.to_str())
    special = cutter.num_special_tokens_to_add(False)
    if max_tokens <= special:
        raise ConfigError(
            f"encoder.max_tokens: {max_tokens} leaves no room for text beside the encoder's "
            f"{special} special tokens"
        )
    cutter.no_padding()
    cutter.enable_truncation(max_tokens)
    # Without being an added token, "[SEP]" would be read as letters.
    added = {token.content for token in cutter.get_added_tokens_decoder().values()}
    separator = next((token for token in _SEPARATORS if token in added), "\n")
    return cutter, _shortener(cutter, max_tokens), separator


def _shortener(cutter: Tokenizer, max_tokens: int) -> Callable[[str], str]:
    """A function that shortens long texts: a page takes ten times as long as 128 tokens.

    This is exact if the tokenizer handles words one by one: the pieces before a space do not depend
    on what follows. Texts that give too few tokens when cut are tokenised again as a whole.
    """
    splitter = cutter.pre_tokenizer
    if splitter is None or len(splitter.pre_tokenize_str("ab cd")) < 2:
        return lambda text: text
    limit = max_tokens * _CHARACTERS_PER_TOKEN

    def shorten(text: str) -> str:
        if len(text) <= limit:
            return text
        space = text.rfind(" ", limit // 2, limit)
        return text if space < 0 else text[:space]

    return shorten


def _encoded(
    cutter: Tokenizer, chunk: list[str], shorten: Callable[[str], str], max_tokens: int
) -> Iterator[bytes]:
    short = [shorten(text) for text in chunk]
    encodings = _encode_batch(cutter, short)
    again = [
        i
        for i, encoding in enumerate(encodings)
        if len(short[i]) < len(chunk[i]) and len(encoding) < max_tokens
    ]
    for i, encoding in zip(again, _encode_batch(cutter, [chunk[i] for i in again]), strict=True):
        encodings[i] = encoding
    # Without special tokens an empty text has no token, but an encoder needs one.
    empty = array("i", [(cutter.padding or {}).get("pad_id", 0)]).tobytes()
    for encoding in encodings:
        try:
            yield array("i", encoding.ids).tobytes() or empty
        except OverflowError as error:
            raise ModelFormatError("the tokenizer gives token numbers above 2^31 - 1") from error


def _encode_batch(cutter: Tokenizer, texts: list[str]) -> list[Encoding]:
    encode: Any = getattr(cutter, "encode_batch_fast", cutter.encode_batch)  # fast: no offsets
    try:
        return list(encode(texts))
    except (TypeError, UnicodeEncodeError):
        # Half of a surrogate pair is not UTF-8; replace it rather than lose the document.
        return list(encode([t.encode("utf-8", "replace").decode() for t in texts]))


@contextmanager
def _rayon(threads: int) -> Iterator[None]:
    """Only the environment controls the tokenizer's threads."""
    variables = {"TOKENIZERS_PARALLELISM": "false" if threads == 1 else "true"}
    if threads > 1:
        variables["RAYON_NUM_THREADS"] = str(threads)
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
