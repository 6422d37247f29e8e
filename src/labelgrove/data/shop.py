"""A made-up shop: any number of product descriptions and labels, generated from a seed.

Document i of a part depends only on (seed, part, i) and the number of labels: counter-based random
bits (Philox) and integer arithmetic give the same bytes on any machine, one document at a time.
Popularity follows Zipf's law. Labels occur together because a product has a whole category path,
departments have their brands and uses, products their usual material, and themes their colour and
style. The task is hard on purpose: some labels are not mentioned, are paraphrased, or are missing
although true, and texts mention things that the product is not.

A label is a category of a tree (department, product, feature, extra, series), an invented brand, or
a colour, material, use, audience, style or theme. Its meaning is computed from its kind, its number
and the seed, not stored: ``category-17`` is the same in a shop with three million labels.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from itertools import accumulate
from typing import NamedTuple, TypeVar

import numpy as np

from labelgrove.data import shop_words as words
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.formats.building import TableBuilder, build_corpus
from labelgrove.data.formats.documents import Document, ReadReport
from labelgrove.data.shop_words import ATTRIBUTES, Wording, capital, plural
from labelgrove.data.splits import PARTS, string_hash
from labelgrove.errors import ConfigError

MIN_LABELS, MAX_LABELS = 10, 100_000_000
# Random numbers of 32 bits per document (a document draws at most 63). They are made for blocks of
# documents, because one call of NumPy costs as much as the numbers of a hundred documents.
_DRAWS, _BLOCK = 64, 256
_T = TypeVar("_T")
_Draw = Callable[[], int]
DEPARTMENTS = len(words.DEPARTMENT_WORDS)
PRODUCTS = DEPARTMENTS * 14
# Categories are numbered level by level: the first number of each level.
_FIRST_FEATURED = DEPARTMENTS + PRODUCTS
_FIRST_EXTENDED = _FIRST_FEATURED + PRODUCTS * len(words.FEATURES)
_EXTENDED = PRODUCTS * len(words.FEATURES) * len(words.EXTRAS)
_FIRST_SERIES = _FIRST_EXTENDED + _EXTENDED


class Category(NamedTuple):
    """A node of the tree, with everything that is true of a product in it."""

    path: tuple[int, ...]  # category numbers, department first, this node last
    product: int | None
    feature: Wording | None
    extra: Wording | None
    series: str | None


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
    shop = Shop(labels, seed)
    for number, text, columns in shop.documents(n, part, start, every_label):
        yield Document(text, [shop.id(column) for column in columns], f"{part}-{number}")


def shop_corpus(n: int, *, labels: int = 2000, seed: int = 0, part: str = "train") -> Corpus:
    """The same documents as a corpus, with the index of all labels of the shop."""
    documents = shop_documents(n, labels=labels, seed=seed, part=part)
    index = shop_label_index(labels, seed)
    return build_corpus(documents, source="shop", report=ReadReport(), index=index)


def shop_label_index(labels: int = 2000, seed: int = 0) -> LabelIndex:
    """The index of all labels of a made-up shop: ids, names, texts, and a group per kind."""
    shop, builders = Shop(labels, seed), [TableBuilder() for _ in range(3)]
    for row in shop.rows():
        for value, builder in zip(row, builders, strict=True):
            builder.add(value)
    ids, names, texts = (builder.table() for builder in builders)
    ranges = {kind: range(start, start + shop.sizes[kind]) for kind, start in shop.starts.items()}
    groups = {kind: columns for kind, columns in ranges.items() if columns}
    return LabelIndex(ids, names=names, texts=texts, groups=groups)


def shop_label_rows(labels: int = 2000, seed: int = 0) -> Iterator[tuple[str, str, str]]:
    """The id, name and text of every label of a made-up shop, in column order."""
    return Shop(labels, seed).rows()


class Shop:
    """The labels of one shop, by kind and number and by column, and its documents."""

    def __init__(self, labels: int, seed: int = 0) -> None:
        if not MIN_LABELS <= labels <= MAX_LABELS:
            raise ConfigError(
                f"labels: must be between {MIN_LABELS} and {MAX_LABELS:,}, got {labels:,}"
            )
        if not 0 <= seed < 2**64:
            raise ConfigError(f"seed: must be between 0 and 2^64 - 1, got {seed}")
        self.seed = seed
        most = len(words.THEMES[0]) * len(words.THEMES[1])
        others = {"brand": labels * 22 // 100, "theme": min(labels * 6 // 100, most)}
        for kind, (pairs, modifiers, share, *_) in ATTRIBUTES.items():
            others[kind] = min(labels * share // 100, len(pairs) * len(modifiers))
        self.sizes = {"category": labels - sum(others.values()), **others}
        self._ends = list(accumulate(self.sizes.values()))
        self.starts = dict(zip(self.sizes, [0, *self._ends[:-1]], strict=True))
        # A product belongs to a department itself only if there are no other categories.
        self._first = DEPARTMENTS if self.sizes["category"] > DEPARTMENTS else 0
        kinds = {kind: Zipf(size, 2 if kind == "brand" else 1) for kind, size in others.items()}
        self._any = {**kinds, "category": Zipf(self.sizes["category"] - self._first, 8)}
        self._shelf = Zipf(-(-self.sizes["brand"] // DEPARTMENTS), 1)
        # Popular labels need their names again and again; the caches have a fixed size.
        self.category = lru_cache(1 << 14)(self._category)
        self.brand = lru_cache(1 << 14)(self._brand)
        self.wording = lru_cache(1 << 13)(self._wording)
        self._hash = lru_cache(1 << 15)(self._hashed)
        self._order = cache(self._shuffled)
        self._nouns = [self._noun(product) for product in range(PRODUCTS)]
        self._plurals = [plural(noun) for noun, _ in self._nouns]

    def id(self, column: int) -> str:
        """The id of the label in a column: its kind and number."""
        place = bisect_right(self._ends, column)
        kind, start = list(self.starts.items())[place]
        return f"{kind}-{column - start}"

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """The id, name and text of every label in column order, one at a time."""
        for kind, size in self.sizes.items():
            for number in range(size):
                yield f"{kind}-{number}", *self.describe(kind, number)

    def describe(self, kind: str, number: int) -> tuple[str, str]:
        """A label's name, and a text about it for methods that read label texts."""
        if kind == "category":
            category = self._category(number)
            names = self._path_names(category)
            others = list(self._department(category.path[0])[1])
            if category.product is not None:
                others = [self._nouns[category.product][1]]
            others += [wording[1] for wording in (category.feature, category.extra) if wording]
            return names[-1], f"{' > '.join(names)}. Also: {', '.join(others)}"
        if kind == "brand":
            name = self._brand(number)
            department = self._department(number % DEPARTMENTS)[0].lower()
            return name, f"Products by {name}, mostly for {department}"
        exact, paraphrase = self._wording(kind, number)
        if kind == "theme":
            name = f"{exact} collection"
            return name, f"The {name}, inspired by {paraphrase}"
        name = capital(exact) + (" style" if kind == "style" else "")
        return name, f"{kind.capitalize()}: {exact}, {paraphrase}"

    def _path_names(self, category: Category) -> list[str]:
        """The names on the path from the department to this category."""
        names = [self._department(category.path[0])[0]]
        if category.product is None:
            return names
        plain = self._plurals[category.product]
        names.append(capital(plain))
        if category.feature:
            names.append(f"{capital(category.feature[0])} {plain}")
        if category.extra:
            names.append(f"{names[-1]} {category.extra[0]}")
        if category.series:
            names.append(f"{names[-1]}, {category.series} series")
        return names

    def _department(self, number: int) -> tuple[str, tuple[str, ...], tuple[Wording, ...]]:
        return words.DEPARTMENT_WORDS[self._order("department", DEPARTMENTS)[number]]

    def _noun(self, product: int) -> Wording:
        """The singular noun of a product; its department is ``product % DEPARTMENTS``."""
        department = self._order("department", DEPARTMENTS)[product % DEPARTMENTS]
        nouns = words.DEPARTMENT_WORDS[department][2]
        return nouns[self._order(f"nouns {department}", len(nouns))[product // DEPARTMENTS]]

    def _category(self, number: int) -> Category:
        # Levels are numbered one after the other. Within a level, children take turns with their
        # parents, so that every parent has its first child before any has its second.
        path = [number]
        product = feature = extra = series = None
        if number >= _FIRST_SERIES:
            digit, parent = divmod(number - _FIRST_SERIES, _EXTENDED)
            series = _series(digit)
            path.append(number := _FIRST_EXTENDED + parent)
        if number >= _FIRST_EXTENDED:
            digit, parent = divmod(number - _FIRST_EXTENDED, PRODUCTS * len(words.FEATURES))
            extra = self._stepped(words.EXTRAS, "extra", parent, digit)
            path.append(number := _FIRST_FEATURED + parent)
        if number >= _FIRST_FEATURED:
            digit, parent = divmod(number - _FIRST_FEATURED, PRODUCTS)
            feature = self._stepped(words.FEATURES, "feature", parent, digit)
            path.append(number := DEPARTMENTS + parent)
        if number >= DEPARTMENTS:
            product = number - DEPARTMENTS
            path.append(product % DEPARTMENTS)
        return Category(tuple(reversed(path)), product, feature, extra, series)

    def _stepped(self, pairs: tuple[Wording, ...], what: str, parent: int, digit: int) -> Wording:
        """The digit-th of a prime number of words, in an order that depends on the parent."""
        mixed = self._hash(what, parent)
        stride = 1 + mixed % (len(pairs) - 1)
        return pairs[(mixed // len(pairs) + digit * stride) % len(pairs)]

    def _brand(self, number: int) -> str:
        starts, middles, ends = words.BRANDS
        count = len(starts) * len(middles) * len(ends)
        # The multiplier has no common factor with the number of brands, so each name occurs once.
        place, end = divmod((number * 7919 + self._hash("brand")) % count, len(ends))
        start, middle = divmod(place, len(middles))
        name = f"{starts[start]}{middles[middle]}{ends[end]}"
        line = number // count  # when all names are used, brands get product lines
        return f"{name} {_series(line - 1)}" if line else name

    def _wording(self, kind: str, number: int) -> Wording:
        """The words of an attribute or a theme."""
        if kind != "theme":
            pairs, modifiers = ATTRIBUTES[kind][:2]
            exact, paraphrase = pairs[self._order(kind, len(pairs))[number % len(pairs)]]
            modifier = modifiers[number // len(pairs)]
            return f"{modifier} {exact}".strip(), f"{modifier} {paraphrase}".strip()
        adjectives, nouns = words.THEMES
        step, row = divmod(number, len(adjectives))
        adjective = adjectives[self._order("adjective", len(adjectives))[row]]
        noun = nouns[self._order("noun", len(nouns))[(row + step) % len(nouns)]]
        one = self._hash("cue", number) % len(words.CUES)
        other = one + 1 + self._hash("cue 2", number) % (len(words.CUES) - 1)
        return f"{adjective} {noun}", f"{words.CUES[one]} and {words.CUES[other % len(words.CUES)]}"

    def _shuffled(self, what: str, size: int) -> list[int]:
        """The numbers 0..size-1 in an order that depends on the seed, so that shops differ."""
        return sorted(range(size), key=lambda i: self._hashed(what, i))

    def _hashed(self, *parts: int | str) -> int:
        return string_hash("/".join(map(str, (self.seed, *parts))))

    def documents(
        self, n: int, part: str, start: int = 0, every_label: bool = False
    ) -> Iterator[tuple[int, str, list[int]]]:
        """Numbers, texts and sorted label columns of documents."""
        if part not in PARTS:
            raise ConfigError(f"part: must be one of {', '.join(PARTS)}, got {part!r}")
        if n < 0 or start < 0:
            raise ConfigError(f"documents: must not be negative, got {n} from {start}")
        draws: list[list[int]] = []
        for number in range(start, start + n):
            block, row = divmod(number, _BLOCK)
            if not draws or row == 0:
                draws = self._draws(block, PARTS.index(part))
            turn = number // 2 if every_label and number % 2 else None
            yield number, *self._document(iter(draws[row]).__next__, turn)

    def _draws(self, block: int, part: int) -> list[list[int]]:
        bits = np.random.Philox(
            key=np.array([self.seed, 0x6C6162656C67], np.uint64),
            counter=np.array([0, block, part, 0], np.uint64),
        ).random_raw(_BLOCK * _DRAWS // 2)
        halves = np.stack([bits & np.uint64(0xFFFFFFFF), bits >> np.uint64(32)], axis=1)
        return halves.reshape(_BLOCK, _DRAWS).tolist()

    def _document(self, draw: _Draw, turn: int | None = None) -> tuple[str, list[int]]:
        """The text and the labels; with a ``turn``, the label of each kind whose turn it is."""

        def popular(kind: str) -> int:
            drawn = self._any[kind](draw())
            return drawn if turn is None else turn % self._any[kind].size

        def mention(wording: Wording, exact: str, paraphrased: str) -> None:
            if mentioned := _mention(draw(), wording):
                sentences.append(
                    _sentence(draw(), exact if mentioned == wording[0] else paraphrased, mentioned)
                )

        category = self.category(self._first + popular("category"))
        department, *between = category.path
        product = category.product
        if product is None:
            product = department + DEPARTMENTS * _below(draw(), PRODUCTS // DEPARTMENTS)
        true = between[:-1]  # columns of categories are their numbers
        sentences: list[str] = []

        # The category path: what the product is, and what is special about it.
        noun = _mention(draw(), self._nouns[product]) or _pick(draw(), words.VAGUE_NOUNS)
        for wording, before in ((category.feature, True), (category.extra, False)):
            if wording:
                detail = _mention(draw(), wording)
                if detail == wording[0]:
                    noun = f"{detail} {noun}" if before else f"{noun} {detail}"
                elif detail:
                    sentences.append(_sentence(draw(), "detail", detail))
        if category.series:
            sentences.append(_sentence(draw(), "series", category.series))
        name, hints, _ = self._department(department)
        mention((name.lower(), _pick(draw(), hints)), "department", "hint")

        brand = self._brand_of(draw, department)
        if turn is not None and self.sizes["brand"]:
            brand = turn % self.sizes["brand"]
        lead = _pick(
            draw(), tuple(words.LINES["leads without brand" if brand is None else "leads"])
        )
        lead = lead.format(brand=None if brand is None else self.brand(brand), noun=noun)
        if brand is not None:
            true.append(self.starts["brand"] + brand)

        theme = None
        if (draw() < _chance(25) or turn is not None) and self.sizes["theme"]:
            theme = popular("theme")
            true.append(self.starts["theme"] + theme)
            mention(self.wording("theme", theme), "theme", "cue")

        owners = {"theme": theme, "product": product, "department": department}
        for kind, (_, _, _, frequency, owner) in ATTRIBUTES.items():
            if (draw() < _chance(frequency) or turn is not None) and self.sizes[kind]:
                if turn is not None:
                    number = turn % self.sizes[kind]
                elif draw() < _chance(50) and owners[owner] is not None:
                    number = self._any[kind](self._hash(kind, owner, owners[owner]) >> 32)
                else:
                    number = self._any[kind](draw())
                true.append(self.starts[kind] + number)
                mention(self.wording(kind, number), kind, kind)

        if draw() < _chance(60):
            sentences.append(self._distractor(draw))
        sentences += [_pick(draw(), words.FILLERS), _pick(draw(), words.FILLERS)]
        cut = _below(draw(), len(sentences))
        text = " ".join([lead, *sentences[cut:], *sentences[:cut]])
        if draw() < _chance(25):  # a typo
            place = _below(draw(), len(text) - 1)
            text = f"{text[:place]}{text[place + 1]}{text[place]}{text[place + 2 :]}"

        # People forget labels: only the leaf is always there.
        own = {category.path[-1]}
        own |= {label for label in true if turn is not None or draw() < _chance(80)}
        if draw() < _chance(55):
            own.add(department)
        return text, sorted(own)

    def _brand_of(self, draw: _Draw, department: int) -> int | None:
        if draw() >= _chance(85) or not self.sizes["brand"]:
            return None
        if draw() < _chance(85):
            brand = self._shelf(draw()) * DEPARTMENTS + department
            return brand if brand < self.sizes["brand"] else None
        return self._any["brand"](draw())

    def _distractor(self, draw: _Draw) -> str:
        kind, sentence = _pick(draw(), words.DISTRACTORS)
        if kind == "noun":
            return sentence.format(self._nouns[_below(draw(), PRODUCTS)][0])
        if not self.sizes[kind]:
            return words.FILLERS[0]
        number = self._any[kind](draw())
        return sentence.format(
            self.brand(number) if kind == "brand" else self.wording(kind, number)[0]
        )


class Zipf:
    """Numbers 0..size-1 with chances proportional to 1 / (number + offset), from 32 random bits.

    The number is ``offset * ((size + offset) / offset) ** u``, rounded down, minus ``offset``. It
    is computed with integers, because power functions of machines differ in their last bits.
    """

    def __init__(self, size: int, offset: int) -> None:
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


def _series(number: int) -> str:
    again, which = divmod(number, len(words.SERIES))
    return f"{words.SERIES[which]} {again + 1}" if again else words.SERIES[which]


@cache
def _chance(percent: int) -> int:
    return (percent << 32) // 100


def _below(bits: int, size: int) -> int:
    return bits * size >> 32


def _pick(bits: int, values: tuple[_T, ...]) -> _T:
    return values[bits * len(values) >> 32]


def _mention(bits: int, wording: Wording) -> str:
    """The label's own words, other words for it, or nothing."""
    return wording[bits >= _chance(55)] if bits < _chance(82) else ""


def _sentence(bits: int, kind: str, mention: str) -> str:
    return _pick(bits, words.SENTENCES[kind]).format(mention)
