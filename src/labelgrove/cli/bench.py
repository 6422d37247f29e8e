"""labelgrove bench: several methods on one corpus, in one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from labelgrove.cli import common, options


def bench(
    config: Annotated[Path, typer.Option("--config", help="TOML file with a table per method.")],
    data: Annotated[Path, typer.Option("--data", help="Folder with train.* and test.* or dev.*.")],
    folder: Annotated[
        Path | None,
        typer.Option("--run", help="Folder for models, stages and results; default CONFIG.bench."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="One parameter of all rows that know it; repeatable."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Train this row only; repeatable.")
    ] = None,
    threads: options.Threads = None,
    device: options.Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines, one per row.")] = False,
) -> None:
    """Train and measure several methods, and print them beside published numbers.

    A repeated bench takes finished rows as they are, and continues one that was interrupted.

    Example: labelgrove bench --config bench.toml --data corpus --run runs/bench
    """
    import sys

    from labelgrove.benching.config import Bench
    from labelgrove.benching.run import run_bench
    from labelgrove.benching.table import bench_table
    from labelgrove.core.params import read_toml

    console = common.stderr_console()
    common.check_device(device)
    wanted = Bench.from_config(read_toml(config), settings=settings or [], folder=config.parent)
    flags = [] if threads is None else ["--threads", str(threads)]
    folder = folder or config.with_name(f"{config.stem}.bench")
    try:
        records = run_bench(
            wanted,
            data,
            folder,
            only=only or [],
            flags=[*flags, "--device", device],
            settle=lambda model: common.use_device(model, device),
            say=lambda text: console.print(text, markup=False),
        )
    except KeyboardInterrupt:
        typer.echo(f"interrupted; the same command goes on with {folder}", err=True)
        raise typer.Exit(common.INTERRUPTED) from None
    if as_json:
        for record in records:
            common.print_json(record)
    else:
        sys.stdout.write(bench_table(records) + "\n")
    failed = [record for record in records if "error" in record]
    for record in failed:
        console.print(f"{record['row']}: {record['error']}", markup=False)
    if failed:
        raise typer.Exit(common.USER_ERROR)
