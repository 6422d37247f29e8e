"""labelgrove tune: a search for settings, within a time budget."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelgrove.cli import common, options
from labelgrove.methods import METHODS

if TYPE_CHECKING:
    from labelgrove.tuning.search import Tuned


def tune(
    corpus: Annotated[Path, typer.Argument(metavar="TRAIN", help="Training corpus, any format.")],
    budget: Annotated[
        str, typer.Option("--budget", help="No trial begins after this time: 90s, 10m, 1.5h.")
    ] = "10m",
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, help="Nor after so many trials.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option("--method", help=f"{', '.join(METHODS)}; default linear, or the config's."),
    ] = None,
    dev: Annotated[
        Path | None,
        typer.Option("--dev", help="Corpus that chooses; default: a tenth of TRAIN, held out."),
    ] = None,
    metric: Annotated[
        str, typer.Option("--metric", help="What to maximise, e.g. P@1, nDCG@5, PSP@5, R@10.")
    ] = "nDCG@5",
    space: Annotated[
        Path | None,
        typer.Option(
            "--space", help="TOML file with a table named space; default: the method's own."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="TOML file with settings all trials share.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="One such setting; repeatable.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Config file to write.")] = Path("tuned.toml"),
    study: Annotated[
        Path | None,
        typer.Option("--study", help="Folder of the search, to go on with; default OUT.study."),
    ] = None,
    halving: Annotated[
        bool,
        typer.Option(help="Look at a quarter of the documents first, and give poor trials up."),
    ] = True,
    dense: options.Dense = None,
    dev_dense: Annotated[
        Path | None, typer.Option("--dev-dense", help="The same for --dev.")
    ] = None,
    labels: options.Labels = None,
    force: options.Force = False,
    seed: options.Seed = None,
    threads: options.Threads = None,
    device: options.Device = "auto",
    skip_bad: options.SkipBad = False,
    input_format: options.Format = None,
    text_field: options.TextField = "text",
    labels_field: options.LabelsField = "labels",
    id_field: options.IdField = "id",
    read: options.Read = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Search for better settings of a method.

    Trials are compared on --dev, or on held-out documents of TRAIN: report the result on others.
    They share features, trees and embeddings. The same command continues a search.

    Example: labelgrove tune train.jsonl --dev dev.jsonl --budget 10m --out tuned.toml

    Example: labelgrove tune train.jsonl --method cascadexml --space space.toml --metric PSP@5
    """
    from labelgrove.cli.train import configured
    from labelgrove.core.callbacks import RichProgress
    from labelgrove.core.params import read_toml
    from labelgrove.disk.atomic import write_file
    from labelgrove.errors import ConfigError
    from labelgrove.methods import create
    from labelgrove.tuning.search import parse_budget, tune

    console = common.stderr_console(quiet=quiet)
    parse_budget(budget)
    name, base = configured(method, config, settings or [], seed=seed, threads=threads)
    common.check_device(device)
    if device != "auto" and hasattr(create(name, base), "device"):
        base["device"] = device  # methods without a network have no choice
    folder = study or out.with_name(out.name + ".study")
    if out.exists() and not force and not folder.exists():
        raise ConfigError(f"{out} exists; add --force to replace it, or choose another --out")
    if dense is not None and dev is not None and dev_dense is None:
        raise ConfigError("--dev-dense is needed: trials want dense rows of --dev, too")
    wanted = None
    if space is not None:
        tables = read_toml(space)
        wanted = tables.get("space")
        if set(tables) != {"space"} or not isinstance(wanted, dict):
            raise ConfigError(f"{space}: must hold one table, [space], and nothing else")
    how = common.read_options(input_format, text_field, labels_field, id_field, skip_bad, read)
    documents = common.read_corpus(corpus, labels=labels, dense=dense, options=how, console=console)
    common.require_labels(documents, corpus, labels_field)
    held_out = None
    if dev is not None:
        held_out = common.read_corpus(
            dev, index=documents.index, dense=dev_dense, options=how, console=console
        )
    console.print(
        f"tuning {name} for {budget} by {metric} on "
        f"{'a tenth of the documents' if held_out is None else dev}; the search is in {folder}",
        markup=False,
    )
    with RichProgress() as progress:
        try:
            found = tune(
                name,
                documents,
                held_out,
                budget=budget,
                trials=trials,
                metric=metric,
                space=wanted,
                base=base,
                folder=folder,
                halving=halving,
                seed=seed or 0,
                callbacks=[] if quiet else [progress],
                say=lambda text: console.print(text, markup=False),
            )
        except KeyboardInterrupt:
            progress.close()
            typer.echo(f"interrupted; the same command goes on with {folder}", err=True)
            raise typer.Exit(common.INTERRUPTED) from None
    write_file(out, found.to_toml().encode(), exclusive=False)
    reuse = "" if held_out is None else f" --run {shlex.quote(str(folder / 'stages'))}"
    following = (
        f"{common.command_name()} train {shlex.quote(str(corpus))} --config "
        f"{shlex.quote(str(out))} --out model{reuse}"
    )
    if as_json:
        common.print_json(found.to_json() | {"config": str(out), "next": [following]})
        return
    _print(found, out, following)


def _print(found: Tuned, out: Path, following: str) -> None:
    console: Any = common.stdout_console()
    console.print(found.table(), markup=False)
    if found.default_value is not None:
        gain = 100 * (found.value - found.default_value)
        console.print(
            f"{found.metric} {100 * found.value:.2f} with the best settings, {gain:+.2f} against "
            "the defaults, on the documents that chose them: expect less of others"
        )
    console.print(f"config: {out}\nnext:\n  {following}", markup=False)
