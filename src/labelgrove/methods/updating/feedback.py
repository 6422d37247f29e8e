"""What people said about suggestions: the file that a service keeps, read to learn and to count.

A line has ``time``, ``model``, ``text`` (or ``fields``), ``labels`` (those that a person chose),
``suggestions`` (what the person saw, best first), perhaps a ``threshold`` below which nothing was
proposed, and ``names`` of labels. Lines that a crash cut off are counted and skipped.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from labelgrove.core.aliases import Table, TableView
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.formats.files import existing
from labelgrove.errors import DataError
from labelgrove.methods.fitted import Fitted

_FORMATS = {"day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m"}


@dataclass(frozen=True)
class Entry:
    """What one person said about one text."""

    time: datetime
    document: str | Table
    labels: tuple[str, ...]
    suggestions: tuple[tuple[str, float | None], ...] = ()
    threshold: float | None = None
    model: str = ""

    @property
    def proposed(self) -> list[str]:
        """Suggestions that reach the threshold, if there is one."""
        least = self.threshold
        return [
            label
            for label, score in self.suggestions
            if least is None or score is None or score >= least
        ]

    @property
    def rejected(self) -> list[str]:
        """Labels that were proposed and not chosen."""
        chosen = set(self.labels)
        return [label for label in self.proposed if label not in chosen]

    @property
    def key(self) -> str:
        """The same for the same document."""
        given = self.document
        return given if isinstance(given, str) else json.dumps(given, sort_keys=True)


@dataclass(frozen=True)
class Feedback:
    """The entries of a file in their order, names of labels, and how many lines are unreadable."""

    entries: list[Entry]
    names: dict[str, str] = field(default_factory=dict)
    bad_lines: int = 0

    def latest(self) -> list[Entry]:
        """The last entry about each document, because people correct themselves."""
        return list({entry.key: entry for entry in self.entries}.values())

    def corpus(self, model: Fitted) -> Corpus:
        """The documents with the labels that people chose, for ``model.update``."""
        entries = self.latest()
        if not any(entry.labels for entry in entries):
            raise DataError("nobody has chosen a label yet, so there is nothing to learn from")
        labels = dict.fromkeys(label for entry in entries for label in entry.labels)
        index = LabelIndex(labels, names=[self._name(label, model.index_) for label in labels])
        documents = model.documents([entry.document for entry in entries])
        return Corpus.from_lists(documents, [entry.labels for entry in entries], index=index)

    def _name(self, label: str, index: LabelIndex) -> str:
        column = index.get(label)
        return self.names.get(label, label) if column is None else index.names[column]

    def rejected(self) -> list[str]:
        """Labels that were proposed for a document and not chosen."""
        return list(dict.fromkeys(x for entry in self.latest() for x in entry.rejected))


def read_feedback(path: str | Path) -> Feedback:
    """Reads the file of one model.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "model.jsonl"
    >>> line = '{"time": "2026-01-31T12:00:00+00:00", "text": "a hat", "labels": ["hats"]}'
    >>> _ = file.write_text(line + chr(10) + line[:20])
    >>> feedback = read_feedback(file)
    >>> feedback.entries[0].labels, feedback.bad_lines
    (('hats',), 1)
    """
    file = existing(path)
    entries: list[Entry] = []
    names: dict[str, str] = {}
    bad = 0
    with file.open("rb") as lines:
        for line in lines:
            if not line.strip():
                continue
            try:
                stored = json.loads(line)
                entry, own_names = _entry(stored), stored.get("names") or {}
                if not all(isinstance(name, str) for name in own_names.values()):
                    raise TypeError
            except _BAD_LINE:
                bad += 1
                continue
            entries.append(entry)
            names |= own_names
    if not entries:
        what = "has no entry" if not bad else "is no file with feedback"
        raise DataError(
            f"{what}; labelgrove serve --feedback FOLDER writes FOLDER/NAME.jsonl", file=file
        )
    return Feedback(entries, names, bad)


def _entry(stored: TableView) -> Entry:
    document = stored["fields"] if "fields" in stored else stored["text"]
    labels = stored["labels"]
    if not isinstance(document, (str, dict)) or not isinstance(labels, list):
        raise TypeError
    time = datetime.fromisoformat(stored["time"])
    entry = Entry(
        (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC),
        document,
        tuple(str(label) for label in labels),
        tuple((str(one["id"]), _number(one.get("score"))) for one in stored.get("suggestions", ())),
        _number(stored.get("threshold")),
        str(stored.get("model", "")),
    )
    _ = entry.key  # which fails for fields that are nested too deeply
    return entry


_BAD_LINE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def _number(value: object) -> float | None:
    return value if value is None else float(value)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Agreement:
    """How far people agreed with what was proposed, over some texts.

    ``first`` is the share of texts whose first suggestion was chosen, ``kept`` the share of
    proposed labels that were chosen, ``found`` the share of chosen labels that were proposed. None
    if there is nothing to divide by.
    """

    texts: int
    first: float | None
    kept: float | None
    found: float | None

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> Agreement:
        """Over these entries; those without suggestions do not count in the shares."""
        shown = [entry for entry in entries if entry.suggestions]
        proposed = sum(len(entry.proposed) for entry in shown)
        chosen = sum(len(entry.labels) for entry in shown)
        both = sum(len(set(entry.proposed) & set(entry.labels)) for entry in shown)
        first = sum(entry.suggestions[0][0] in entry.labels for entry in shown)
        return cls(
            len(entries), _share(first, len(shown)), _share(both, proposed), _share(both, chosen)
        )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


@dataclass(frozen=True)
class FeedbackCounts:
    """One label: how often it was kept, added by people, and rejected."""

    id: str
    name: str
    kept: int
    added: int
    rejected: int


def agreement_over_time(entries: Iterable[Entry], period: str) -> dict[str, Agreement]:
    """Agreement in each day, week or month that has entries, the earliest first."""
    groups: dict[str, list[Entry]] = {}
    for entry in sorted(entries, key=lambda entry: entry.time):
        moment = entry.time.strftime(_FORMATS[period])
        groups.setdefault(moment, []).append(entry)
    return {moment: Agreement.of(group) for moment, group in groups.items()}


def label_counts(feedback: Feedback) -> list[FeedbackCounts]:
    """Every label that was proposed or chosen, in the order of its first appearance."""
    accepted: Counter[str] = Counter()
    added: Counter[str] = Counter()
    rejected: Counter[str] = Counter()
    for entry in feedback.entries:
        proposed = set(entry.proposed)
        accepted.update(label for label in entry.labels if label in proposed)
        added.update(label for label in entry.labels if label not in proposed)
        rejected.update(entry.rejected)
    labels = dict.fromkeys([*accepted, *added, *rejected])
    return [
        FeedbackCounts(
            label, feedback.names.get(label, label), accepted[label], added[label], rejected[label]
        )
        for label in labels
    ]
