"""The inverted index and the votes give what comparing with every document gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from labelgrove.core.arrays import as_csr, csr_parts
from labelgrove.core.part import Part
from labelgrove.labels.masks import LabelMask
from labelgrove.methods.neighbours import memory as module
from labelgrove.methods.neighbours.memory import Memory, VotingParams
from reference import neighbours as reference

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


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"neighbours": 3, "power": 1.0},
        {"neighbours": 500, "power": 0.0, "prior": 1.0},
        {"neighbours": 8, "power": 6.0, "rarity": 0.5, "prior": 0.001},
    ],
)
@pytest.mark.parametrize("entries", [1, 1 << 21])
def test_scores_are_those_of_the_slow_reference(
    problem: tuple[Any, Any, Any],
    settings: dict[str, Any],
    entries: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ENTRIES_AT_ONCE", entries)
    rows, labels, queries = problem
    params = VotingParams(**settings)
    own = [set(row) for row in as_dicts(labels)]
    memory = Memory.of(rows, labels)
    mask = LabelMask.from_columns([1, 4, 5, 11], LABELS)
    for allowed in (None, mask):
        best = memory.best_labels(csr_parts(queries), 5, params, mask=allowed, threads=2)
        for number, query in enumerate(as_dicts(queries)):
            scores = reference.label_scores(
                query, as_dicts(rows), own, LABELS, **params.get_params()
            )
            columns = range(LABELS) if allowed is None else allowed.columns.tolist()
            expected = sorted(columns, key=lambda column: (-np.float32(scores[column]), column))
            found = best.columns[number].tolist()
            assert len(found) == best.counts[number] == min(5, len(columns))
            np.testing.assert_allclose(
                best.scores[number], [scores[column] for column in expected[:5]], rtol=1e-5
            )
            np.testing.assert_allclose(
                best.scores[number], [scores[column] for column in found], rtol=1e-5
            )


def test_neighbours_are_those_of_the_slow_reference(problem: tuple[Any, Any, Any]) -> None:
    rows, labels, queries = problem
    near = Memory.of(rows, labels).nearest(csr_parts(queries), 6, threads=1)
    for number, query in enumerate(as_dicts(queries)):
        expected = reference.nearest(query, as_dicts(rows), 6)
        used = near.scores[number] > 0
        assert near.columns[number][used].tolist() == [document for document, _ in expected]
        np.testing.assert_allclose(
            near.scores[number][used], [similarity for _, similarity in expected], rtol=1e-5
        )


def test_the_order_of_terms_and_not_threads_decides_the_bits(
    problem: tuple[Any, Any, Any],
) -> None:
    rows, labels, queries = problem
    many = csr_parts(as_csr(sparse.vstack([queries] * 10)))
    memory = Memory.of(rows, labels)
    one, four = (memory.nearest(many, 9, threads=threads) for threads in (1, 4))
    assert one.scores.tobytes() == four.scores.tobytes()
    assert np.array_equal(one.columns, four.columns)


def test_a_state_whose_parts_do_not_fit_is_refused(problem: tuple[Any, Any, Any]) -> None:
    rows, labels, _ = problem
    state, other = Memory.of(rows, labels).state(), Memory.of(rows[:9], labels[:9]).state()
    mixed = {name: other.arrays[name] for name in other.arrays if name.startswith("labels")}
    with pytest.raises(ValueError, match="60 documents, but labels of 9"):
        Memory.from_state(Part(state.config, state.arrays | mixed))
