"""What several verbs do: read a corpus and say what was met, show progress, time an evaluation."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelgrove.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rich.console import Console

    from labelgrove.corpus import Corpus, LabelIndex
    from labelgrove.formats import ReadOptions
    from labelgrove.metrics import Evaluation, Propensity


def stderr_console() -> Console:
    """For what people read; standard output belongs to results."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


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
) -> ReadOptions:
    """The reading flags as one object."""
    from labelgrove.formats import ReadOptions

    return ReadOptions(
        format=input_format,
        text_field=text_field,
        labels_field=labels_field,
        id_field=id_field,
        skip_bad=skip_bad,
    )


def read_corpus(
    path: Path,
    *,
    labels: Path | None = None,
    index: LabelIndex | None = None,
    options: ReadOptions,
    console: Console,
) -> Corpus:
    """Reads a corpus and tells what was met on the way."""
    from labelgrove.formats import ReadReport, read_corpus

    report = ReadReport()
    with console.status(f"reading {path}"):
        corpus = read_corpus(path, labels=labels, index=index, options=options, report=report)
    console.print(f"[bold]{path}[/bold]: {report}")
    return corpus


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


@dataclass(frozen=True)
class TimedEvaluation:
    """Metrics of a model on a corpus, and what predicting cost from text to labels."""

    evaluation: Evaluation
    seconds: float
    cpu_seconds: float

    def to_json(self) -> dict[str, Any]:
        """One flat object: metrics in percent, as published tables have them."""
        propensity = self.evaluation.propensity
        return {
            **percent(self.evaluation),
            "n": self.evaluation.n,
            "seconds": round(self.seconds, 4),
            "cpu_seconds": round(self.cpu_seconds, 4),
            "unit": "percent",
            "propensity_A": propensity.a,
            "propensity_B": propensity.b,
            "notes": list(self.evaluation.notes),
        }


def percent(evaluation: Evaluation) -> dict[str, float]:
    """Metric values times 100."""
    return {name: round(100 * value, 4) for name, value in evaluation.values.items()}


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

    if len(corpus) == 0:
        raise DataError("cannot evaluate on no documents")
    names = metrics or ["P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "R@10"]
    # Where pairs are filtered out, the labels behind them move up: ask for a few more.
    k = max(parse_metric(name).k or 100 for name in names) + (0 if filter_pairs is None else 10)
    wall, cpu = time.perf_counter(), time.process_time()
    predictions = model.predict(corpus.inputs, k=k, threads=threads)
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


def print_json(value: Any) -> None:
    """One JSON object on standard output."""
    import json

    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def human_bytes(size: float) -> str:
    """A size as people say it.

    >>> human_bytes(1536)
    '1.5 KB'
    """
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TB"


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
