"""Corpus statistics against numbers counted by hand."""

import pytest

from labelgrove.data.formats import Document
from labelgrove.data.stats import Bin, Overlap, Spread, advice, corpus_stats


def test_counts_by_hand():
    stats = corpus_stats(
        [
            Document("one two three", ["a", "b"], "1"),
            Document("one two three", ["a", "a"], "1"),
            Document("  ", [], "2"),
            Document("", {"a": 0.5}),
            Document("one two three", ["a"], "1"),
        ]
    )
    assert (stats.documents, stats.labels) == (5, 2)
    assert (stats.empty_texts, stats.without_labels) == (2, 1)
    assert (stats.duplicate_texts, stats.duplicate_ids) == (2, 2)
    assert stats.labels_per_document == Spread(1.0, 1.0, 1.96, 2)
    assert stats.documents_per_label.mean == 2.5
    assert stats.words_per_document.median == 3.0
    assert stats.top == [("a", 4), ("b", 1)]


def test_bins_meet_at_their_borders():
    frequencies = {"x1": 1, "x10": 10, "x11": 11, "x100": 100, "x101": 101}
    documents = [
        Document(f"{label} {i}", [label]) for label, n in frequencies.items() for i in range(n)
    ]
    bins = corpus_stats(documents, top=1).bins
    assert bins == {"head": Bin(1, 101), "torso": Bin(2, 111), "tail": Bin(2, 11)}


def test_spreads_are_rounded():
    assert Spread.of([1, 2, 9]) == Spread(4.0, 2.0, 8.86, 9)
    assert Spread.of(range(4_000)).p99 == 3959.01
    assert Spread.of([0, 1] * 617).mean == 0.5
    assert Spread.of([1, 1, 1, 1, 0, 0]) == Spread(0.6667, 1.0, 1.0, 1)


def test_ten_labels_are_shown_by_default_in_order():
    documents = [Document("x", [f"{n:02}"]) for n in range(12)]
    assert corpus_stats(documents).top == [(f"{n:02}", 1) for n in range(10)]
    stats = corpus_stats([])
    assert stats.documents == stats.labels == 0
    assert stats.words_per_document == Spread(0.0, 0.0, 0.0, 0)
    assert stats.to_dict()["bins"]["tail"] == {"labels": 0, "occurrences": 0}
    stats = corpus_stats([Document("x", ["b", "c"]), Document("y", ["a"])], top=2)
    assert stats.top == [("a", 1), ("b", 1)]


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("the roof of the house", 0),
        ("waterproof hiking boots", 0),  # no common word, as in many titles
        ("das Dach und die Wand", 0.5),
        ("羊毛外套", 0.5),
        ("양모 재킷", 0.5),
    ],
)
def test_a_sample_says_how_many_texts_are_not_in_english(text, share):
    # More documents than the sample holds, and the second half may be in another language.
    documents = [Document("the roof of the house", [])] * 4500 + [Document(text, [])] * 4500
    assert corpus_stats(documents).foreign == pytest.approx(share, abs=0.05 * (share > 0))


def test_nothing_is_in_no_language():
    assert corpus_stats([]).foreign == corpus_stats([]).unspaced == 0


def test_labels_by_case_spacing_and_accents():
    stats = corpus_stats(
        [
            Document("x", ["Tea Pot", "teapot", "tea"]),
            Document("y", ["TEA", "cafe\u0301", "caf\u00e9", "pot"]),
        ]
    )
    assert stats.similar_labels == [["TEA", "tea"], ["Tea Pot", "teapot"]]
    assert stats.respelled_labels.startswith("1 label differs from another only in how accents")
    assert (stats.labels, stats.labels_per_document.max) == (6, 3)  # as training counts them


def test_texts_of_another_part():
    own = [Document(text, []) for text in ("long words", "short", "")]
    other = [Document(text, []) for text in ("long words", "Long-words!", "", "short", "short")]
    assert corpus_stats(own, other=other).other == Overlap(documents=5, same=3, similar=1)
    assert corpus_stats(own, other=[]).other == Overlap(0, 0, 0)
    assert corpus_stats([], other=other).other == Overlap(5, 0, 0)
    assert corpus_stats(own).other is None
    first = advice(corpus_stats(own, other=other))[0]
    assert first.startswith(
        "of the 5 documents of the other part, 3 have a text of this part and 1 more"
    )


PLAIN = [
    Document("the roof of the house is red", ["roofs"]),
    Document("a song about the sea and its waves", ["songs"]),
]


def test_nothing_to_do():
    assert advice(corpus_stats(PLAIN)) == []
    assert advice(corpus_stats([])) == []
    assert advice(corpus_stats([Document("", ["a"])])) == []  # features only
    assert advice(corpus_stats(PLAIN, other=[Document("of other things", [])])) == []


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (PLAIN[:1], "1 document has the text of an earlier one: keep one of each"),
        ([Document(" ", [])], "1 document has no text: leave them out"),
        (
            [Document(text, []) for text in ("the one", "The  one!", "THE ONE", "...", "!")],
            "2 documents have nearly the text of another one: parts drawn at random",
        ),
        (
            [Document("the one", [], "1"), Document("the other", [], "1")],
            "1 document has the id of an earlier one",
        ),
        (
            [Document("the words", ["Roofs", "ROOFS"])],
            "3 labels differ only by case or spacing, for example 'ROOFS' and 'Roofs' and 'roofs'",
        ),
        (
            [Document("the words", ["caf\u00e9", "cafe\u0301"])],
            "1 label differs from another only in how accents are spelled",
        ),
        (
            [Document("das Dach und die Wand", [])] * 2,
            "50% of the texts are not in English: neural methods need an encoder",
        ),
        (
            [Document("\u6771\u4eac\u306e\u5929\u6c17", [])] * 2,
            "of the letters are in scripts without spaces between words",
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_sentence_for_each_finding(more, sentence):
    sentences = advice(corpus_stats([*PLAIN, *more]))
    assert any(sentence in each for each in sentences), sentences
