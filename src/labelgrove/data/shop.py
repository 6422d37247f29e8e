"""A made-up shop: any number of product descriptions and labels, generated from a seed.

Document i of a part depends only on (seed, part, i) and the number of labels: counter-based random
bits (Philox) make one document at a time. Popularity follows Zipf's law. Labels occur together
because a product has a whole category path, departments have their brands and uses, products their
usual material, and themes their colour and style. The task is hard on purpose: some labels are not
mentioned, are paraphrased, or are missing although true, and texts mention things that the product
is not.

A label is a category of a tree (department, product, feature, extra, series), an invented brand, or
a colour, material, use, audience, style or theme. Its meaning is computed from its kind, its number
and the seed, not stored: ``category-17`` is the same in a shop with three million labels. Words and
sentences are in shop_words.txt.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from labelgrove.core.strings import StringTable
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.formats.building import build_corpus
from labelgrove.data.formats.documents import Document, ReadReport
from labelgrove.data.splits import PARTS, string_hash
from labelgrove.errors import ConfigError

MIN_LABELS, MAX_LABELS = 10, 100_000_000
# Random numbers per document (it draws at most 63). They are made for blocks of documents, because
# one call of NumPy costs as much as the numbers of a hundred documents.
_DRAWS, _BLOCK = 64, 256
_T = TypeVar("_T")
_Draw = Callable[[], float]
Wording = tuple[str, str]  # a label's own words, and other words that mean the same


def _sections() -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    for line in Path(__file__).with_name("shop_words.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            sections[line.strip("[]")] = lines = []
        elif line and not line.startswith("#"):
            lines.append(line)
    return sections


def _pairs(lines: list[str]) -> tuple[Wording, ...]:
    """Comma-separated ``word=paraphrase`` items; without a paraphrase, a word is its own."""
    items = (item.strip().split("=") for item in " ".join(lines).strip(", ").split(","))
    return tuple((parts[0], parts[-1]) for parts in items)


def _words(name: str) -> list[str]:
    return " ".join(_LINES[name]).split()


def _by_kind(name: str) -> list[tuple[str, str]]:
    return [(line.partition(": ")[0], line.partition(": ")[2]) for line in _LINES[name]]


_LINES = _sections()
_STARTS = [number for number, line in enumerate(_LINES["departments"]) if ";" in line]
# Of each department: its name, hints that give it away without naming it, and its products.
DEPARTMENT_WORDS = [
    (name, tuple(hints.split(", ")), _pairs(_LINES["departments"][first + 1 : last]))
    for first, last in zip(_STARTS, [*_STARTS[1:], None], strict=True)
    for name, hints in [_LINES["departments"][first].split("; ")]
]
FEATURES, EXTRAS = _pairs(_LINES["features"]), _pairs(_LINES["extras"])
SERIES, CUES = _words("series"), _words("cues")
THEMES = _words("theme adjectives"), _words("theme nouns")
BRANDS = [_words(f"brand {part}") for part in ("starts", "middles", "ends")]
SENTENCES = {kind: tuple(sentences.split(" / ")) for kind, sentences in _by_kind("sentences")}
DISTRACTORS, FILLERS = tuple(_by_kind("distractors")), tuple(_LINES["fillers"])
VAGUE_NOUNS = tuple(noun for noun, _ in _pairs(_LINES["vague nouns"]))


class Attribute(NamedTuple):
    """A kind of label, in percent: its share of all labels, and of products that have one."""

    words: tuple[Wording, ...]
    modifiers: list[str]  # they multiply the words; the first is none
    share: int
    frequency: int
    follows: str  # the kind of thing on which it often depends


# Brands take 22 % of all labels, themes 6 %, and categories everything else.
ATTRIBUTES = {
    kind: Attribute(_pairs(_LINES[words]), ["", *_words(modifiers)], share, frequency, follows)
    for kind, words, modifiers, share, frequency, follows in (
        ("colour", "colours", "shades", 3, 60, "theme"),
        ("material", "materials", "finishes", 3, 60, "product"),
        ("use", "uses", "seasons", 3, 40, "department"),
        ("audience", "audiences", "groups", 2, 35, "department"),
        ("style", "styles", "moods", 2, 30, "theme"),
    )
}


DEPARTMENTS = len(DEPARTMENT_WORDS)
_SHELF = 14  # products of each department
PRODUCTS = DEPARTMENTS * _SHELF
# Categories are numbered level by level: the first number of each level.
_FIRST_FEATURED = DEPARTMENTS + PRODUCTS
_FIRST_EXTENDED = _FIRST_FEATURED + PRODUCTS * len(FEATURES)
_EXTENDED = PRODUCTS * len(FEATURES) * len(EXTRAS)
_FIRST_SERIES = _FIRST_EXTENDED + _EXTENDED


class Category(NamedTuple):
    """A node of the tree, with everything that is true of a product in it."""

    path: list[int]  # category numbers, department first, this node last
    names: list[str]  # on the path
    product: int | None
    feature: Wording | None
    extra: Wording | None
    series: str | None


def shop_documents(
    n: int, *, labels: int = 2000, seed: int = 0, part: str = "train", every_label: bool = False
) -> Iterator[Document]:
    """The first documents of a part ("train", "dev" or "test"), one at a time.

    By Zipf's law, most labels of a large shop never occur. With ``every_label``, every second
    document takes labels in turn instead of at random; 1.6 documents per label cover all of them.

    >>> document = next(shop_documents(1, labels=2000))
    >>> document.id, sorted(document.labels)[:2]
    ('train-0', ['category-227', 'colour-11'])
    """
    shop = Shop(labels, seed)
    for number, text, columns in shop.documents(n, part, every_label):
        yield Document(text, [shop.id(column) for column in columns], f"{part}-{number}")


def shop_corpus(n: int, *, labels: int = 2000, seed: int = 0, part: str = "train") -> Corpus:
    """The same documents as a corpus, with the index of all labels of the shop."""
    documents = shop_documents(n, labels=labels, seed=seed, part=part)
    index = shop_label_index(labels, seed)
    return build_corpus(documents, source="shop", report=ReadReport(), index=index)


def shop_label_index(labels: int = 2000, seed: int = 0) -> LabelIndex:
    """The index of all labels of a made-up shop: ids, names, texts, and a group per kind."""
    shop = Shop(labels, seed)
    ids, names, texts = map(StringTable.from_strings, zip(*shop.rows(), strict=True))
    ranges = {kind: range(start, start + shop.sizes[kind]) for kind, start in shop.starts.items()}
    groups = {kind: columns for kind, columns in ranges.items() if columns}
    return LabelIndex(ids, names=names, texts=texts, groups=groups)


def shop_label_rows(labels: int = 2000, seed: int = 0) -> Iterator[tuple[str, str, str]]:
    """The id, name and text of every label of a made-up shop, in column order."""
    return Shop(labels, seed).rows()


class Shop:
    """The labels of one shop, by kind and number and by column, and its documents."""

    def __init__(self, labels: int, seed: int) -> None:
        if not MIN_LABELS <= labels <= MAX_LABELS:
            raise ConfigError(
                f"labels: must be between {MIN_LABELS} and {MAX_LABELS:,}, got {labels:,}"
            )
        if not 0 <= seed < 2**64:
            raise ConfigError(f"seed: must be between 0 and 2^64 - 1, got {seed}")
        self.seed = seed
        most = len(THEMES[0]) * len(THEMES[1])
        others = {"brand": labels * 22 // 100, "theme": min(labels * 6 // 100, most)}
        for kind, (pairs, modifiers, share, *_) in ATTRIBUTES.items():
            others[kind] = min(labels * share // 100, len(pairs) * len(modifiers))
        self.sizes = {"category": labels - sum(others.values()), **others}
        self._ends = list(accumulate(self.sizes.values()))
        self.starts = dict(zip(self.sizes, [0, *self._ends[:-1]], strict=True))
        # A product belongs to a department itself only if there are no other categories.
        self._first = DEPARTMENTS if self.sizes["category"] > DEPARTMENTS else 0
        self._drawn = self.sizes | {"category": self.sizes["category"] - self._first}
        # Popular labels need their names again and again; the caches have a fixed size.
        self.category = lru_cache(1 << 14)(self._category)
        self._hash = lru_cache(1 << 15)(self._hashed)
        self._order = cache(self._shuffled)
        order = self._shuffled("department", DEPARTMENTS)
        self._departments = [DEPARTMENT_WORDS[place] for place in order]
        shelves = [
            [DEPARTMENT_WORDS[place][2][n] for n in self._shuffled(f"nouns {place}", _SHELF)]
            for place in order
        ]
        # The singular nouns of products; the department is ``product % DEPARTMENTS``.
        self._nouns = [shelf[n] for n in range(_SHELF) for shelf in shelves]

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
            names, others = category.names, list(self._departments[category.path[0]][1])
            if category.product is not None:
                others = [self._nouns[category.product][1]]
            others += [wording[1] for wording in (category.feature, category.extra) if wording]
            return names[-1], f"{' > '.join(names)}. Also: {', '.join(others)}"
        if kind == "brand":
            name = self.brand(number)
            department = self._departments[number % DEPARTMENTS][0].lower()
            return name, f"Products by {name}, mostly for {department}"
        exact, paraphrase = self.wording(kind, number)
        if kind == "theme":
            name = f"{exact} collection"
            return name, f"The {name}, inspired by {paraphrase}"
        name = capital(exact) + (" style" if kind == "style" else "")
        return name, f"{kind.capitalize()}: {exact}, {paraphrase}"

    def _category(self, number: int) -> Category:
        # Levels are numbered one after the other. Within a level, children take turns with their
        # parents, so that every parent has its first child before any has its second.
        path, names = [number], list[str]()
        product = feature = extra = series = None
        if number >= _FIRST_SERIES:
            digit, parent = divmod(number - _FIRST_SERIES, _EXTENDED)
            series = _series(digit)
            path.append(number := _FIRST_EXTENDED + parent)
        if number >= _FIRST_EXTENDED:
            digit, parent = divmod(number - _FIRST_EXTENDED, PRODUCTS * len(FEATURES))
            extra = self._stepped(EXTRAS, "extra", parent, digit)
            path.append(number := _FIRST_FEATURED + parent)
        if number >= _FIRST_FEATURED:
            digit, parent = divmod(number - _FIRST_FEATURED, PRODUCTS)
            feature = self._stepped(FEATURES, "feature", parent, digit)
            path.append(number := DEPARTMENTS + parent)
        if number >= DEPARTMENTS:
            product = number - DEPARTMENTS
            path.append(product % DEPARTMENTS)
            several = plural(self._nouns[product][0])
            names.append(capital(several))
            if feature:
                names.append(f"{capital(feature[0])} {several}")
            if extra:
                names.append(f"{names[-1]} {extra[0]}")
            if series:
                names.append(f"{names[-1]}, {series} series")
        names.insert(0, self._departments[path[-1]][0])
        return Category(path[::-1], names, product, feature, extra, series)

    def _stepped(self, pairs: tuple[Wording, ...], what: str, parent: int, digit: int) -> Wording:
        """The digit-th of a prime number of words, in an order that depends on the parent."""
        mixed = self._hash(what, parent)
        stride = 1 + mixed % (len(pairs) - 1)
        return pairs[(mixed // len(pairs) + digit * stride) % len(pairs)]

    def brand(self, number: int) -> str:
        starts, middles, ends = BRANDS
        count = len(starts) * len(middles) * len(ends)
        # The multiplier has no common factor with the number of brands, so each name occurs once.
        place, end = divmod((number * 7919 + self._hash("brand")) % count, len(ends))
        start, middle = divmod(place, len(middles))
        name = f"{starts[start]}{middles[middle]}{ends[end]}"
        line = number // count  # when all names are used, brands get product lines
        return f"{name} {_series(line - 1)}" if line else name

    def wording(self, kind: str, number: int) -> Wording:
        """The words of an attribute or a theme."""
        if kind != "theme":
            pairs, modifiers = ATTRIBUTES[kind][:2]
            exact, paraphrase = pairs[self._order(kind, len(pairs))[number % len(pairs)]]
            modifier = modifiers[number // len(pairs)]
            return f"{modifier} {exact}".strip(), f"{modifier} {paraphrase}".strip()
        adjectives, nouns = THEMES
        step, row = divmod(number, len(adjectives))
        adjective = adjectives[self._order("adjective", len(adjectives))[row]]
        noun = nouns[self._order("noun", len(nouns))[(row + step) % len(nouns)]]
        one = self._hash("cue", number) % len(CUES)
        other = one + 1 + self._hash("cue 2", number) % (len(CUES) - 1)
        return f"{adjective} {noun}", f"{CUES[one]} and {CUES[other % len(CUES)]}"

    def _shuffled(self, what: str, size: int) -> list[int]:
        """The numbers 0..size-1 in an order that depends on the seed, so that shops differ."""
        return sorted(range(size), key=lambda i: self._hashed(what, i))

    def _hashed(self, *parts: int | str) -> int:
        return string_hash("/".join(map(str, (self.seed, *parts))))

    def documents(
        self, n: int, part: str, every_label: bool = False
    ) -> Iterator[tuple[int, str, list[int]]]:
        """Numbers, texts and sorted label columns of documents."""
        if part not in PARTS:
            raise ConfigError(f"part: must be one of {', '.join(PARTS)}, got {part!r}")
        if n < 0:
            raise ConfigError(f"documents: must not be negative, got {n}")
        draws: list[list[float]] = []
        for number in range(n):
            block, row = divmod(number, _BLOCK)
            if row == 0:
                draws = self._draws(block, PARTS.index(part))
            turn = number // 2 if every_label and number % 2 else None
            yield number, *self._document(iter(draws[row]).__next__, turn)

    def _draws(self, block: int, part: int) -> list[list[float]]:
        bits = np.random.Philox(
            key=np.array([self.seed, 0x6C6162656C67], np.uint64),
            counter=np.array([0, block, part, 0], np.uint64),
        ).random_raw(_BLOCK * _DRAWS // 2)
        halves = np.stack([bits & np.uint64(0xFFFFFFFF), bits >> np.uint64(32)], axis=1)
        return (halves / 2**32).reshape(_BLOCK, _DRAWS).tolist()

    def _document(self, draw: _Draw, turn: int | None) -> tuple[str, list[int]]:
        """The text and the labels; with a ``turn``, the label of each kind whose turn it is."""

        def popular(kind: str) -> int:
            drawn = self._popular(kind, draw())
            return drawn if turn is None else turn % self._drawn[kind]

        def say(kind: str, words: str) -> None:
            sentences.append(_pick(draw(), SENTENCES[kind]).format(words))

        def mention(wording: Wording, exact: str, paraphrased: str) -> None:
            if words := _mention(draw(), wording):
                say(exact if words == wording[0] else paraphrased, words)

        category = self.category(self._first + popular("category"))
        department, *between = category.path
        product = category.product
        if product is None:
            product = department + DEPARTMENTS * int(draw() * (PRODUCTS // DEPARTMENTS))
        true = between[:-1]  # columns of categories are their numbers
        sentences: list[str] = []

        # The category path: what the product is, and what is special about it.
        noun = _mention(draw(), self._nouns[product]) or _pick(draw(), VAGUE_NOUNS)
        for wording, before in ((category.feature, True), (category.extra, False)):
            if wording:
                detail = _mention(draw(), wording)
                if detail == wording[0]:
                    noun = f"{detail} {noun}" if before else f"{noun} {detail}"
                elif detail:
                    say("detail", detail)
        if category.series:
            say("series", category.series)
        name, hints, _ = self._departments[department]
        mention((name.lower(), _pick(draw(), hints)), "department", "hint")

        brand = self._brand_of(draw, department)
        if turn is not None and self.sizes["brand"]:
            brand = turn % self.sizes["brand"]
        leads = _LINES["leads without brand" if brand is None else "leads"]
        by = "" if brand is None else self.brand(brand)
        lead = _pick(draw(), leads).format(brand=by, noun=noun)
        if brand is not None:
            true.append(self.starts["brand"] + brand)

        theme = None
        if (draw() < 0.25 or turn is not None) and self.sizes["theme"]:
            theme = popular("theme")
            true.append(self.starts["theme"] + theme)
            mention(self.wording("theme", theme), "theme", "cue")

        owners = {"theme": theme, "product": product, "department": department}
        for kind, (_, _, _, frequency, owner) in ATTRIBUTES.items():
            if (100 * draw() < frequency or turn is not None) and self.sizes[kind]:
                if turn is None and draw() < 0.5 and owners[owner] is not None:
                    number = self._popular(kind, self._hash(kind, owner, owners[owner]) / 2**64)
                else:
                    number = popular(kind)
                true.append(self.starts[kind] + number)
                mention(self.wording(kind, number), kind, kind)

        if draw() < 0.6:
            sentences.append(self._distractor(draw))
        sentences += [_pick(draw(), FILLERS), _pick(draw(), FILLERS)]
        cut = int(draw() * len(sentences))
        text = " ".join([lead, *sentences[cut:], *sentences[:cut]])
        if draw() < 0.25:  # a typo
            place = int(draw() * (len(text) - 1))
            text = f"{text[:place]}{text[place + 1]}{text[place]}{text[place + 2 :]}"

        # People forget labels: only the leaf is always there.
        own = {category.path[-1]}
        own |= {label for label in true if turn is not None or draw() < 0.8}
        if draw() < 0.55:
            own.add(department)
        return text, sorted(own)

    def _popular(self, kind: str, share: float) -> int:
        """A label of this kind by its popularity; of categories, a number below the departments."""
        return _zipf(share, self._drawn[kind], {"brand": 2, "category": 8}.get(kind, 1))

    def _brand_of(self, draw: _Draw, department: int) -> int | None:
        if draw() >= 0.85 or not self.sizes["brand"]:
            return None
        if draw() < 0.85:
            shelf = -(-self.sizes["brand"] // DEPARTMENTS)
            brand = _zipf(draw(), shelf, 1) * DEPARTMENTS + department
            return brand if brand < self.sizes["brand"] else None
        return self._popular("brand", draw())

    def _distractor(self, draw: _Draw) -> str:
        kind, sentence = _pick(draw(), DISTRACTORS)
        if kind == "noun":
            return sentence.format(self._nouns[int(draw() * PRODUCTS)][0])
        if not self.sizes[kind]:
            return FILLERS[0]
        number = self._popular(kind, draw())
        words = self.brand(number) if kind == "brand" else self.wording(kind, number)[0]
        return sentence.format(words)


def _zipf(share: float, size: int, offset: int) -> int:
    """A number 0..size-1 with a chance proportional to 1 / (number + offset)."""
    number = int(offset * ((size + offset) / offset) ** share) - offset
    return min(number, size - 1)


def _series(number: int) -> str:
    again, which = divmod(number, len(SERIES))
    return f"{SERIES[which]} {again + 1}" if again else SERIES[which]


def _pick(share: float, values: Sequence[_T]) -> _T:
    return values[int(share * len(values))]


def _mention(share: float, wording: Wording) -> str:
    """The label's own words, other words for it, or nothing."""
    return wording[share >= 0.55] if share < 0.82 else ""


def plural(noun: str) -> str:
    """The plural of an English noun."""
    if noun.endswith(("s", "x", "ch", "sh")):
        return f"{noun}es"
    return f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"


def capital(text: str) -> str:
    """The text with a capital letter at its beginning."""
    return text[0].upper() + text[1:]
