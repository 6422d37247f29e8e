"""The page of a report: one HTML file without scripts that loads nothing from elsewhere."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from labelgrove.core.memory import format_size
from labelgrove.core.params import to_toml
from labelgrove.metrics.bins import HEAD_ABOVE, TAIL_UP_TO
from labelgrove.report.figures import BIN_RANGES, figures, stage_timings
from labelgrove.report.look import LOOK, duration, percent, printable, shortened
from labelgrove.report.measuring import Report
from labelgrove.report.runs import Run

TEMPLATES = Path(__file__).with_name("templates")
# The browser loads nothing and runs no script, whatever texts and labels contain.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
TILES = ("P@1", "P@5", "nDCG@5", "PSP@5", "R@10")
TEXT_LENGTH = 300
MOST_LABELS = 12
NO_FREQUENCIES = (
    "Not shown: how often labels occur in training is not known here. A model folder knows it; "
    "for a file of predictions, give the training corpus."
)
HEADINGS = {
    "quality": "Quality by number of labels",
    "compared": "Compared with other runs",
    "frequency": "Quality by label frequency",
    "tail": "The long tail",
    "calibration": "Calibration",
    "siblings": "Confusion between sibling labels",
    "wrong": "Most wrong documents",
    "training": "Training curves",
    "cost": "Time and memory",
    "settings": "Settings and fine print",
}


def to_html(report: Report) -> str:
    """The page of a report.

    >>> from labelgrove import Corpus, Linear
    >>> from labelgrove.report import measure_report
    >>> corpus = Corpus.from_lists(["red shoes", "blue hat"], [["shoes"], ["hats"]])
    >>> to_html(measure_report(Linear().fit(corpus), corpus))[:15]
    '<!DOCTYPE html>'
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    import labelgrove

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": "{:,}".format,
        "duration": duration,
        "percent": percent,
        "shortened": shortened,
        "size": lambda size: "–" if size is None else format_size(size),
    }
    styles = [file.read_text(encoding="utf-8") for file in (LOOK, TEMPLATES / "report.css")]
    names = [run.name for run in report.runs]
    hidden = {"compared": not report.comparisons, "wrong": not report.worst}
    html = environment.get_template("report.html").render(
        report=report,
        charts={
            name: {"title": chart.title, "svg": Markup(chart.svg(name))}
            for name, chart in figures(report).items()
        },
        headings={name: text for name, text in HEADINGS.items() if not hidden.get(name)},
        tiles=[name for name in TILES if name in report.evaluations[0].values],
        at_cutoffs=[f"@{k}" for k in report.cutoffs],
        curves=[f"curve-{family.lower()}" for family in report.families],
        curve_head=["k", *(f"{f}@k, {name}" for name in names for f in report.families)],
        tail_head=["training documents", "labels", "true", *(f"R@{report.at}, {n}" for n in names)],
        facts=_facts(report),
        documents=list(_documents(report)),
        timings=stage_timings(report.subject),
        costs=[_costs(run, len(report.corpus)) for run in report.runs],
        notes=_notes(report),
        settings=[(run.name, _settings(run)) for run in report.runs if _settings(run)],
        bin_ranges=BIN_RANGES,
        tail_up_to=TAIL_UP_TO,
        head_above=HEAD_ABOVE,
        no_frequencies=NO_FREQUENCIES,
        policy=POLICY,
        css=Markup("".join(styles)),
        icon=Markup(LOOK.with_name("icon.svg").read_text(encoding="utf-8")),
        version=labelgrove.__version__,
        now=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d at %H:%M}",
        zip=zip,
    )
    return printable(html.lstrip())


def _facts(report: Report) -> Iterator[str]:
    corpus, model = report.corpus, report.subject.model
    yield f"{len(corpus):,} documents of {report.data_name}"
    yield f"{(corpus.labels.nnz + corpus.unknown.sum()) / len(corpus):.2f} labels each"
    if model is not None:
        yield f"method {model.method}, {len(model.index_):,} labels"
    if report.training is not None:
        yield f"trained on {report.training.documents:,} documents"


def _documents(report: Report) -> Iterator[dict[str, Any]]:
    """The most wrong documents: the only place where texts of the data enter a report."""
    corpus, judged = report.corpus, report.judged[0]
    predictions, names = judged.predictions, judged.predictions.index.names
    for row, ndcg, missed in report.wrong:
        title = f"Document {row + 1:,}"
        if corpus.ids is not None and corpus.ids[row] is not None:
            title = shortened(str(corpus.ids[row]), 80) or title
        text = "(no text: the data are features)"
        if corpus.texts is not None:
            text = shortened(corpus.texts[row], TEXT_LENGTH) or "(an empty text)"
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


def _costs(run: Run, documents: int) -> list[str]:
    from labelgrove.disk.model_folder import model_size

    timings = stage_timings(run).values()
    wall, cpu = sum(timing.wall for timing in timings), sum(timing.cpu for timing in timings)
    cells = [duration(wall), duration(cpu)] if timings else ["–", "–"]
    cells.append("–" if run.folder is None else format_size(model_size(run.folder)))
    if run.seconds is None:
        return [*cells, "–", "–", "–"]
    memory = "–" if run.peak_memory is None else format_size(run.peak_memory)
    return [*cells, duration(run.seconds), f"{documents / max(run.seconds, 1e-9):,.0f}", memory]


def _notes(report: Report) -> list[str]:
    notes = list(dict.fromkeys(note for e in report.evaluations for note in e.notes))
    if report.training is not None:
        propensity = report.evaluations[0].propensity
        notes.append(
            f"propensities with A = {propensity.a:g}, B = {propensity.b:g}, "
            f"frequencies of the training data of {report.subject.name}"
        )
    return [*notes, "labels with equal scores are ordered by column; P@k always divides by k"]


def _settings(run: Run) -> str:
    if run.model is None:
        return ""
    return to_toml({"method": run.model.method} | run.model.to_config())
