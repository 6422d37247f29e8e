"""labelgrove train: a corpus in, a model folder and a summary of the training out."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from labelgrove.cli import common, options
from labelgrove.cli.evaluate import TimedEvaluation, evaluate_model
from labelgrove.cli.summary import show, summary
from labelgrove.core.durations import parse_duration
from labelgrove.errors import ConfigError, DataError, StorageError, UnsupportedError

if TYPE_CHECKING:
    from rich.console import Console

    from labelgrove.data.corpus import Corpus
    from labelgrove.disk.run_folder import RunFolder, RunStatus
    from labelgrove.methods.base import Model


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
    where: options.Where,
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

    With --engine, TRAIN is a folder or pattern of shards of texts, and the method is linear or one
    with an encoder, which the workers of Ray train together. For the methods ensemble and auto,
    TRAIN is one corpus, and workers train several models at a time.

    Example: labelgrove train train.jsonl.xz --method cascadexml --plan
    """
    from labelgrove.core.callbacks import RichProgress
    from labelgrove.core.memory import limit_memory, parse_size, peak_rss, require
    from labelgrove.core.processes import is_first_process, process_count, wait_for_all
    from labelgrove.core.scratch import Scratch
    from labelgrove.data.formats.files import existing
    from labelgrove.data.splits import repeated_texts
    from labelgrove.experiments.planning.plan import plan_training
    from labelgrove.methods import create

    if plan_only:
        out = None
    elif out is None:
        raise typer.BadParameter("give the folder to write the model to", param_hint="--out")
    quiet = quiet or not is_first_process()
    console = common.stderr_console(quiet=quiet)
    where.check()
    default = "auto" if where.engine is None else "linear"
    method, tables = settings.tables(machine.threads, default=default)
    if time_budget is not None:
        if method != "auto":
            raise ConfigError(f"--budget: is for the method auto, not for {method}")
        tables["budget"] = parse_duration(time_budget, name="--budget")
    model = create(method, tables)
    many = model.workers == "members"
    if where.engine != "ray" or many or not model.encoders():  # the workers may have other devices
        common.use_device(model, machine.device)
    budget = None if memory is None else parse_size(memory, name="--memory")
    if out is not None:
        # What an interrupted search left is replaced by what it finds when it goes on.
        force = force or (resume and run_folder is None and private_run(out).is_dir())
        common.check_model_folder(out, force=force)
    _check_extras(model, documents, label_tree)
    reading.options()
    if where.engine is not None:
        for flag, value in (("--plan", plan_only), ("--memory", memory)):
            if value:
                raise ConfigError(f"{flag}: does not work with --engine; leave it out")
    if where.engine is not None and not many:
        assert out is not None
        together = None
        if model.encoders():
            from labelgrove.cli.together import Training

            threads = where.threads(machine.threads)
            together = Training(
                method, tables, machine.device, threads, corpus, documents, reading, out
            )
            together.check(model)
        with training_run(out, run_folder, resume=resume, force=force, device=None) as run:
            if together is not None:
                assert run is not None
                facts, measured = together.start(where, run.path, quiet=quiet)
            else:
                measured = _fit_shards(
                    model, corpus, run, where, documents, reading, label_tree, console, quiet=quiet
                )
                model.save(out, overwrite=force)
                facts = summary(model, out, None, measured, dev=documents.dev)
        show(console, facts, measured, as_json)
        return
    if str(corpus) != "-":
        existing(corpus)  # before a run folder is made next to it
    device = machine.device if model.encoders() else None
    with training_run(out, run_folder, resume=resume, force=force, device=device) as run:
        if budget is not None:
            require(budget, peak_rss() or 0, "starting labelgrove")
            limit_memory(budget)
        streams = budget is not None and "memory" in model.takes
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
        unknown = None  # why no time can be estimated
        if where.engine is not None:
            unknown = "workers train several models at the same time"
        elif process_count() > 1:
            unknown = "several processes train together"
        elif any(name.startswith("network") for name in stages):
            unknown = "the run folder has a trained network"
        measures = estimate and (plan_only or not quiet) and unknown is None
        plan = plan_training(model, data, calibrate=measures, **given)
        if estimate and unknown is not None:
            plan = replace(plan, notes=(*plan.notes, f"no time is estimated: {unknown}"))
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
        with nullcontext() if where.engine is None else where.open() as engine:
            if engine is not None:
                given["engine"] = engine
            with RichProgress() as progress:
                model.fit(data, callbacks=[] if quiet else [progress], run=run, **given)
        interrupted, chosen = model.interrupted_, model.chosen()
        if chosen is not model:
            model = chosen
            _say_never_predicted(model, data, console, documents)
        wait_for_all(device)  # from here on only the first process needs the run folder
        if not is_first_process():
            return
        measured = None
        if held_out is not None:
            measured = evaluate_model(model, held_out)
            model.dev_metrics_ = measured.evaluation.values
        model.save(out, overwrite=force)
        run.unfinished = interrupted
    facts = summary(model, out, plan, measured, dev=documents.dev)
    if data.texts is not None and model.facts_.given:
        console.print(
            f"predictions need the matrix of {model.facts_.given:,} columns that came with the "
            "texts; a model trained with --set features=own reads texts alone"
        )
    show(console, facts, measured, as_json)


def _fit_shards(
    model: Model,
    corpus: Path,
    run: RunFolder | None,
    where: options.Where,
    documents: options.Documents,
    reading: options.Reading,
    label_tree: Path | None,
    console: Console,
    *,
    quiet: bool,
) -> TimedEvaluation | None:
    """Trains by the workers of an engine, and measures on the documents of --dev."""
    from labelgrove.core.callbacks import RichProgress
    from labelgrove.data.formats import ReadReport
    from labelgrove.data.formats.sharded import read_shards

    if model.workers != "shards" or documents.dense is not None:
        raise UnsupportedError(
            "--engine: trains linear and its settings (parabel, bonsai, ova) and methods with an "
            "encoder on texts, and the members of ensemble and auto; leave it out for "
            f"{model.method} or --dense"
        )
    if documents.features is not None:
        raise UnsupportedError("--engine: a corpus in shards has no matrix; leave out --features")
    given: dict[str, Any] = {}
    how, report = reading.options(), ReadReport()
    with where.open() as engine:
        data = read_shards(
            engine,
            corpus,
            labels=documents.labels,
            all_labels=documents.all_labels,
            options=how,
            report=report,
        )
        console.print(f"{corpus}: {report}")
        if label_tree is not None:
            from labelgrove.labels.given_trees import read_label_groups, read_label_tree

            given["label_tree"], conflicts = read_label_tree(label_tree, data.index)
            groups = read_label_groups(label_tree, data.index)
            data = replace(data, index=data.index.with_groups(groups))
            console.print(f"{label_tree}: {conflicts}")
        held_out = None
        if documents.dev is not None:
            held_out = common.read_corpus(documents.dev, how, index=data.index, console=console)
        with RichProgress() as progress:
            model.fit(data, callbacks=[] if quiet else [progress], run=run, **given)
    if held_out is None:
        return None
    measured = evaluate_model(model, held_out)
    model.dev_metrics_ = measured.evaluation.values
    return measured


def _check_extras(model: Model, documents: options.Documents, label_tree: Path | None) -> None:
    """Raises an error, before the work, if a flag does not fit the method or other flags."""
    for argument, value in (("dense", documents.dense), ("label_tree", label_tree)):
        if value is not None and argument not in model.takes:
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
    path = kept or private_run(out)
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
        if run.unfinished:
            flags = () if kept is None else ("--force",)
            typer.echo(f"Interrupted. {_how_to_continue(path, run.status(), *flags)}", err=True)
        elif kept is None:
            run.remove()


def private_run(out: Path) -> Path:
    """The run folder of a model that is not there yet."""
    return out.with_name(out.name + ".run")


def _how_to_continue(path: Path, status: RunStatus, *flags: str) -> str:
    """The command that continues an interrupted run."""
    if not (status.stages or status.checkpoints):
        return "Nothing was finished yet."
    done = list(dict.fromkeys(stage.name for stage in status.stages))
    steps = {checkpoint.name: checkpoint.step for checkpoint in status.checkpoints}  # the last ones
    done += [f"{name} up to step {step}" for name, step in steps.items()]
    arguments = [argument for argument in sys.argv[1:] if argument != "--resume"]
    command = shlex.join([common.command_name(), *arguments, "--resume", *flags])
    return f"{path} has the finished work ({', '.join(done)}). Continue with:\n  {command}"
