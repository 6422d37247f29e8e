"""A made-up shop: any number of product descriptions and labels, generated from a seed.

Document i of a part depends only on (seed, part, i) and the number of labels: counter-based random
bits (Philox) and integer arithmetic give the same bytes on any machine, one document at a time.
Popularity follows Zipf's law. Labels occur together because a product has a whole category path,
departments have their brands and uses, products their usual material, and themes their colour and
style. The task is hard on purpose: some labels are not mentioned, are paraphrased, or are missing
although true, and texts mention things that the product is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from labelgrove.core.arrays import as_csr
from labelgrove.core.late import sparse
from labelgrove.core.strings import StringTable
from labelgrove.data import shop_words as words
from labelgrove.data.corpus import Corpus
from labelgrove.data.formats.documents import Document
from labelgrove.data.shop_labels import (
    ATTRIBUTES,
    DEPARTMENTS,
    PRODUCTS,
    ShopLabels,
    Wording,
    shop_label_index,
    stable_hash,
)
from labelgrove.data.splits import PARTS
from labelgrove.errors import ConfigError

# Random numbers of 32 bits per document (_document draws at most 63). They are made for blocks of
# documents, because one call of NumPy costs as much as the numbers of a hundred documents.
_DRAWS = 64
_BLOCK = 256
_T = TypeVar("_T")
_Draw = Callable[[], int]


def _chance(percent: int) -> int:
    return (percent << 32) // 100


# How often a product has an attribute, and how often the attribute follows from another label.
_HAS = {"colour": 60, "material": 60, "use": 40, "audience": 35, "style": 30}
_LIMITS = {kind: _chance(percent) for kind, percent in _HAS.items()}
_BRAND, _THEME, _FOLLOWS, _OWN_DEPARTMENT = _chance(85), _chance(25), _chance(50), _chance(85)
_EXACT, _PARAPHRASE = _chance(55), _chance(82)  # below: the exact words; below: a paraphrase
_LABELLED, _DEPARTMENT_LABELLED = _chance(80), _chance(55)
_DISTRACTOR, _TYPO = _chance(60), _chance(25)


def shop_documents(
    n: int,
    *,
    labels: int = 2000,
    seed: int = 0,
    part: str = "train",
    start: int = 0,
    every_label: bool = False,
) -> Iterator[Document]:
    """Documents ``start`` to ``start + n`` of a part ("train", "dev" or "test"), one at a time.

    By Zipf's law, most labels of a large shop never occur. With ``every_label``, every second
    document takes labels in turn instead of at random; 1.6 documents per label cover all of them.

    >>> document = next(shop_documents(1, labels=2000))
    >>> document.id, sorted(document.labels)[:2]
    ('train-0', ['category-227', 'colour-11'])
    """
    shop = _Shop(labels, seed=seed, part=part, every_label=every_label)
    label_id = shop.labels.id
    return (
        Document(text, [label_id(column) for column in columns], f"{part}-{number}")
        for number, (text, columns) in shop.rows(start, n)
    )


def shop_corpus(n: int, *, labels: int = 2000, seed: int = 0, part: str = "train") -> Corpus:
    """The same documents as a corpus, with the index of all labels of the shop."""
    shop = _Shop(labels, seed=seed, part=part)
    indptr, indices = [0], list[int]()

    def texts() -> Iterator[str]:
        for _, (text, columns) in shop.rows(0, n):
            indices.extend(columns)
            indptr.append(len(indices))
            yield text

    table = StringTable.from_strings(texts())
    ones = np.ones(len(indices), np.float32)
    matrix = sparse.csr_array((ones, indices, indptr), shape=(n, labels))
    ids = StringTable.from_strings(f"{part}-{number}" for number in range(n))
    return Corpus(table, as_csr(matrix), shop_label_index(labels, seed), ids)


class _Shop:
    """Generates documents from the labels and the popularity curves of one shop."""

    def __init__(self, labels: int, *, seed: int, part: str, every_label: bool = False) -> None:
        if part not in PARTS:
            raise ConfigError(f"part: must be one of {', '.join(PARTS)}, got {part!r}")
        self.labels = ShopLabels(labels, seed=seed)
        self.seed = seed
        self.part = PARTS.index(part)
        self.every_label = every_label
        sizes = self.labels.sizes
        # A product belongs to a department itself only if there are no other categories.
        self.first_category = DEPARTMENTS if sizes["category"] > DEPARTMENTS else 0
        self.any_category = Zipf(sizes["category"] - self.first_category, offset=8)
        self.any_brand = Zipf(sizes["brand"], offset=2)
        self.any_shelf = Zipf(-(-sizes["brand"] // DEPARTMENTS), offset=1)
        self.any_theme = Zipf(sizes["theme"], offset=1)
        self.any_of = {kind: Zipf(sizes[kind], offset=1) for kind in ATTRIBUTES}
        self._usual: dict[tuple[str, str, int], int] = {}

    def rows(self, start: int, n: int) -> Iterator[tuple[int, tuple[str, list[int]]]]:
        """Numbered documents as (text, sorted label columns)."""
        if n < 0 or start < 0:
            raise ConfigError(f"documents: must not be negative, got {n} from {start}")
        number, end = start, start + n
        while number < end:
            block = number // _BLOCK
            draws = self._draws(block)
            for row in range(number % _BLOCK, min(_BLOCK, end - block * _BLOCK)):
                turn = number // 2 if self.every_label and number % 2 else None
                yield number, self._document(iter(draws[row]).__next__, turn)
                number += 1

    def _draws(self, block: int) -> list[list[int]]:
        bits = np.random.Philox(
            key=np.array([self.seed, 0x6C6162656C67], np.uint64),
            counter=np.array([0, block, self.part, 0], np.uint64),
        ).random_raw(_BLOCK * _DRAWS // 2)
        halves = np.stack([bits & np.uint64(0xFFFFFFFF), bits >> np.uint64(32)], axis=1)
        return halves.reshape(_BLOCK, _DRAWS).tolist()

    def _document(self, draw: _Draw, turn: int | None = None) -> tuple[str, list[int]]:
        """The text and the labels; with a ``turn``, the label of each kind whose turn it is."""
        names, column = self.labels, self.labels.column
        chosen = self.any_category(draw())
        if turn is not None:
            chosen = turn % self.any_category.size
        category = names.category(self.first_category + chosen)
        department = category.department
        product = category.product
        if product is None:
            product = department + DEPARTMENTS * _below(draw(), PRODUCTS // DEPARTMENTS)
        leaf = column("category", category.path[-1])
        true = [column("category", node) for node in category.path[1:-1]]
        sentences: list[str] = []

        def mention(wording: Wording, exact: str, paraphrased: str) -> None:
            words_used = _mention(draw(), wording)
            if words_used:
                kind = exact if words_used is wording.exact else paraphrased
                sentences.append(_sentence(draw(), kind, words_used))

        # The category path: what the product is, and what is special about it.
        noun = _mention(draw(), names.noun(product)) or _pick(draw(), words.VAGUE_NOUNS)
        for wording, before in ((category.feature, True), (category.extra, False)):
            if wording:
                detail = _mention(draw(), wording)
                if detail is wording.exact:
                    noun = f"{detail} {noun}" if before else f"{noun} {detail}"
                elif detail:
                    sentences.append(_sentence(draw(), "detail", detail))
        if category.series:
            sentences.append(_sentence(draw(), "series", category.series))
        hint = _pick(draw(), names.hints(department))
        mention(Wording(names.department(department).lower(), hint), "department", "hint")

        brand = self._brand(draw, department)
        if turn is not None and self.any_brand.size:
            brand = turn % self.any_brand.size
        lead = _pick(draw(), words.LEADS_WITHOUT_BRAND if brand is None else words.LEADS)
        lead = lead.format(brand=None if brand is None else names.brand(brand), noun=noun)
        if brand is not None:
            true.append(column("brand", brand))

        theme = None
        if (draw() < _THEME or turn is not None) and self.any_theme.size:
            theme = self.any_theme(draw())
            if turn is not None:
                theme = turn % self.any_theme.size
            true.append(column("theme", theme))
            mention(names.theme(theme), "theme", "cue")

        follows = {
            "colour": ("theme", theme),
            "material": ("product", product),
            "use": ("department", department),
            "audience": ("department", department),
            "style": ("theme", theme),
        }
        for kind, (owner, which) in follows.items():
            if (draw() < _LIMITS[kind] or turn is not None) and self.any_of[kind].size:
                if turn is not None:
                    number = turn % self.any_of[kind].size
                elif draw() < _FOLLOWS and which is not None:
                    number = self._usual_attribute(kind, owner, which)
                else:
                    number = self.any_of[kind](draw())
                true.append(column(kind, number))
                mention(names.attribute(kind, number), kind, kind)

        if draw() < _DISTRACTOR:
            sentences.append(self._distractor(draw))
        sentences.append(_pick(draw(), words.FILLERS))
        sentences.append(_pick(draw(), words.FILLERS))
        cut = _below(draw(), len(sentences))
        text = " ".join([lead, *sentences[cut:], *sentences[:cut]])
        if draw() < _TYPO:
            place = _below(draw(), len(text) - 1)
            text = f"{text[:place]}{text[place + 1]}{text[place]}{text[place + 2 :]}"

        # People forget labels: only the leaf is always there.
        labels = {leaf, *(label for label in true if turn is not None or draw() < _LABELLED)}
        if draw() < _DEPARTMENT_LABELLED:
            labels.add(column("category", category.path[0]))
        return text, sorted(labels)

    def _brand(self, draw: _Draw, department: int) -> int | None:
        if draw() >= _BRAND or not self.any_brand.size:
            return None
        if draw() < _OWN_DEPARTMENT:
            brand = self.any_shelf(draw()) * DEPARTMENTS + department
            return brand if brand < self.any_brand.size else None
        return self.any_brand(draw())

    def _usual_attribute(self, kind: str, owner: str, which: int) -> int:
        key = (kind, owner, which)
        if key not in self._usual:
            self._usual[key] = self.any_of[kind](stable_hash(self.seed, *key) >> 32)
        return self._usual[key]

    def _distractor(self, draw: _Draw) -> str:
        kind, sentence = _pick(draw(), words.DISTRACTORS)
        if kind == "noun":
            return sentence.format(self.labels.noun(_below(draw(), PRODUCTS)).exact)
        popularity = self.any_brand if kind == "brand" else self.any_of[kind]
        if not popularity.size:
            return words.FILLERS[0]
        number = popularity(draw())
        if kind == "brand":
            return sentence.format(self.labels.brand(number))
        return sentence.format(self.labels.attribute(kind, number).exact)


class Zipf:
    """Numbers 0..size-1 with chances proportional to 1 / (number + offset), from 32 random bits.

    The number is ``offset * ((size + offset) / offset) ** u``, rounded down, minus ``offset``. It
    is computed with integers, because power functions of machines differ in their last bits.
    """

    def __init__(self, size: int, *, offset: int) -> None:
        self.size = size
        self.offset = offset
        # 26 bits after the point are far coarser than any difference between logarithms.
        self.low = round(math.log2(offset) * 2**26)
        self.span = round(math.log2(max(size, 1) + offset) * 2**26) - self.low

    def __call__(self, bits: int) -> int:
        exponent = self.low + (bits * self.span >> 32)
        step, rest = (exponent >> 16) & 1023, exponent & 0xFFFF
        mantissa = _POWERS[step] + ((_POWERS[step + 1] - _POWERS[step]) * rest >> 16)
        number = (mantissa << (exponent >> 26) >> 40) - self.offset
        return min(max(number, 0), self.size - 1)


def _powers_of_two() -> list[int]:
    """2 ** (i / 1024) for i = 0..1024 with 40 bits after the point, rounded down exactly."""
    root = 2 << 200
    for _ in range(10):
        root = math.isqrt(root << 200)
    powers = [1 << 200]
    for _ in range(1024):
        powers.append(powers[-1] * root >> 200)
    return [power >> 160 for power in powers[:-1]] + [2 << 40]


_POWERS = _powers_of_two()


def _below(bits: int, size: int) -> int:
    return bits * size >> 32


def _pick(bits: int, values: tuple[_T, ...]) -> _T:
    return values[bits * len(values) >> 32]


def _mention(bits: int, wording: Wording) -> str:
    """The label's own words, other words for it, or nothing."""
    if bits < _EXACT:
        return wording.exact
    return wording.paraphrase if bits < _PARAPHRASE else ""


def _sentence(bits: int, kind: str, mention: str) -> str:
    return _pick(bits, words.SENTENCES[kind]).format(mention)
