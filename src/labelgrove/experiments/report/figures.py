"""The charts of a report, each under the name of its PNG file."""

from __future__ import annotations

import numpy as np

from labelgrove.core.jsonio import JsonObject
from labelgrove.experiments.report.charts import Chart, Series, line_chart
from labelgrove.experiments.report.findings import tail_curve, thinned
from labelgrove.experiments.report.look import percent
from labelgrove.experiments.report.measuring import Report
from labelgrove.experiments.report.runs import Run

FAMILY_NAMES = {
    "P": "Precision",
    "nDCG": "nDCG",
    "PSP": "Propensity-scored precision",
    "R": "Recall",
}


def figures(report: Report) -> dict[str, Chart]:
    """All charts that the report has data for, by name."""
    charts = {f"curve-{family.lower()}": _curve(report, family) for family in report.families}
    if report.training is not None:
        if tail := tail_curve(report.training.frequencies):
            charts["long-tail"] = _tail(tail)
        charts["recall-by-frequency"] = _bands(report)
    if any(report.calibrations):
        charts |= _calibration(report)
    return charts | _training_curves(report)


def _curve(report: Report, family: str) -> Chart:
    series, ends = [], []
    for number, (run, evaluation) in enumerate(zip(report.runs, report.evaluations, strict=True)):
        names = {k: f"{family}@{k}" for k in range(1, report.depth + 1)}
        points = [(k, 100 * evaluation.values[name]) for k, name in names.items()]
        bounds = [(k, evaluation.intervals.get(name)) for k, name in names.items()]
        band = [(k, 100 * pair[0], 100 * pair[1]) for k, pair in bounds if pair]
        series.append(Series(run.name, points, number, band))
        first, last = (percent(value / 100) for _, value in (points[0], points[-1]))
        ends.append(f"{run.name} {first} % at 1, {last} % at {report.depth}")
    return line_chart(
        series,
        title=f"{FAMILY_NAMES[family]} by number of labels",
        summary=f"{family}@k: {'; '.join(ends)}.",
        axes=("labels per document, k", f"{family}@k, percent"),
    )


def _tail(curve: list[tuple[int, int]]) -> Chart:
    return line_chart(
        [Series("labels", curve, dots=False)],
        title="The long tail",
        summary=f"The most frequent label has {curve[0][1]:,} training documents, "
        f"label number {curve[-1][0]:,} has {curve[-1][1]:,}.",
        axes=("labels, most frequent first", "training documents"),
        log=True,
    )


def _bands(report: Report) -> Chart:
    bands = report.bands[0]
    series = [
        Series(run.name, [(i, 100 * band.recall) for i, band in enumerate(rows)], number)
        for number, (run, rows) in enumerate(zip(report.runs, report.bands, strict=True))
    ]
    return line_chart(
        series,
        title="Recall along the tail",
        summary=f"Recall@{report.at} of labels by their number of training documents, from "
        f"{bands[0].name} to {bands[-1].name}.",
        axes=("training documents of the label, from", f"among the {report.at} best, percent"),
        ticks=[band.name.partition("–")[0] for band in bands],
        percent=True,
    )


def _calibration(report: Report) -> dict[str, Chart]:
    reliability, counts, errors = [], [], []
    for number, (run, diagram) in enumerate(zip(report.runs, report.calibrations, strict=True)):
        best = report.best_scores[number]
        if diagram is not None and best is not None:
            points = list(zip(diagram.claimed.tolist(), (100 * diagram.true).tolist(), strict=True))
            reliability.append(Series(run.name, points, number))
            shares = 100 * np.histogram(best[0], 10, (0, 1))[0] / len(best[0])
            counts.append(Series(run.name, list(enumerate(shares.tolist())), number))
            errors.append(f"{run.name}: expected calibration error {percent(diagram.ece)} %")
    return {
        "calibration": line_chart(
            reliability,
            title="Reliability of the scores",
            summary=f"Share of right labels against mean score; {'; '.join(errors)}. On the dotted "
            "diagonal, scores would be probabilities.",
            axes=("mean score", "right, percent"),
            percent=True,
            diagonal=True,
        ),
        "scores": line_chart(
            counts,
            title="Distribution of the scores",
            summary=f"Share of the {report.at} best labels per tenth of the range of scores.",
            axes=("score from", "of the predicted labels, percent"),
            ticks=[f"{place / 10:.1f}" for place in range(10)],
        ),
    }


def _training_curves(report: Report) -> dict[str, Chart]:
    charts = {}
    for key, title in (("loss", "Training loss"), ("score", "Score on the held-out part")):
        series: list[Series] = []
        for run in report.runs:
            for name, history in histories(run).items():
                points = [(r["step"], r[key]) for r in history if key in r and "step" in r]
                if points:
                    few = len(points) < 9
                    series.append(Series(name, thinned(points), len(series), dots=few))
        if series:
            ends = [f"{s.name} from {s.points[0][1]:.4g} to {s.points[-1][1]:.4g}" for s in series]
            charts[f"training-{key}"] = line_chart(
                series, title=title, summary=f"{title}: {'; '.join(ends)}.", axes=("update", key)
            )
    return charts


def histories(run: Run) -> dict[str, list[JsonObject]]:
    """The training log of each of a run's networks, by run, member and level."""
    logs: dict[str, list[JsonObject]] = {}
    if run.model is None:
        return logs
    models = [("", run.model)]
    models += [(f", {i} {m.method}", m) for i, m in enumerate(run.model.submodels(), 1)]
    for member, model in models:
        for record in (model.history_ or {}).get("history", ()):
            level = f", level {record['level']}" if "level" in record else ""
            logs.setdefault(f"{run.name}{member}{level}", []).append(record)
    return logs
