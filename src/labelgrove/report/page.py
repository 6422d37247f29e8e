"""The page of a report: one HTML file without scripts that loads nothing from elsewhere."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from labelgrove.core.memory import format_size
from labelgrove.core.params import to_toml
from labelgrove.core.versions import VERSION
from labelgrove.data.records import words_of
from labelgrove.disk.model_folder import model_size
from labelgrove.metrics.bins import HEAD_ABOVE, TAIL_UP_TO
from labelgrove.report.figures import BIN_RANGES, figures, stage_timings
from labelgrove.report.look import LOOK, duration, percent, printable, shortened
from labelgrove.report.measuring import Report

TEMPLATES = Path(__file__).with_name("templates")
TILES = ("P@1", "P@5", "nDCG@5", "PSP@5", "R@10")
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
        "duration": lambda seconds: "–" if seconds is None else duration(seconds),
        "percent": percent,
        "shortened": shortened,
        "size": lambda size: "–" if size is None else format_size(size),
    }
    environment.globals["zip"] = zip
    styles = [file.read_text(encoding="utf-8") for file in (LOOK, TEMPLATES / "report.css")]
    names = [run.name for run in report.runs]
    html = environment.get_template("report.html").render(
        report=report,
        charts={
            name: {"title": chart.title, "svg": Markup(chart.svg(name))}
            for name, chart in figures(report).items()
        },
        cutoffs=[f"@{k}" for k in report.cutoffs],
        curve_head=["k", *(f"{f}@k, {name}" for name in names for f in report.families)],
        tail_head=["training documents", "labels", "true", *(f"R@{report.at}, {n}" for n in names)],
        tiles=[name for name in TILES if name in report.evaluations[0].values],
        documents=list(_documents(report)),
        timings=[stage_timings(run) for run in report.runs],
        sizes=[None if run.folder is None else model_size(run.folder) for run in report.runs],
        settings=[
            (run.name, to_toml({"method": run.model.method} | run.model.trained_config()))
            for run in report.runs
            if run.model is not None
        ],
        notes=list(dict.fromkeys(note for e in report.evaluations for note in e.notes)),
        bin_ranges=BIN_RANGES,
        tail_up_to=TAIL_UP_TO,
        head_above=HEAD_ABOVE,
        css=Markup("".join(styles)),
        icon=Markup(LOOK.with_name("icon.svg").read_text(encoding="utf-8")),
        version=VERSION,
        now=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d at %H:%M}",
    )
    return printable(html.lstrip())


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
            text = shortened(words_of(corpus.texts[row]), TEXT_LENGTH) or "(an empty text)"
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
