"""The sections of a report: findings in words, tables and pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labelgrove.core.memory import format_size
from labelgrove.metrics import Comparison
from labelgrove.metrics.bins import HEAD_ABOVE, TAIL_UP_TO
from labelgrove.report.drawing import Drawing
from labelgrove.report.figures import BIN_RANGES, stage_timings
from labelgrove.report.markup import (
    details,
    duration,
    escape,
    foreign,
    paragraph,
    percent,
    shortened,
    table,
)
from labelgrove.report.measuring import Report
from labelgrove.report.page import Section
from labelgrove.report.runs import Run
from labelgrove.report.svg import to_svg
from labelgrove.report.wrong_documents import wrong_documents

Figures = Mapping[str, Drawing]
TILES = ("P@1", "P@5", "nDCG@5", "PSP@5", "R@10")


def introduction(report: Report) -> str:
    """What was evaluated, and the few numbers that most readers come for."""
    run, corpus = report.subject, report.corpus
    said = [f"{len(corpus):,} documents of {report.data_name}"]
    said.append(f"{(corpus.labels.nnz + corpus.unknown.sum()) / len(corpus):.2f} labels each")
    if run.model is not None:
        said.append(f"method {run.model.method}, {len(run.model.index_):,} labels")
    if report.training is not None:
        said.append(f"trained on {report.training.documents:,} documents")
    evaluation = report.evaluations[0]
    tiles = ""
    for name in TILES:
        if name in evaluation.values:
            low_high = evaluation.intervals.get(name)
            between = ""
            if low_high is not None:
                low, high = map(percent, low_high)
                between = f"<dd class='note'>{low} to {high}</dd>"
            tiles += (
                f"<div><dt>{name}, percent</dt>"
                f"<dd class='value'>{percent(evaluation.values[name])}</dd>{between}</div>"
            )
    return f"<p class='facts'>{foreign('; '.join(said))}.</p>\n<dl class='tiles'>{tiles}</dl>"


def sections(report: Report, drawn: Figures) -> list[Section]:
    """Everything below the introduction."""
    parts = [Section("quality", "Quality by number of labels", _quality(report, drawn))]
    if report.comparisons:
        parts.append(Section("compared", "Compared with other runs", _compared(report)))
    parts += [
        Section("frequency", "Quality by label frequency", _by_frequency(report, drawn)),
        Section("tail", "The long tail", _tail(report, drawn)),
        Section("calibration", "Calibration", _calibration(report, drawn)),
        Section("siblings", "Confusion between sibling labels", _siblings(report)),
    ]
    if report.worst:
        parts.append(Section("wrong", "Most wrong documents", wrong_documents(report)))
    parts += [
        Section("training", "Training curves", _training(drawn)),
        Section("cost", "Time and memory", _cost(report, drawn)),
        Section("settings", "Settings and fine print", _settings(report)),
    ]
    return parts


def _figures(drawn: Figures, *names: str) -> str:
    shown = "".join(
        f"<figure>{to_svg(drawn[name], name)}"
        f"<figcaption>{escape(drawn[name].title)}</figcaption></figure>"
        for name in names
        if name in drawn
    )
    return f"<div class='figures'>{shown}</div>" if shown else ""


def _quality(report: Report, drawn: Figures) -> str:
    evaluation = report.evaluations[0]
    rows = []
    for family in report.families:
        cells = [family]
        for k in report.cutoffs:
            name = f"{family}@{k}"
            cells.append(percent(evaluation.values[name]) + _interval(evaluation.intervals, name))
        rows.append(cells)
    head = ["", *(f"@{k}" for k in report.cutoffs)]
    shown = table(head, rows, caption=f"{report.subject.name}, percent")
    if evaluation.intervals:
        shown += paragraph(
            "Small and shaded: 95 % intervals, by drawing the documents anew with replacement."
        )
    curves = [[str(k), *_curve_cells(report, k)] for k in range(1, report.depth + 1)]
    names = [foreign(run.name) for run in report.runs]
    all_head = ["k", *(f"{f}@k, {name}" for name in names for f in report.families)]
    numbers = details(
        "All values of the curves", table(all_head, curves, caption="Curves, percent")
    )
    pictures = _figures(drawn, *(f"curve-{family.lower()}" for family in report.families))
    return shown + pictures + numbers


def _curve_cells(report: Report, k: int) -> list[str]:
    return [
        percent(evaluation.values[f"{family}@{k}"])
        for evaluation in report.evaluations
        for family in report.families
    ]


def _interval(intervals: Mapping[str, Any], name: str, *, signed: bool = False) -> str:
    if name not in intervals:
        return ""
    low, high = (percent(bound, signed=signed) for bound in intervals[name])
    return f" <span class='note'>[{low}, {high}]</span>"


def _compared(report: Report) -> str:
    subject = report.subject
    metrics = [f"{family}@{k}" for family in report.families for k in report.cutoffs]
    shown = [name for name in TILES if name in report.evaluations[0].values]
    rows = []
    for number, run in enumerate(report.runs):
        values, scores = report.evaluations[number].values, report.calibrations[number]
        error = "–" if scores is None else percent(scores.error)
        rows.append([foreign(run.name), *(percent(values[name]) for name in shown), error])
    head = ["run", *shown, "calibration error"]
    parts = [table(head, rows, caption="All runs on the same documents, percent")]
    for run, comparison in zip(report.runs[1:], report.comparisons, strict=True):
        names = [foreign(one.name) for one in (subject, run)]
        parts.append(
            table(
                ["", *names, "difference", "95 % interval", "verdict"],
                [_difference(comparison, metric) for metric in metrics],
                caption=f"{subject.name} minus {run.name}, percent and percentage points",
                words=[5],
            )
        )
    parts.append(
        paragraph(
            "The same resampled documents are used for both runs of a difference. An interval "
            "that does not hold zero says that more than chance is behind it; of many such "
            "intervals, about one in twenty leaves out the true difference."
        )
    )
    return "".join(parts)


def _difference(comparison: Comparison, metric: str) -> list[str]:
    low, high = comparison.intervals[metric]
    verdict = "better" if low > 0 else "worse" if high < 0 else "not settled"
    return [
        metric,
        percent(comparison.second.values[metric]),
        percent(comparison.first.values[metric]),
        percent(comparison.differences[metric], signed=True),
        f"{percent(low, signed=True)} to {percent(high, signed=True)}",
        verdict,
    ]


NO_FREQUENCIES = (
    "Not shown: how often labels occur in training is not known here. A model folder knows it; "
    "for a file of predictions, give the training corpus."
)


def _by_frequency(report: Report, drawn: Figures) -> str:
    if report.training is None:
        return paragraph(NO_FREQUENCIES)
    shown = []
    for run, bins in zip(report.runs, report.bins, strict=True):
        rows = [
            [
                f"{b.name} ({BIN_RANGES[b.name]})",
                f"{b.labels:,}",
                f"{b.occurrences:,}",
                f"{b.hits:,}",
                percent(b.recall),
                percent(b.precision_share),
            ]
            for b in bins
        ]
        at = report.at
        head = ["training documents", "labels", "true", "found", f"R@{at}", f"part of P@{at}"]
        shown.append(
            table(head, rows, caption=f"{run.name}: the {at} best labels by frequency, percent")
        )
    return (
        paragraph(
            f"Of the true labels in each group, the share that is among the {report.at} best. "
            "The parts of P add up to it."
        )
        + _figures(drawn, "bins")
        + "".join(shown)
    )


def _tail(report: Report, drawn: Figures) -> str:
    if report.training is None:
        return paragraph(NO_FREQUENCIES)
    head, _, tail, unseen = report.bins[0]
    labels = max(sum(b.labels for b in report.bins[0]), 1)
    occurrences = max(sum(b.occurrences for b in report.bins[0]), 1)
    said = (
        f"{percent(tail.labels / labels)} % of the labels have 1 to {TAIL_UP_TO} training "
        f"documents; they are {percent(tail.occurrences / occurrences)} % of the true labels here. "
        f"{percent(head.labels / labels)} % of the labels have over {HEAD_ABOVE} documents and are "
        f"{percent(head.occurrences / occurrences)} % of the true labels. "
        f"{unseen.occurrences:,} true labels were never seen in training."
    )
    rows = [
        [
            bands[0].name,
            f"{bands[0].labels:,}",
            f"{bands[0].occurrences:,}",
            *(percent(band.recall) for band in bands),
        ]
        for bands in zip(*report.bands, strict=True)
    ]
    names = [f"R@{report.at}, {foreign(run.name)}" for run in report.runs]
    numbers = table(
        ["training documents", "labels", "true", *names], rows, caption="Recall along the tail"
    )
    pictures = _figures(drawn, "long-tail", "recall-by-frequency")
    return paragraph(said) + pictures + details("All values", numbers)


def _calibration(report: Report, drawn: Figures) -> str:
    parts = [
        paragraph(
            f"The scores of the {report.at} best labels as they are, in tenths. Where a score of "
            "0.8 means that 80 % of such labels are right, scores are probabilities. The expected "
            "calibration error is the mean distance from that."
        )
    ]
    for run, scores in zip(report.runs, report.calibrations, strict=True):
        if scores is None:
            used = int(run.predictions.counts.sum())
            why = (
                "margins and scores outside 0 to 1 are no probabilities"
                if used
                else "it predicted nothing"
            )
            parts.append(paragraph(f"{run.name}: not shown, {why}."))
            continue
        said = f"{run.name}: expected calibration error {percent(scores.error)} %."
        rows = [
            [f"{b.low:.1f} to {b.high:.1f}", f"{b.labels:,}", f"{b.score:.3f}", percent(b.right)]
            for b in scores.bins
            if b.labels
        ]
        head = ["score", "labels", "mean score", "right, percent"]
        parts.append(
            paragraph(said)
            + details(f"Values of {run.name}", table(head, rows, caption="Scores and outcomes"))
        )
    return parts[0] + _figures(drawn, "calibration", "scores") + "".join(parts[1:])


def _siblings(report: Report) -> str:
    found = report.siblings
    if found is None:
        return paragraph("Not shown: this run has no label tree, so no labels are siblings.")
    names = report.subject.predictions.index.names
    share = found.beside_missed / found.wrong if found.wrong else float("nan")
    said = (
        f"Siblings lie in the same leaf of the model's tree; it has {found.leaves:,} leaves. "
        f"{found.wrong:,} of the {report.at} best labels are wrong; {found.beside_missed:,} of "
        f"these ({percent(share)} %) have a sibling that is true and was not predicted."
    )
    often = [pair for pair in found.pairs if pair.documents > 1]
    if not often:
        return paragraph(f"{said} No pair is confused in more than one document.")
    rows = [
        [
            foreign(_label(names[pair.true])),
            foreign(_label(names[pair.predicted])),
            f"{pair.documents:,}",
            f"{pair.missed:,}",
        ]
        for pair in often
    ]
    head = ["true, not predicted", "predicted, wrong", "documents", "missed in all"]
    caption = "Pairs of siblings that are confused most often"
    return paragraph(said) + table(head, rows, caption=caption, words=[1])


def _label(name: str) -> str:
    return shortened(name, 80)


def _training(drawn: Figures) -> str:
    shown = _figures(drawn, "training-loss", "training-score")
    if shown:
        return shown
    return paragraph(
        "None: no network was trained here. Linear classifiers are solved to the end, label by "
        "label, and leave no curve."
    )


def _cost(report: Report, drawn: Figures) -> str:
    timings = stage_timings(report.subject)
    parts = []
    if timings:
        rows = [
            [
                escape(name),
                duration(timing.wall),
                duration(timing.cpu),
                "–" if timing.peak_memory is None else format_size(timing.peak_memory),
            ]
            for name, timing in timings.items()
        ]
        head = ["stage", "time", "CPU time", "memory so far"]
        parts += [
            _figures(drawn, "stages"),
            table(head, rows, caption=f"Training of {report.subject.name}"),
            paragraph(
                "Memory is the most that the training process had held by the end of the stage, "
                "without a GPU's. A stage that a run folder had ready takes the time of reading it."
            ),
        ]
    else:
        parts.append(paragraph("The model does not remember what its training cost."))
    rows = [[foreign(run.name), *_costs(run, len(report.corpus))] for run in report.runs]
    head = [
        "run",
        "training",
        "training, CPU",
        "model",
        "prediction",
        "documents/s",
        "memory so far",
    ]
    caption = "Runs: training, size on disk, prediction in the process that wrote this report"
    parts.append(table(head, rows, caption=caption))
    return "".join(parts)


def _costs(run: Run, documents: int) -> list[str]:
    from labelgrove.disk.model_folder import model_size

    timings = stage_timings(run).values()
    trained = [
        duration(sum(getattr(timing, clock) for timing in timings)) if timings else "–"
        for clock in ("wall", "cpu")
    ]
    size = "–" if run.folder is None else format_size(model_size(run.folder))
    if run.seconds is None:
        return [*trained, size, "–", "–", "–"]
    speed = f"{documents / max(run.seconds, 1e-9):,.0f}"
    memory = "–" if run.peak_memory is None else format_size(run.peak_memory)
    return [*trained, size, duration(run.seconds), speed, memory]


def _settings(report: Report) -> str:
    from labelgrove.core.params import to_toml
    from labelgrove.methods.base import to_config

    evaluation = report.evaluations[0]
    notes = list(dict.fromkeys(note for e in report.evaluations for note in e.notes))
    if report.training is not None:
        notes.append(
            f"propensities with A = {evaluation.propensity.a:g}, B = {evaluation.propensity.b:g}, "
            f"frequencies of the training data of {report.subject.name}"
        )
    notes.append("labels with equal scores are ordered by column; P@k divides by k in any case")
    shown = "<ul>" + "".join(f"<li>{escape(_sentence(note))}</li>" for note in notes) + "</ul>"
    for run in report.runs:
        if hasattr(run.model, "get_params"):
            text = to_toml({"method": run.model.method} | to_config(run.model))
            shown += details(f"Settings of {run.name}", _code(text))
    return shown


def _code(text: str) -> str:
    return f"<pre tabindex='0'><code>{escape(text)}</code></pre>"


def _sentence(note: str) -> str:
    return f"{note[:1].upper()}{note[1:]}."
