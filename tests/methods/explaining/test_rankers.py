"""A node's margin is the kernel's, and a sum of what features give, however weights are stored.

Terms stand where it is said.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from labelgrove.data.features import Features
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.explaining.explanation import Span
from labelgrove.methods.explaining.rankers import (
    TermPositions,
    labels_below,
    node_path,
    ranker_steps,
)
from labelgrove.ranking.beam import SearchParams
from labelgrove.ranking.ranker import Ranker, train_ranker
from labelgrove.ranking.solver import RankerParams
from labelgrove.text.feeding import text_analyzer
from labelgrove.text.tfidf import Tfidf, TfidfParams
from labelgrove.text.unicode_tables import strip_marks

TREE = LabelTree([[0, 0, 0], [0, 0, 1, 2, 2], [0, 0, 1, 2, 3, 3, 4]], [3, 0, 6, 1, 5, 2, 4])


def problem(blocks: str) -> tuple[Features, sparse.csr_array]:
    random = np.random.default_rng(0)
    labels = sparse.csr_array((random.random((60, 7)) < 0.3).astype(np.float32))
    terms = sparse.random_array((60, 30), density=0.3, rng=random, dtype=np.float32)
    terms = sparse.csr_array(terms + labels @ (random.random((7, 30)) < 0.2))
    dense = (labels @ random.normal(size=(7, 5))).astype(np.float32)
    return Features(
        terms if "sparse" in blocks else None, dense if "dense" in blocks else None
    ), labels


@pytest.mark.parametrize("storage", ["float32", "float16"])
@pytest.mark.parametrize("blocks", ["sparse", "dense", "sparse dense"])
def test_every_margin_is_the_kernels(blocks: str, storage: str) -> None:
    features, labels = problem(blocks)
    params = RankerParams(bias=2.0, storage=storage)  # type: ignore[arg-type]
    ranker = train_ranker(features, labels, TREE, params)
    bare = SearchParams(post_processor="noop")
    seen = dense = 0
    for row in range(6):
        document = features.take([row]).parts()
        for column in range(7):
            steps = ranker_steps(
                ranker, document, column, params=bare, terms=None, examples=lambda columns: ()
            )
            for step in steps:
                # The nodes of a level are the labels of the tree above it.
                above = Ranker(
                    TREE.coarsen(step.level),
                    ranker.levels[: step.level],
                    features=ranker.features,
                    bias=ranker.bias,
                    width=ranker.width,
                )
                node = step.node if step.level < 3 else column
                kernel = above.score(document, [node], params=bare)[0, 0]
                assert step.margin == pytest.approx(kernel, abs=2e-5)
                assert step.total == pytest.approx(step.margin, abs=1e-12)
                assert step.counts == (step.level == 3) and step.probability is None
                seen += len(step.reasons)
                dense += step.vector != 0
    assert (seen > 100) == ("sparse" in blocks)
    assert (dense > 50) == ("dense" in blocks)


@pytest.mark.parametrize("kind", ["l1-hinge", "l2-hinge", "l3-hinge", "l4-hinge", "sigmoid"])
@pytest.mark.parametrize("last_level", ["same", "noop"])
def test_probabilities_are_those_of_the_search(kind: str, last_level: str) -> None:
    features, labels = problem("sparse dense")
    ranker = train_ranker(features, labels, TREE)
    params = SearchParams(post_processor=kind, last_level=last_level)  # type: ignore[arg-type]
    for row in range(6):
        document = features.take([row]).parts()
        for column in range(7):
            steps = ranker_steps(
                ranker, document, column, params=params, terms=None, examples=lambda columns: ()
            )
            score = float(ranker.score(document, [column], params=params)[0, 0])
            if last_level == "noop":
                assert [step.counts for step in steps] == [False, False, True]
                assert score == pytest.approx(steps[-1].margin, abs=2e-5)
                assert steps[-1].probability is None
                continue
            probabilities = [step.probability or 0.0 for step in steps if step.counts]
            product = float(np.prod(probabilities))
            assert product == pytest.approx(score, rel=1e-4, abs=1e-7)


def test_paths_and_what_lies_below_a_node() -> None:
    for column in range(7):
        path = node_path(TREE, column)
        assert path[-1] == TREE.leaf_positions[column]
        for level, node in enumerate(path):
            assert column in labels_below(TREE, level, node)
    for level, width in enumerate(TREE.widths):
        below = [labels_below(TREE, level, node).tolist() for node in range(width)]
        assert [c for columns in below for c in columns] == TREE.leaf_labels.tolist()


ALPHABET = "abc AB\t\n  .,-_19éÉßİΣσςﬁ中あｱกำ\U0001f333\u0301"


def places(text: str, **params: Any) -> dict[str, tuple[Span, ...]]:
    """All terms of a text with their positions."""
    settings = {"analyzer": "word", "min_df": 1} | params
    terms = TermPositions(text, Tfidf(TfidfParams(**settings), n_jobs=1).fit([text]))
    return dict(found for column in terms.names if (found := terms(column)))


@pytest.mark.filterwarnings("ignore:some letters")
@pytest.mark.parametrize("analyzer", ["word", "char", "char_wb", "mixed", "space"])
@given(text=st.text(ALPHABET, max_size=40))
@settings(max_examples=40, deadline=None)
def test_what_stands_in_the_places_is_the_word(analyzer: str, text: str) -> None:
    plain = {"analyzer": analyzer, "strip_accents": True, "min_token_length": 1}
    for term, spans in places(f"x {text}", **plain).items():
        assert spans or not term.strip(), term
        for span in spans:
            piece = f"x {text}" if "Σ" in text else f"x {text}"[slice(*span)]
            assert term.strip().split(" ")[0] in strip_marks(piece.lower())


@pytest.mark.parametrize(
    ("text", "params", "term", "expected"),
    [
        ("red Red", {}, "red", [(0, 3), (4, 7)]),
        ("reds, red", {}, "red", [(6, 9)]),
        ("one,  two three", {"ngram_range": (2, 2)}, "one two", [(0, 9)]),
        ("one a two", {"ngram_range": (2, 2)}, "one two", [(0, 9)]),
        ("b b b", {"ngram_range": (2, 2), "min_token_length": 1}, "b b", [(0, 3), (2, 5)]),
        ("a red-ish", {"analyzer": "space"}, "red-ish", [(2, 9)]),
        ("a  red", {"analyzer": "char", "ngram_range": (2, 2)}, " r", [(1, 4)]),
        ("re red", {"analyzer": "char", "ngram_range": (3, 3)}, "re ", [(0, 3)]),
        ("red ared", {"analyzer": "char_wb", "ngram_range": (2, 2)}, " r", [(0, 1)]),
        ("red ared", {"analyzer": "char_wb", "ngram_range": (2, 2)}, "re", [(0, 2), (5, 7)]),
        ("東京 on", {"analyzer": "mixed"}, "東京", [(0, 2)]),
        # The capital I with a dot has two characters in lower case, a ligature without accents.
        ("İİ 🌳 ﬁne Fine", {"strip_accents": True}, "fine", [(5, 8), (9, 13)]),
        ("alte Bu\u0308cher", {}, "b\u00fccher", [(5, 12)]),
    ],
)
def test_places_count_characters_of_the_given_text(
    text: str, params: dict[str, Any], term: str, expected: list[tuple[int, int]]
) -> None:
    assert list(places(text, **params)[term]) == expected


def test_known_terms_are_found_by_their_columns() -> None:
    tfidf = Tfidf(TfidfParams(ngram_range=(1, 2))).fit(["red shoe", "été bleu", "red hat"])
    terms = TermPositions("Une ÉTÉ, the red   hat", tfidf)
    assert set(terms.names.values()) == {"été", "red", "hat", "red hat"}
    assert all(tfidf.terms()[column] == name for column, name in terms.names.items())
    assert TermPositions("", tfidf).names == {} and terms(10**6) is None


def test_tokens_of_somebodys_function_are_looked_for_in_the_text() -> None:
    @text_analyzer
    def stems(text: str) -> list[str]:
        return [*(word[:3] for word in text.lower().split()), "", "<end>"]

    tfidf = Tfidf(TfidfParams(ngram_range=(1, 2)), analyzer=stems).fit(["Library libraries"])
    terms = TermPositions("The Library", tfidf)
    found = dict(terms(column) or () for column in terms.names)
    assert found == {"lib": (Span(4, 7),), "<end>": (), "lib <end>": ()}
