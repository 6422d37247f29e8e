"""labelgrove train: a corpus in, a model folder and a summary of the training out."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from labelgrove.cli import common, options
from labelgrove.cli.evaluate import METRICS, TimedEvaluation, evaluate_model
from labelgrove.core.durations import format_duration, parse_duration
from labelgrove.errors import ConfigError, DataError, StorageError, UnsupportedError

if TYPE_CHECKING:
    from rich.console import Console

    from labelgrove.data.corpus import Corpus
    from labelgrove.disk.run_folder import RunFolder, RunStatus
    from labelgrove.methods.estimator import Estimator
    from labelgrove.model.interface import Model
    from labelgrove.planning.plan import Plan

MOST_STAGES = 8  # that a summary for people names


def train(
    corpus: options.TrainCorpus,
    *,
    out: Annotated[Path | None, Option(help="Model folder to write.")] = None,
    settings: options.Settings,
    time_budget: Annotated[
        str | None,
        Option("--budget", help="Time for the method auto, e.g. 10m. Default: no limit."),
    ] = None,
    documents: options.Documents,
    plan_only: Annotated[bool, Option("--plan", help="Print the plan and stop.")] = False,
    resume: Annotated[bool, Option("--resume", help="Continue an interrupted run.")] = False,
    run_folder: Annotated[
        Path | None, Option("--run", help="Folder that keeps finished stages for other runs.")
    ] = None,
    label_tree: Annotated[
        Path | None, Option(help="Thesaurus (TSV: id, broader ids) or tree (JSON).")
    ] = None,
    force: options.Force = False,
    machine: options.Machine,
    memory: Annotated[
        str | None,
        Option(help="Memory limit, e.g. 8G. linear keeps features on disk; others must fit."),
    ] = None,
    reading: options.Reading,
    estimate: Annotated[bool, Option(help="Estimate the time from a small sample.")] = True,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Train a model.

    First prints a plan: sizes, memory, and a time that a small sample measures on this machine.
    Then trains, and prints how good the model is, where the time went, and what to do next. --plan
    stops after the plan. The method auto starts with linear, tries what may be better on this
    machine, and keeps what held-out documents prefer; Ctrl-C ends it and keeps the best so far.

    Example: labelgrove train train.jsonl.xz --dev dev.jsonl.xz --out model --set ranker.C=2

    Example: labelgrove train train.jsonl.xz --method cascadexml --plan
    """
    from labelgrove.core.callbacks import RichProgress
    from labelgrove.core.memory import limit_memory, parse_size, peak_rss, require
    from labelgrove.core.processes import is_first_process, process_count, wait_for_all
    from labelgrove.core.scratch import Scratch
    from labelgrove.data.splits import repeated_texts
    from labelgrove.formats.files import existing
    from labelgrove.methods import create
    from labelgrove.methods.auto.method import Auto
    from labelgrove.planning.plan import plan_training

    if plan_only:
        out = None
    elif out is None:
        raise typer.BadParameter("give the folder to write the model to", param_hint="--out")
    quiet = quiet or not is_first_process()
    console = common.stderr_console(quiet=quiet)
    method, tables = settings.tables(machine.threads, default="auto")
    if time_budget is not None:
        if method != "auto":
            raise ConfigError(f"--budget: is for the method auto, not for {method}")
        tables["budget"] = parse_duration(time_budget, name="--budget")
    model = create(method, tables)
    common.use_device(model, machine.device)
    budget = None if memory is None else parse_size(memory, name="--memory")
    if out is not None:
        common.check_model_folder(out, force=force)
    _check_extras(model, documents, label_tree)
    reading.options()
    if str(corpus) != "-":
        existing(corpus)  # before a run folder is made next to it
    where = machine.device if model.encoders() else None
    with training_run(out, run_folder, resume=resume, force=force, device=where) as run:
        if budget is not None:
            require(budget, peak_rss() or 0, "starting labelgrove")
            limit_memory(budget)
        streams = budget is not None and "memory" in inspect.signature(model.fit).parameters
        scratch = Scratch(run.path) if streams and run is not None else None
        data, held_out = documents.read(corpus, reading, console, scratch)
        if held_out is not None:
            if held_out.labels.nnz == 0 and not held_out.unknown.any():
                raise DataError(
                    "no document has a label, so there is nothing to measure", file=documents.dev
                )
            if held_out.texts is not None and data.texts is not None:
                known = repeated_texts(held_out.texts, data.texts)
                if known:
                    console.print(
                        f"{documents.dev}: {known:,} of {len(held_out):,} texts are also in "
                        f"{corpus}, so its metrics are too good"
                    )
        _say_never_predicted(model, data, console, documents)
        given: dict[str, Any] = {}
        if label_tree is not None:
            from labelgrove.labels.given_trees import read_label_groups, read_label_tree

            given["label_tree"], conflicts = read_label_tree(label_tree, data.index)
            groups = read_label_groups(label_tree, data.index)  # for masks at prediction
            data = replace(data, index=data.index.with_groups(groups))
            console.print(f"{label_tree}: {conflicts}")
        stages = [] if run is None else [stage.name for stage in run.status().stages]
        # The time of a run that starts with a trained network cannot be estimated. With several
        # processes, the others would have to take part in the estimate.
        trained = any(name.startswith("network") for name in stages)
        measures = estimate and (plan_only or not quiet) and process_count() == 1 and not trained
        plan = plan_training(model, data, calibrate=measures, **given)
        if streams:
            note = "with --memory, features are on disk; the memory above is for training without"
            plan = replace(plan, notes=(*plan.notes, note))
        for line in plan.lines():
            console.print(line)
        if run is None or out is None:
            if as_json:
                common.print_json(plan.to_json())
            return
        if stages:
            console.print(f"  note     matching stages in {run.path} are reused")
        if streams:
            given["memory"] = budget
        elif budget is not None:
            require(
                budget, plan.memory_bytes, f"training {model.method} on {len(data):,} documents"
            )
        with RichProgress() as progress:
            model.fit(data, callbacks=[] if quiet else [progress], run=run, **given)
        if isinstance(model, Auto):
            model = model.chosen_
            _say_never_predicted(model, data, console, documents)
        wait_for_all(where)  # from here on only the first process needs the run folder
        if not is_first_process():
            return
        measured = None
        if held_out is not None:
            measured = evaluate_model(model, held_out)
            model.dev_metrics_ = measured.evaluation.values
        model.save(out, overwrite=force)
    facts = _summary(model, out, plan, measured, dev=documents.dev)
    if data.texts is not None and model.facts_.given:
        console.print(
            f"predictions need the matrix of {model.facts_.given:,} columns that came with the "
            "texts; a model trained with --set features=own reads texts alone"
        )
    if as_json:
        common.print_json(facts)
    else:
        _print_summary(console, facts, measured)


def _check_extras(model: Estimator, documents: options.Documents, label_tree: Path | None) -> None:
    """Raises an error, before the work, if a flag does not fit the method or other flags."""
    arguments = inspect.signature(model.fit).parameters
    for argument, value in (("dense", documents.dense), ("label_tree", label_tree)):
        if value is not None and argument not in arguments:
            raise UnsupportedError(
                f"--{argument.replace('_', '-')}: the method {model.method} cannot use it; "
                "leave it out or train linear"
            )
    documents.check()


def _say_never_predicted(
    model: Model, data: Corpus, console: Console, documents: options.Documents
) -> None:
    """Says which labels --all-labels adds in vain."""
    if not documents.all_labels or model.learns_names():
        return
    count = len(data.index) - len(set(data.labels.indices.tolist()))
    if count:
        console.print(
            f"labels: {count:,} labels have no document, and {model.method} with these settings "
            "learns from documents only, so it never predicts them; train matcher, or linear "
            "with --set label_texts=names"
        )


@contextmanager
def training_run(
    out: Path | None, kept: Path | None, *, resume: bool, force: bool, device: str | None
) -> Iterator[RunFolder | None]:
    """The run folder during training. A private one stays only if it is worth resuming."""
    from labelgrove.core.processes import is_first_process, wait_for_all
    from labelgrove.disk.run_folder import RunFolder

    if out is None:
        yield None
        return
    if not is_first_process():
        wait_for_all(device)  # until the first one has tidied up
    path = kept or out.with_name(out.name + ".run")
    if force and not resume and kept is None and path.exists():
        # Opening it first raises an error if it is not a run folder or another process uses it.
        with RunFolder(path, resume=True) as old:
            old.remove()
    with RunFolder(path, resume=resume or kept is not None) as run:
        if is_first_process():
            wait_for_all(device)
        try:
            yield run
        except BaseException as error:
            status = run.status()
            # After a wrong setting, a few seconds' work would only block the next try.
            costly = any(stage.name.startswith("network") for stage in status.stages)
            refused = isinstance(error, ConfigError)
            worth_resuming = bool(status.checkpoints or costly or (status.stages and not refused))
            with suppress(StorageError):  # say first what went wrong first
                if kept is None and not worth_resuming:
                    run.remove()
                else:
                    run.log({"kind": "run_failed", "why": str(error) or type(error).__name__})
            if not isinstance(error, KeyboardInterrupt):
                raise
            typer.echo(f"Interrupted. {_how_to_continue(path, status)}", err=True)
            raise typer.Exit(common.INTERRUPTED) from None
        if kept is None:
            run.remove()


def _how_to_continue(path: Path, status: RunStatus) -> str:
    """The command that continues an interrupted run."""
    if not (status.stages or status.checkpoints):
        return "Nothing was finished yet."
    done = list(dict.fromkeys(stage.name for stage in status.stages))
    steps = {checkpoint.name: checkpoint.step for checkpoint in status.checkpoints}  # the last ones
    done += [f"{name} up to step {step}" for name, step in steps.items()]
    arguments = [argument for argument in sys.argv[1:] if argument != "--resume"]
    command = shlex.join([common.command_name(), *arguments, "--resume"])
    return f"{path} has the finished work ({', '.join(done)}). Continue with:\n  {command}"


def _summary(
    model: Estimator, out: Path, plan: Plan, measured: TimedEvaluation | None, *, dev: Path | None
) -> dict[str, Any]:
    """The whole summary as one JSON object."""
    from labelgrove.core.memory import peak_rss
    from labelgrove.disk.model_folder import model_size
    from labelgrove.methods.ensemble.method import Ensemble

    timings = model.timings_
    facts: dict[str, Any] = {
        "model": str(out),
        "method": model.method,
        "documents": model.facts_.documents,
        "labels": len(model.index_),
        "given_columns": model.facts_.given,
        "train_seconds": round(sum(t.wall for t in timings.values()), 3),
        "train_cpu_seconds": round(sum(t.cpu for t in timings.values()), 3),
        "stages": {name: round(t.wall, 3) for name, t in timings.items()},
        "reused": [name for name, t in timings.items() if t.reused],
        "model_bytes": model_size(out),
        "peak_memory_bytes": peak_rss(),
        "plan": plan.to_json(),
        "next": _next_commands(model, out, dev),
    }
    if model.tried_:
        facts["tried"] = list(model.tried_)
    if isinstance(model, Ensemble):
        facts |= {"rule": model.rule_, "weights": model.weights_}
    if held_out := _held_out(model):
        facts["held_out"] = held_out
    if measured is not None:
        facts["dev"] = measured.to_json()
    return facts


def _held_out(model: Estimator) -> dict[str, dict[str, float]]:
    """Metrics on the held-out part, in percent: of the method, and of linear or its members."""
    from labelgrove.model.held_out import held_out_metrics

    report = held_out_metrics(model.report_)
    return {
        name: {metric: round(100 * values[metric], 4) for metric in METRICS if metric in values}
        for name, values in report.items()
        if values and (model.method == "ensemble" or name in (model.method, "linear"))
    }


def _next_commands(model: Estimator, out: Path, dev: Path | None) -> list[str]:
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


def _print_summary(
    console: Console, facts: Mapping[str, Any], measured: TimedEvaluation | None
) -> None:
    """The summary for people."""
    from labelgrove.core.memory import format_size

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
    if kept := [trial for trial in facts.get("tried", ()) if trial["chosen"]]:
        show(f"auto kept {common.trial_line(kept[0])}")
    if "rule" in facts:
        weights = ", ".join(f"{weight:g}" for weight in facts["weights"])
        show(f"members are combined by {facts['rule']} with weights {weights}")
    held_out = facts.get("held_out", {})
    if held_out:
        show("metrics in percent on the held-out documents, which chose checkpoint or weights:")
        for line in _metric_lines(held_out):
            show(f"  {line}")
        if _is_worse_than_linear(held_out, facts["method"]):
            show("  the linear method is better here: use it, train longer, or change the rates")
    if measured is not None:
        show(f"metrics in percent on the {measured.evaluation.n:,} documents of --dev:")
        show(measured.evaluation.table())
    elif not held_out and not any("P@1" in trial for trial in facts.get("tried", ())):
        show("nothing was measured: add --dev, or evaluate on documents that are not in TRAIN")
    peak = facts["peak_memory_bytes"]
    memory = "" if peak is None else f"; peak memory {format_size(peak)}"
    show(f"model: {facts['model']} ({format_size(facts['model_bytes'])}){memory}")
    show("next:\n" + "\n".join(f"  {command}" for command in facts["next"]))


def _metric_lines(held_out: Mapping[str, Mapping[str, float]]) -> list[str]:
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
