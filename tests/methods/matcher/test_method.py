"""What the matcher is for; what every method promises is in test_contract.py."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from labelgrove import Corpus, LabelIndex, Matcher
from labelgrove.errors import ConfigError, UnsupportedError
from labelgrove.methods.matcher.evidence import MatchCounts, MatchingParams, learn_evidence
from labelgrove.methods.matcher.names import Names, words_of
from support.small_models import same

WORDS = [f"{a}{b}{c}o" for a in "bdfghjpt" for b in "aiu" for c in "cfgklmprtvwz"]  # 288 names
INDEX = LabelIndex([*WORDS, "zuzo"])


def corpus(n: int = 400, seed: int = 0) -> Corpus:
    """Texts that name their label in the first sentence, and another one, by the way, later.

    Some labels have many documents, others one or none.
    """
    random = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(n):
        subject, other = (WORDS[min(287, int(random.exponential(50)))] for _ in range(2))
        texts.append(f"About {subject}. It is unlike {other} in every way")
        labels.append([subject])
    return Corpus.from_lists(texts, labels, index=INDEX)


def test_labels_without_documents_are_found() -> None:
    model = Matcher().fit(corpus())
    assert model.facts_.frequencies[INDEX.column("zuzo")] == 0
    found = model.predict(["About zuzo. It is unlike bako", "About bako. It is unlike zuzo"], k=2)
    assert found.names() == [["zuzo", "bako"], ["bako", "zuzo"]]
    assert found.scores[0, 0] > 0.5 > found.scores[0, 1]


def test_a_name_that_is_never_right_is_not_trusted() -> None:
    data = corpus()
    assert data.texts is not None
    texts = [f"{text} and about" for text in data.texts]
    index = LabelIndex([*INDEX.ids, "about"])
    model = Matcher().fit(Corpus.from_lists(texts, data.label_lists(), index=index))
    scores = model.score_labels(["About zuzo"], ["about", "zuzo"])
    assert scores[0, 0] < 0.5 < scores[0, 1]


def test_scores_are_probabilities() -> None:
    model = Matcher().fit(corpus(1000))
    test = corpus(500, seed=1)
    found = model.predict(test, k=2)
    assert found.scores.mean() == pytest.approx(0.5, abs=0.03)  # one of two is right
    assert (found.scores > 0).all() and (found.scores <= 1).all()


def test_counts_of_the_own_tenth_are_left_out() -> None:
    """Each label has one document: with its own counts, the weights would rely on them."""
    texts = [f"{word} and {WORDS[(n + 7) % 288]}" for n, word in enumerate(WORDS)]
    data = Corpus.from_lists(texts, [[word] for word in WORDS], index=INDEX)
    evidence = learn_evidence(Names(INDEX, 8), texts, data.labels, MatchingParams(), seed=0)
    right = 21  # the share of right matches in training
    assert evidence.counts.right[:288].tolist() == [1] * 288
    assert evidence.weights[right] <= 0
    assert abs(evidence.weights[9]) > 0.1


def test_what_was_never_seen_in_training_is_not_extrapolated() -> None:
    """All labels have about as many documents, so nothing is known of labels without any."""
    texts = [f"About {w}. Unlike {o}" for w, o in pairwise(WORDS[:4])] * 20
    model = Matcher().fit(texts, [[word] for word in WORDS[:3]] * 20, index=INDEX)
    scores = model.score_labels(["About zuzo", f"About {WORDS[0]}"], ["zuzo", WORDS[0]])
    assert scores[0, 0] < scores[1, 1]


def test_labels_without_a_match_follow_by_frequency() -> None:
    texts, labels = ["x", "y", "z", "hats"], [["many"], ["many"], ["one"], ["hats"]]
    found = Matcher().fit(texts, labels).predict(["nothing"], k=3)
    assert found.names() == [["many", "one", "hats"]]
    np.testing.assert_allclose(found.scores[0], [2.01 / 5, 1.01 / 5, 0.01 / 4], rtol=1e-5)


def test_a_label_that_was_hidden_is_not_found_until_documents_teach_it(tmp_path: Path) -> None:
    """How far to trust its name is not known: it would come first wherever a text has the word."""
    data = corpus()
    hidden = np.array([label == WORDS[0] for label in data.index.ids])
    without = np.flatnonzero(data.labels.toarray()[:, hidden].sum(axis=1) == 0)
    model = Matcher().fit(replace(data.take(without), index=data.index.hiding(hidden)))
    before = model.predict([f"About {WORDS[0]}"], k=3)
    model.use_index(data.index)
    model.save(tmp_path / "model")
    for same_model in (model, Matcher.load(tmp_path / "model")):
        assert same(same_model.predict([f"About {WORDS[0]}"], k=3), before)
    assert WORDS[0] not in before.names()[0] and (before.scores >= 0).all()
    taught = [f"About {WORDS[0]}"] * 3, [[WORDS[0]]] * 3
    everything = Matcher.load(tmp_path / "model")
    everything.update(*taught, corpus=data)  # which has documents of the label, too
    column = data.index.column(WORDS[0])
    assert everything.evidence_.counts.right[column] == data.labels.toarray()[:, column].sum() + 3
    model.update(data.take(np.setdiff1d(np.arange(len(data)), without)))
    assert model.predict([f"About {WORDS[0]}"], k=1).names() == [[WORDS[0]]]
    for counts, of_all in zip(
        model.evidence_.counts, Matcher().fit(data).evidence_.counts, strict=True
    ):
        assert np.array_equal(counts, of_all)  # matches of the hidden name were counted


def test_settings_are_checked() -> None:
    for wrong in ({"letters": 2}, {"documents": 0}, {"ridge": 0.0}):
        with pytest.raises(ConfigError, match=f"matching.{next(iter(wrong))}"):
            Matcher(matching=MatchingParams(**wrong)).fit(corpus())


FEW_WORDS = [f"{a}{b}{c}o" for a in "bdfghjpt" for b in "aiu" for c in "cfgklm"]  # 144 names


LATE = ["ruko", "wazo (place)"]  # words that no other name has
FEW = LabelIndex(FEW_WORDS)


def documents(n: int, seed: int, words: list[str]) -> tuple[list[str], list[list[str]]]:
    """Texts that name their label in the first sentence, and another one, by the way, later."""
    random = np.random.default_rng(seed)
    pairs = [(random.choice(words), random.choice(FEW_WORDS)) for _ in range(n)]
    texts = [f"About {subject.split()[0]}. It is unlike {other}" for subject, other in pairs]
    return texts, [[subject] for subject, _ in pairs]


OLD = documents(400, 0, FEW_WORDS)


NEW = documents(60, 1, [*FEW_WORDS[:3], *LATE])


def arrays(model: Matcher) -> dict[str, Any]:
    part = model.parts()["evidence"]
    return part.arrays | part.config


def test_all_training_documents_give_the_bits_of_a_new_training() -> None:
    model = Matcher().fit(*OLD, index=FEW)
    growth = model.update(*NEW, corpus=OLD)
    assert growth.added == tuple(LATE) and growth.notes == ()
    again = Matcher().fit(OLD[0] + NEW[0], OLD[1] + NEW[1], index=model.index_)
    for name, values in arrays(again).items():
        assert np.array_equal(arrays(model)[name], values), name


@pytest.mark.parametrize("with_old", [False, True])
def test_counts_are_those_of_a_new_training_and_weights_stay(with_old: bool) -> None:
    """A corpus of one document less is not complete, so the weights are not learnt again."""
    model = Matcher().fit(*OLD, index=FEW)
    weights = model.evidence_.weights
    growth = model.update(*NEW, corpus=(OLD[0][1:], OLD[1][1:]) if with_old else None)
    assert growth.notes and len(growth.retrained) == 3
    assert model.evidence_.weights is weights
    again = Matcher().fit(OLD[0] + NEW[0], OLD[1] + NEW[1], index=model.index_)
    for name in MatchCounts._fields:  # no old document names a late label
        assert np.array_equal(arrays(model)[f"counts.{name}"], arrays(again)[f"counts.{name}"])
    assert np.array_equal(model.evidence_.stem_texts, again.evidence_.stem_texts)
    assert model.evidence_.n_texts == 460


def test_a_part_of_the_old_documents_stands_for_all() -> None:
    """Every second old document mentions a new label that none has."""
    texts = [f"{text} and zuzo" if n % 2 else text for n, text in enumerate(OLD[0])]
    model = Matcher().fit(texts, OLD[1], index=FEW)
    before = model.evidence_.counts
    model.add_labels(["zuzo"], corpus=(texts[:100], OLD[1][:100]))
    assert [values[-1] for values in model.evidence_.counts] == [0, 0, 200]
    stem = model.names_.stem_numbers["zuzo"]
    assert model.evidence_.stem_texts[stem] == 200
    for values, old in zip(model.evidence_.counts, before, strict=True):
        assert np.array_equal(values[:-1], old)  # old documents are not counted twice


def test_labels_by_name_alone_and_with_documents_of_their_own() -> None:
    model = Matcher().fit(*OLD, index=FEW)
    before = model.evidence_.counts
    model.add_labels(["ruko"])
    assert model.predict(["About ruko"], k=1).names() == [["ruko"]]
    model.add_labels(["wazo"], documents=[["About wazo and baco"]])
    right = model.evidence_.counts.right
    assert right[-2:].tolist() == [0, 1]
    # These documents may have other labels that are not given: nothing is known of baco.
    for values, old in zip(model.evidence_.counts, before, strict=True):
        assert np.array_equal(values[:-2], old)


def test_features_are_refused_and_change_nothing() -> None:
    model = Matcher().fit(*OLD, index=FEW)
    attributes = dict(vars(model))
    with pytest.raises(UnsupportedError, match="reads text"):
        model.update(sparse.csr_array((2, 3), dtype=np.float32), [["baco"], ["x"]])
    assert all(vars(model)[name] is value for name, value in attributes.items())


def found(names: list[str], text: str, *, texts: list[str] | None = None) -> set[str]:
    table = Names(LabelIndex(names, texts=texts), 8)
    matches = table.find(table.read([text]))
    return {names[label] for label in table.labels[matches.name]}


@pytest.mark.parametrize(
    ("name", "text", "is_found"),
    [
        ("data base", "two data bases", True),
        ("data base", "a base of data", False),
        ("data base", "data. Base", True),  # punctuation does not count
        ("Haus", "in den Hausen", True),
        ("Städte", "eine STADT", True),
        ("city", "cities", True),
        ("Straße", "strassen", True),
        ("Algorithmus", "some algorithms", True),
        ("Bach, Johann Sebastian", "by Johann Sebastian Bach", True),
        ("Bach, Johann Sebastian", "Bach, Johann Sebastian:", True),
        ("Bach, Johann Sebastian", "Johann Bach", False),
        ("Memory (Motiv)", "a memory", True),
        ("(Motiv)", "das Motiv", True),  # nothing but a qualifier is the name
        ("???", "???", False),
        ("a b c", "a b", False),
        (
            "one two three four five six seven eight nine ten eleven twelve end (Ring)",
            "ring",
            False,
        ),
        ("cafe\u0301", "caf\u00e9", True),
    ],
)
def test_names_in_texts(name: str, text: str, is_found: bool) -> None:
    assert found([name], text) == ({name} if is_found else set())


def test_names_do_not_cross_texts() -> None:
    names = Names(LabelIndex(["red hat"]), 8)
    matches = names.find(names.read(["a red", "hat", "", "red hat"]))
    assert matches.text.tolist() == [3]
    assert len(names.find(names.read([])).text) == 0


def test_short_parts_of_a_label_text_are_other_names() -> None:
    texts = ["kitty; domestic feline", "a text that goes on and on about dogs"]
    ids = ["cat", "dog"]
    assert found(ids, "a kitty", texts=texts) == {"cat"}
    assert found(ids, "domestic felines", texts=texts) == {"cat"}
    assert found(ids, "on and on about dogs", texts=texts) == {"dog"}
    assert found(ids, "goes on", texts=texts) == set()


def test_every_place_is_found_as_by_comparing_word_by_word() -> None:
    random = np.random.default_rng(0)
    letters = list("abcd")
    names = sorted({" ".join(random.choice(letters, random.integers(1, 4))) for _ in range(30)})
    texts = [" ".join(random.choice(letters, random.integers(0, 30))) for _ in range(20)]
    table = Names(LabelIndex(names), 8)
    reading = table.read(texts)
    matches = table.find(reading)
    start = matches.start - reading.starts[matches.text]
    got = sorted(zip(matches.text, table.labels[matches.name], start, strict=True))
    expected = [
        (row, label, place)
        for row, text in enumerate(texts)
        for label, name in enumerate(names)
        for place in range(len(text.split()))
        if words_of(text)[place : place + len(name.split())] == name.split()
    ]
    assert got == sorted(expected) and expected
    assert (matches.likeness == 1).all()


def test_names_inside_longer_ones_and_other_inflections() -> None:
    table = Names(LabelIndex(["base", "data base"]), 8)
    matches = table.find(table.read(["data bases and a base"]))
    entries = {
        (int(table.labels[name]), int(start)): (likeness, bool(inside))
        for name, start, likeness, inside in zip(
            matches.name, matches.start, matches.likeness, matches.inside, strict=True
        )
    }
    assert entries[0, 1] == (pytest.approx(8 / 9), True)
    assert entries[1, 0] == (pytest.approx(8 / 9), False)
    assert entries[0, 4] == (1.0, False)


def test_qualifiers_in_the_text() -> None:
    names = ["Ring (Mathematik, Algebra)", "ring", "Ring <Motiv>"]
    table = Names(LabelIndex(names), 8)
    reading = table.read(["ein ring", "ring der algebra", "motive"])
    text, label = np.array([0, 1, 1, 1, 2]), np.array([0, 0, 1, 2, 2])
    counts, present = table.qualified(reading, text, label)
    assert counts.tolist() == [2, 2, 0, 1, 1]
    assert present.tolist() == [False, True, False, False, True]


def test_labels_that_share_a_name_are_counted() -> None:
    index = LabelIndex(["1", "2", "3"], names=["Mercury (planet)", "mercury (metal)", "moon"])
    assert Names(index, 8).sharing.tolist() == [2, 2, 1]
