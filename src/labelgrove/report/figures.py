"""The pictures of a report, each under the name of its PNG file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labelgrove.core.callbacks import Timing
from labelgrove.metrics.names import BIN_NAMES
from labelgrove.report.charts import Series, bar_chart, line_chart, row_chart, short_number
from labelgrove.report.drawing import Drawing
from labelgrove.report.findings import tail_curve, thinned
from labelgrove.report.markup import duration, percent
from labelgrove.report.measuring import Report
from labelgrove.report.runs import Run

FAMILY_NAMES = {
    "P": "Precision",
    "nDCG": "nDCG",
    "PSP": "Propensity-scored precision",
    "R": "Recall",
}
BIN_RANGES = {"head": "over 100", "torso": "11–100", "tail": "1–10", "unseen": "none"}


def figures(report: Report) -> dict[str, Drawing]:
    """All pictures that the report's data allow, by name."""
    drawn: dict[str, Drawing] = {}
    for family in report.families:
        drawn[f"curve-{family.lower()}"] = _curve(report, family)
    if report.training is not None:
        drawn["bins"] = _bins(report)
        if tail := _tail(report):
            drawn["long-tail"] = tail
        drawn["recall-by-frequency"] = _bands(report)
    if any(report.calibrations):
        drawn["calibration"] = _reliability(report)
        drawn["scores"] = _score_counts(report)
    drawn |= _training_curves(report)
    timings = stage_timings(report.subject)
    if timings:
        drawn["stages"] = _stages(timings)
    return drawn


def _curve(report: Report, family: str) -> Drawing:
    ks = range(1, report.depth + 1)
    series = []
    for number, (run, evaluation) in enumerate(zip(report.runs, report.evaluations, strict=True)):
        band = [
            (float(k), 100 * low, 100 * high)
            for k in ks
            for low, high in [evaluation.intervals.get(f"{family}@{k}", (float("nan"),) * 2)]
        ]
        points = [(float(k), 100 * evaluation.values[f"{family}@{k}"]) for k in ks]
        series.append(Series(run.name, points, number, band))
    ends = [
        f"{run.name} {percent(e.values[f'{family}@1'])} % at 1, "
        f"{percent(e.values[f'{family}@{report.depth}'])} % at {report.depth}"
        for run, e in zip(report.runs, report.evaluations, strict=True)
    ]
    return line_chart(
        series,
        title=f"{FAMILY_NAMES[family]} by number of labels",
        summary=f"{family}@k: {'; '.join(ends)}.",
        x_name="labels per document, k",
        y_name=f"{family}@k, percent",
        x_ticks=[(float(k), str(k)) for k in ks],
    )


def _bins(report: Report) -> Drawing:
    series = [
        (run.name, [100 * b.recall for b in bins])
        for run, bins in zip(report.runs, report.bins, strict=True)
    ]
    said = ", ".join(f"{b.name} {percent(b.recall)} %" for b in report.bins[0] if b.occurrences)
    return bar_chart(
        [BIN_RANGES[name] for name in BIN_NAMES],
        series,
        title="Recall by label frequency",
        summary=f"Recall@{report.at} of {report.subject.name}: {said}.",
        x_name="training documents of the label",
        y_name=f"found among the {report.at} best, percent",
        y_range=(0, 100),
    )


def _tail(report: Report) -> Drawing | None:
    assert report.training is not None
    curve = tail_curve(report.training.frequencies)
    if not curve:
        return None
    return line_chart(
        [Series("labels", [(float(rank), float(count)) for rank, count in curve], dots=False)],
        title="The long tail",
        summary=f"The most frequent label has {curve[0][1]:,} training documents, "
        f"label number {curve[-1][0]:,} has {curve[-1][1]:,}.",
        x_name="labels, most frequent first",
        y_name="training documents",
        log=True,
    )


def _bands(report: Report) -> Drawing:
    bands = report.bands[0]
    series = [
        Series(run.name, [(float(i), 100 * band.recall) for i, band in enumerate(rows)], number)
        for number, (run, rows) in enumerate(zip(report.runs, report.bands, strict=True))
    ]
    return line_chart(
        series,
        title="Recall along the tail",
        summary=f"Recall@{report.at} of labels by their number of training documents, from "
        f"{bands[0].name} to {bands[-1].name}.",
        x_name="training documents of the label, from",
        y_name=f"found among the {report.at} best, percent",
        x_ticks=[(float(i), short_number(band.low)) for i, band in enumerate(bands)],
        x_range=(-0.3, len(bands) - 0.7),
        y_range=(0, 100),
    )


def _reliability(report: Report) -> Drawing:
    series, said = [], []
    for number, (run, scores) in enumerate(zip(report.runs, report.calibrations, strict=True)):
        if scores is not None:
            points = [(b.score, 100 * b.right) for b in scores.bins if b.labels]
            series.append(Series(run.name, points, number))
            said.append(f"{run.name}: expected calibration error {percent(scores.error)} %")
    return line_chart(
        series,
        title="Reliability of the scores",
        summary=f"Share of right labels against mean score; {'; '.join(said)}. On the dashed "
        "diagonal, scores would be probabilities.",
        x_name="mean score",
        y_name="right, percent",
        x_range=(0, 1),
        y_range=(0, 100),
        diagonal=True,
    )


def _score_counts(report: Report) -> Drawing:
    known = [
        (run.name, scores)
        for run, scores in zip(report.runs, report.calibrations, strict=True)
        if scores is not None
    ]
    series = []
    for name, scores in known:
        total = sum(b.labels for b in scores.bins)
        series.append((name, [100 * b.labels / total for b in scores.bins]))
    return bar_chart(
        [f"{b.low:.1f}" for b in known[0][1].bins],
        series,
        title="How scores are spread",
        summary=f"Share of the {report.at} best labels per tenth of the range of scores.",
        x_name="score from",
        y_name="of the predicted labels, percent",
    )


def _training_curves(report: Report) -> dict[str, Drawing]:
    drawn = {}
    for key, name, title in (
        ("loss", "training-loss", "Training loss"),
        ("score", "training-score", "Score on the held-out part"),
    ):
        series: list[Series] = []
        for run in report.runs:
            for label, history in histories(run).items():
                points = [
                    (float(record["step"]), float(record[key]))
                    for record in history
                    if key in record and "step" in record
                ]
                if points:
                    series.append(Series(label, thinned(points), len(series), dots=len(points) < 9))
        if series:
            ends = "; ".join(
                f"{one.name} from {one.points[0][1]:.4g} to {one.points[-1][1]:.4g}"
                for one in series
            )
            drawn[name] = line_chart(
                series, title=title, summary=f"{title}: {ends}.", x_name="update", y_name=key
            )
    return drawn


def histories(run: Run) -> dict[str, list[Mapping[str, Any]]]:
    """What was logged while a run's networks were trained, by network (level, member)."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    models = [("", run.model)]
    models += [
        (f", {i} {m.method}", m) for i, m in enumerate(getattr(run.model, "members_", ()), 1)
    ]
    for member, model in models:
        story = getattr(model, "story_", None)
        if not isinstance(story, Mapping):
            continue
        for record in story.get("history", ()):
            level = f", level {record['level']}" if "level" in record else ""
            found.setdefault(f"{run.name}{member}{level}", []).append(record)
    return found


def stage_timings(run: Run) -> dict[str, Timing]:
    """Where a run's training time went, as far as its model remembers."""
    timings: dict[str, Timing] = getattr(run.model, "timings_", None) or {}
    return timings


def _stages(timings: Mapping[str, Timing]) -> Drawing:
    longest = max(timings, key=lambda name: timings[name].wall)
    return row_chart(
        [(name, timing.wall, duration(timing.wall)) for name, timing in timings.items()],
        title="Training time by stage",
        summary=f"The longest of {len(timings)} stages is {longest} with "
        f"{duration(timings[longest].wall)}.",
    )
