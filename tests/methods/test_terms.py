"""Which features are used of a corpus that has texts and a matrix; labels as documents."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from labelgrove import Corpus, LabelIndex, Linear, records
from labelgrove.core.callbacks import Reporter
from labelgrove.core.strings import StringTable
from labelgrove.data.features import Features
from labelgrove.disk.run_folder import RunFolder
from labelgrove.disk.stages import Stages
from labelgrove.errors import ConfigError, DataError, LabelgroveWarning
from labelgrove.methods.terms import (
    choose_features,
    given_matrix,
    labels_with_words,
    terms_stage,
    with_label_documents,
    without_matrix,
)
from labelgrove.text.tfidf import TfidfParams
from support.small_models import Messages

TEXTS = ["red shoes", "blue hat", "red hat"]
GIVEN = sparse.csr_array(np.eye(3, 5, dtype=np.float32))
PLAIN = Corpus.from_lists(TEXTS, [["a"], ["b"], ["b"]])


def corpus(texts: bool = True, sparse: bool = True, dense: bool = False) -> Corpus:
    block = np.ones((3, 2), np.float32) if dense else None
    features = Features(GIVEN if sparse else None, block) if sparse or dense else None
    return Corpus(PLAIN.texts if texts else None, PLAIN.labels, PLAIN.index, features=features)


def test_auto_takes_a_matrix_if_there_is_one() -> None:
    both = choose_features("auto", corpus())
    assert both.source == "given" and both.derived["features"][0] == "given"
    assert "5 columns" in both.message and "own" in both.derived["features"][1]
    for only, source in ((corpus(sparse=False), "own"), (corpus(texts=False), "given")):
        choice = choose_features("auto", only)
        assert choice == (source, only, {}, "")
    dense = corpus(sparse=False, dense=True)
    assert choose_features("auto", dense) == ("own", dense, {}, "")


def test_own_drops_the_matrix_and_says_so() -> None:
    choice = choose_features("own", corpus(dense=True))
    assert choice.source == "own" and choice.corpus.width == 2
    assert given_matrix(choice.corpus) is None and "is not used" in choice.message
    assert without_matrix(corpus()).features is None


def test_what_is_missing_is_named() -> None:
    for setting in ("given", "both"):
        assert choose_features(setting, corpus()).message == ""
        with pytest.raises(DataError, match=rf"features: {setting} needs a matrix.*--features"):
            choose_features(setting, corpus(sparse=False))
    for setting in ("own", "both"):
        with pytest.raises(DataError, match=rf"features: {setting} needs texts.*features=given"):
            choose_features(setting, corpus(texts=False))
    with pytest.raises(ConfigError, match="features: must be one of 'auto', 'own'"):
        Linear(features="tfidf").fit(TEXTS, [["a"]] * 3)
    broken = corpus()
    assert broken.features is not None
    broken.features.sparse.data = np.full(3, np.inf, np.float32)
    pytest.raises(DataError, choose_features, "auto", broken).match("NaN or infinity")
    broken.features.sparse.data = np.ones(3, np.float32)


def test_keys_follow_the_matrix_and_that_of_the_judges(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run") as run:
        stages = Stages(Reporter(), run)

        def key(changed: Corpus, held_out: Corpus | None = None, source: str = "given") -> str:
            made = terms_stage(
                stages,
                changed,
                TfidfParams(),
                source,
                held_out=held_out,  # type: ignore[arg-type]
            )
            return made.key

        other = corpus()
        object.__setattr__(other, "features", Features(GIVEN * np.float32(2)))
        keys = [key(corpus()), key(other), key(corpus(), other), key(corpus(), corpus())]
        keys += [key(corpus(), source="both"), key(other, source="both")]
        assert len(set(keys)) == 6 and key(corpus()) == keys[0]
        assert key(corpus(), source="own") == key(other, source="own")


def test_linear_on_given_features_is_linear_on_the_matrix() -> None:
    given = Linear().fit(corpus())
    alone = Linear().fit(corpus(texts=False))
    assert given.predict(GIVEN, k=2).scores.tobytes() == alone.predict(GIVEN, k=2).scores.tobytes()
    assert not given.facts_.from_text and given.facts_.given == 5
    assert given.facts_.warning(corpus()) is None  # too few to say so, but they are known
    assert given.facts_.fingerprints is not None and len(given.facts_.fingerprints.hashes) == 3


def test_both_and_a_dense_block() -> None:
    model = Linear(features="both").fit(corpus(dense=True))
    assert model.rankers()[0].features == 4 + 5 and model.facts_.width == 2
    assert model.predict(corpus(dense=True), k=1).counts.tolist() == [1, 1, 1]
    with pytest.raises(DataError, match="dense"):
        model.predict(corpus(), k=1)


def test_fields_whose_values_are_all_rare_are_told_of() -> None:
    rows = [{"t": "a book", "by": f"person {n % 2}", "number": str(n)} for n in range(6)]
    documents = records(rows, text="t", fields=["by", "number"])
    said = Messages()
    Linear(tfidf=TfidfParams(min_df=2)).fit(documents, [["x"], ["y"]] * 3, callbacks=[said])
    assert [text for text in said if text.startswith("fields:")] == [
        "fields: values that became terms: by 2, number 0; no value of number is in enough "
        "documents (tfidf.min_df)"
    ]


SHOES, LABELS = ["a red shoe", "blue hat"], [["c1"], ["c2"]]


def test_each_label_with_words_becomes_a_document():
    index = LabelIndex(["c1", "c2", "c3"], names=["shoes", "12-34", "été"])
    corpus = Corpus.from_lists(SHOES, LABELS, index=index)
    assert labels_with_words(index) == [0, 2]
    both = with_label_documents(corpus)
    assert list(both.texts or ()) == [*SHOES, "shoes", "été"]
    assert both.label_lists() == [["c1"], ["c2"], ["c1"], ["c3"]]
    assert both.index is index and len(corpus) == 2


def test_texts_of_labels_come_before_names_and_tables_stay_tables():
    index = LabelIndex(["c1", "c2"], names=["shoes", "hats"], texts=["to wear on feet", ""])
    corpus = Corpus.from_lists(SHOES, LABELS, index=index)
    stored = Corpus(StringTable.from_strings(SHOES), corpus.labels, index)
    both = with_label_documents(stored)
    assert isinstance(both.texts, StringTable)
    assert list(both.texts) == [*SHOES, "to wear on feet"]


def test_linear_learns_words_that_no_document_has():
    texts, labels = ["red one", "blue one"] * 3, [["sandals"], ["turban"]] * 3
    plain = Linear().fit(texts, labels)
    named = Linear(label_texts="names").fit(texts, labels)
    assert named.predict(["sandals", "turban"], k=1).names() == [["sandals"], ["turban"]]
    assert len(set(map(tuple, plain.predict(["sandals", "turban"], k=1).names()))) == 1
    assert named.facts_.documents == 6  # labels are not counted as documents
    assert Linear.from_config(named.to_config()).label_texts == "names"
    assert Linear.from_config(plain.to_config()).label_texts is None


@pytest.mark.parametrize("names", [None, ["12-34", "2"]])
def test_names_without_words_teach_nothing_and_it_says_so(names):
    labels, index = [["17"], ["18"]] * 3, LabelIndex(["17", "18"], names=names)
    with pytest.warns(LabelgroveWarning, match="no label has a name with letters; give names"):
        named = Linear(label_texts="names").fit(SHOES * 3, labels, index=index)
    plain = Linear().fit(SHOES * 3, labels, index=index)
    found = [model.predict(SHOES, k=2).scores for model in (named, plain)]
    assert np.array_equal(*found)


def test_one_name_with_words_is_enough(recwarn):
    index = LabelIndex(["17", "18"], names=["shoes", "2"])
    Linear(label_texts="names").fit(SHOES, [["17"], ["18"]], index=index)
    assert not recwarn.list


@pytest.mark.parametrize("extra", ["dense", "sample_weight"])
def test_what_has_no_rows_for_labels_is_refused(extra):
    given = {"dense": np.ones((2, 3), np.float32), "sample_weight": [1.0, 2.0]}[extra]
    with pytest.raises(ConfigError, match="label_texts"):
        Linear(label_texts="names").fit(SHOES, LABELS, **{extra: given})
    with pytest.raises(ConfigError, match="label_texts: must be one of 'names', 'none'"):
        Linear(label_texts="both").fit(SHOES, LABELS)
