"""Sketches of texts, against the shares of runs of characters that texts really have in common."""

import numpy as np

from labelgrove.data import near_duplicates
from labelgrove.data.near_duplicates import Texts, similar_groups, sketch

RANDOM = np.random.default_rng(0)
WORDS = ["".join(RANDOM.choice(list("abcdefghij"), RANDOM.integers(2, 9))) for _ in range(500)]


def made_text(words):
    return RANDOM.choice(WORDS, words).tolist()


def common_share(one, other):
    first, second = ({text[i : i + 8] for i in range(len(text) - 7)} for text in (one, other))
    return len(first & second) / len(first | second)


def test_sketches_agree_as_much_as_texts_do():
    for changes in (0, 2, 10, 40, 150):
        errors = []
        for _ in range(30):
            words = made_text(150)
            changed = list(words)
            for place in RANDOM.choice(150, changes, replace=False):
                changed[place] = "x" + changed[place]
            texts = " ".join(words), " ".join(changed)
            agreement = np.mean(sketch(texts[0]) == sketch(texts[1]))
            errors.append(agreement - common_share(*texts))
        assert abs(np.mean(errors)) < 0.05
        assert np.std(errors) < 0.12


def test_pairs_are_found_among_many_texts():
    rows = [made_text(60) for _ in range(1500)]
    texts = [" ".join(row) for row in rows]
    for row in rows[:300]:
        row[30] = "changed"
    similar = [" ".join(row) for row in rows[:300]]
    groups = similar_groups(np.stack([sketch(text) for text in [*texts, *similar]]))
    assert np.mean(groups[:300] == groups[1500:]) > 0.95
    assert len(set(groups[:1500].tolist())) == 1500  # and nothing that is not similar


def test_case_white_space_scripts_without_spaces_and_short_texts():
    for other in ("ONE  two\n three", "one two three ", "one two three\u3000"):
        assert sketch("one two three").tolist() == sketch(other).tolist()
    text = "".join(map(chr, RANDOM.integers(0x4E00, 0x9FFF, 200)))
    assert np.mean(sketch(text) == sketch(text[:-2])) > 0.8
    for short in ("a", "ab", "", "12345678"):
        assert np.count_nonzero(sketch(short)) == 1
    assert similar_groups(np.stack([sketch("a"), sketch("b"), sketch("a")])).tolist() == [0, 1, 0]


def test_only_so_many_texts_are_compared(monkeypatch):
    monkeypatch.setattr(near_duplicates, "COMPARED", 2)
    texts = Texts()
    for text in ("the same words", "others", "the same words!", "the same words"):
        texts.add(text)
    assert (texts.repeated, texts.similar()) == (1, 0)
    assert Texts().similar() == 0
