"""Adding a method takes one file and one line: this is the file, and the line is in ``registered``.

The method then goes through the commands that train, predict, measure and explain.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytest

from labelgrove.core.callbacks import Callback, Reporter
from labelgrove.core.part import Part
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.inputs import texts_only, training_corpus
from labelgrove.disk.run_folder import RunFolder
from labelgrove.disk.stages import Stages
from labelgrove.evaluation.predictions import Predictions
from labelgrove.labels.masks import LabelMask
from labelgrove.methods import METHODS, MethodEntry
from labelgrove.methods.base import Model


def count_labels(labels: Any, smoothing: float) -> Part:
    """A stage: the share of the documents that have each label."""
    counts = np.bincount(labels.indices, minlength=labels.shape[1])
    return Part({}, {"shares": ((counts + smoothing) / labels.shape[0]).astype(np.float32)})


@dataclass(kw_only=True, eq=False, repr=False)
class Popular(Model):
    """Gives every text the most frequent labels."""

    method: ClassVar[str] = "popular"

    smoothing: float = 0.0
    random_state: int = 0
    n_jobs: int | None = None

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        index: LabelIndex | None = None,
        callbacks: Sequence[Callback] = (),
        run: RunFolder | None = None,
    ) -> Self:
        self.check_settings()
        corpus = training_corpus(X, y, index)
        stages = Stages(Reporter(callbacks), run)
        counted = stages("count", count_labels, labels=corpus.labels, smoothing=self.smoothing)
        self.shares_ = counted.value.arrays["shares"]
        self.remember(corpus, stages.reporter.timings)
        return self

    def _best_labels(self, X: Any, k: int, *, dense: Any, mask: LabelMask | None) -> Predictions:
        shares = self.shares_ if mask is None else np.where(mask.allowed, self.shares_, -np.inf)
        allowed = len(shares) if mask is None else len(mask)
        rows = np.tile(shares, (len(texts_only(self.method, X)), 1))
        return Predictions.from_scores(rows, k=min(k, allowed), index=self.index_)

    def parts(self) -> dict[str, Part]:
        return {"shares": Part({}, {"shares": self.shares_})}

    def _restore(self, parts: Mapping[str, Part]) -> None:
        self.shares_ = parts["shares"].arrays["shares"]

    def estimate_memory(self, corpus: Corpus) -> int:
        return 4 * len(corpus.index)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    METHODS["popular"] = MethodEntry(__name__, "Popular", "the most frequent labels")
    yield
    del METHODS["popular"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    rows = [{"text": f"a red {n}", "labels": ["red", "thing"][: 1 + n % 2]} for n in range(20)]
    file = tmp_path / "corpus.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def test_the_command_line_takes_it_from_training_to_explaining(
    call_both: Callable[..., tuple[int, str, str]], corpus: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    code, output, messages = call_both("train", corpus, "--method", "popular", "--out", model)
    assert code == 0, messages
    code, output, messages = call_both("predict", model, corpus, "-k", 2)
    assert code == 0, messages
    first = json.loads(output.splitlines()[0])
    assert first["labels"] == ["red", "thing"]
    code, output, messages = call_both("evaluate", model, corpus, "--json")
    assert code == 0, messages
    assert json.loads(output)["P@1"] == 100.0
    code, output, messages = call_both("info", model)
    assert code == 0 and "popular" in output, messages
    code, output, messages = call_both("explain", model, "--text", "a red hat", "--label", "red")
    assert code == 0 and "red  product" in output, messages
