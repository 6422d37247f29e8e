"""A made-up shop: product descriptions and their labels, any number of both, from a seed.

Document i of a part is a function of (seed, part, i) and the number of labels: counter-based random
bits (Philox), integer arithmetic and no stored tables make the same bytes on any machine, one
document at a time. Popularity follows Zipf's law. Labels occur together because a product has a
whole category path, because departments have their brands and uses, products their usual material,
and themes their colour and style. What makes the task hard on purpose: labels go unmentioned, are
paraphrased or are missing although true; texts name things that the product is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
from scipy import sparse

from labelgrove.core.arrays import as_csr
from labelgrove.core.strings import StringTable
from labelgrove.data.corpus import Corpus
from labelgrove.datasets.shop_labels import (
    ATTRIBUTES,
    DEPARTMENTS,
    PRODUCTS,
    ShopLabels,
    Wording,
    shop_label_index,
    stable_hash,
)
from labelgrove.errors import ConfigError
from labelgrove.formats.documents import Document

PARTS = ("train", "dev", "test")

# Random numbers of 32 bits per document (_document draws 63 at most), made in blocks
# of documents because one call of NumPy costs as much as a hundred documents' numbers.
_DRAWS = 64
_BLOCK = 256
_T = TypeVar("_T")
_Draw = Callable[[], int]


def _chance(percent: int) -> int:
    return (percent << 32) // 100


# How often a product has the attribute at all, and how often that follows from what it belongs to.
_HAS = {"colour": 60, "material": 60, "use": 40, "audience": 35, "style": 30}
_LIMITS = {kind: _chance(percent) for kind, percent in _HAS.items()}
_BRAND, _THEME, _FOLLOWS, _OWN_DEPARTMENT = _chance(85), _chance(25), _chance(50), _chance(85)
_EXACT, _PARAPHRASE = _chance(55), _chance(82)  # up to here said plainly, up to here paraphrased
_LABELLED, _DEPARTMENT_LABELLED = _chance(80), _chance(55)
_DISTRACTOR, _TYPO = _chance(60), _chance(25)

_LEADS = (
    "Meet the {brand} {noun}.",
    "The {noun} by {brand} is here to stay.",
    "{brand} {noun}, checked by hand before it leaves us.",
    "New in our shop: the {noun} from {brand}.",
    "This {noun} by {brand} does what it should.",
    "With this {noun}, {brand} shows what it can do.",
)
_PLAIN_LEADS = (
    "Meet our {noun}.",
    "This {noun} is here to stay.",
    "Our {noun}, checked by hand before it leaves us.",
    "New in our shop: this {noun}.",
    "This {noun} does what it should.",
    "With this {noun} you cannot go wrong.",
)
_VAGUE = ("piece", "item", "favourite", "companion", "helper", "little wonder", "find", "classic")
_SENTENCES = {
    "department": ("You find it under {}.", "A must for {}.", "One more for {}."),
    "hint": ("Think of {}.", "Where there is {}, it is at home.", "It goes with {}."),
    "detail": ("Good to know: {}.", "What people praise: {}.", "In short: {}."),
    "colour": ("Comes in {}.", "The colour: {}.", "Our photo shows it in {}."),
    "material": ("Made of {}.", "The body is {}.", "For this we chose {}."),
    "use": ("Great for {}.", "You will want it for {}.", "Just the thing for {}."),
    "audience": ("Made with {} in mind.", "Loved by {}.", "A present for {}."),
    "style": ("The look is {}.", "Its design: {}.", "We call the style {}."),
    "theme": ("Part of the {} collection.", "It belongs to {}.", "From our series {}."),
    "cue": ("Inspired by {}.", "It brings {} to mind.", "Expect {}."),
    "series": ("Series: {}.", "You will know {} from last year.", "It continues our {} range."),
}
_DISTRACTORS = (
    ("noun", "Pairs well with our {}."),
    ("noun", "Customers also looked at the {}."),
    ("colour", "Also sold in {}."),
    ("colour", "Sorry, {} is out of stock."),
    ("material", "Never made of {}."),
    ("material", "Cheaper ones use {}."),
    ("brand", "Fits spare parts by {}."),
    ("brand", "A rival to {}."),
    ("use", "Too good for {}."),
    ("audience", "Not only for {}."),
)
_FILLERS = (
    "Delivery takes three working days.",
    "Returns are free for a month.",
    "The size is a little smaller than you might expect.",
    "Please read the leaflet before first use.",
    "Only a few are left at this price.",
    "Our customers give it four stars out of five.",
    "Weight and measures are given below.",
    "It is packed without plastic wrapping.",
    "Wipe it with a damp cloth and let it dry.",
    "Batteries are not included.",
    "The price includes all taxes.",
    "Ask us if anything is unclear.",
    "We have sold it since the shop opened.",
    "It was tested by an independent laboratory.",
    "Colours may look different on your screen.",
    "Keep the receipt for the guarantee.",
    "It is easier to use than it looks.",
    "Nobody has sent it back so far.",
    "The maker replaces broken parts at no cost.",
    "It stood the test of a long winter.",
    "You may order more than one.",
    "It arrives fully assembled.",
    "The box is small enough for a letter box.",
    "Some of the profit goes to good causes.",
)


def shop_documents(
    n: int,
    *,
    labels: int = 2000,
    seed: int = 0,
    part: str = "train",
    start: int = 0,
    every_label: bool = False,
) -> Iterator[Document]:
    """Documents ``start`` to ``start + n`` of a part ("train", "dev" or "test"), one by one.

    By Zipf's law most labels of a large shop never occur. With ``every_label`` each second document
    takes its labels in turn instead of by chance; 1.6 documents per label are enough for all.

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
    """The same documents as a corpus over the index of all labels of the shop.

    >>> corpus = shop_corpus(50, labels=100)
    >>> corpus.labels.shape
    (50, 100)
    """
    shop = _Shop(labels, seed=seed, part=part)
    indptr, indices = [0], list[int]()

    def texts() -> Iterator[str]:
        for _, (text, columns) in shop.rows(0, n):
            indices.extend(columns)
            indptr.append(len(indices))
            yield text

    table = StringTable.from_strings(texts())
    matrix = sparse.csr_array(
        (
            np.ones(len(indices), np.float32),
            np.array(indices, np.int64),
            np.array(indptr, np.int64),
        ),
        shape=(n, labels),
    )
    ids = StringTable.from_strings(f"{part}-{number}" for number in range(n))
    return Corpus(table, as_csr(matrix), shop_label_index(labels, seed), ids)


class _Shop:
    """The generator: holds the label namer and the popularity curves of one shop."""

    def __init__(self, labels: int, *, seed: int, part: str, every_label: bool = False) -> None:
        if part not in PARTS:
            raise ConfigError(f"part: must be one of {', '.join(PARTS)}, got {part!r}")
        self.labels = ShopLabels(labels, seed=seed)
        self.seed = seed
        self.part = PARTS.index(part)
        self.every_label = every_label
        sizes = self.labels.sizes
        # Departments are not sold as such where there is anything below them.
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
        """Text and labels; with a ``turn`` of each kind the label whose turn it is."""
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
        told: list[str] = []

        # The category path: what it is, and what is special about it.
        noun = _said(draw(), names.noun(product)) or _pick(draw(), _VAGUE)
        for wording, before in ((category.feature, True), (category.extra, False)):
            if wording:
                said = _said(draw(), wording)
                if said is wording.exact:
                    noun = f"{said} {noun}" if before else f"{noun} {said}"
                elif said:
                    told.append(_tell(draw(), "detail", said))
        if category.series:
            told.append(_tell(draw(), "series", category.series))
        hint = _pick(draw(), names.hints(department))
        said = _said(draw(), Wording(names.department(department).lower(), hint))
        if said:
            told.append(_tell(draw(), "hint" if said is hint else "department", said))

        brand = self._brand(draw, department)
        if turn is not None and self.any_brand.size:
            brand = turn % self.any_brand.size
        lead = _pick(draw(), _PLAIN_LEADS if brand is None else _LEADS)
        if brand is not None:
            true.append(column("brand", brand))
            lead = lead.format(brand=names.brand(brand), noun=noun)
        else:
            lead = lead.format(noun=noun)

        theme = None
        if (draw() < _THEME or turn is not None) and self.any_theme.size:
            theme = self.any_theme(draw())
            if turn is not None:
                theme = turn % self.any_theme.size
            true.append(column("theme", theme))
            wording = names.theme(theme)
            said = _said(draw(), wording)
            if said:
                told.append(_tell(draw(), "theme" if said is wording.exact else "cue", said))

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
                said = _said(draw(), names.attribute(kind, number))
                if said:
                    told.append(_tell(draw(), kind, said))

        if draw() < _DISTRACTOR:
            told.append(self._distractor(draw))
        told.append(_pick(draw(), _FILLERS))
        told.append(_pick(draw(), _FILLERS))
        cut = _below(draw(), len(told))
        text = " ".join([lead, *told[cut:], *told[:cut]])
        if draw() < _TYPO:
            place = _below(draw(), len(text) - 1)
            text = f"{text[:place]}{text[place + 1]}{text[place]}{text[place + 2 :]}"

        # People forget labels: the leaf is always there, any other only most of the time.
        kept = {leaf, *(label for label in true if turn is not None or draw() < _LABELLED)}
        if draw() < _DEPARTMENT_LABELLED:
            kept.add(column("category", category.path[0]))
        return text, sorted(kept)

    def _brand(self, draw: _Draw, department: int) -> int | None:
        if draw() >= _BRAND or not self.any_brand.size:
            return None
        if draw() < _OWN_DEPARTMENT:
            brand = self.any_shelf(draw()) * DEPARTMENTS + department
            return brand if brand < self.any_brand.size else None
        return self.any_brand(draw())

    def _usual_attribute(self, kind: str, owner: str, which: int) -> int:
        key = (kind, owner, which)
        number = self._usual.get(key)
        if number is None:
            number = self.any_of[kind](stable_hash(self.seed, *key) >> 32)
            self._usual[key] = number
        return number

    def _distractor(self, draw: _Draw) -> str:
        kind, sentence = _pick(draw(), _DISTRACTORS)
        if kind == "noun":
            return sentence.format(self.labels.noun(_below(draw(), PRODUCTS)).exact)
        if kind == "brand":
            if not self.any_brand.size:
                return _FILLERS[0]
            return sentence.format(self.labels.brand(self.any_brand(draw())))
        if not self.any_of[kind].size:
            return _FILLERS[0]
        return sentence.format(self.labels.attribute(kind, self.any_of[kind](draw())).exact)


class Zipf:
    """Numbers 0..size-1 with chances proportional to 1 / (number + offset), from 32 random bits.

    The number is ``offset * ((size + offset) / offset) ** u`` rounded down, less ``offset``, in
    integer arithmetic: power functions of different machines differ in their last bits.

    >>> curve = Zipf(1000, offset=1)
    >>> curve(0), curve(2**31), curve(2**32 - 1)
    (0, 30, 999)
    """

    def __init__(self, size: int, *, offset: int) -> None:
        self.size = size
        self.offset = offset
        # 26 bits after the point, far coarser than any difference between logarithms.
        self.low = round(math.log2(offset) * 2**26)
        self.span = round(math.log2(max(size, 1) + offset) * 2**26) - self.low

    def __call__(self, bits: int) -> int:
        exponent = self.low + (bits * self.span >> 32)
        step, rest = (exponent >> 16) & 1023, exponent & 0xFFFF
        mantissa = _POWERS[step] + ((_POWERS[step + 1] - _POWERS[step]) * rest >> 16)
        number = (mantissa << (exponent >> 26) >> 40) - self.offset
        return min(max(number, 0), self.size - 1)


def _powers_of_two() -> list[int]:
    """2 ** (i / 1024) for i = 0..1024 with 40 bits after the point, exactly rounded down."""
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


def _said(bits: int, wording: Wording) -> str:
    """The label's own words, other words for it, or nothing."""
    if bits < _EXACT:
        return wording.exact
    return wording.paraphrase if bits < _PARAPHRASE else ""


def _tell(bits: int, kind: str, said: str) -> str:
    return _pick(bits, _SENTENCES[kind]).format(said)
