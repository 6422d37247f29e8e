"""The page of a report: one HTML file that loads nothing from elsewhere.

Its only script shows, searches and sorts the table of labels, which is data at the end of the page.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
from collections.abc import Iterator
from pathlib import Path

from labelgrove.core.durations import format_duration
from labelgrove.core.jsonio import JsonObject
from labelgrove.core.memory import format_size
from labelgrove.core.params import to_toml
from labelgrove.core.strings import cut
from labelgrove.core.versions import VERSION
from labelgrove.data.corpus import Corpus
from labelgrove.data.formats.files import replacing
from labelgrove.data.records import words_of
from labelgrove.disk.model_folder import model_size
from labelgrove.experiments.report.charts import LOOK, charts, percent, printable
from labelgrove.experiments.report.labels import as_json
from labelgrove.experiments.report.measuring import Report

TEMPLATES = Path(__file__).with_name("templates")
TILES = ("P@1", "P@5", "nDCG@5", "PSP@5", "R@10")
BIN_RANGES = {"head": "over 100", "torso": "11–100", "tail": "1–10", "unseen": "none"}
TEXT_LENGTH = 300
MOST_LABELS = 12


def write_page(report: Report, out: Path) -> None:
    """Writes the page of a report into a file."""
    html = to_html(report)
    with replacing(out) as stream:
        stream.write(html.encode("utf-8"))


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
        "times": lambda value, factor: value * factor + 0.0,  # no minus before zero
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
    """The whole table of labels for the page's script."""
    columns, index = report.labels.columns, report.subject.predictions.index
    ids = [] if index.ids is index.names else [cut(index.ids[c], 200) for c in columns]
    names = [cut(index.names[column], 80) for column in columns]
    return as_json(report.labels, {"names": names, "ids": ids or None})
