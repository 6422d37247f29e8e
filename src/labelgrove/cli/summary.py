"""What ``labelgrove train`` says at its end."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelgrove.cli import common
from labelgrove.cli.evaluate import TimedEvaluation, evaluate_model
from labelgrove.core.durations import format_duration
from labelgrove.evaluation.measures import METRICS

if TYPE_CHECKING:
    from rich.console import Console

    from labelgrove.data.corpus import Corpus
    from labelgrove.experiments.planning.plan import Plan
    from labelgrove.methods.base import Model

MOST_STAGES = 8  # that a summary for people names


Facts = dict[str, Any]
Result = tuple[Facts, TimedEvaluation | None]  # the summary, and the metrics on --dev


def save(
    model: Model,
    out: Path,
    *,
    plan: Plan | None = None,
    held_out: Corpus | None,
    dev: Path | None,
    overwrite: bool,
) -> Result:
    """Measures a model on the documents of --dev, saves it, and sums up its training."""
    from labelgrove.core.memory import peak_rss
    from labelgrove.disk.model_folder import model_size

    measured = None if held_out is None else evaluate_model(model, held_out)
    if measured is not None:
        model.dev_metrics_ = measured.evaluation.values
    model.save(out, overwrite=overwrite)
    timings = model.timings_
    facts: Facts = {
        "model": str(out),
        "method": model.method,
        "documents": model.facts_.documents,
        "learnt_from": _learnt_from(model),
        "labels": len(model.index_),
        "given_columns": model.facts_.given,
        "train_seconds": round(sum(t.wall for t in timings.values()), 3),
        "train_cpu_seconds": round(sum(t.cpu for t in timings.values()), 3),
        "stages": {name: round(t.wall, 3) for name, t in timings.items()},
        "reused": [name for name, t in timings.items() if t.reused],
        "model_bytes": model_size(out),
        "peak_memory_bytes": peak_rss(),
        "plan": None if plan is None else plan.to_json(),
        "next": _next_commands(model, out, dev),
    }
    if model.tried_:
        facts["tried"] = list(model.tried_)
    facts |= model.details()
    if held_out_metrics := _held_out(model):
        facts["held_out"] = held_out_metrics
        facts["held_out_documents"] = model.report_["held_out"]
    if measured is not None:
        facts["dev"] = measured.to_json()
    return facts, measured


def _held_out(model: Model) -> dict[str, dict[str, float]]:
    """Metrics on the held-out part, in percent: of the method, and of linear or its members."""
    from labelgrove.methods.held_out import held_out_metrics

    report = held_out_metrics(model.report_)
    return {
        name: {metric: round(100 * values[metric], 4) for metric in METRICS if metric in values}
        for name, values in report.items()
        if values and (model.method == "ensemble" or name in (model.method, "linear"))
    }


def _learnt_from(model: Model) -> dict[str, int]:
    """The documents that the model, or each of its members, learnt from."""
    models = list(model.submodels()) or [model]
    numbered = [f"{number} {each.method}" for number, each in enumerate(models, 1)]
    names = [model.method] if len(models) == 1 else numbered
    # A network does not learn from the documents that chose its checkpoint.
    return {
        name: each.facts_.documents - each.report_.get("held_out", 0)
        for name, each in zip(names, models, strict=True)
    }


def _margin(facts: Facts) -> tuple[int, float]:
    """The held-out documents, and how far figures on others may lie from those on these."""
    from labelgrove.evaluation.metrics.intervals import widest

    count = facts["held_out_documents"]
    values = [value for figures in facts["held_out"].values() for value in figures.values()]
    return count, 100 * max(widest(value / 100, count) for value in values)


def _next_commands(model: Model, out: Path, dev: Path | None) -> list[str]:
    """Commands to copy and run; without --dev, the name TEST.jsonl must be replaced."""
    name, folder = common.command_name(), shlex.quote(str(out))
    facts = model.facts_
    documents = "TEST" if facts.given else "TEST.jsonl"  # with features, such as a folder
    documents = documents if dev is None else shlex.quote(str(dev))
    commands = [f"{name} evaluate {folder} {documents}"]
    if not facts.from_text or facts.width or facts.given:
        commands.append(f"{name} predict {folder} {documents} --k 5 --out predictions.jsonl")
    else:
        commands.append(f"echo 'your text' | {name} predict {folder} - --k 5")
    return commands if facts.given else [*commands, f"{name} serve {folder}"]


def print_summary(console: Console, result: Result) -> None:
    """The summary for people."""
    from labelgrove.core.memory import format_size

    facts, measured = result
    total, reused = facts["train_seconds"], facts["reused"]
    computed = [(seconds, name) for name, seconds in facts["stages"].items() if name not in reused]
    longest = sorted(computed, key=lambda item: -item[0])
    shares = ", ".join(
        f"{name} {format_duration(seconds)} ({seconds / max(total, 1e-9):.0%})"
        for seconds, name in longest[:MOST_STAGES]
    )
    shares += f" and {len(longest) - MOST_STAGES} others" if len(longest) > MOST_STAGES else ""
    show = console.print
    show(f"trained in {format_duration(total)}: {shares or 'nothing had to be computed'}")
    if reused:
        show(f"reused: {', '.join(reused)}")
    if chosen := [trial for trial in facts.get("tried", ()) if trial["chosen"]]:
        from labelgrove.methods.auto.trials import trial_line

        show(f"auto kept {trial_line(chosen[0])}")
    if "rule" in facts:
        weights = ", ".join(f"{weight:g}" for weight in facts["weights"])
        show(f"members are combined by {facts['rule']} with weights {weights}")
    held_out = facts.get("held_out", {})
    if held_out:
        count, margin = _margin(facts)
        show(
            f"metrics in percent on {count:,} held-out documents, which chose checkpoint or "
            f"weights (± {margin:.1f} on others):"
        )
        for line in metric_lines(held_out):
            show(f"  {line}")
        if _is_worse_than_linear(held_out, facts["method"]):
            show("  the linear method is better here: use it, train longer, or change the rates")
    if measured is not None:
        show(f"metrics in percent on the {measured.evaluation.n:,} documents of --dev:")
        show(measured.evaluation.table())
    elif not held_out and not any("P@1" in trial for trial in facts.get("tried", ())):
        show("nothing was measured: add --dev, or evaluate on documents that are not in TRAIN")
    show(f"learnt from {_counts(facts['learnt_from'])}")
    peak = facts["peak_memory_bytes"]
    memory = "" if peak is None else f"; peak memory {format_size(peak)}"
    show(f"model: {facts['model']} ({format_size(facts['model_bytes'])}){memory}")
    show("next:\n" + "\n".join(f"  {command}" for command in facts["next"]))


def _counts(learnt_from: Mapping[str, int]) -> str:
    """The documents that were learnt from, by member where the members differ."""
    if len(set(learnt_from.values())) == 1:
        return f"{next(iter(learnt_from.values())):,} documents"
    return ", ".join(f"{count:,} documents ({name})" for name, count in learnt_from.items())


def metric_lines(held_out: Mapping[str, Mapping[str, float]]) -> list[str]:
    """A table with a row per method."""
    metrics = [m for m in METRICS if any(m in values for values in held_out.values())]
    width = max(map(len, held_out))
    lines = [" " * width + "".join(metric.rjust(8) for metric in metrics)]
    for name, values in held_out.items():
        cells = (f"{values[m]:8.2f}" if m in values else "-".rjust(8) for m in metrics)
        lines.append(name.ljust(width) + "".join(cells))
    return lines


def _is_worse_than_linear(held_out: Mapping[str, Mapping[str, float]], method: str) -> bool:
    if method == "linear" or not {"linear", method} <= set(held_out):
        return False
    sums = {m: sum(held_out[m][p] for p in ("P@1", "P@3", "P@5")) for m in ("linear", method)}
    return sums[method] < sums["linear"]
