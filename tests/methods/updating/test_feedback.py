"""What people said, read to count it and to learn from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from labelgrove import Corpus, Linear, records
from labelgrove.data.shop import shop_corpus
from labelgrove.errors import DataError
from labelgrove.methods.updating.feedback import (
    Agreement,
    FeedbackCounts,
    agreement_over_time,
    label_counts,
    read_feedback,
)

LINES: list[dict[str, Any]] = [
    {
        "time": "2026-03-01T23:30:00-02:00",  # already the second, in UTC
        "model": "abc",
        "text": "a red hat",
        "labels": ["hat"],
        "suggestions": [{"id": "hat", "score": 0.9}, {"id": "lamp", "score": 0.6}],
        "names": {"hat": "Hats", "lamp": "Lamps"},
    },
    {
        "time": "2026-03-02T10:00:00+00:00",
        "text": "a red hat",
        "labels": ["hat", "red"],
        "suggestions": [{"id": "hat", "score": 0.9}, {"id": "lamp", "score": 0.6}],
        "threshold": 0.7,
    },
    {"time": "2026-04-01T10:00:00", "text": "a lamp", "labels": ["lamp"], "suggestions": []},
    {
        "time": "2026-04-02T10:00:00",
        "text": "nothing",
        "labels": [],
        "suggestions": [{"id": "red", "score": 0.2}],
    },
]


def write(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "change",
    [
        {"suggestions": [{"id": "hat", "score": "high"}], "threshold": 0.5},
        {"suggestions": [{"id": "hat", "score": 0.5}], "threshold": [0.5]},
        {"suggestions": 5},
        {"suggestions": [[]]},
        {"names": {"hat": {}}},
        {"names": ["hat"]},
        {"threshold": 10**400},
        {"time": "0001-01-01T00:00:00+14:00"},
        {"time": "9999-12-31T23:59:59-14:00"},
        {"fields": [1]},
        {"labels": {"hat": 1}},
    ],
)
def test_lines_with_odd_values_are_counted_as_bad(tmp_path: Path, change: dict[str, Any]) -> None:
    feedback = read_feedback(write(tmp_path / "x.jsonl", [LINES[0], LINES[0] | change]))
    assert (len(feedback.entries), feedback.bad_lines) == (1, 1)
    for period in ("day", "week", "month"):
        assert len(agreement_over_time(feedback.entries, period)) == 1
    assert label_counts(feedback)[0].name == "Hats"


def test_lines_that_are_nested_deeply(tmp_path: Path) -> None:
    file = write(tmp_path / "x.jsonl", LINES[:1])
    with file.open("a") as more:
        for depth in (100_000, *range(900, 1000)):  # deeper than Python reads, or writes again
            fields = '{"a": ' * depth + "1" + "}" * depth
            more.write(f'{{"time": "2026-04-01T10:00:00", "labels": [], "fields": {fields}}}\n')
    feedback = read_feedback(file)
    assert feedback.bad_lines > 0 and feedback.latest()


@pytest.mark.timeout(20)
def test_a_line_with_very_many_labels(tmp_path: Path) -> None:
    labels = [str(n) for n in range(100_000)]
    line = LINES[0] | {"labels": labels, "suggestions": [{"id": n} for n in labels[::-1]]}
    feedback = read_feedback(write(tmp_path / "x.jsonl", [line]))
    assert feedback.rejected() == [] and len(label_counts(feedback)) == len(labels)


def test_lines_are_read_and_those_that_were_cut_off_counted(tmp_path: Path) -> None:
    file = write(tmp_path / "x.jsonl", LINES)
    with file.open("a", encoding="utf-8") as more:
        more.write('{"time": "2026-04-02T10:00:00", "te\n\n[1]\n{"time": 5, "text": "x"}\n')
    feedback = read_feedback(file)
    assert len(feedback.entries) == 4 and feedback.bad_lines == 3
    first, second, *_ = feedback.entries
    assert first.proposed == ["hat", "lamp"] and first.rejected == ["lamp"]
    assert second.proposed == ["hat"] and second.rejected == []
    assert [entry.labels for entry in feedback.latest()] == [("hat", "red"), ("lamp",), ()]
    assert feedback.rejected() == ["red"]  # the first opinion about the hat was corrected


def test_agreement_and_labels_are_counted(tmp_path: Path) -> None:
    feedback = read_feedback(write(tmp_path / "x.jsonl", LINES))
    assert Agreement.of(feedback.entries) == Agreement(4, 2 / 3, 2 / 4, 2 / 3)
    assert Agreement.of(feedback.entries[2:3]) == Agreement(1, None, None, None)
    days = agreement_over_time(reversed(feedback.entries), "day")
    assert list(days) == ["2026-03-02", "2026-04-01", "2026-04-02"]
    assert days["2026-03-02"].texts == 2
    assert list(agreement_over_time(feedback.entries, "month")) == ["2026-03", "2026-04"]
    assert list(agreement_over_time(feedback.entries, "week")) == ["2026-W10", "2026-W14"]
    assert label_counts(feedback) == [
        FeedbackCounts("hat", "Hats", kept=2, added=0, rejected=0),
        FeedbackCounts("red", "red", kept=0, added=1, rejected=1),
        FeedbackCounts("lamp", "Lamps", kept=0, added=1, rejected=1),
    ]


def test_a_corpus_has_the_last_word_about_each_text(tmp_path: Path) -> None:
    model = Linear().fit(["a hat", "a lamp"], [["hat"], ["lamp"]])
    corpus = read_feedback(write(tmp_path / "x.jsonl", LINES)).corpus(model)
    assert list(corpus.texts) == ["a red hat", "a lamp", "nothing"]
    assert corpus.label_lists() == [["hat", "red"], ["lamp"], []]
    growth = model.update(corpus)
    assert growth.added == ("red",) and set(growth.retrained) == {"hat", "lamp"}


def test_documents_may_have_fields(tmp_path: Path) -> None:
    rows = [{"title": f"volume {n}", "creator": f"Person {n % 3}"} for n in range(30)]
    documents = records(rows, text="title", fields="creator")
    model = Linear().fit(documents, [[f"L{n % 3}"] for n in range(30)])
    fields = {"title": "volume x", "creator": ["Person 9"]}
    line = {"time": "2026-03-01T23:30:00", "fields": fields, "labels": ["L0"]}
    corpus = read_feedback(write(tmp_path / "x.jsonl", [line, line])).corpus(model)
    assert len(corpus) == 1 and corpus.texts[0] == model.documents([fields])[0]


def test_what_is_no_feedback_is_said(tmp_path: Path) -> None:
    model = Linear().fit(["a hat", "a lamp"], [["hat"], ["lamp"]])
    with pytest.raises(DataError, match="nobody has chosen a label"):
        read_feedback(write(tmp_path / "x.jsonl", LINES[-1:])).corpus(model)
    with pytest.raises(DataError, match="has no entry"):
        read_feedback(write(tmp_path / "x.jsonl", []))
    with pytest.raises(DataError, match="is no file with feedback"):
        read_feedback(write(tmp_path / "x.jsonl", [{"text": "a corpus", "labels": ["x"]}]))
    pytest.raises(DataError, read_feedback, tmp_path / "nothing").match("does not exist")


def test_the_model_learns_what_people_add_and_what_they_reject() -> None:
    """On texts that it has not seen: a word that people connect with a label it did not."""
    corpus = shop_corpus(1500, labels=60)
    lists = corpus.label_lists()
    model = Linear().fit(corpus)
    often = corpus.index.ids[int(model.facts_.frequencies.argmax())]
    having = [row for row in range(1500) if often in lists[row]]
    # People say that the label does not fit texts with this word, though the model thinks so.
    texts = [f"{corpus.texts[row]} lovely" for row in having]
    word = [[label for label in lists[row] if label != often] for row in having]
    teach, ask = slice(0, len(having) // 2), slice(len(having) // 2, None)
    old = Corpus.from_lists(corpus.texts, lists, index=corpus.index)

    def share(of: Linear) -> float:
        predictions = of.score_labels(texts[ask], [often])
        return float((predictions > 0.5).mean())

    before = share(model)
    assert before > 0.8
    plain, taught = Linear().fit(corpus), Linear().fit(corpus)
    plain.update(texts[teach], word[teach], corpus=old)
    growth = taught.update(texts[teach], word[teach], corpus=old, rejected=[often])
    assert often in growth.retrained
    assert share(taught) < share(plain)
