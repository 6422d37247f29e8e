"""Every finding has a sentence that says what to do, and nothing is said without one."""

import pytest

from labelgrove.data.advice import advice
from labelgrove.data.formats import Document
from labelgrove.data.stats import corpus_stats

PLAIN = [
    Document("the roof of the house is red", ["roofs"]),
    Document("a song about the sea and its waves", ["songs"]),
]
LONG = "a sentence of quite a few words that are all about the weather in spring"


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
            [Document(LONG, []), Document(LONG + "!", []), Document(LONG + "?", [])],
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
            [Document("das Dach und die Wand", [])],
            "the texts are not only in English (English 67%, German 33%)",
        ),
        (
            [Document("das Dach und die Wand", [])],
            "words of German have many endings: see on held-out documents whether",
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


def test_texts_that_two_parts_share():
    own = [*PLAIN, Document(LONG, [])]
    other = [PLAIN[0], Document(LONG + "!", []), Document("of other things", [])]
    first = advice(corpus_stats(own, other=other))[0]
    assert first.startswith(
        "of the 3 documents of the other part, 1 have a text of this part and 1 more nearly have"
    )
