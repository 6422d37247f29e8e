"""The names of labels as sequences of words, and where texts have them.

Words are compared without case, accents and common endings, so that inflections match: "Häusern"
matches "Haus", "cities" matches "city". A name with one comma also matches the other way round
("Surname, First name"). What a name has in parentheses is a qualifier, which need not be there.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import count as counting
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import Int64, offsets
from labelgrove.data import records
from labelgrove.data.corpus import LabelIndex
from labelgrove.labels.tree import children_of

Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]

MOST_WORDS = 12  # longer names are not looked for
MOST_ALTERNATIVE_WORDS = 6  # a longer part of a label's text is a description, not a name
COMPARED = 24  # letters of a word that decide how alike two words are
LEAST_STEM = 3  # characters that an ending must leave

_WORD = re.compile(r"[^\W_]+")
_SPACES = {ord(c): " " for c in map(chr, range(128)) if not c.isalnum()}
_ACCENTS = re.compile("[\u0300-\u036f]+")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_QUALIFIER = re.compile(r"\(([^()]*)\)|<([^<>]*)>")
_ALTERNATIVES = re.compile(r"[;|]")
_ENDING = re.compile(rf"(?<=.{{{LEAST_STEM}}})(?:ern|en|er|es|em|e|n|s)$")
_LEAD = re.compile(r"\n|[.!?]\s")  # the end of a title or of the first sentence


def folded(text: str) -> str:
    """The text without case, accents and other punctuation than ASCII's.

    >>> folded("Straßen – nach Zürich")
    'strassen   nach zurich'
    """
    text = text.casefold()
    return text if text.isascii() else _NOT_ASCII.sub(lambda part: _plain(part[0]), text)


@lru_cache(maxsize=1 << 16)
def _plain(part: str) -> str:
    letters = _ACCENTS.sub("", unicodedata.normalize("NFKD", part))
    return "".join(c if c.isascii() or c.isalnum() else " " for c in letters)


def words_of(text: str) -> list[str]:
    """The words of a text, without case and accents."""
    return words_in(folded(text))


def words_in(plain: str) -> list[str]:
    """The words of a folded text; without other letters than ASCII, a table finds them faster."""
    return plain.translate(_SPACES).split() if plain.isascii() else _WORD.findall(plain)


@lru_cache(maxsize=1 << 18)
def stem(word: str, letters: int) -> str:
    """The first letters of a word, without common endings of German and English.

    Endings are removed as long as there are any, so that it does not matter which of them a name
    has: "town" and "towns" both lose their n.

    >>> [stem(word, 8) for word in ("cities", "city", "towns", "town", "algorithmus", "algorithms")]
    ['city', 'city', 'tow', 'tow', 'algorith', 'algorith']
    """
    if word.endswith("ies") and len(word) > LEAST_STEM + 1:
        word = word[:-3] + "y"
    shorter = _ENDING.sub("", word, 1)
    while shorter != word:
        word, shorter = shorter, _ENDING.sub("", shorter, 1)
    return word[:letters]


def names_of(index: LabelIndex) -> Iterator[tuple[int, list[str]]]:
    """The column of a label and the words of a name of it, for all labels and names."""
    for column, name in enumerate(index.names):
        plain = _QUALIFIER.sub(" ", name)
        spellings = [plain if _WORD.search(plain) else name]
        if plain.count(",") == 1:
            last, first = plain.split(",")
            spellings.append(f"{first} {last}")
        if index.texts is not None and index.texts[column] != name:
            parts = _ALTERNATIVES.split(index.texts[column])
            spellings += [p for p in parts if len(words_of(p)) <= MOST_ALTERNATIVE_WORDS]
        for words in {tuple(words_of(spelling)): None for spelling in spellings}:
            if 0 < len(words) <= MOST_WORDS:
                yield column, list(words)


class NameReading(NamedTuple):
    """Texts as numbers: a token is the number of its word among ``words``."""

    words: list[str]  # all different ones
    tokens: Int64
    stems: Int64  # the number of each token's stem; -1 if no name has it
    starts: Int64  # of each text among the tokens, and the end
    leads: Int64  # tokens of each text's title or first sentence

    @property
    def texts(self) -> Int64:
        """The text of each token."""
        return np.repeat(np.arange(len(self.leads)), np.diff(self.starts))


class Matches(NamedTuple):
    """Names that were found: one entry per name and place."""

    text: Int64
    name: Int64
    start: Int64  # the token at which the name begins, among those of all texts
    likeness: Float64  # 1: the words are those of the name; less: another inflection
    inside: Bool  # within a longer name that was found


class Names:
    """All names of all labels in a trie of their words' stems; some labels may be ``hidden``."""

    def __init__(self, index: LabelIndex, letters: int) -> None:
        pairs = list(names_of(index))
        self.letters = letters
        self.hidden = np.zeros(len(index), bool) if index.hidden is None else index.hidden
        self.labels = np.array([column for column, _ in pairs], np.int64)
        self.lengths = np.array([len(words) for _, words in pairs], np.int64)
        self.characters = np.array([sum(map(len, words)) for _, words in pairs], np.int64)
        number_of: dict[str, int] = {}
        depth = int(self.lengths.max(initial=0))
        self.words = np.full((len(pairs), depth), -1, np.int64)
        for row, (_, words) in enumerate(pairs):
            for place, word in enumerate(words):
                self.words[row, place] = number_of.setdefault(word, len(number_of))
        self.word_numbers, self.vocabulary = number_of, list(number_of)
        self.stem_numbers: dict[str, int] = {}
        for word in self.vocabulary:
            self.stem_numbers.setdefault(stem(word, letters), len(self.stem_numbers))
        self._add_qualifiers(index)
        self.stems = self._stems_of(self.vocabulary)[self.words]
        self.letters_of_words = letters_of(self.vocabulary)
        self._grow()

    def _add_qualifiers(self, index: LabelIndex) -> None:
        """The stems of what each label's name has in parentheses."""
        numbers, counts = [], []
        for name in index.names:
            parts = " ".join(map("".join, _QUALIFIER.findall(name)))
            stems = {stem(word, self.letters): None for word in words_of(parts)}
            numbers += [self.stem_numbers.setdefault(s, len(self.stem_numbers)) for s in stems]
            counts.append(len(stems))
        self.qualifiers, self.qualifiers_at = np.array(numbers, np.int64), offsets(counts)

    def qualified(self, reading: NameReading, text: Int64, label: Int64) -> tuple[Int64, Bool]:
        """How many words qualify the name of each label, and whether its text has one of them."""
        width = len(self.stem_numbers)
        codes = np.sort((reading.texts * width + reading.stems)[reading.stems >= 0])
        places, counts = children_of(label, self.qualifiers_at)
        entries = np.repeat(np.arange(len(label)), counts)
        qualifiers = self.qualifiers[places]
        hits = contains(codes, text[entries] * width + qualifiers)
        return counts, np.bincount(entries, hits, minlength=len(label)) > 0

    def _grow(self) -> None:
        """The trie: sorted codes (node, stem) of its edges, and the names that end at each node."""
        node = np.zeros(len(self.lengths), np.int64)
        codes, count = [np.zeros(0, np.int64)], 1
        for place in range(self.words.shape[1]):
            longer = self.lengths > place
            own = node[longer] * len(self.stem_numbers) + self.stems[longer, place]
            edges, number = np.unique(own, return_inverse=True)
            codes.append(edges)
            node[longer] = count + number
            count += len(edges)
        self.edges = np.concatenate(codes)  # sorted, since deeper nodes have larger numbers
        self.ending = np.argsort(node, kind="stable")
        self.ends_at = offsets(np.bincount(node, minlength=count))
        shown = np.bincount(node, ~self.hidden[self.labels], minlength=count)
        self.sharing = np.maximum(shown, 1)[node]  # names that are found wherever this one is

    def read(self, texts: Iterable[str]) -> NameReading:
        """Texts as numbers."""
        number_of: defaultdict[str, int] = defaultdict(counting().__next__)
        tokens: list[int] = []
        starts, leads = [0], []
        for text in texts:
            plain = folded(records.words_of(text))
            words = words_in(plain)
            tokens += map(number_of.__getitem__, words)
            starts.append(len(tokens))
            lead = _LEAD.search(plain)
            leads.append(len(words if lead is None else words_in(plain[: lead.start()])))
        different, numbers = list(number_of), np.array(tokens, np.int64)
        stems = self._stems_of(different)[numbers]
        return NameReading(different, numbers, stems, np.array(starts), np.array(leads, np.int64))

    def find(self, reading: NameReading) -> Matches:
        """Where the texts have names."""
        tokens, unknown = reading.stems, -1
        limits = reading.starts[1:][reading.texts]  # where the text of each token ends
        start = np.flatnonzero(tokens != unknown)
        node, length = np.zeros(len(start), np.int64), 0
        starts, names = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        while len(start) and len(self.edges):
            code = node * len(self.stem_numbers) + tokens[start + length]
            edge = np.minimum(np.searchsorted(self.edges, code), len(self.edges) - 1)
            known = self.edges[edge] == code
            start, node, length = start[known], edge[known] + 1, length + 1
            places, counts = children_of(node, self.ends_at)
            starts.append(np.repeat(start, counts))
            names.append(self.ending[places])
            more = start + length < limits[start]
            more[more] = tokens[start[more] + length] != unknown
            start, node = start[more], node[more]
        begin, name = np.concatenate(starts), np.concatenate(names)
        return Matches(
            reading.texts[begin],
            name,
            begin,
            self._likeness(reading, begin, name),
            self._inside(begin, name, len(tokens)),
        )

    def _stems_of(self, words: Sequence[str]) -> Int64:
        """The numbers of the words' stems; -1 for those that no name has, and at the end."""
        stems = [self.stem_numbers.get(stem(word, self.letters), -1) for word in words]
        return np.array([*stems, -1], np.int64)

    def stem_texts(self, reading: NameReading) -> Int64:
        """In how many of the texts each stem is."""
        codes = reading.texts * len(self.stem_numbers) + reading.stems
        codes = np.unique(codes[reading.stems >= 0])
        return np.bincount(codes % max(1, len(self.stem_numbers)), minlength=len(self.stem_numbers))

    def _likeness(self, reading: NameReading, start: Int64, name: Int64) -> Float64:
        """How much the least similar word of the text resembles that of the name."""
        known = np.array([self.word_numbers.get(w, -1) for w in reading.words] + [-1], np.int64)
        read_letters, own_letters = letters_of(reading.words), self.letters_of_words
        result = np.ones(len(start))
        for place in range(self.words.shape[1]):
            entries = np.flatnonzero(self.lengths[name] > place)
            read = reading.tokens[start[entries] + place]
            own = self.words[name[entries], place]
            differs = known[read] != own
            shares = likeness(own_letters[own[differs]], read_letters[read[differs]])
            result[entries[differs]] = np.minimum(result[entries[differs]], shares)
        return result

    def _inside(self, start: Int64, name: Int64, tokens: int) -> Bool:
        """Whether a longer match begins at or before a match and covers its first word."""
        longest, length = np.zeros(tokens, np.int64), self.lengths[name]
        np.maximum.at(longest, start, np.where(self.hidden[self.labels[name]], 0, length))
        begins = np.flatnonzero(longest)
        over = np.zeros(tokens, np.int64)
        for place in range(self.words.shape[1]):
            reaching = begins[longest[begins] > place]
            np.maximum.at(over, reaching + place, longest[reaching])
        return over[start] > length


def contains(sorted_codes: Int64, codes: Int64) -> Bool:
    """Which of the codes are among the sorted ones."""
    if not len(sorted_codes):
        return np.zeros(len(codes), bool)
    place = np.minimum(np.searchsorted(sorted_codes, codes), len(sorted_codes) - 1)
    return np.asarray(sorted_codes[place] == codes)


def letters_of(words: Sequence[str]) -> npt.NDArray[np.uint32]:
    """The first letters of words, a row each, filled up with zeros."""
    rows = np.array(words, f"U{COMPARED}").reshape(-1, 1)
    return rows.view(np.uint32) if rows.size else np.zeros((0, COMPARED), np.uint32)


def likeness(first: npt.NDArray[np.uint32], second: npt.NDArray[np.uint32]) -> Float64:
    """The share of two words that their common beginning is, for rows of letters.

    >>> likeness(letters_of(["maps", "haus"]), letters_of(["map", "haus"])).round(2).tolist()
    [0.86, 1.0]
    """
    lengths = np.count_nonzero(first, axis=1), np.count_nonzero(second, axis=1)
    common = np.cumprod(first == second, axis=1, dtype=np.int8).sum(axis=1)
    common = np.minimum(common, np.minimum(*lengths))  # zeros at the ends are equal, too
    return np.asarray(2 * common / (lengths[0] + lengths[1]))
