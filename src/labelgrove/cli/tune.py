"""labelgrove tune: search for better settings."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Option

from labelgrove.cli import common, options
from labelgrove.cli.training_data import TrainingData
from labelgrove.errors import ConfigError


@dataclass(frozen=True)
class SavedSearch:
    """Where to write the settings, and to keep the search."""

    out: Annotated[Path, Option(help="Config file to write.")] = Path("tuned.toml")
    run: Annotated[Path | None, Option(help="Folder of the search. Default: OUT.study.")] = None
    force: options.Force = False

    @property
    def folder(self) -> Path:
        """The folder of the search."""
        return self.run or self.out.with_name(self.out.name + ".study")


def tune(
    *,
    documents: TrainingData,
    budget: Annotated[str, Option(help="Start no trial after this time: 90s, 10m, 1.5h.")] = "10m",
    trials: Annotated[int | None, Option(min=1, help="Stop after this many trials.")] = None,
    metric: Annotated[str, Option(help="Metric to maximise, e.g. P@1 or PSP@5.")] = "nDCG@5",
    settings: options.Settings,
    saving: SavedSearch,
    work: options.Work,
    output: Annotated[options.Output, options.Without("verbose")],
) -> None:
    """Search for better settings of a method.

    Compares trials on --dev, or on a tenth of TRAIN. Report the result on other documents. --config
    and --set apply to all trials, which share features, trees and embeddings. A table [space] in
    the config says what to search, instead of the method's own space. Run the same command again to
    continue a search. With --engine ray, every worker runs a trial.

    Example: labelgrove tune train.jsonl --dev dev.jsonl --budget 10m --out tuned.toml

    Example: labelgrove tune train.jsonl --method cascadexml --config space.toml --metric PSP@5
    """
    from labelgrove.core.callbacks import RichProgress
    from labelgrove.core.durations import parse_duration
    from labelgrove.disk.atomic import replace_file
    from labelgrove.experiments.tuning.search import load_optuna, tune
    from labelgrove.methods import create

    console = common.stderr_console(quiet=output.quiet)
    work.check()
    parse_duration(budget, name="budget")
    name, base = settings.tables(work.threads, default="linear")
    space = base.pop("space", None)
    if not isinstance(space, dict | None):
        raise ConfigError(f"{settings.config}: space must be a table, [space]")
    common.check_device(work.device)
    if work.device != "auto" and create(name, base).encoders():
        base["device"] = work.device  # methods without a network have no choice
    out, folder = saving.out, saving.folder
    common.refuse_existing([out], force=saving.force or folder.exists())
    load_optuna()  # reading the corpus may take minutes, and would be in vain
    documents.check()
    data, held_out = documents.corpora(console)
    part = "a tenth of the documents" if held_out is None else documents.dev
    console.print(f"tuning {name} for {budget} by {metric} on {part}; study folder: {folder}")
    opened = nullcontext() if work.engine is None else work.open()
    with common.resumable(folder), opened as engine, RichProgress() as progress:
        result = tune(
            name,
            data,
            held_out,
            budget=budget,
            trials=trials,
            metric=metric,
            space=space,
            base=base,
            folder=folder,
            seed=settings.seed or 0,
            engine=engine,
            callbacks=[] if output.quiet else [progress],
            say=console.print,
        )
    replace_file(out, result.to_toml().encode())
    train = [common.command_name(), "train", str(documents.corpus)]
    train += ["--config", str(out), "--out", "model"]
    # Stages of a search on a part of TRAIN are of no use to training on all of it.
    reuse = [] if held_out is None else ["--run", str(folder / "stages")]
    table = ["--all-labels"] if documents.all_labels else []
    command = shlex.join(train + table + reuse)
    if output.as_json:
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
