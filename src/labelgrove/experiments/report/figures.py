"""The charts of a report, each under the name of its PNG file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labelgrove.core.callbacks import Timing
from labelgrove.evaluation.metrics.names import BIN_NAMES
from labelgrove.experiments.report.charts import Chart, Series, bar_chart, line_chart, row_chart
from labelgrove.experiments.report.findings import tail_curve, thinned
from labelgrove.experiments.report.look import duration, percent
from labelgrove.experiments.report.measuring import Report
from labelgrove.experiments.report.runs import Run

FAMILY_NAMES = {
    "P": "Precision",
    "nDCG": "nDCG",
    "PSP": "Propensity-scored precision",
    "R": "Recall",
}
BIN_RANGES = {"head": "over 100", "torso": "11–100", "tail": "1–10", "unseen": "none"}


def figures(report: Report) -> dict[str, Chart]:
    """All charts that the report has data for, by name."""
    charts = {f"curve-{family.lower()}": _curve(report, family) for family in report.families}
    if report.training is not None:
        charts["bins"] = _bins(report)
        charts |= _tail(report)
        charts["recall-by-frequency"] = _bands(report)
    if any(report.calibrations):
        charts["calibration"] = _reliability(report)
        charts["scores"] = _score_counts(report)
    charts |= _training_curves(report)
    if timings := stage_timings(report.subject):
        charts["stages"] = _stages(timings)
    return charts


def _curve(report: Report, family: str) -> Chart:
    series, ends = [], []
    for number, (run, evaluation) in enumerate(zip(report.runs, report.evaluations, strict=True)):
        points, band = [], []
        for k in range(1, report.depth + 1):
            name = f"{family}@{k}"
            points.append((k, 100 * evaluation.values[name]))
            if name in evaluation.intervals:
                low, high = evaluation.intervals[name]
                band.append((k, 100 * low, 100 * high))
        series.append(Series(run.name, points, number, band))
        (_, first), (k, last) = points[0], points[-1]
        ends.append(f"{run.name} {percent(first / 100)} % at 1, {percent(last / 100)} % at {k}")
    return line_chart(
        series,
        title=f"{FAMILY_NAMES[family]} by number of labels",
        summary=f"{family}@k: {'; '.join(ends)}.",
        x_name="labels per document, k",
        y_name=f"{family}@k, percent",
    )


def _bins(report: Report) -> Chart:
    series = [
        (run.name, [100 * b.recall for b in bins])
        for run, bins in zip(report.runs, report.bins, strict=True)
    ]
    shares = ", ".join(f"{b.name} {percent(b.recall)} %" for b in report.bins[0] if b.occurrences)
    return bar_chart(
        [BIN_RANGES[name] for name in BIN_NAMES],
        series,
        title="Recall by label frequency",
        summary=f"Recall@{report.at} of {report.subject.name}: {shares}.",
        x_name="training documents of the label",
        y_name=f"found among the {report.at} best, percent",
        y_range=(0, 100),
    )


def _tail(report: Report) -> dict[str, Chart]:
    assert report.training is not None
    curve = tail_curve(report.training.frequencies)
    if not curve:
        return {}
    chart = line_chart(
        [Series("labels", curve, dots=False)],
        title="The long tail",
        summary=f"The most frequent label has {curve[0][1]:,} training documents, "
        f"label number {curve[-1][0]:,} has {curve[-1][1]:,}.",
        x_name="labels, most frequent first",
        y_name="training documents",
        log=True,
    )
    return {"long-tail": chart}


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
        x_name="training documents of the label, from",
        y_name=f"found among the {report.at} best, percent",
        x_ticks=[f"{band.low:,}" for band in bands],
        x_range=(-0.3, len(bands) - 0.7),
        y_range=(0, 100),
    )


def _reliability(report: Report) -> Chart:
    series, errors = [], []
    for number, (run, scores) in enumerate(zip(report.runs, report.calibrations, strict=True)):
        if scores is not None:
            points = [(b.score, 100 * b.right) for b in scores.bins if b.labels]
            series.append(Series(run.name, points, number))
            errors.append(f"{run.name}: expected calibration error {percent(scores.error)} %")
    return line_chart(
        series,
        title="Reliability of the scores",
        summary=f"Share of right labels against mean score; {'; '.join(errors)}. On the dotted "
        "diagonal, scores would be probabilities.",
        x_name="mean score",
        y_name="right, percent",
        x_range=(0, 1),
        y_range=(0, 100),
        diagonal=True,
    )


def _score_counts(report: Report) -> Chart:
    known = [
        (run.name, scores.bins)
        for run, scores in zip(report.runs, report.calibrations, strict=True)
        if scores is not None
    ]
    series = []
    for name, bins in known:
        total = sum(b.labels for b in bins)
        series.append((name, [100 * b.labels / total for b in bins]))
    return bar_chart(
        [f"{b.low:.1f}" for b in known[0][1]],
        series,
        title="Distribution of the scores",
        summary=f"Share of the {report.at} best labels per tenth of the range of scores.",
        x_name="score from",
        y_name="of the predicted labels, percent",
    )


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
            ends = "; ".join(
                f"{one.name} from {one.points[0][1]:.4g} to {one.points[-1][1]:.4g}"
                for one in series
            )
            charts[f"training-{key}"] = line_chart(
                series, title=title, summary=f"{title}: {ends}.", x_name="update", y_name=key
            )
    return charts


def histories(run: Run) -> dict[str, list[Mapping[str, Any]]]:
    """The training log of each of a run's networks, by run, member and level."""
    logs: dict[str, list[Mapping[str, Any]]] = {}
    if run.model is None:
        return logs
    models = [("", run.model)]
    models += [(f", {i} {m.method}", m) for i, m in enumerate(run.model.submodels(), 1)]
    for member, model in models:
        for record in (model.story_ or {}).get("history", ()):
            level = f", level {record['level']}" if "level" in record else ""
            logs.setdefault(f"{run.name}{member}{level}", []).append(record)
    return logs


def stage_timings(run: Run) -> Mapping[str, Timing]:
    """Training time by stage; empty if the run's model has no record of it."""
    return {} if run.model is None else run.model.timings_


def _stages(timings: Mapping[str, Timing]) -> Chart:
    longest = max(timings, key=lambda name: timings[name].wall)
    return row_chart(
        [(name, timing.wall, duration(timing.wall)) for name, timing in timings.items()],
        title="Training time by stage",
        summary=f"The longest of {len(timings)} stages is {longest} with "
        f"{duration(timings[longest].wall)}.",
    )
