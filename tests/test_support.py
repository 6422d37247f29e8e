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

import labelgrove.methods
from labelgrove import Corpus, Ensemble
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


def dense(method: str, _: Path) -> None:
    quick(method).fit(Corpus.from_lists(TEXTS, LABELS).with_dense(ROWS))


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


def export(method: str, folder: Path) -> None:
    pytest.importorskip("onnxruntime")
    labelgrove.export(fitted(method), folder / "exported")


def tune(method: str, _: Path) -> None:
    try:
        assert built_in_space(quick(method))
    except ConfigError as error:  # a space of one's own may still be given
        raise UnsupportedError(str(error)) from error


# What the contract suite tries, and the methods that it finds to do it.
CONTRACT: dict[str, set[str]] = {
    "masks (`allow`, `deny`)": set(METHODS),
    "scores of given labels (`score_labels`)": set(METHODS),
    "`calibrate`, thresholds": set(METHODS),
    "`add_labels`, `update`": set(METHODS) - contract.NEVER_GROW,
    "features in place of texts": contract.FROM_FEATURES,
    "a sparse matrix beside texts (`features=`)": set(METHODS),
}
TRIED_HERE: dict[str, Callable[[str, Path], None]] = {
    "`explain`": explained,
    "`serve`": serve,
    "member of an ensemble": in_ensembles,
    "run folder, `--resume`": resume,
    "`export` without torch": export,
    "`tune`": tune,
    "documents with [fields](features.md#documents-with-fields)": fields,
    "dense rows beside texts (`dense=`)": dense,
    "a tree of your own (`label_tree=`)": argument_of_fit("label_tree"),
    "weights of documents (`sample_weight=`)": argument_of_fit("sample_weight"),
}


def test_the_table_has_every_method_and_every_feature_that_is_tried() -> None:
    classes = {name for name, entry in labelgrove.methods.METHODS.items() if not entry.preset}
    assert set(METHODS) == classes - {"auto"}
    assert {row[0] for row in CELLS[2:]} == CONTRACT.keys() | TRIED_HERE.keys()
    assert all(cell in ("yes", "no") for row in CELLS[2:] for cell in row[1:])


def is_promised(feature: str, method: str) -> bool:
    row = next(row for row in CELLS if row[0] == feature)
    return row[1 + METHODS.index(method)] == "yes"


@pytest.mark.parametrize("feature", CONTRACT)
def test_the_table_says_what_the_contract_suite_finds(feature: str) -> None:
    promised = {method for method in METHODS if is_promised(feature, method)}
    assert promised == CONTRACT[feature] & set(METHODS)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("feature", TRIED_HERE)
def test_cell(feature: str, method: str, tmp_path: Path) -> None:
    promised = is_promised(feature, method)
    try:
        TRIED_HERE[feature](method, tmp_path)
    except UnsupportedError as error:
        assert not promised, f"{method} does not support {feature}: {error}"
    else:
        assert promised, f"{method} supports {feature}, but docs/support.md says no"
