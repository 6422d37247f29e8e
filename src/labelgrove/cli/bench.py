"""labelgrove bench: train and measure several methods, to compare them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Exit, Option

from labelgrove.cli import common, options
from labelgrove.errors import ConfigError


@dataclass(frozen=True)
class Rows:
    """The methods to train."""

    config: Annotated[list[Path], Option(help="TOML file with one table per method. Repeatable.")]
    settings: options.Set = None
    only: Annotated[
        list[str] | None, Option(help="Train only this row, or those like 'Linear*'. Repeatable.")
    ] = None


def bench(
    *,
    methods: Rows,
    data: Annotated[
        list[Path], Option(help="Folder with train.* and test.* or dev.*. Repeatable.")
    ],
    folder: Annotated[
        Path | None, Option("--run", help="Folder for all results. Default: CONFIG.bench.")
    ] = None,
    costs: Annotated[
        bool, Option("--costs", help="Measure prediction on GPU and CPU, one text and batches.")
    ] = False,
    machine: options.Machine,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object per row.")] = False,
) -> None:
    """Train and measure several methods, and compare them with published numbers.

    Run the same command again to continue an interrupted bench. Finished rows are reused. --set
    applies to all rows that have the setting. The first --config goes with the first --data, and
    so on; a single one goes with all.

    Example: labelgrove bench --config bench.toml --data corpus --run runs/bench
    """
    from labelgrove.core.params import read_toml
    from labelgrove.experiments.bench.config import Bench
    from labelgrove.experiments.bench.costs import Costs, costs_table
    from labelgrove.experiments.bench.run import BenchFolder
    from labelgrove.experiments.bench.table import bench_table

    console = common.stderr_console()
    common.check_device(machine.device)
    pairs = _pairs(methods.config, data)
    if len({(file.stem, corpus.name) for file, corpus in pairs}) < len(pairs):
        raise ConfigError(
            "bench: two pairs of --config and --data have the same names, so they would write "
            "to the same folder; run them apart"
        )
    only, flags = methods.only or [], methods.settings or []
    benches = [
        Bench.from_config(read_toml(file), settings=flags, folder=file.parent, only=only)
        for file, _ in pairs
    ]
    how = Costs(machine.device, machine.threads) if costs else None
    flags = ["--device", machine.device]
    flags += ["--threads", str(machine.threads)] if machine.threads else []
    records = []
    for (file, corpus), rows in zip(pairs, benches, strict=True):
        place = folder or file.with_name(f"{file.stem}.bench")
        if len(pairs) > 1:
            place /= f"{file.stem}-{corpus.name}"
        with common.resumable(place):
            opened = BenchFolder(rows, corpus, place, flags=flags, device=machine.device)
            part = opened.run(only=only, costs=how, say=console.print)
        if not as_json:
            sys.stdout.write(bench_table(part) + "\n")
        records += part
    if as_json:
        for record in records:
            common.print_json(record)
    elif costs:
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
