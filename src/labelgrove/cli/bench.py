"""labelgrove bench: several methods on one corpus, in one table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from typer import Exit, Option

from labelgrove.cli import common, options


def bench(
    *,
    config: Annotated[Path, Option(help="TOML file with one table per method.")],
    data: Annotated[Path, Option(help="Folder with train.* and test.* or dev.*.")],
    folder: Annotated[
        Path | None,
        Option("--run", help="Folder for models, stages and results. Default: CONFIG.bench."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        Option("--set", help="One parameter for all rows that have it. Repeatable."),
    ] = None,
    only: Annotated[list[str] | None, Option(help="Train only this row. Repeatable.")] = None,
    machine: options.Machine,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object per row.")] = False,
) -> None:
    """Train and measure several methods, and compare them with published numbers.

    Run the same command again to continue an interrupted bench. Finished rows are reused.

    Example: labelgrove bench --config bench.toml --data corpus --run runs/bench
    """
    from labelgrove.benching.config import Bench
    from labelgrove.benching.run import run_bench
    from labelgrove.benching.table import bench_table
    from labelgrove.params import read_toml

    console = common.stderr_console()
    common.check_device(machine.device)
    rows = Bench.from_config(read_toml(config), settings=settings or [], folder=config.parent)
    flags = [] if machine.threads is None else ["--threads", str(machine.threads)]
    folder = folder or config.with_name(f"{config.stem}.bench")
    with common.resumable(folder):
        records = run_bench(
            rows,
            data,
            folder,
            only=only or [],
            flags=[*flags, "--device", machine.device],
            settle=lambda model: common.use_device(model, machine.device),
            say=console.print,
        )
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
