"""labelgrove train: a corpus in, a model folder out."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelgrove.cli import common, options
from labelgrove.methods import METHODS

if TYPE_CHECKING:
    from labelgrove.disk.run_folder import RunFolder, RunStatus


def train(
    corpus: Annotated[Path, typer.Argument(metavar="TRAIN", help="Training corpus, any format.")],
    out: Annotated[Path | None, typer.Option("--out", help="Model folder to write.")] = None,
    method: Annotated[
        str | None,
        typer.Option("--method", help=f"{', '.join(METHODS)}; default linear, or the config's."),
    ] = None,
    dev: Annotated[
        Path | None, typer.Option("--dev", help="Held-out corpus to report metrics on.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="TOML file with parameter tables.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="One parameter, e.g. ranker.C=2; repeatable.")
    ] = None,
    plan_only: Annotated[
        bool, typer.Option("--plan", help="Say what training would take, and do not train.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted run of the same --out.")
    ] = False,
    run_folder: Annotated[
        Path | None,
        typer.Option(
            "--run", help="Keep finished stages here for reuse; default OUT.run, removed."
        ),
    ] = None,
    label_tree: Annotated[
        Path | None,
        typer.Option("--label-tree", help="Thesaurus (TSV: id, broader ids) or tree (JSON)."),
    ] = None,
    dense: options.Dense = None,
    dev_dense: Annotated[
        Path | None, typer.Option("--dev-dense", help="The same for --dev.")
    ] = None,
    labels: options.Labels = None,
    force: options.Force = False,
    seed: options.Seed = None,
    threads: options.Threads = None,
    device: options.Device = "auto",
    memory: options.Memory = None,
    skip_bad: options.SkipBad = False,
    input_format: options.Format = None,
    text_field: options.TextField = "text",
    labels_field: options.LabelsField = "labels",
    id_field: options.IdField = "id",
    read: options.Read = None,
    estimate: Annotated[
        bool,
        typer.Option(
            help="Whether the plan tells a time, for which a sample is trained first.",
        ),
    ] = True,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Train a model.

    Says first what it will take: sizes, memory, and a time that a small sample measures here; last
    how good the model is, where the time went, and what to do next. --plan stops after the first.

    Example: labelgrove train train.jsonl.xz --dev dev.jsonl.xz --out model --set ranker.C=2

    Example: labelgrove train train.jsonl.xz --method cascadexml --plan
    """
    from labelgrove.cli.train_summary import print_summary, summary
    from labelgrove.core.callbacks import RichProgress
    from labelgrove.core.memory import limit_memory, parse_size, peak_rss, require
    from labelgrove.core.processes import is_first_process, process_count, wait_for_all
    from labelgrove.data.splits import repeated_texts
    from labelgrove.errors import DataError
    from labelgrove.formats.files import existing
    from labelgrove.methods import create
    from labelgrove.planning.plan import plan_training

    if out is None and not plan_only:
        raise typer.BadParameter("say where the model shall go", param_hint="--out")
    quiet = quiet or not is_first_process()
    console = common.stderr_console(quiet=quiet)
    model = create(*configured(method, config, settings or [], seed=seed, threads=threads))
    common.use_device(model, device)
    budget = None if memory is None else parse_size(memory, name="--memory")
    how = common.read_options(input_format, text_field, labels_field, id_field, skip_bad, read)
    _check_out(None if plan_only else out, force=force)
    _check_extras(model, dev, dense, dev_dense, label_tree)
    if str(corpus) != "-":
        existing(corpus)  # before the run folder lies beside it
    place = None if plan_only else out
    where = getattr(model, "device", None)
    with _training_run(place, run_folder, resume=resume, force=force, device=where) as run:
        if budget is not None:
            require(budget, peak_rss() or 0, "starting labelgrove")
            limit_memory(budget)
        documents = common.read_corpus(
            corpus, labels=labels, dense=dense, options=how, console=console
        )
        common.require_labels(documents, corpus, labels_field)
        held_out = None
        if dev is not None:
            held_out = common.read_corpus(
                dev, index=documents.index, dense=dev_dense, options=how, console=console
            )
            if held_out.labels.nnz == 0 and not held_out.unknown.any():
                raise DataError(f"{dev}: no document has a label, so there is nothing to measure")
            if held_out.texts is not None and documents.texts is not None:
                known = repeated_texts(held_out.texts, documents.texts)
                if known:
                    counts = f"{known:,} of {len(held_out):,} texts"
                    note = f"{dev}: {counts} are in {corpus}, too: their numbers flatter"
                    console.print(note, markup=False)
        given: dict[str, Any] = {}
        if label_tree is not None:
            from labelgrove.labels.given_trees import read_label_groups, read_label_tree

            given["label_tree"], settled = read_label_tree(label_tree, documents.index)
            groups = read_label_groups(label_tree, documents.index)  # for masks at prediction
            documents = replace(documents, index=documents.index.with_groups(groups))
            console.print(f"{label_tree}: {settled}", markup=False)
        stages = [] if run is None else [stage.name for stage in run.status().stages]
        # What is timed is a training. With several processes the others would have to join in, and
        # of one that begins with a trained network it says nothing.
        trained = any(name.startswith("network") for name in stages)
        worth_timing = process_count() == 1 and not trained
        measures = estimate and (plan_only or not quiet) and worth_timing
        plan = plan_training(model, documents, calibrate=measures, **given)
        for line in plan.lines():
            console.print(line, markup=False)
        if run is not None and stages:
            console.print(f"  note     what fits of {run.path} is used again", markup=False)
        if run is None:
            if as_json:
                common.print_json(plan.to_json())
            return
        if budget is not None:
            what = f"training {model.method} on {len(documents):,} documents"
            require(budget, plan.memory_bytes, what)
        with RichProgress() as progress:
            model.fit(documents, callbacks=[] if quiet else [progress], run=run, **given)
        wait_for_all(where)  # nobody needs the run folder any longer
        if not is_first_process():
            return
        assert out is not None
        measured = None
        if held_out is not None:
            measured = common.evaluate_model(model, held_out)
            model.dev_metrics_ = measured.evaluation.values
        model.save(out, overwrite=force)
    told = summary(model, out, plan, measured, dev=dev)
    if as_json:
        common.print_json(told)
    else:
        print_summary(console, told, measured)


def _check_out(out: Path | None, *, force: bool) -> None:
    """Says before the work, not after it, that the model could not be put there."""
    from labelgrove.disk.model_folder import check_replaceable
    from labelgrove.errors import ConfigError

    if out is not None and out.exists():
        if not force:
            raise ConfigError(f"{out} exists; add --force to replace it, or choose another --out")
        check_replaceable(out)


def _check_extras(
    model: Any,
    dev: Path | None,
    dense: Path | None,
    dev_dense: Path | None,
    label_tree: Path | None,
) -> None:
    """Says before the work that a flag does not fit the method or the other flags."""
    import inspect

    from labelgrove.errors import ConfigError, UnsupportedError

    known = inspect.signature(model.fit).parameters
    for flag, argument, value in (
        ("--dense", "dense", dense),
        ("--label-tree", "label_tree", label_tree),
    ):
        if value is not None and argument not in known:
            raise UnsupportedError(
                f"{flag}: the method {model.method} has no use for it; leave it out or train linear"
            )
    if dev is not None and dense is not None and dev_dense is None:
        raise ConfigError("--dev-dense is needed: the model will want dense rows of --dev, too")
    if dev_dense is not None and (dev is None or dense is None):
        raise ConfigError("--dev-dense goes with --dev and --dense")


@contextmanager
def _training_run(
    out: Path | None, kept: Path | None, *, resume: bool, force: bool, device: str | None
) -> Iterator[RunFolder | None]:
    """The run folder while training. A private one stays only where it is worth resuming."""
    from labelgrove.core.processes import is_first_process, wait_for_all
    from labelgrove.disk.run_folder import RunFolder
    from labelgrove.errors import ConfigError

    if out is None:
        yield None
        return

    if not is_first_process():
        wait_for_all(device)  # the first one has tidied up
    path = kept or out.with_name(out.name + ".run")
    if force and not resume and kept is None and path.exists():
        # Opened before it goes: refuses where it is no run folder, or another process uses it.
        with RunFolder(path, resume=True) as old:
            old.remove()
    with RunFolder(path, resume=resume or kept is not None) as run:
        if is_first_process():
            wait_for_all(device)
        try:
            yield run
        except BaseException as error:
            status = run.status()
            # After a refused setting, what took seconds would only stand in the way of another try.
            costly = any(stage.name.startswith("network") for stage in status.stages)
            refused = isinstance(error, ConfigError)
            worth_resuming = bool(status.checkpoints or costly or (status.stages and not refused))
            if kept is None and not worth_resuming:
                run.remove()
            else:
                run.log({"kind": "run_failed", "why": str(error) or type(error).__name__})
            if not isinstance(error, KeyboardInterrupt):
                raise
            typer.echo(f"interrupted; {_how_to_go_on(path, status)}", err=True)
            raise typer.Exit(common.INTERRUPTED) from None
        if kept is None:
            run.remove()


def configured(
    method: str | None,
    config: Path | None,
    settings: list[str],
    *,
    seed: int | None,
    threads: int | None,
) -> tuple[str, dict[str, Any]]:
    """The method and its tables: config file, --set and flags, in rising precedence."""
    from labelgrove.core.params import merge_settings, read_toml
    from labelgrove.errors import ConfigError

    tables = merge_settings({} if config is None else read_toml(config), settings)
    named = tables.pop("method", "ensemble" if "members" in tables else None)
    if method is not None and named is not None and method != named:
        raise ConfigError(f"--method {method} contradicts method = {named!r} of {config}")
    if seed is not None:
        tables["random_state"] = seed
    if threads is not None:
        tables["n_jobs"] = threads
    return method or named or "linear", tables


def _how_to_go_on(path: Path, status: RunStatus) -> str:
    """The command that continues from what an interrupted run left behind."""
    if not (status.stages or status.checkpoints):
        return "nothing was done yet"
    done = list(dict.fromkeys(stage.name for stage in status.stages))
    steps = {one.name: one.step for one in status.checkpoints}  # the last of each
    done += [f"{name} up to step {step}" for name, step in steps.items()]
    arguments = [a for a in sys.argv[1:] if a != "--resume"]
    command = shlex.join([common.command_name(), *arguments, "--resume"])
    return f"{path} keeps what was done ({', '.join(done)}). Go on with:\n  {command}"
