"""What train says at its end: how good, how long, how large, where, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labelgrove.cli import common
from labelgrove.methods.held_out import held_out_metrics

if TYPE_CHECKING:
    from rich.console import Console

    from labelgrove.planning.plan import Plan

SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "R@10")


def summary(
    model: Any,
    out: Path,
    plan: Plan,
    measured: common.TimedEvaluation | None,
    *,
    dev: Path | None,
) -> dict[str, Any]:
    """Everything that is told, as one JSON object."""
    from labelgrove.core.memory import peak_rss
    from labelgrove.disk.model_folder import model_size

    told: dict[str, Any] = {
        "model": str(out),
        "method": model.method,
        "documents": model.facts_.documents,
        "labels": len(model.index_),
        "train_seconds": round(sum(t.wall for t in model.timings_.values()), 3),
        "train_cpu_seconds": round(sum(t.cpu for t in model.timings_.values()), 3),
        "stages": {name: round(t.wall, 3) for name, t in model.timings_.items()},
        "reused": [name for name, t in model.timings_.items() if t.reused],
        "model_bytes": model_size(out),
        "peak_memory_bytes": peak_rss(),
        "plan": plan.to_json(),
        "next": next_commands(model, out, dev),
    }
    if model.method == "ensemble":
        told |= {"rule": model.rule_, "weights": model.weights_}
    held_out = _held_out(model)
    if held_out:
        told["held_out"] = held_out
    if measured is not None:
        told["dev"] = measured.to_json()
    return told


def _held_out(model: Any) -> dict[str, dict[str, float]]:
    """Metrics on the held-out part, in percent: of this method, beside linear or its members."""
    report = held_out_metrics(getattr(model, "report_", None))
    return {
        name: {metric: round(100 * values[metric], 4) for metric in SHOWN if metric in values}
        for name, values in report.items()
        if values and (model.method == "ensemble" or name in (model.method, "linear"))
    }


def next_commands(model: Any, out: Path, dev: Path | None) -> list[str]:
    """Commands that can be copied as they are (but for TEST.jsonl, if nothing was held out)."""
    name, folder = common.command_name(), shlex.quote(str(out))
    documents = "TEST.jsonl" if dev is None else shlex.quote(str(dev))
    commands = [f"{name} evaluate {folder} {documents}"]
    if model.facts_.from_text and not model.facts_.width:
        commands.append(f"echo 'your text' | {name} predict {folder} - --k 5")
    else:
        commands.append(f"{name} predict {folder} {documents} --k 5 --out predictions.jsonl")
    return [*commands, f"{name} serve {folder}"]


def print_summary(
    console: Console, told: Mapping[str, Any], measured: common.TimedEvaluation | None
) -> None:
    """The same for people."""
    from labelgrove.core.memory import format_size

    def say(text: str) -> None:
        console.print(text, markup=False)

    total = told["train_seconds"]
    reused = told["reused"]
    computed = {name: value for name, value in told["stages"].items() if name not in reused}
    largest = sorted(computed.items(), key=lambda item: -item[1])
    shares = ", ".join(
        f"{name} {common.human_seconds(seconds)} ({seconds / max(total, 1e-9):.0%})"
        for name, seconds in largest
    )
    say(f"trained in {common.human_seconds(total)}: {shares or 'nothing was computed'}")
    if reused:
        say(f"used again: {', '.join(reused)}")
    if "rule" in told:
        weights = ", ".join(f"{weight:g}" for weight in told["weights"])
        say(f"members are joined by {told['rule']}, with weights {weights}")
    held_out = told.get("held_out", {})
    if held_out:
        say("on the held-out documents, by which checkpoint or weights were chosen, percent:")
        for line in _beside(held_out):
            say(f"  {line}")
        if _behind(held_out, told["method"]):
            say("  the linear method is better here: use it, or train longer or with other rates")
    if measured is not None:
        say(f"on {measured.evaluation.n:,} documents of --dev, percent:")
        say(measured.evaluation.table())
    elif not held_out:
        say("nothing was held out: give --dev next time, or evaluate on documents it has not seen")
    peak = told["peak_memory_bytes"]
    used = "" if peak is None else f"; memory peak {format_size(peak)}"
    say(f"model: {told['model']} ({format_size(told['model_bytes'])}){used}")
    say("next:")
    for command in told["next"]:
        say(f"  {command}")


def _beside(held_out: Mapping[str, Mapping[str, float]]) -> list[str]:
    metrics = [m for m in SHOWN if any(m in values for values in held_out.values())]
    first = max(len(name) for name in held_out)
    lines = [" " * first + "".join(metric.rjust(8) for metric in metrics)]
    for name, values in held_out.items():
        cells = (f"{values[m]:8.2f}" if m in values else "-".rjust(8) for m in metrics)
        lines.append(name.ljust(first) + "".join(cells))
    return lines


def _behind(held_out: Mapping[str, Mapping[str, float]], method: str) -> bool:
    if "linear" not in held_out or method == "linear" or method not in held_out:
        return False
    chosen = ("P@1", "P@3", "P@5")
    return sum(held_out[method][m] for m in chosen) < sum(held_out["linear"][m] for m in chosen)
