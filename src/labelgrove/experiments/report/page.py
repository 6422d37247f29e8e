"""``write_report``: one evaluation as one HTML file that loads nothing from elsewhere.

Its only script shows, searches and sorts the table of labels, which is data at the end of the page.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import importlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from labelgrove.core.durations import format_duration
from labelgrove.core.jsonio import JsonObject
from labelgrove.core.memory import format_size
from labelgrove.core.params import to_toml
from labelgrove.core.strings import cut
from labelgrove.core.versions import VERSION
from labelgrove.data.corpus import Corpus
from labelgrove.data.facts import TrainingFacts
from labelgrove.data.formats.files import replacing
from labelgrove.data.inputs import check_k
from labelgrove.data.records import words_of
from labelgrove.disk.model_folder import model_size
from labelgrove.errors import ConfigError, DataError, MissingExtraError
from labelgrove.evaluation.measures import check_labels
from labelgrove.evaluation.metrics import Propensity, compare_all, evaluate
from labelgrove.evaluation.metrics.ranking import judge
from labelgrove.experiments.report.charts import LOOK, charts, percent, printable
from labelgrove.experiments.report.measuring import (
    CUTOFFS,
    FAMILIES,
    Report,
    Subject,
    Subjects,
    named,
    on_one_index,
    predicted,
    with_unique_names,
)

TEMPLATES = Path(__file__).with_name("templates")
TILES = ("P@1", "P@5", "nDCG@5", "PSP@5", "R@10")
BIN_RANGES = {"head": "over 100", "torso": "11–100", "tail": "1–10", "unseen": "none"}
TEXT_LENGTH = 300
MOST_LABELS = 12


def to_html(report: Report) -> str:
    """The page of a report."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": "{:,}".format,
        "duration": lambda seconds: "–" if seconds is None else format_duration(seconds),
        "percent": percent,
        "prefixed": lambda name, prefix: prefix + name,
        "cut": cut,
        "size": lambda size: "–" if size is None else format_size(size),
    }
    environment.globals["zip"] = zip
    styles = [file.read_text(encoding="utf-8") for file in (LOOK, TEMPLATES / "report.css")]
    script = (TEMPLATES / "labels.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    names = [run.name for run in report.runs]
    html = environment.get_template("report.html").render(
        report=report,
        charts={
            name: {"title": chart.title, "svg": Markup(chart.svg(name))}
            for name, chart in charts(report).items()
        },
        cutoffs=[f"@{k}" for k in report.cutoffs],
        curve_head=["k", *(f"{f}@k, {name}" for name in names for f in report.families)],
        tiles=[name for name in TILES if name in report.evaluations[0].values],
        documents=list(_documents(report)),
        label_data=Markup(label_data(report)),
        script=Markup(script),
        script_hash=Markup(f"'sha256-{digest}'"),
        timings=[{} if run.model is None else run.model.timings_ for run in report.runs],
        sizes=[None if run.folder is None else model_size(run.folder) for run in report.runs],
        settings=[
            (run.name, to_toml({"method": run.model.method} | run.model.trained_config()))
            for run in report.runs
            if run.model is not None
        ],
        notes=list(dict.fromkeys(note for e in report.evaluations for note in e.notes)),
        bin_ranges=BIN_RANGES,
        css=Markup("".join(styles)),
        icon=Markup(LOOK.with_name("icon.svg").read_text(encoding="utf-8")),
        version=VERSION,
        now=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d at %H:%M}",
    )
    return printable(html.lstrip())


def _documents(report: Report) -> Iterator[JsonObject]:
    """The most wrong documents, with the beginnings of their texts."""
    corpus, judged = report.corpus, report.judged[0]
    predictions, names = judged.predictions, judged.predictions.index.names
    for row, ndcg, missed in report.wrong:
        title, text = _title(corpus, row), "(no text: the data are features)"
        if corpus.texts is not None:
            text = cut(words_of(corpus.texts[row]), TEXT_LENGTH) or "(an empty text)"
        more, unknown = len(missed) - MOST_LABELS, int(judged.unknown[row])
        yield {
            "title": title,
            "text": text,
            "ndcg": ndcg,
            "predicted": [
                {
                    "name": names[predictions.columns[row, rank]],
                    "verdict": "right" if judged.hits[row, rank] else "wrong",
                    "score": f"{predictions.scores[row, rank]:.3f}",
                }
                for rank in range(min(int(predictions.counts[row]), report.at))
            ],
            "missed": [{"name": names[label], "verdict": ""} for label in missed[:MOST_LABELS]],
            "others": [f"and {more:,} more"] * (more > 0)
            + [f"and {unknown:,} that did not occur in training"] * (unknown > 0),
        }


def _title(corpus: Corpus, row: int) -> str:
    title = f"Document {row + 1:,}"
    if corpus.ids is not None and corpus.ids[row] is not None:
        title = cut(str(corpus.ids[row]), 80) or title
    return title


def label_data(report: Report) -> str:
    """The table of labels for the page's script, without characters that end a script there."""
    labels, index = report.labels, report.subject.predictions.index
    data = {
        "names": [cut(index.names[column], 80) for column in labels.columns],
        "ids": [cut(index.ids[c], 200) for c in labels.columns if index.ids is not index.names]
        or None,
        "support": labels.scores[0].true.tolist(),
        "runs": [
            {"predicted": s.predicted.tolist(), "hits": s.hits.tolist()} for s in labels.scores
        ],
    }
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def write_report(
    model: Subject,
    data: Corpus,
    out: str | Path | None,
    *,
    against: Subjects = (),
    k: int = 10,
    intervals: int | None = 1000,
    worst: int = 20,
    name: str | None = None,
    title: str | None = None,
    data_name: str | None = None,
    propensity: Propensity | str = Propensity(),  # noqa: B008 - immutable
    training: TrainingFacts | None = None,
    threads: int | None = None,
) -> Report:
    """Writes a report on a model's predictions for labelled documents and returns its numbers.

    - ``model``: a fitted model, a model folder, ``Predictions``, or a file that ``predict`` wrote.
    - ``data``: documents with their true labels. The report shows the beginnings of the texts of
      the ``worst`` most wrong ones; ``worst=0`` shows no text.
    - ``out``: the HTML file; None writes no file.
    - ``against``: other such runs on the same documents, as a list or a mapping from names.
    - ``k``: the largest k of the curves. ``intervals``: bootstrap resamples; None for no intervals.
    - ``training``: number and label frequencies of the training documents, if no model knows
      them (``TrainingFacts.of(corpus)``); without them there is no PSP and no split by frequency.

    >>> import tempfile; from labelgrove import Linear
    >>> corpus = Corpus.from_lists(["red shoes", "blue hat"], [["shoes"], ["hats"]])
    >>> file = Path(tempfile.mkdtemp()) / "report.html"
    >>> write_report(Linear().fit(corpus), corpus, file).evaluations[0]["P@1"]
    1.0
    """
    if out is not None:
        check_extra()  # before the work, not after it
    check_k(k)
    if worst < 0:
        raise ConfigError(f"worst must be at least 0, got {worst}")
    if len(data) == 0:
        raise DataError("cannot report: there are no documents")
    runs = [
        predicted(subject, data, k=k, name=its_name, threads=threads)
        for its_name, subject in [(name, model), *named(against)]
    ]
    runs = on_one_index(with_unique_names(runs))
    index = runs[0].predictions.index
    truth = data.reindex(index)
    check_labels(truth.labels, truth.unknown)
    judged = tuple(judge(run.predictions, truth.labels, unknown=truth.unknown) for run in runs)
    if training is None and runs[0].model is not None:
        training = runs[0].model.facts_
    training = _padded(training, len(index))
    shared: dict[str, Any] = {"unknown": truth.unknown}
    if training is not None:
        shared |= {"train_frequencies": training.frequencies, "n_train": training.documents}
        shared["propensity"] = propensity
    depth = max(1, min(k, len(index)))
    families = [f for f in FAMILIES if f != "PSP" or training is not None]
    curves = [f"{family}@{k}" for family in families for k in range(1, depth + 1)]
    table = [f"{family}@{k}" for family in families for k in CUTOFFS if k <= depth]
    evaluations = [
        evaluate(run.predictions, truth.labels, metrics=curves, intervals=resamples, **shared)
        for run, resamples in [(runs[0], intervals or None), *((run, None) for run in runs[1:])]
    ]
    for place, run in enumerate(runs):
        if run.model is not None and (note := run.model.facts_.warning(data)):
            notes = (f"{run.name}: {note}", *evaluations[place].notes)
            evaluations[place] = replace(evaluations[place], notes=notes)
    contest = None
    if len(runs) > 1:
        shown = [run.predictions for run in runs]
        options = shared | {"metrics": table, "intervals": intervals or 1000}
        contest = compare_all(shown, truth.labels, **options)
    data_name = data_name or "the evaluated documents"
    report = Report(
        title=title or f"{runs[0].name} on {data_name}",
        data_name=data_name,
        corpus=data,
        runs=tuple(runs),
        judged=judged,
        evaluations=tuple(evaluations),
        training=training,
        depth=depth,
        worst=worst,
        contest=contest,
    )
    if out is not None:
        html = to_html(report)
        with replacing(out) as stream:
            stream.write(html.encode("utf-8"))
    return report


def check_extra() -> None:
    """Raises MissingExtraError unless the packages that reports need are installed."""
    try:
        for package in ("jinja2", "matplotlib"):
            importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError("report", "writing reports") from error


def _padded(training: TrainingFacts | None, labels: int) -> TrainingFacts | None:
    """Training facts for all columns: labels that only other runs know have no documents."""
    if training is None:
        return None
    missing = labels - len(training.frequencies)
    if missing < 0:
        raise DataError(
            f"training has frequencies of {len(training.frequencies):,} labels, "
            f"the runs have {labels:,}"
        )
    return replace(training, frequencies=np.pad(training.frequencies, (0, missing)))
