"""labelgrove bench: train and measure several methods, to compare them."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from labelgrove.cli import common, options
from labelgrove.errors import ConfigError


def bench(
    models: Annotated[
        list[Path] | None, Argument(metavar="[MODEL]...", help="Trained models, for --costs.")
    ] = None,
    *,
    config: Annotated[Path | None, Option(help="TOML file with one table per method.")] = None,
    settings: options.Set = None,
    only: Annotated[
        list[str] | None, Option(help="Train only this row, or those like 'Linear*'. Repeatable.")
    ] = None,
    data: Annotated[Path, Option(help="Folder with train.* and test.* or dev.*.")],
    folder: Annotated[
        Path | None, Option("--run", help="Folder for all results. Default: CONFIG.bench.")
    ] = None,
    costs: Annotated[
        bool, Option("--costs", help="Measure prediction on GPU and CPU, one text and batches.")
    ] = False,
    where: options.Where,
    machine: options.Machine,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object per row.")] = False,
) -> None:
    """Train and measure several methods, and compare them with published numbers.

    Run the same command again to continue an interrupted bench. Finished rows are reused. --set
    applies to all rows that have the setting. With --engine ray, every worker trains a row; rows
    are measured here, when all are trained.

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
    if models and how:
        folder = folder or models[0].with_name(f"{models[0].name}.bench")
        with common.resumable(folder):
            records = price_models(models, data, folder, costs=how, say=console.print, done=done)
    elif config:
        rows = Bench.from_config(
            read_toml(config), settings=settings or [], folder=config.parent, only=only or []
        )
        threads = where.threads(machine.threads)
        flags = ["--device", machine.device, *(["--threads", str(threads)] if threads else [])]
        folder = folder or config.with_name(f"{config.stem}.bench")
        opened = nullcontext() if where.engine is None else where.open()
        with common.resumable(folder), opened as engine:
            place = BenchFolder(rows, data, folder, flags=flags, device=machine.device)
            records = place.run(
                only=only or [], costs=how, engine=engine, say=console.print, done=done
            )
        if not as_json:
            sys.stdout.write(bench_table(records) + "\n")
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
