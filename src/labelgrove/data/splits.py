"""Splits and samples by a hash, so that a document keeps its part when others come or go."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable
from typing import Literal, TypeVar

from labelgrove.errors import ConfigError

T = TypeVar("T")
Part = Literal["train", "dev", "test"]
PARTS: tuple[Part, ...] = ("train", "dev", "test")


class HashSplit:
    """Sends a document to train, dev or test by a hash of its key and the seed.

    Documents with the same key stay together: a text (so that copies do not leak from train to
    test), an id, a group. A larger ``test`` moves no document from test to another part.

    >>> split = HashSplit(dev=0.1, test=0.2, seed=0)
    >>> [split.part(text) for text in ("a red shoe", "a red shoe", "a grey hat")]
    ['test', 'test', 'train']
    """

    def __init__(self, *, dev: float = 0.05, test: float = 0.1, seed: int = 0) -> None:
        check_shares(dev, test)
        self.seed = seed
        self._test = round(test * 2**64)
        self._dev = 2**64 - round(dev * 2**64)

    def part(self, key: str) -> Part:
        """The part that a key belongs to."""
        number = string_hash(f"{self.seed}\0{key}")
        if number < self._test:
            return "test"
        return "dev" if number >= self._dev else "train"


def check_shares(dev: float, test: float) -> None:
    """Raises an error for shares that leave nothing for train."""
    for name, share in (("dev", dev), ("test", test)):
        if not 0 <= share < 1:
            raise ConfigError(f"{name}: must be at least 0 and below 1, got {share}")
    if dev + test >= 1:
        raise ConfigError(f"dev and test together must be below 1, got {dev + test:g}")


def repeated_texts(judged: Iterable[str], learnt: Iterable[str]) -> int:
    """How many of the ``judged`` texts, which measure a model, are among those it learns from."""
    judged = list(judged)
    repeated = set(judged).intersection(learnt)
    return sum(text in repeated for text in judged)


def sample_documents(documents: Iterable[T], n: int, *, seed: int = 0) -> list[T]:
    """``n`` random documents, all equally likely, in their order; keeps only ``n`` in memory.

    The positions depend on the seed alone, and a larger sample contains a smaller one.

    >>> sample_documents(range(100), 5), sample_documents(range(3), 5)
    ([6, 17, 45, 68, 78], [0, 1, 2])
    """
    if n < 0:
        raise ConfigError(f"n: must not be negative, got {n}")
    entries = ((string_hash(f"{seed}\0{i}"), i, document) for i, document in enumerate(documents))
    sample = heapq.nsmallest(n, entries, key=lambda entry: entry[0])
    return [document for _, _, document in sorted(sample, key=lambda entry: entry[1])]


def string_hash(string: str) -> int:
    """A number of 64 bits."""
    data = string.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
