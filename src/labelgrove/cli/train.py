"""labelgrove train: a corpus in, a model folder out."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelgrove.cli import common, options
from labelgrove.methods import METHODS

if TYPE_CHECKING:
    from rich.console import Console

    from labelgrove.corpus import Corpus
    from labelgrove.runs import RunFolder


def train(
    corpus: Annotated[Path, typer.Argument(metavar="TRAIN", help="Training corpus, any format.")],
    out: Annotated[Path, typer.Option("--out", help="Model folder to write.")],
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
    as_json: options.Json = False,
) -> None:
    """Train a model.

    Example: labelgrove train train.jsonl.xz --dev dev.jsonl.xz --out model --set ranker.C=2
    """
    from labelgrove.callbacks import RichProgress
    from labelgrove.memory import limit_memory, parse_size, peak_rss, require

    console = common.stderr_console()
    model = _configured(method, config, settings or [], seed=seed, threads=threads)
    common.use_device(model, device)
    budget = None if memory is None else parse_size(memory, name="--memory")
    how = common.read_options(input_format, text_field, labels_field, id_field, skip_bad, read)
    _check_out(out, force=force)
    _check_extras(model, dev, dense, dev_dense, label_tree)
    with _training_run(out, run_folder, resume=resume, force=force) as run:
        if budget is not None:
            require(budget, peak_rss() or 0, "starting labelgrove")
            limit_memory(budget)
        documents = common.read_corpus(
            corpus, labels=labels, dense=dense, options=how, console=console
        )
        held_out = None
        if dev is not None:
            held_out = common.read_corpus(
                dev, index=documents.index, dense=dev_dense, options=how, console=console
            )
        given: dict[str, Any] = {}
        if label_tree is not None:
            from labelgrove.tree_given import read_label_groups, read_label_tree

            given["label_tree"], settled = read_label_tree(label_tree, documents.index)
            groups = read_label_groups(label_tree, documents.index)  # for masks at prediction
            documents = replace(documents, index=documents.index.with_groups(groups))
            console.print(f"{label_tree}: {settled}", markup=False)
        needed = model.estimate_memory(documents)
        _print_plan(console, model, documents, needed)
        if budget is not None:
            require(budget, needed, f"training {model.method} on {len(documents):,} documents")
        with RichProgress() as progress:
            model.fit(documents, callbacks=[progress], run=run, **given)
        model.save(out, overwrite=force)
    measured = None if held_out is None else common.evaluate_model(model, held_out)
    _report(console, model, out, measured, as_json=as_json)


def _check_out(out: Path, *, force: bool) -> None:
    """Says before the work, not after it, that the model could not be put there."""
    from labelgrove.errors import ConfigError
    from labelgrove.store import check_replaceable

    if out.exists():
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
    out: Path, kept: Path | None, *, resume: bool, force: bool
) -> Iterator[RunFolder]:
    """The run folder while training. A private one stays only where it is worth resuming."""
    from labelgrove.runs import RunFolder, run_status

    path = kept or out.with_name(out.name + ".run")
    if force and not resume and kept is None and path.exists():
        run_status(path)  # refuses to go on where this is no run folder
        shutil.rmtree(path)
    with RunFolder(path, resume=resume or kept is not None) as run:
        try:
            yield run
        except BaseException as error:
            worth_resuming = bool(run.status().stages)
            if kept is None and not worth_resuming:
                run.remove()
            if not isinstance(error, KeyboardInterrupt):
                raise
            how = f"the same command with --resume continues from {path}"
            typer.echo(
                f"interrupted; {how if worth_resuming else 'nothing was done yet'}", err=True
            )
            raise typer.Exit(common.INTERRUPTED) from None
        if kept is None:
            run.remove()


def _configured(
    method: str | None,
    config: Path | None,
    settings: list[str],
    *,
    seed: int | None,
    threads: int | None,
) -> Any:
    """The estimator that defaults, config file, --set and flags describe, in rising precedence."""
    from labelgrove.errors import ConfigError
    from labelgrove.methods import create
    from labelgrove.params import merge_settings, read_toml

    tables = merge_settings({} if config is None else read_toml(config), settings)
    named = tables.pop("method", "ensemble" if "members" in tables else None)
    if method is not None and named is not None and method != named:
        raise ConfigError(f"--method {method} contradicts method = {named!r} of {config}")
    if seed is not None:
        tables["random_state"] = seed
    if threads is not None:
        tables["n_jobs"] = threads
    return create(method or named or "linear", tables)


def _print_plan(console: Console, model: Any, corpus: Corpus, needed: int) -> None:
    from labelgrove.memory import format_size

    per_document = corpus.labels.nnz / len(corpus)
    console.print(
        f"plan: [bold]{model.method}[/bold] on {len(corpus):,} documents, "
        f"{len(corpus.index):,} labels, {per_document:.2f} labels per document; "
        f"about {format_size(needed)} of memory"
    )


def _report(
    console: Console,
    model: Any,
    out: Path,
    measured: common.TimedEvaluation | None,
    *,
    as_json: bool,
) -> None:
    from labelgrove.memory import format_size, peak_rss
    from labelgrove.store import model_size

    total = sum(t.wall for t in model.timings_.values())
    size = model_size(out)
    if as_json:
        timings = {name: round(t.wall, 3) for name, t in model.timings_.items()}
        cpu = sum(t.cpu for t in model.timings_.values())
        summary: dict[str, Any] = {
            "model": str(out),
            "method": model.method,
            "documents": model.facts_.documents,
            "labels": len(model.index_),
            "train_seconds": round(total, 3),
            "train_cpu_seconds": round(cpu, 3),
            "stages": timings,
            "model_bytes": size,
            "peak_memory_bytes": peak_rss(),
        }
        if measured is not None:
            summary["dev"] = measured.to_json()
        common.print_json(summary)
        return
    shares = ", ".join(
        f"{name} {common.human_seconds(t.wall)}" for name, t in model.timings_.items()
    )
    console.print(f"trained in {common.human_seconds(total)} ({shares})")
    if measured is not None:
        console.print(measured.evaluation.table())
    console.print(f"model: {out} ({format_size(size)})", markup=False)
