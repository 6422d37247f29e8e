"""labelgrove bench: train and measure several methods, to compare them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from typer import Exit, Option

from labelgrove.cli import common, options


def bench(
    *,
    config: Annotated[Path, Option(help="TOML file with one table per method.")],
    settings: options.Set = None,
    only: Annotated[
        list[str] | None, Option(help="Train only this row, or those like 'Linear*'. Repeatable.")
    ] = None,
    data: Annotated[Path, Option(help="Folder with train.* and test.* or dev.*.")],
    folder: Annotated[
        Path | None, Option("--run", help="Folder for all results. Default: CONFIG.bench.")
    ] = None,
    machine: options.Machine,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object per row.")] = False,
) -> None:
    """Train and measure several methods, and compare them with published numbers.

    Run the same command again to continue an interrupted bench. Finished rows are reused. --set
    applies to all rows that have the setting.

    Example: labelgrove bench --config bench.toml --data corpus --run runs/bench
    """
    from labelgrove.core.params import read_toml
    from labelgrove.experiments.bench.config import Bench, bench_table
    from labelgrove.experiments.bench.run import BenchFolder

    console = common.stderr_console()
    common.check_device(machine.device)
    chosen = only or []
    rows = Bench.from_config(
        read_toml(config), settings=settings or [], folder=config.parent, only=chosen
    )
    flags = ["--device", machine.device]
    flags += ["--threads", str(machine.threads)] if machine.threads else []
    folder = folder or config.with_name(f"{config.stem}.bench")
    with common.resumable(folder):
        place = BenchFolder(rows, data, folder, flags=flags, device=machine.device)
        records = place.run(only=chosen, say=console.print)
    if as_json:
        for record in records:
            common.print_json(record)
    else:
        sys.stdout.write(bench_table(records) + "\n")
    failed = [record for record in records if "error" in record]
    for record in failed:
        console.print(f"{record['row']}: {record['error']}")
    if failed:
        raise Exit(common.USER_ERROR)
