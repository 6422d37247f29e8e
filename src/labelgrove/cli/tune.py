"""labelgrove tune and bench: many trainings, to search for settings or to compare methods."""

from __future__ import annotations

import shlex
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from labelgrove.cli import common, options
from labelgrove.errors import ConfigError


def tune(
    corpus: options.TrainCorpus,
    *,
    budget: Annotated[str, Option(help="Start no trial after this time: 90s, 10m, 1.5h.")] = "10m",
    trials: Annotated[int | None, Option(min=1, help="Stop after this many trials.")] = None,
    settings: options.Settings,
    metric: Annotated[str, Option(help="Metric to maximise, e.g. P@1 or PSP@5.")] = "nDCG@5",
    space: Annotated[
        Path | None, Option(help="TOML file with a table named space. Default: the method's own.")
    ] = None,
    out: Annotated[Path, Option(help="Config file to write.")] = Path("tuned.toml"),
    study: Annotated[Path | None, Option(help="Folder of the search. Default: OUT.study.")] = None,
    halving: Annotated[
        bool, Option(help="Try a quarter of the documents first, and stop poor trials there.")
    ] = True,
    documents: options.Documents,
    force: options.Force = False,
    where: options.Where,
    machine: options.Machine,
    reading: options.Reading,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Search for better settings of a method.

    Compares trials on --dev, or on a tenth of TRAIN. Report the result on other documents. --config
    and --set apply to all trials, which share features, trees and embeddings. Run the same command
    again to continue a search. With --engine ray, every worker runs a trial.

    Example: labelgrove tune train.jsonl --dev dev.jsonl --budget 10m --out tuned.toml

    Example: labelgrove tune train.jsonl --method cascadexml --space space.toml --metric PSP@5
    """
    from labelgrove.core.callbacks import RichProgress
    from labelgrove.core.durations import parse_duration
    from labelgrove.core.params import read_toml
    from labelgrove.disk.atomic import write_file
    from labelgrove.experiments.tuning.search import load_optuna, tune
    from labelgrove.methods import create

    console = common.stderr_console(quiet=quiet)
    where.check()
    parse_duration(budget, name="budget")
    name, base = settings.tables(machine.threads, default="linear")
    common.check_device(machine.device)
    device = machine.device
    if device != "auto" and create(name, base).encoders():
        base["device"] = device  # methods without a network have no choice
    folder = study or out.with_name(out.name + ".study")
    common.refuse_existing([out], force=force or folder.exists())
    load_optuna()  # reading the corpus may take minutes, and would be in vain
    documents.check()
    search_space = None
    if space is not None:
        tables = read_toml(space)
        search_space = tables.get("space")
        if set(tables) != {"space"} or not isinstance(search_space, dict):
            raise ConfigError(f"{space}: must contain one table, [space], and nothing else")
    data, held_out = documents.read(corpus, reading, console)
    part = "a tenth of the documents" if held_out is None else documents.dev
    console.print(f"tuning {name} for {budget} by {metric} on {part}; study folder: {folder}")
    opened = nullcontext() if where.engine is None else where.open()
    with common.resumable(folder), opened as engine, RichProgress() as progress:
        result = tune(
            name,
            data,
            held_out,
            budget=budget,
            trials=trials,
            metric=metric,
            space=search_space,
            base=base,
            folder=folder,
            halving=halving,
            seed=settings.seed or 0,
            engine=engine,
            callbacks=[] if quiet else [progress],
            say=console.print,
        )
    write_file(out, result.to_toml().encode(), exclusive=False)
    train = [common.command_name(), "train", str(corpus), "--config", str(out), "--out", "model"]
    # Stages of a search on a part of TRAIN are of no use to training on all of it.
    reuse = [] if held_out is None else ["--run", str(folder / "stages")]
    table = ["--all-labels"] if documents.all_labels else []
    command = shlex.join(train + table + reuse)
    if as_json:
        common.print_json(result.to_json() | {"config": str(out), "next": [command]})
        return
    stdout = common.stdout_console()
    stdout.print(result.table())
    if result.default_value is not None:
        gain = 100 * (result.value - result.default_value)
        stdout.print(
            f"{result.metric} {100 * result.value:.2f} with the best settings, {gain:+.2f} against "
            "the defaults. These documents chose the settings: expect a smaller gain on others."
        )
    stdout.print(f"config: {out}\nnext:\n  {command}")


def bench(
    models: Annotated[
        list[Path] | None, Argument(metavar="[MODEL]...", help="Trained models, for --costs.")
    ] = None,
    *,
    config: Annotated[
        list[Path] | None, Option(help="TOML file with one table per method. Repeatable.")
    ] = None,
    data: Annotated[
        list[Path], Option(help="Folder with train.* and test.* or dev.*. Repeatable.")
    ],
    folder: Annotated[
        Path | None, Option("--run", help="Folder for all results. Default: CONFIG.bench.")
    ] = None,
    settings: options.Set = None,
    only: Annotated[list[str] | None, Option(help="Train only this row. Repeatable.")] = None,
    costs: Annotated[
        bool, Option("--costs", help="Measure prediction on GPU and CPU, one text and batches.")
    ] = False,
    where: options.Where,
    machine: options.Machine,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object per row.")] = False,
) -> None:
    """Train and measure several methods, and compare them with published numbers.

    Run the same command again to continue an interrupted bench. Finished rows are reused. --set
    applies to all rows that have the setting. The first --config goes with the first --data, and
    so on; a single one goes with all. With --engine ray, every worker trains a row; rows are
    measured here, when all are trained.

    Example: labelgrove bench --config bench.toml --data corpus --run runs/bench

    Example: labelgrove bench model another-model --costs --data corpus
    """
    from labelgrove.core.params import read_toml
    from labelgrove.experiments.bench.config import Bench
    from labelgrove.experiments.bench.costs import Costs, costs_table
    from labelgrove.experiments.bench.run import BenchFolder, price_models
    from labelgrove.experiments.bench.table import bench_table

    console = common.stderr_console()
    where.check()
    common.check_device(machine.device)
    if bool(models) == bool(config) or (models and not costs):
        raise ConfigError("bench: give --config FILE, or the folders of trained models and --costs")
    if models and (only or settings or where.engine):
        raise ConfigError(
            "bench: --only, --set and --engine are for --config; trained models take none of them"
        )
    how = Costs(machine.device, machine.threads) if costs else None
    done = common.print_json if as_json and costs else lambda _: None
    records = []
    if models and how:
        folder = folder or models[0].with_name(f"{models[0].name}.bench")
        with common.resumable(folder):
            for corpus in data:
                records += price_models(
                    models, corpus, folder, costs=how, say=console.print, done=done
                )
    else:
        pairs = _pairs(config or [], data)
        if len({(file.stem, corpus.name) for file, corpus in pairs}) < len(pairs):
            raise ConfigError(
                "bench: two pairs of --config and --data have the same names, so they would write "
                "to the same folder; run them apart"
            )
        benches = [
            Bench.from_config(read_toml(file), settings=settings or [], folder=file.parent)
            for file, _ in pairs
        ]
        threads = where.threads(machine.threads)
        flags = ["--device", machine.device, *(["--threads", str(threads)] if threads else [])]
        for (file, corpus), rows in zip(pairs, benches, strict=True):
            place = folder or file.with_name(f"{file.stem}.bench")
            if len(pairs) > 1:
                place /= f"{file.stem}-{corpus.name}"
            opened = nullcontext() if where.engine is None else where.open()
            with common.resumable(place), opened as engine:
                opened_bench = BenchFolder(rows, corpus, place, flags=flags, device=machine.device)
                part = opened_bench.run(
                    only=only or [], costs=how, engine=engine, say=console.print, done=done
                )
            if not as_json:
                sys.stdout.write(bench_table(part) + "\n")
            records += part
    if as_json and not costs:
        for record in records:
            common.print_json(record)
    if costs and not as_json:
        sys.stdout.write(costs_table(records) + "\n")
    failed = [record for record in records if "error" in record]
    for record in failed:
        console.print(f"{record['row']}: {record['error']}")
    if failed:
        raise Exit(common.USER_ERROR)


def _pairs(configs: list[Path], data: list[Path]) -> list[tuple[Path, Path]]:
    """Which config runs on which corpus."""
    if 1 not in (len(configs), len(data)) and len(configs) != len(data):
        raise ConfigError(
            f"bench: {len(configs)} --config and {len(data)} --data do not fit together; give one "
            "of a kind, or as many of both"
        )
    count = max(len(configs), len(data))
    longer = [(files * count)[:count] for files in (configs, data)]
    return list(zip(*longer, strict=True))
