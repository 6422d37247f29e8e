"""Splits and samples by a hash, so that a document never moves when others come or go."""

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

    The key is whatever must stay together: a text (so that copies of it do not leak from train to
    test), an id, a group. Making ``test`` larger moves no document from test to another part.

    >>> split = HashSplit(dev=0.1, test=0.2, seed=0)
    >>> [split.part(text) for text in ("a red shoe", "a red shoe", "a grey hat")]
    ['test', 'test', 'train']
    """

    def __init__(self, *, dev: float = 0.05, test: float = 0.1, seed: int = 0) -> None:
        for name, share in (("dev", dev), ("test", test)):
            if not 0 <= share < 1:
                raise ConfigError(f"{name}: must be at least 0 and below 1, got {share}")
        if dev + test >= 1:
            raise ConfigError(f"dev and test together must be below 1, got {dev + test:g}")
        self.seed = seed
        self._test = round(test * 2**64)
        self._dev = 2**64 - round(dev * 2**64)

    def part(self, key: str) -> Part:
        """The part that a key belongs to."""
        place = _hash(f"{self.seed}\0{key}")
        if place < self._test:
            return "test"
        return "dev" if place >= self._dev else "train"


def repeated_texts(judged: Iterable[str], learnt: Iterable[str]) -> int:
    """How many of the texts that judge a model are among those that it learns from.

    >>> repeated_texts(["a red shoe", "a grey hat"], ["a grey hat", "a hat"])
    1
    """
    judged = list(judged)
    wanted = set(judged)
    met = {text for text in learnt if text in wanted}
    return sum(text in met for text in judged)


def sample_documents(documents: Iterable[T], n: int, *, seed: int = 0) -> list[T]:
    """``n`` documents at random, each with the same chance, in their order; holds only ``n``.

    Which places are drawn depends on the seed alone, and a larger sample contains a smaller one.

    >>> sample_documents(range(100), 5), sample_documents(range(3), 5)
    ([6, 17, 45, 68, 78], [0, 1, 2])
    """
    if n < 0:
        raise ConfigError(f"n: must not be negative, got {n}")
    # The n places with the smallest hashes; heapq keeps the smallest on top, so they are negated.
    kept: list[tuple[int, int, T]] = []
    for place, document in enumerate(documents):
        entry = (-_hash(f"{seed}\0{place}"), place, document)
        if len(kept) < n:
            heapq.heappush(kept, entry)
        elif n and entry[0] > kept[0][0]:
            heapq.heapreplace(kept, entry)
    return [document for _, _, document in sorted(kept, key=lambda entry: entry[1])]


def _hash(string: str) -> int:
    data = string.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
