"""What ``labelgrove train`` says at its end."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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

SHOWN_METRICS = ["P@1", "P@3", "P@5"]
HELD_OUT = "held-out documents, which chose it"


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
    from labelgrove.methods.fitted import held_out_metrics

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


def print_summary(console: Console, result: Result, *, verbose: bool) -> None:
    """How good, how long, what next; with ``verbose`` also where time and memory went."""
    from labelgrove.core.memory import format_size

    facts, measured = result
    show = console.print
    if rows := list(_rows(facts, measured, every=verbose)):
        show("how good, in percent (± in 19 of 20 cases):")
        for line in _table(rows, METRICS if verbose else SHOWN_METRICS):
            show(f"  {line}")
        if _is_worse_than_linear(facts.get("held_out", {}), facts["method"]):
            show("  the linear method is better here: use it, train longer, or change the rates")
    else:
        show("nothing was measured: add --dev, or evaluate on documents that are not in TRAIN")
    if verbose:
        _print_costs(console, facts)
    show(
        f"trained in {format_duration(facts['train_seconds'])} on "
        f"{_counts(facts['learnt_from'])}: {facts['model']} ({format_size(facts['model_bytes'])})"
    )
    show("next:\n" + "\n".join(f"  {command}" for command in facts["next"]))


def _print_costs(console: Console, facts: Facts) -> None:
    """The time of each stage, the weights of members, and the most memory."""
    from labelgrove.core.memory import format_size

    total, reused = facts["train_seconds"], facts["reused"]
    computed = [(seconds, name) for name, seconds in facts["stages"].items() if name not in reused]
    for seconds, name in sorted(computed, key=lambda item: -item[0]):
        console.print(
            f"stage: {name} {format_duration(seconds)} ({seconds / max(total, 1e-9):.0%})"
        )
    if reused:
        console.print(f"reused: {', '.join(reused)}")
    if "rule" in facts:
        weights = ", ".join(f"{weight:g}" for weight in facts["weights"])
        console.print(f"members are combined by {facts['rule']} with weights {weights}")
    if facts["peak_memory_bytes"] is not None:
        console.print(f"peak memory: {format_size(facts['peak_memory_bytes'])}")


@dataclass(frozen=True)
class _Row:
    """What was measured of a model, in percent, and on how many documents."""

    name: str
    values: Mapping[str, float]
    documents: int
    where: str

    @property
    def margin(self) -> float:
        """How far figures on other documents may be from these."""
        from labelgrove.evaluation.metrics.measures import widest

        means = [value for metric, value in self.values.items() if metric in SHOWN_METRICS]
        return 100 * max(widest(value / 100, self.documents) for value in means)


def _rows(facts: Facts, measured: TimedEvaluation | None, *, every: bool) -> Iterator[_Row]:
    """The model on --dev; it, and linear or all its members, on held-out documents."""
    tried = [trial for trial in facts.get("tried", ()) if "P@1" in trial]
    name = next((trial["name"] for trial in tried if trial["chosen"]), facts["method"])
    if measured is not None:
        values = {metric: 100 * value for metric, value in measured.evaluation.values.items()}
        yield _Row(name, values, measured.evaluation.n, "documents of --dev")
    held_out: Mapping[str, Mapping[str, float]] = facts.get("held_out", {})
    if not held_out or (tried and not every):
        for trial in sorted(tried, key=lambda trial: -trial["chosen"]):
            if every or trial["chosen"] or trial["name"] == "linear":
                values = {key: 100 * trial[key] for key in SHOWN_METRICS if key in trial}
                yield _Row(trial["name"], values, trial["documents"], HELD_OUT)
        return
    for name, figures in held_out.items():
        if every or name == facts["method"] or name.endswith("linear"):
            yield _Row(name, figures, facts["held_out_documents"], HELD_OUT)


def _table(rows: Sequence[_Row], metrics: Sequence[str]) -> Iterator[str]:
    metrics = [metric for metric in metrics if any(metric in row.values for row in rows)]
    width = max(len(row.name) for row in rows)
    yield " " * width + "".join(metric.rjust(8) for metric in metrics)
    for row in rows:
        cells = (f"{row.values[m]:8.2f}" if m in row.values else "-".rjust(8) for m in metrics)
        where = f"on {row.documents:,} {row.where}"
        yield f"{row.name.ljust(width)}{''.join(cells)}  ± {row.margin:.1f} {where}"


def _counts(learnt_from: Mapping[str, int]) -> str:
    """The documents that were learnt from, by member where the members differ."""
    if len(set(learnt_from.values())) == 1:
        return f"{next(iter(learnt_from.values())):,} documents"
    return ", ".join(f"{count:,} documents ({name})" for name, count in learnt_from.items())


def _is_worse_than_linear(held_out: Mapping[str, Mapping[str, float]], method: str) -> bool:
    if method == "linear" or not {"linear", method} <= set(held_out):
        return False
    sums = {m: sum(held_out[m][p] for p in ("P@1", "P@3", "P@5")) for m in ("linear", method)}
    return sums[method] < sums["linear"]
