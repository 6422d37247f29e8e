"""What ``labelgrove train`` says at its end."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelgrove.cli import common
from labelgrove.cli.evaluate import evaluate_model
from labelgrove.core.durations import format_duration
from labelgrove.evaluation.measures import METRICS

if TYPE_CHECKING:
    from rich.console import Console

    from labelgrove.cli.training_data import TrainingData
    from labelgrove.data.blocks import ShardedCorpus
    from labelgrove.data.corpus import Corpus
    from labelgrove.experiments.planning.plan import Plan
    from labelgrove.methods.base import Model

SHOWN_METRICS = ["P@1", "P@3", "P@5"]
HELD_OUT = "held-out documents, which chose it"

Facts = dict[str, Any]
Row = tuple[str, Mapping[str, float], int, str]  # name, percentages, documents, which ones


def fit(model: Model, data: Corpus | ShardedCorpus, **how: Any) -> Facts:
    """Trains, and says how long: stages run at the same time, so their seconds do not add up."""
    wall, cpu = time.perf_counter(), time.process_time()
    model.fit(data, **how)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"train_seconds": round(wall, 3), "train_cpu_seconds": round(cpu, 3)}


def save(
    model: Model,
    out: Path,
    *,
    spent: Facts,
    plan: Plan | None = None,
    held_out: Corpus | None,
    documents: TrainingData,
    overwrite: bool,
) -> Facts:
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
        **spent,
        "stages": {name: round(t.wall, 3) for name, t in timings.items()},
        "reused": [name for name, t in timings.items() if t.reused],
        "model_bytes": model_size(out),
        "peak_memory_bytes": peak_rss(),
        "plan": None if plan is None else plan.to_json(),
        "next": _next_commands(model, out, documents),
    }
    if model.tried_:
        facts["tried"] = list(model.tried_)
    facts |= model.details()
    if held_out_metrics := _held_out(model):
        facts["held_out"] = held_out_metrics
        facts["held_out_documents"] = model.report_["held_out"]
    if measured is not None:
        facts["dev"] = measured.to_json()
    return facts


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


def _next_commands(model: Model, out: Path, learnt: TrainingData) -> list[str]:
    """Commands to copy and run; without --dev, the name TEST must be replaced."""
    from labelgrove.data.formats.files import bare_name

    name, folder = common.command_name(), shlex.quote(str(out))
    facts, kind = model.facts_, Path(bare_name(learnt.corpus)).suffix
    test = learnt.corpus if learnt.corpus.is_dir() else f"TEST{kind}"  # a folder has parts
    documents = f"{shlex.quote(str(learnt.dev or test))}{learnt.flags()}"
    commands = [f"{name} evaluate {folder} {documents}"]
    if not facts.from_text or facts.width or facts.given:
        commands.append(f"{name} predict {folder} {documents} --k 5 --out predictions.jsonl")
    else:
        commands.append(f"echo 'your text' | {name} predict {folder} - --k 5")
    return commands if facts.given else [*commands, f"{name} serve {folder}"]


def print_summary(console: Console, facts: Facts, *, verbose: bool) -> None:
    """How good, how long, what next; with ``verbose`` also where time and memory went."""
    from labelgrove.core.memory import format_size

    if rows := list(_rows(facts, every=verbose)):
        console.print("how good, in percent (± in 19 of 20 cases):")
        for line in _table(rows, METRICS if verbose else SHOWN_METRICS):
            console.print(f"  {line}")
        if _is_worse_than_linear(facts.get("held_out", {}), facts["method"]):
            console.print(
                "  the linear method is better here: use it, train longer, or change the rates"
            )
    else:
        console.print(
            "nothing was measured: add --dev, or evaluate on documents that are not in TRAIN"
        )
    if verbose:
        for name, seconds in sorted(facts["stages"].items(), key=lambda stage: -stage[1]):
            reused = ", reused" if name in facts["reused"] else ""
            console.print(f"stage: {name} {format_duration(seconds)}{reused}")
        if "rule" in facts:
            weights = ", ".join(f"{weight:g}" for weight in facts["weights"])
            console.print(f"members are combined by {facts['rule']} with weights {weights}")
        if facts["peak_memory_bytes"] is not None:
            console.print(f"peak memory: {format_size(facts['peak_memory_bytes'])}")
    console.print(
        f"trained in {format_duration(facts['train_seconds'])} on "
        f"{_counts(facts['learnt_from'])}: {facts['model']} ({format_size(facts['model_bytes'])})"
    )
    console.print("next:\n" + "\n".join(f"  {command}" for command in facts["next"]))


def _rows(facts: Facts, *, every: bool) -> Iterator[Row]:
    """The model on --dev; it, and linear or all that was tried, on held-out documents."""
    tried = [trial for trial in facts.get("tried", ()) if "P@1" in trial]
    method = facts["method"]
    if "dev" in facts:
        name = next((trial["name"] for trial in tried if trial["chosen"]), method)
        yield name, facts["dev"], facts["dev"]["n"], "documents of --dev"
    for trial in sorted(tried, key=lambda trial: -trial["chosen"]):
        if every or trial["chosen"] or trial["name"] == "linear":
            values = {key: 100 * trial[key] for key in SHOWN_METRICS if key in trial}
            yield trial["name"], values, trial["documents"], HELD_OUT
    for name, values in () if tried else facts.get("held_out", {}).items():
        if every or name == method or name.endswith("linear"):
            yield name, values, facts["held_out_documents"], HELD_OUT


def _table(rows: list[Row], metrics: list[str]) -> Iterator[str]:
    from labelgrove.evaluation.metrics.measures import widest

    width = max(len(name) for name, *_ in rows)
    metrics = [metric for metric in metrics if any(metric in values for _, values, *_ in rows)]
    yield " " * width + "".join(metric.rjust(8) for metric in metrics)
    for name, values, documents, where in rows:
        cells = (f"{values[m]:8.2f}" if m in values else "-".rjust(8) for m in metrics)
        # How far figures on other documents may be from these.
        means = [values[metric] for metric in SHOWN_METRICS if metric in values]
        margin = 100 * max(widest(mean / 100, documents) for mean in means)
        yield f"{name.ljust(width)}{''.join(cells)}  ± {margin:.1f} on {documents:,} {where}"


def _counts(learnt_from: Mapping[str, int]) -> str:
    """The documents that were learnt from, by member where the members differ."""
    if len(set(learnt_from.values())) == 1:
        return f"{next(iter(learnt_from.values())):,} documents"
    return ", ".join(f"{count:,} documents ({name})" for name, count in learnt_from.items())


def _is_worse_than_linear(held_out: Mapping[str, Mapping[str, float]], method: str) -> bool:
    if method == "linear" or not {"linear", method} <= set(held_out):
        return False
    sums = {m: sum(held_out[m][p] for p in SHOWN_METRICS) for m in ("linear", method)}
    return sums[method] < sums["linear"]
