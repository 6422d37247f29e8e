"""The search and the votes give what comparing with every document gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

import labelgrove
from labelgrove import Corpus, Neighbours
from labelgrove.core.arrays import as_csr, csr_parts
from labelgrove.core.part import Part
from labelgrove.errors import ConfigError, UnsupportedError
from labelgrove.labels.masks import LabelMask
from labelgrove.methods.neighbours import memory as module
from labelgrove.methods.neighbours.memory import (
    Memory,
    Queries,
    TermMemory,
    VectorMemory,
    VotingParams,
)
from reference import neighbours as reference
from support.threads import on_threads

DOCUMENTS, TERMS, LABELS = 60, 25, 12


def random_rows(rows: int, seed: int) -> Any:
    matrix = sparse.random_array(
        (rows, TERMS), density=0.2, rng=np.random.default_rng(seed), dtype=np.float32
    )
    return as_csr(matrix)


def as_dicts(matrix: Any) -> list[dict[int, float]]:
    spans = zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True)
    return [
        dict(zip(matrix.indices[a:b].tolist(), matrix.data[a:b].tolist(), strict=True))
        for a, b in spans
    ]


@pytest.fixture(scope="module")
def problem() -> tuple[Any, Any, Any]:
    """Training rows (one is empty), their labels (the last label has no document), queries."""
    rows = random_rows(DOCUMENTS, 1).tolil()
    rows[7] = 0
    draws = np.random.default_rng(2).random((DOCUMENTS, LABELS)) < np.linspace(0.4, 0.0, LABELS)
    queries = sparse.vstack([random_rows(20, 3), sparse.csr_array((1, TERMS))])
    return as_csr(rows), as_csr(draws.astype(np.float32)), as_csr(queries)


@pytest.fixture(scope="module")
def vectors(problem: tuple[Any, Any, Any]) -> tuple[Any, Any]:
    """Unit vectors of the documents in half precision (two are equal) and of the queries."""
    random = np.random.default_rng(4)
    documents, queries = (
        random.standard_normal((problem[n].shape[0], 7)).astype(np.float32) for n in (0, 2)
    )
    documents[9] = documents[3]
    documents /= np.linalg.norm(documents, axis=1, keepdims=True)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    return documents.astype(np.float16), queries


def dense_dicts(rows: Any) -> list[dict[int, float]]:
    return [dict(enumerate(row)) for row in rows.astype(np.float64).tolist()]


SETTINGS: list[dict[str, Any]] = [
    {},
    {"neighbours": 3, "power": 1.0},
    {"neighbours": 500, "power": 0.0, "prior": 1.0},
    {"neighbours": 8, "power": 6.0, "rarity": 0.5, "prior": 0.001, "encoder_share": 0.3},
]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("entries", [1, 1 << 21])
@pytest.mark.parametrize("kind", ["tfidf", "encoder", "both"])
def test_scores_are_those_of_the_slow_reference(
    problem: tuple[Any, Any, Any],
    vectors: tuple[Any, Any],
    settings: dict[str, Any],
    entries: int,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ENTRIES_AT_ONCE", entries)
    monkeypatch.setattr(module, "DOCUMENTS_AT_ONCE", 17)
    monkeypatch.setattr(module, "TEXTS_AT_ONCE", 8)
    rows, labels, queries = problem
    params = VotingParams(**settings)
    own = [set(row) for row in as_dicts(labels)]
    by_terms, by_vectors = kind != "encoder", kind != "tfidf"
    memory = Memory.of(
        labels, terms=rows if by_terms else None, vectors=vectors[0] if by_vectors else None
    )
    asked = Queries(csr_parts(queries) if by_terms else None, vectors[1] if by_vectors else None)
    values = params.get_params()
    share = values.pop("encoder_share")
    parts = list(zip(as_dicts(queries), dense_dicts(vectors[1]), strict=True))
    mask = LabelMask.from_columns([1, 4, 5, 11], LABELS)
    for allowed in (None, mask):
        best = memory.best_labels(asked, 5, params, mask=allowed)
        for number, (query, vector) in enumerate(parts):
            first = reference.label_scores(query, as_dicts(rows), own, LABELS, **values)
            second = reference.label_scores(vector, dense_dicts(vectors[0]), own, LABELS, **values)
            both = reference.joined_scores(first, second, share)
            scores = {"tfidf": first, "encoder": second, "both": both}[kind]
            columns = range(LABELS) if allowed is None else allowed.columns.tolist()
            expected = sorted(columns, key=lambda column: (-np.float32(scores[column]), column))
            found = best.columns[number].tolist()
            assert len(found) == best.counts[number] == min(5, len(columns))
            # Cosines by the reference are divided by lengths that half precision made inexact.
            rtol = 1e-5 if kind == "tfidf" else 5e-3
            np.testing.assert_allclose(
                best.scores[number], [scores[column] for column in expected[:5]], rtol=rtol
            )
            np.testing.assert_allclose(
                best.scores[number], [scores[column] for column in found], rtol=rtol
            )


@pytest.mark.parametrize("documents_at_once", [1, 7, 1000])
@pytest.mark.parametrize("count", [1, 6, 100])
def test_nearest_vectors_are_those_of_all_documents(
    vectors: tuple[Any, Any], documents_at_once: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DOCUMENTS_AT_ONCE", documents_at_once)
    monkeypatch.setattr(module, "TEXTS_AT_ONCE", 6)
    rows, queries = vectors[0].astype(np.float64), vectors[1]
    queries = np.concatenate([queries, vectors[0][[3]].astype(np.float32)])
    near = VectorMemory(vectors[0]).nearest(queries, count)
    for number, query in enumerate(queries.astype(np.float64)):
        products = [sum(a * b for a, b in zip(query, row, strict=True)) for row in rows]
        order = sorted(range(len(rows)), key=lambda row: (-np.float32(products[row]), row))
        width = min(count, len(rows))
        assert near.counts[number] == width
        assert near.columns[number].tolist() == order[:width]
        cosines = [min(1.0, max(0.0, products[row])) for row in order[:width]]
        np.testing.assert_allclose(near.scores[number], cosines, atol=1e-6)
    if count == 6:
        assert near.columns[-1, :2].tolist() == [3, 9]  # equal ones go by their number


def test_torch_finds_the_same_vectors(vectors: tuple[Any, Any]) -> None:
    torch = pytest.importorskip("torch")

    class Elsewhere(VectorMemory):
        """Computes on the CPU as on a GPU."""

        def _on(self, device: Any) -> Any:
            return torch.from_numpy(self.rows)

    class Device:
        type = "cuda"

    near = VectorMemory(vectors[0]).nearest(vectors[1], 9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "to", lambda self, device: self)
        other = Elsewhere(vectors[0]).nearest(vectors[1], 9, device=Device())
    assert np.array_equal(near.columns, other.columns)
    np.testing.assert_allclose(near.scores, other.scores, atol=1e-6)


def test_the_order_of_terms_and_not_threads_decides_the_bits(problem: tuple[Any, Any, Any]) -> None:
    rows, _, queries = problem
    many = csr_parts(as_csr(sparse.vstack([queries] * 10)))
    memory = TermMemory.of(rows)
    one, four = (on_threads(threads, memory.nearest, many, 9) for threads in (1, 4))
    assert one.scores.tobytes() == four.scores.tobytes()
    assert np.array_equal(one.columns, four.columns)


def test_a_state_whose_parts_do_not_fit_is_refused(
    problem: tuple[Any, Any, Any], vectors: tuple[Any, Any]
) -> None:
    rows, labels, _ = problem
    state = Memory.of(labels, terms=rows, vectors=vectors[0]).state()
    other = Memory.of(labels[:9], terms=rows[:9]).state()
    mixed = {name: other.arrays[name] for name in other.arrays if name.startswith("labels")}
    with pytest.raises(ValueError, match="60 documents, but labels of 9"):
        Memory.from_state(Part(state.config, state.arrays | mixed))
    with pytest.raises(ValueError, match=r"\(60, 7\) for 9 documents"):
        Memory.from_state(Part(state.config, state.arrays | mixed), terms=False, vectors=True)
    memory = Memory.from_state(state, vectors=True)
    memory.check_fits(LABELS, 7)
    pytest.raises(ValueError, memory.check_fits, LABELS, 8).match("vectors of 7 for states of 8")
    pytest.raises(ValueError, memory.check_fits, 9, 7).match("do not fit the 9 of the index")


CLOTHES = ["red shoes", "red boots", "red hat", "green hat", "a violet umbrella"]


OWN = [["shoes", "red"], ["shoes", "red"], ["hats", "red"], ["hats"], ["umbrellas"]]


def test_a_label_with_one_document_is_found() -> None:
    model = Neighbours().fit(CLOTHES, OWN)
    found = model.predict(["an umbrella"], k=1)
    assert found.names() == [["umbrellas"]]
    assert found.scores[0, 0] > 0.5


def test_settings_are_checked() -> None:
    for wrong in ({"neighbours": 0}, {"power": -1.0}, {"rarity": 2.0}, {"prior": 0.0}):
        with pytest.raises(ConfigError, match=f"voting.{next(iter(wrong))}"):
            Neighbours(voting=VotingParams(**wrong)).fit(CLOTHES, OWN)


def test_dense_rows_beside_others_are_refused() -> None:
    rows = np.ones((5, 2), np.float32)
    corpus = Corpus.from_lists(CLOTHES, OWN).with_dense(rows)
    with pytest.raises(UnsupportedError, match=r"Leave it out, or train linear"):
        Neighbours().fit(corpus)
    both = labelgrove.Features(sparse.csr_array(rows), rows)
    with pytest.raises(UnsupportedError, match=r"Leave it out, or train linear"):
        Neighbours().fit(both, OWN)
