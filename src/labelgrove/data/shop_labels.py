"""The labels of the made-up shop; the meaning of a label is computed from its number, not stored.

A label is a category of a tree (department, product, feature, extra, series), an invented brand, or
a colour, material, use, audience, style or theme. Its meaning depends only on its kind, its number
and the seed: ``category-17`` is the same in a shop with a thousand labels or three million.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import NamedTuple

from labelgrove.data import shop_words as words
from labelgrove.data.corpus import LabelIndex
from labelgrove.data.formats.building import TableBuilder
from labelgrove.errors import ConfigError

DEPARTMENTS = len(words.DEPARTMENTS)
PRODUCTS = DEPARTMENTS * words.PRODUCTS_PER_DEPARTMENT
FEATURED = PRODUCTS * len(words.FEATURES)
EXTENDED = FEATURED * len(words.EXTRAS)
_FIRST_FEATURED = DEPARTMENTS + PRODUCTS
_FIRST_EXTENDED = _FIRST_FEATURED + FEATURED
_FIRST_SERIES = _FIRST_EXTENDED + EXTENDED
PLAIN_BRANDS = len(words.BRAND_STARTS) * len(words.BRAND_MIDDLES) * len(words.BRAND_ENDS)
MIN_LABELS = 10
MAX_LABELS = 100_000_000

# Kinds of attributes: their words, the modifiers that multiply them, and their share of all labels
# in percent. Brands take 22 %, themes 6 %, and categories everything else.
ATTRIBUTES = {
    "colour": (words.COLOURS, words.SHADES, 3),
    "material": (words.MATERIALS, words.FINISHES, 3),
    "use": (words.USES, words.SEASONS, 3),
    "audience": (words.AUDIENCES, words.GROUPS, 2),
    "style": (words.STYLES, words.MOODS, 2),
}


class Wording(NamedTuple):
    """A label's own words, and other words that mean the same."""

    exact: str
    paraphrase: str


class Category(NamedTuple):
    """A node of the tree, with everything that is true of a product in it."""

    path: tuple[int, ...]  # category numbers, department first, this node last
    department: int
    product: int | None
    feature: Wording | None
    extra: Wording | None
    series: str | None


def stable_hash(*parts: int | str) -> int:
    """64 bits that depend only on the parts, on every machine and in every process."""
    text = "/".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def plural(noun: str) -> str:
    """The plural of an English noun."""
    if noun.endswith(("s", "x", "ch", "sh")):
        return f"{noun}es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"


class ShopLabels:
    """The labels of one shop, by kind and number, and by column."""

    def __init__(self, count: int, *, seed: int = 0) -> None:
        if not MIN_LABELS <= count <= MAX_LABELS:
            raise ConfigError(
                f"labels: must be between {MIN_LABELS} and {MAX_LABELS:,}, got {count:,}"
            )
        if not 0 <= seed < 2**64:
            raise ConfigError(f"seed: must be between 0 and 2^64 - 1, got {seed}")
        self.count = count
        self.seed = seed
        self.sizes = _sizes(count)
        self.starts: dict[str, int] = {}
        start = 0
        for kind, size in self.sizes.items():
            self.starts[kind] = start
            start += size
        # Popular labels need their names again and again; the caches have a fixed size.
        self.category = lru_cache(maxsize=1 << 14)(self._category)
        self.brand = lru_cache(maxsize=1 << 14)(self._brand)
        self.theme = lru_cache(maxsize=1 << 12)(self._theme)
        self.attribute = lru_cache(maxsize=1 << 12)(self._attribute)
        self._mixed = lru_cache(maxsize=1 << 15)(partial(stable_hash, seed))
        self._orders: dict[str, list[int]] = {}
        self._nouns = [self._noun(product) for product in range(PRODUCTS)]
        self._plurals = [plural(noun.exact) for noun in self._nouns]

    def column(self, kind: str, number: int) -> int:
        """The column of a label in the index."""
        return self.starts[kind] + number

    def kind_and_number(self, column: int) -> tuple[str, int]:
        """The kind and number of the label in a column."""
        for kind, start in self.starts.items():
            if column < start + self.sizes[kind]:
                return kind, column - start
        raise IndexError(f"column {column} of {self.count} labels")

    def id(self, column: int) -> str:
        """The id of the label in a column: its kind and number."""
        kind, number = self.kind_and_number(column)
        return f"{kind}-{number}"

    def describe(self, kind: str, number: int) -> tuple[str, str]:
        """A label's name, and a text about it for methods that read label texts."""
        if kind == "category":
            category = self._category(number)
            names = self._path_names(category)
            others = list(self.hints(category.department))
            if category.product is not None:
                others = [self.noun(category.product).paraphrase]
            others += [w.paraphrase for w in (category.feature, category.extra) if w]
            return names[-1], f"{' > '.join(names)}. Also: {', '.join(others)}"
        if kind == "brand":
            name = self._brand(number)
            department = self.department(number % DEPARTMENTS).lower()
            return name, f"Products by {name}, mostly for {department}"
        if kind == "theme":
            wording = self._theme(number)
            name = f"{wording.exact} collection"
            return name, f"The {name}, inspired by {wording.paraphrase}"
        wording = self._attribute(kind, number)
        name = wording.exact[0].upper() + wording.exact[1:] + (" style" if kind == "style" else "")
        return name, f"{kind.capitalize()}: {wording.exact}, {wording.paraphrase}"

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """The id, name and text of every label in column order, one at a time."""
        for kind, size in self.sizes.items():
            for number in range(size):
                yield f"{kind}-{number}", *self.describe(kind, number)

    def department(self, number: int) -> str:
        """The name of a department."""
        return words.DEPARTMENTS[self._order("department", DEPARTMENTS)[number]][0]

    def hints(self, department: int) -> tuple[str, ...]:
        """Words that give a department away without naming it."""
        return words.DEPARTMENTS[self._order("department", DEPARTMENTS)[department]][1]

    def noun(self, product: int) -> Wording:
        """The singular noun of a product; its department is ``product % DEPARTMENTS``."""
        return self._nouns[product]

    def _noun(self, product: int) -> Wording:
        department = self._order("department", DEPARTMENTS)[product % DEPARTMENTS]
        nouns = words.DEPARTMENTS[department][2]
        order = self._order(f"nouns {department}", len(nouns))
        return Wording(*nouns[order[product // DEPARTMENTS]])

    def _category(self, number: int) -> Category:
        # Levels are numbered one after the other. Within a level, children take turns with their
        # parents, so that every parent has its first child before any has its second.
        path = [number]
        product = feature = extra = series = None
        if number >= _FIRST_SERIES:
            digit, parent = divmod(number - _FIRST_SERIES, EXTENDED)
            series = _series(digit)
            path.append(number := _FIRST_EXTENDED + parent)
        if number >= _FIRST_EXTENDED:
            digit, parent = divmod(number - _FIRST_EXTENDED, FEATURED)
            extra = self._stepped(words.EXTRAS, "extra", parent, digit)
            path.append(number := _FIRST_FEATURED + parent)
        if number >= _FIRST_FEATURED:
            digit, parent = divmod(number - _FIRST_FEATURED, PRODUCTS)
            feature = self._stepped(words.FEATURES, "feature", parent, digit)
            path.append(number := DEPARTMENTS + parent)
        if number >= DEPARTMENTS:
            product = number - DEPARTMENTS
            path.append(number := product % DEPARTMENTS)
        return Category(tuple(reversed(path)), number, product, feature, extra, series)

    def _path_names(self, category: Category) -> list[str]:
        """The names on the path from the department to this category."""
        names = [self.department(category.department)]
        if category.product is None:
            return names
        plain = self._plurals[category.product]
        names.append(plain[0].upper() + plain[1:])
        if category.feature:
            feature = category.feature.exact
            names.append(f"{feature[0].upper()}{feature[1:]} {plain}")
        if category.extra:
            names.append(f"{names[-1]} {category.extra.exact}")
        if category.series:
            names.append(f"{names[-1]}, {category.series} series")
        return names

    def _brand(self, number: int) -> str:
        # The multiplier has no common factor with the number of brands, so each name occurs once.
        place = (number * 7919 + stable_hash(self.seed, "brand")) % PLAIN_BRANDS
        place, end = divmod(place, len(words.BRAND_ENDS))
        start, middle = divmod(place, len(words.BRAND_MIDDLES))
        name = f"{words.BRAND_STARTS[start]}{words.BRAND_MIDDLES[middle]}{words.BRAND_ENDS[end]}"
        # When all names are used, brands get product lines.
        line = number // PLAIN_BRANDS
        return f"{name} {_series(line - 1)}" if line else name

    def _theme(self, number: int) -> Wording:
        adjectives, nouns = words.THEME_ADJECTIVES, words.THEME_NOUNS
        row, step = number % len(adjectives), number // len(adjectives)
        adjective = adjectives[self._order("adjective", len(adjectives))[row]]
        noun = nouns[self._order("noun", len(nouns))[(row + step) % len(nouns)]]
        cues = words.CUES
        one = stable_hash(self.seed, "cue", number) % len(cues)
        step = 1 + stable_hash(self.seed, "cue 2", number) % (len(cues) - 1)
        return Wording(f"{adjective} {noun}", f"{cues[one]} and {cues[(one + step) % len(cues)]}")

    def _attribute(self, kind: str, number: int) -> Wording:
        pairs, modifiers, _ = ATTRIBUTES[kind]
        exact, paraphrase = pairs[self._order(kind, len(pairs))[number % len(pairs)]]
        modifier = modifiers[number // len(pairs)]
        return Wording(f"{modifier} {exact}".strip(), f"{modifier} {paraphrase}".strip())

    def _stepped(self, pairs: words.Pairs, what: str, parent: int, digit: int) -> Wording:
        """The digit-th of a prime number of words, in an order that depends on the parent."""
        mixed = self._mixed(what, parent)
        stride = 1 + mixed % (len(pairs) - 1)
        return Wording(*pairs[(mixed // len(pairs) + digit * stride) % len(pairs)])

    def _order(self, what: str, size: int) -> list[int]:
        """The numbers 0..size-1, shuffled depending on the seed, so that shops differ."""
        if what not in self._orders:
            shuffled = sorted(range(size), key=lambda i: stable_hash(self.seed, what, i))
            self._orders[what] = shuffled
        return self._orders[what]


def shop_label_index(labels: int = 2000, seed: int = 0) -> LabelIndex:
    """The index of all labels of a made-up shop: ids, names, texts, and a group per kind."""
    shop = ShopLabels(labels, seed=seed)
    builders = [TableBuilder() for _ in range(3)]
    for row in shop.rows():
        for value, builder in zip(row, builders, strict=True):
            builder.add(value)
    ids, names, texts = (builder.table() for builder in builders)
    groups = {
        kind: range(shop.starts[kind], shop.starts[kind] + size)
        for kind, size in shop.sizes.items()
        if size
    }
    return LabelIndex(ids, names=names, texts=texts, groups=groups)


def shop_label_rows(labels: int = 2000, seed: int = 0) -> Iterator[tuple[str, str, str]]:
    """The id, name and text of every label of a made-up shop, in column order."""
    return ShopLabels(labels, seed=seed).rows()


def _sizes(count: int) -> dict[str, int]:
    sizes = {"brand": count * 22 // 100}
    sizes["theme"] = min(count * 6 // 100, len(words.THEME_ADJECTIVES) * len(words.THEME_NOUNS))
    for kind, (pairs, modifiers, share) in ATTRIBUTES.items():
        sizes[kind] = min(count * share // 100, len(pairs) * len(modifiers))
    return {"category": count - sum(sizes.values()), **sizes}


def _series(number: int) -> str:
    again, which = divmod(number, len(words.SERIES))
    return f"{words.SERIES[which]} {again + 1}" if again else words.SERIES[which]
