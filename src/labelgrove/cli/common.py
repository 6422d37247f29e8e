"""What several verbs do: read a corpus and say what was met, show progress, time an evaluation."""

from __future__ import annotations

import inspect
import math
import os
import shutil
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelgrove.errors import ConfigError, DataError, UnsupportedError

if TYPE_CHECKING:
    from rich.console import Console

    from labelgrove.data.corpus import Corpus, LabelIndex
    from labelgrove.formats import ReadOptions
    from labelgrove.metrics import Evaluation, Propensity

# Exit codes, besides 0 and the 2 that a wrong flag gives.
USER_ERROR, INTERRUPTED = 1, 130
SLICE = 2048  # documents between two moves of a progress bar


def stderr_console(*, quiet: bool = False) -> Console:
    """For what people read; standard output belongs to results."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True, quiet=quiet)


def stdout_console() -> Console:
    """For verbs whose result is text for people."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True)


def read_options(
    input_format: str | None = None,
    text_field: str = "text",
    labels_field: str = "labels",
    id_field: str = "id",
    skip_bad: bool = False,
    read: list[str] | None = None,
    *,
    part: str = "train",
) -> ReadOptions:
    """The reading flags as one object; ``read`` holds the rarer ones as key=value."""
    from labelgrove.core.params import unknown_key
    from labelgrove.formats import ReadOptions

    values: dict[str, Any] = {
        "format": input_format,
        "part": part,
        "text_field": text_field,
        "labels_field": labels_field,
        "id_field": id_field,
        "skip_bad": skip_bad,
    }
    rarer = ["encoding", "part", "delimiter", "quoted", "label_separator", "column_names"]
    rarer += ["weights_field"]
    for setting in read or []:
        key, _, value = setting.partition("=")
        if key not in rarer:
            raise ConfigError(f"--read {unknown_key(key, rarer)}")
        if key == "quoted":
            if value not in ("true", "false"):
                raise ConfigError(f"--read quoted: must be true or false, got {value!r}")
            values[key] = value == "true"
        else:
            values[key] = value.split(",") if key == "column_names" else value
    return ReadOptions(**values)


def read_corpus(
    path: Path,
    *,
    labels: Path | None = None,
    index: LabelIndex | None = None,
    dense: Path | None = None,
    options: ReadOptions,
    console: Console,
) -> Corpus:
    """Reads a corpus, with a file of dense rows beside it, and tells what was met on the way."""
    from rich.markup import escape

    from labelgrove.formats import ReadReport, read_corpus

    report = ReadReport()
    # No spinner where nobody sees it: it needs a thread.
    waiting = console.status(escape(f"reading {path}")) if console.is_terminal else nullcontext()
    with waiting:
        corpus = read_corpus(path, labels=labels, index=index, options=options, report=report)
    console.print(f"{path}: {report}", markup=False)
    if dense is None:
        return corpus
    rows = read_dense(dense)
    if len(rows) != len(corpus):
        raise DataError(
            f"has {len(rows):,} rows, but {path} has {len(corpus):,} documents", file=dense
        )
    return corpus.with_dense(rows)


def require_labels(corpus: Corpus, path: Path, labels_field: str) -> None:
    """Raises where no document has a label to learn from."""
    if corpus.labels.nnz == 0:
        raise DataError(
            f"no document has a label in {labels_field!r}; --labels-field names another field",
            file=path,
        )


def read_dense(path: Path) -> Any:
    """A dense block from a .npy file, mapped into memory instead of read."""
    import numpy as np

    from labelgrove.data.features import as_dense
    from labelgrove.formats.files import existing

    file = existing(path)
    try:
        return as_dense(np.load(file, mmap_mode="r", allow_pickle=False), name="the array")
    except DataError as error:
        raise DataError(str(error), file=file) from error
    except (OSError, ValueError, EOFError, AttributeError) as error:
        raise DataError(f"is no array that numpy.save wrote ({error})", file=file) from error


def given_labels(values: list[str] | None) -> list[str] | None:
    """Labels from a repeated flag: as they are, or for @FILE the first field of every line.

    >>> given_labels(["cats", "dogs"]), given_labels(None)
    (['cats', 'dogs'], None)
    """
    if values is None:
        return None
    from labelgrove.formats.files import existing, read_all

    labels: list[str] = []
    for value in values:
        if not value.startswith("@"):
            labels.append(value)
            continue
        lines = (line.partition("\t")[0].strip() for _, line in read_all(existing(value[1:])))
        labels.extend(line for line in lines if line)
    return labels


def local_model(model: Path) -> Path:
    """A model folder as it is; for ``hub:owner/name`` its copy, which may have to be fetched.

    >>> local_model(Path("model")).name
    'model'
    """
    given = str(model)
    if not given.startswith("hub:"):
        return model
    from labelgrove.publishing.hub import fetch

    name, _, revision = given.removeprefix("hub:").partition("@")
    return fetch(name, revision=revision or None)


def check_device(device: str) -> None:
    """Refuses a device that is not there instead of quietly using another."""
    kind = device.partition(":")[0]
    if kind not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"--device {device}: must be auto, cpu or cuda")
    if kind == "cuda":
        try:
            import torch
        except ImportError:
            raise ConfigError("--device cuda needs pip install 'labelgrove[torch]'") from None
        if not torch.cuda.is_available():
            raise ConfigError(
                "--device cuda: torch sees no CUDA device; labelgrove doctor tells more"
            )


def check_dense(model: Any, dense: Path | None) -> None:
    """Refuses dense rows that a model would not read."""
    if dense is not None and "dense" not in inspect.signature(model.predict).parameters:
        raise UnsupportedError(
            f"--dense: the method {model.method} reads text alone; leave the flag out"
        )


def use_device(model: Any, device: str) -> None:
    """Has a model work on the device asked for; methods without a network have no choice."""
    check_device(device)
    if device == "auto":
        return
    if hasattr(model, "device"):
        model.device = device
    for member in getattr(model, "members", ()):
        use_device(member, device)


@dataclass(frozen=True)
class TimedEvaluation:
    """Metrics of a model on a corpus, and what predicting cost from text to labels."""

    evaluation: Evaluation
    seconds: float
    cpu_seconds: float

    def to_json(self) -> dict[str, Any]:
        """One flat object: metrics in percent, as published tables have them."""
        propensity = self.evaluation.propensity
        intervals = {
            name: [_percent(bound) for bound in pair]
            for name, pair in self.evaluation.intervals.items()
        }
        return {
            **percent(self.evaluation),
            **({"intervals": intervals} if intervals else {}),
            "n": self.evaluation.n,
            "seconds": round(self.seconds, 4),
            "cpu_seconds": round(self.cpu_seconds, 4),
            "unit": "percent",
            "propensity_A": propensity.a,
            "propensity_B": propensity.b,
            "notes": list(self.evaluation.notes),
        }


def percent(evaluation: Evaluation) -> dict[str, float | None]:
    """Metric values times 100; None for a metric that is not defined here."""
    return {name: _percent(value) for name, value in evaluation.values.items()}


def _percent(value: float) -> float | None:
    return None if math.isnan(value) else round(100 * value, 4)


def evaluate_model(
    model: Any,
    corpus: Corpus,
    *,
    metrics: list[str] | None = None,
    propensity: Propensity | None = None,
    intervals: int | None = None,
    filter_pairs: Any = None,
    threads: int | None = None,
) -> TimedEvaluation:
    """Predicts a whole corpus and scores it, with the training frequencies the model carries."""
    from labelgrove.metrics import Propensity, evaluate, parse_metric

    if corpus.labels.nnz == 0 and not corpus.unknown.any():
        raise DataError("cannot evaluate: no document of the corpus has a label")
    names = metrics or ["P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "R@10"]
    # Where pairs are filtered out, the labels behind them move up: ask for a few more.
    k = max(parse_metric(name).k or 100 for name in names) + (0 if filter_pairs is None else 10)
    wall, cpu = time.perf_counter(), time.process_time()
    # The number of threads that training was told is not what predicting should use.
    predictions = _predicted(model, corpus, k, threads or 0)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    evaluation = evaluate(
        predictions,
        corpus.labels,
        unknown=corpus.unknown,
        metrics=names,
        train_frequencies=model.facts_.frequencies,
        n_train=model.facts_.documents,
        propensity=propensity or Propensity(),
        intervals=intervals,
        filter_pairs=filter_pairs,
    )
    return TimedEvaluation(evaluation, wall, cpu)


def _predicted(model: Any, corpus: Corpus, k: int, threads: int) -> Any:
    """Predictions of a whole corpus; on a terminal slice by slice, with a bar that moves."""
    if not sys.stderr.isatty() or len(corpus) <= SLICE:
        return model.predict(corpus, k=k, threads=threads)
    from labelgrove.core.callbacks import Reporter, RichProgress
    from labelgrove.scores.predictions import Predictions

    parts = []
    with (
        RichProgress() as progress,
        Reporter([progress]).stage("predicting", total=len(corpus)) as stage,
    ):
        for start in range(0, len(corpus), SLICE):
            rows = range(start, min(start + SLICE, len(corpus)))
            parts.append(model.predict(corpus.take(rows), k=k, threads=threads))
            stage.advance(len(rows))
    return Predictions.concat(parts)


def command_name() -> str:
    """How to call this command again: by name, or by its path where the shell would not find it.

    >>> command_name()
    'labelgrove'
    """
    called = Path(sys.argv[0])
    if called.name != "labelgrove" or shutil.which("labelgrove"):
        return "labelgrove"
    return os.path.relpath(called)


def print_json(value: Any) -> None:
    """One JSON object on standard output."""
    import json

    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def human_seconds(seconds: float) -> str:
    """A duration as people say it.

    >>> human_seconds(0.25), human_seconds(75)
    ('0.25 s', '1 min 15 s')
    """
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"
