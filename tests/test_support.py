"""docs/support.md tells the truth: every cell of its table is tried with a small fitted model."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import labelgrove.methods
from labelgrove import Corpus, Documents, Ensemble
from labelgrove.core.callbacks import Event
from labelgrove.disk.run_folder import RunFolder, run_status
from labelgrove.errors import ConfigError, UnsupportedError
from labelgrove.experiments.tuning.space import built_in_space
from labelgrove.methods.explaining.explain import explain
from support import small_models as contract

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parent.parent / "docs" / "support.md"
CELLS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("|")
]
METHODS = CELLS[0][1:]
TEXTS, LABELS = contract.planted(60)
ROWS = np.tile(np.eye(4, dtype=np.float32), (15, 1))


def quick(method: str) -> Any:
    """A new model that is trained in a moment; what it has learnt plays no part here."""
    if method not in ("linear", "neighbours", "matcher", "ensemble"):
        pytest.importorskip("torch")
    model = contract.new(method)
    if hasattr(model, "training"):
        model.training.max_steps = 2
    return model


@cache
def fitted(method: str) -> Any:
    return quick(method).fit(TEXTS, LABELS)


def masks(method: str, _: Path) -> None:
    denied = fitted(method).index_.names[0]
    found = fitted(method).predict(TEXTS[:2], k=len(fitted(method).index_), deny=[denied])
    assert all(denied not in names for names in found.names())


def score_labels(method: str, _: Path) -> None:
    assert fitted(method).score_labels(TEXTS[:2], [LABELS[0][0]]).shape == (2, 1)


def calibrate(method: str, folder: Path) -> None:
    fitted(method).save(folder / "model")
    model = labelgrove.load(folder / "model")
    labelgrove.calibrate(model, TEXTS, LABELS)
    assert model.predict(TEXTS[:1], k=1, threshold=0.0).score_kind == "probability"


def explained(method: str, _: Path) -> None:
    assert explain(fitted(method), TEXTS[0], LABELS[0][0]).id == LABELS[0][0]


def serve(method: str, folder: Path) -> None:
    pytest.importorskip("fastapi")
    from labelgrove.serve.served import Options, Served

    fitted(method).save(folder / "model")
    served = Served.load(folder / "model", device="cpu", threads=1)
    _, rows = served.answer(Options(2), TEXTS[:1])
    assert len(rows[0]) == 2


def in_ensembles(method: str, _: Path) -> None:
    joined = Ensemble([fitted(method), fitted("linear")], rule="softmax").join()
    assert len(joined.predict(TEXTS[:1], k=2).names()[0]) == 2


def resume(method: str, folder: Path) -> None:
    class Killed(Exception):
        pass

    def kill(event: Event) -> None:
        if event.kind == "stage_end":
            raise Killed

    with contextlib.suppress(Killed), RunFolder(folder) as run:
        quick(method).fit(TEXTS, LABELS, run=run, callbacks=[kill])
    kept = {stage.key for stage in run_status(folder).stages}
    assert kept
    with RunFolder(folder) as run:
        model = quick(method).fit(TEXTS, LABELS, run=run)
    assert kept <= {stage.key for stage in run_status(folder).stages}
    again = model.predict(TEXTS, k=3)
    assert contract.same(again, fitted(method).predict(TEXTS, k=3))


def features(method: str, _: Path) -> None:
    quick(method).fit(ROWS, LABELS)


def dense(method: str, _: Path) -> None:
    quick(method).fit(Corpus.from_lists(TEXTS, LABELS).with_dense(ROWS))


def given(method: str, _: Path) -> None:
    documents = Documents(TEXTS, sparse.csr_array(ROWS))
    model = quick(method).fit(documents, LABELS)
    assert model.predict(documents, k=1).counts.tolist() == [1] * len(TEXTS)


def fields(method: str, folder: Path) -> None:
    rows = [{"t": text, "by": labels[0]} for text, labels in zip(TEXTS, LABELS, strict=True)]
    documents = labelgrove.records(rows, text="t", fields="by")
    quick(method).fit(documents, LABELS).save(folder / "model")
    model = labelgrove.load(folder / "model")
    best = model.predict([*rows[:2], "a text without fields"], k=1)
    assert best.counts.tolist() == [1, 1, 1]
    assert contract.same(best, model.predict([*documents[:2], "a text without fields"], k=1))


def argument_of_fit(name: str) -> Callable[[str, Path], None]:
    def probe(method: str, _: Path) -> None:
        if name not in inspect.signature(quick(method).fit).parameters:
            raise UnsupportedError(f"fit has no {name}")

    return probe


def grow(method: str, folder: Path) -> None:
    fitted(method).save(folder / "model")
    model = labelgrove.load(folder / "model")
    model.update([*TEXTS[:5], "a new thing"], [*LABELS[:5], ["new"]])
    model.add_labels(["another"])
    assert {"new", "another"} <= set(model.index_.names)


def export(method: str, folder: Path) -> None:
    pytest.importorskip("onnxruntime")
    labelgrove.export(fitted(method), folder / "exported")


def tune(method: str, _: Path) -> None:
    try:
        assert built_in_space(quick(method))
    except ConfigError as error:  # a space of one's own may still be given
        raise UnsupportedError(str(error)) from error


FEATURES: dict[str, Callable[[str, Path], None]] = {
    "masks (`allow`, `deny`)": masks,
    "scores of given labels (`score_labels`)": score_labels,
    "`calibrate`, thresholds": calibrate,
    "`explain`": explained,
    "`serve`": serve,
    "member of an ensemble": in_ensembles,
    "run folder, `--resume`": resume,
    "`add_labels`, `update`": grow,
    "`export` without torch": export,
    "`tune`": tune,
    "features in place of texts": features,
    "a sparse matrix beside texts (`features=`)": given,
    "documents with [fields](features.md#documents-with-fields)": fields,
    "dense rows beside texts (`dense=`)": dense,
    "a tree of your own (`label_tree=`)": argument_of_fit("label_tree"),
    "weights of documents (`sample_weight=`)": argument_of_fit("sample_weight"),
}


def test_the_table_has_every_method_and_every_feature_that_is_tried() -> None:
    classes = {name for name, entry in labelgrove.methods.METHODS.items() if not entry.preset}
    assert set(METHODS) == classes - {"auto"}
    assert [row[0] for row in CELLS[2:]] == list(FEATURES)
    assert all(cell in ("yes", "no") for row in CELLS[2:] for cell in row[1:])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("feature", FEATURES)
def test_cell(feature: str, method: str, tmp_path: Path) -> None:
    row = next(row for row in CELLS if row[0] == feature)
    promised = row[1 + METHODS.index(method)] == "yes"
    try:
        FEATURES[feature](method, tmp_path)
    except UnsupportedError as error:
        assert not promised, f"{method} does not support {feature}: {error}"
    else:
        assert promised, f"{method} supports {feature}, but docs/support.md says no"
