"""labelgrove train: a corpus in, a model folder and a summary of the training out."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from labelgrove.cli import common, options
from labelgrove.cli.summary import Facts, fit, print_summary, save
from labelgrove.cli.training_data import T, TrainingData
from labelgrove.core.durations import parse_duration
from labelgrove.errors import ConfigError, DataError, StorageError, UnsupportedError

if TYPE_CHECKING:
    from rich.console import Console

    from labelgrove.data.blocks import ShardedCorpus
    from labelgrove.data.corpus import Corpus
    from labelgrove.disk.run_folder import RunFolder, RunStatus
    from labelgrove.experiments.planning.plan import Plan
    from labelgrove.methods.base import Model


@dataclass(frozen=True)
class Saving:
    """Where to write the model, and to keep what an interrupted run has finished."""

    out: Annotated[Path | None, Option(help="Model folder to write.")] = None
    plan_only: Annotated[bool, Option("--plan", help="Print the plan and stop.")] = False
    no_estimate: Annotated[
        bool, Option("--no-estimate", help="Do not estimate the time from a small sample.")
    ] = False
    resume: Annotated[bool, Option("--resume", help="Continue an interrupted run.")] = False
    run: options.RunFolder = None
    force: options.Force = False

    def check(self) -> None:
        """Raises an error, before the work, if a model is to be written and cannot be."""
        if self.plan_only:
            return
        if self.out is None:
            raise typer.BadParameter("give the folder to write the model to", param_hint="--out")
        common.check_model_folder(self.out, force=self.replaces)

    @property
    def folder(self) -> Path:
        """The model folder."""
        assert self.out is not None
        return self.out

    @property
    def private_run(self) -> Path:
        """The run folder of a model that is not there yet."""
        return self.folder.with_name(self.folder.name + ".run")

    @property
    def replaces(self) -> bool:
        """What an interrupted search left is replaced by what it finds when it goes on."""
        return self.force or (self.resume and self.run is None and self.private_run.is_dir())

    @contextmanager
    def opened(self, device: str | None) -> Iterator[RunFolder]:
        """The run folder during training. A private one stays only if it is worth resuming."""
        from labelgrove.core.processes import is_first_process, wait_for_all
        from labelgrove.disk.run_folder import RunFolder

        if not is_first_process():
            wait_for_all(device)  # until the first one has tidied up
        path = self.run or self.private_run
        if self.force and not self.resume and self.run is None and path.exists():
            # Opening it first raises an error if it is not a run folder or another process uses it.
            with RunFolder(path, resume=True) as old:
                old.remove()
        with RunFolder(path, resume=self.resume or self.run is not None) as run:
            if is_first_process():
                wait_for_all(device)
            try:
                yield run
            except BaseException as error:
                status = run.status()
                with suppress(StorageError):  # say first what went wrong first
                    if self.run is None and not _worth_resuming(status, error):
                        run.remove()
                    else:
                        run.log({"kind": "run_failed", "why": str(error) or type(error).__name__})
                if not isinstance(error, KeyboardInterrupt):
                    raise
                typer.echo(f"Interrupted. {_how_to_continue(path, status)}", err=True)
                raise typer.Exit(common.INTERRUPTED) from None
            if run.unfinished:
                flags = () if self.run is None else ("--force",)
                typer.echo(f"Interrupted. {_how_to_continue(path, run.status(), *flags)}", err=True)
            elif self.run is None:
                run.remove()


def train(
    *,
    documents: TrainingData,
    saving: Saving,
    settings: options.Settings,
    label_tree: options.LabelTree = None,
    budget: Annotated[
        str | None, Option(help="Time for the method auto, e.g. 10m. Default: no limit.")
    ] = None,
    memory: Annotated[
        str | None,
        Option(help="Memory limit, e.g. 8G. linear keeps features on disk; others must fit."),
    ] = None,
    work: options.Work,
    output: options.Output,
) -> None:
    """Train a model.

    First prints a plan: sizes, memory, and a time that a small sample measures on this work.
    Then trains, and prints how good the model is, how long it took, and what to do next. --plan
    stops after the plan. The method auto starts with linear, tries what may be better on this
    machine, and keeps what held-out documents prefer; Ctrl-C ends it and keeps the best so far.

    Example: labelgrove train train.jsonl.xz --dev dev.jsonl.xz --out model --set ranker.C=2

    With --engine, TRAIN is a folder or pattern of shards of texts, and the method is linear or one
    with an encoder, which the workers of Ray train together. For the methods ensemble and auto,
    TRAIN is one corpus, and workers train several models at a time.

    Example: labelgrove train train.jsonl.xz --method cascadexml --plan
    """
    from labelgrove.core.memory import parse_size
    from labelgrove.core.processes import is_first_process
    from labelgrove.methods import create

    work.check()
    default = "auto" if work.engine is None else "linear"
    method, tables = settings.tables(work.threads, default=default)
    if budget is not None:
        if method != "auto":
            raise ConfigError(f"--budget: is for the method auto, not for {method}")
        tables["budget"] = parse_duration(budget, name="--budget")
    model = create(method, tables)
    limit = None if memory is None else parse_size(memory, name="--memory")
    quiet = output.quiet or not is_first_process()
    training = TrainingJob(model, saving, documents, label_tree, limit, work, quiet)
    shared = work.engine is not None and model.workers != "members"
    if not (shared and work.engine == "ray" and model.encoders()):
        common.use_device(model, work.device)  # Ray's workers may have other devices
    training.check()
    if saving.plan_only:
        plan = training.plan()
        if output.as_json:
            common.print_json(plan.to_json())
        return
    if not shared:
        facts = training.here()
    elif model.encoders():
        facts = training.together(method, tables)
    else:
        facts = training.shards()
    if facts is not None and output.as_json:
        common.print_json(facts)
    elif facts is not None:
        print_summary(training.console, facts, verbose=output.verbose)


@dataclass
class TrainingJob:
    """What to train, and how. Every way to train is a method."""

    model: Model
    saving: Saving
    documents: TrainingData
    label_tree: Path | None
    memory: int | None
    work: options.Work
    quiet: bool

    @cached_property
    def console(self) -> Console:
        """For messages to people."""
        return common.stderr_console(quiet=self.quiet)

    def check(self) -> None:
        """Raises an error, before the work, if a flag does not fit the method or other flags."""
        self.saving.check()
        files = {"dense": self.documents.dense, "label_tree": self.label_tree}
        for argument, file in files.items():
            if file and argument not in self.model.takes:
                raise UnsupportedError(
                    f"--{argument.replace('_', '-')}: the method {self.model.method} cannot use "
                    "it; leave it out or train linear"
                )
        self.documents.check()
        self.documents.options()
        if self.work.engine is not None:
            for flag, value in (("--plan", self.saving.plan_only), ("--memory", self.memory)):
                if value:
                    raise ConfigError(f"{flag}: does not work with --engine; leave it out")

    def plan(self) -> Plan:
        """Reads the corpus and prints the plan."""
        data, given = self._with_tree(self._read(None)[0])
        return self._plan(data, given, None)

    def here(self) -> Facts | None:
        """Trains in this process; the workers of an engine may train members of the model."""
        from labelgrove.core.memory import require
        from labelgrove.core.processes import is_first_process, wait_for_all
        from labelgrove.data.formats.files import existing

        if str(self.documents.corpus) != "-":
            existing(self.documents.corpus)  # before a run folder is made next to it
        device = self.work.device if self.model.encoders() else None
        with self.saving.opened(device) as run:
            data, held_out = self._read(run)
            data, given = self._with_tree(data)
            plan = self._plan(data, given, run)
            if self._streams:
                given["memory"] = self.memory
            elif self.memory is not None:
                what = f"training {self.model.method} on {len(data):,} documents"
                require(self.memory, plan.memory_bytes, what)
            with nullcontext() if self.work.engine is None else self.work.open() as engine:
                if engine is not None:
                    given["engine"] = engine
                spent = self._fit(data, given, run)
            run.unfinished = self.model.interrupted_
            chosen = self.model.chosen()
            if chosen is not self.model:
                self.model = chosen
                self._print_never_predicted(data)
            wait_for_all(device)  # from here on only the first process needs the run folder
            if not is_first_process():
                return None
            facts = self._saved(plan, held_out, spent)
        if data.texts is not None and self.model.facts_.given:
            self.console.print(
                f"predictions need the matrix of {self.model.facts_.given:,} columns that came "
                "with the texts; a model trained with --set features=own reads texts alone"
            )
        return facts

    def shards(self) -> Facts:
        """Trains linear on shards by the workers of an engine."""
        from labelgrove.data.formats.shards import read_shards

        documents = self.documents
        if self.model.workers != "shards" or documents.dense:
            raise UnsupportedError(
                "--engine: trains linear and its settings (parabel, bonsai, ova) and methods with "
                "an encoder on texts, and the members of ensemble and auto; leave it out for "
                f"{self.model.method} or --dense"
            )
        if documents.features:
            raise UnsupportedError(
                "--engine: a corpus in shards has no matrix; leave out --features"
            )
        with self.saving.opened(None) as run:
            with self.work.open() as engine:
                data, held_out = documents.shards(partial(read_shards, engine), self.console)
                spent = self._fit(*self._with_tree(data), run)
            return self._saved(None, held_out, spent)

    def together(self, method: str, tables: options.Tables) -> Facts:
        """Trains one network by all workers of an engine."""
        from labelgrove.cli.together import NetworkTraining

        training = NetworkTraining(method, tables, self.work, self.documents, self.saving.folder)
        training.check(self.model)
        with self.saving.opened(None) as run, run.shared():
            return training.start(run.path, quiet=self.quiet)

    def _fit(self, data: Corpus | ShardedCorpus, given: dict[str, Any], run: RunFolder) -> Facts:
        from labelgrove.core.callbacks import RichProgress

        with RichProgress() as progress:
            callbacks = [] if self.quiet else [progress]
            return fit(self.model, data, callbacks=callbacks, run=run, **given)

    @property
    def _streams(self) -> bool:
        """Whether texts and features are kept on disk."""
        return self.memory is not None and "memory" in self.model.takes

    def _read(self, run: RunFolder | None) -> tuple[Corpus, Corpus | None]:
        """The documents to learn from and those of --dev, within the memory limit."""
        from labelgrove.core.memory import limit_memory, peak_rss, require
        from labelgrove.core.scratch import Scratch
        from labelgrove.data.splits import repeated_texts

        if self.memory is not None:
            require(self.memory, peak_rss() or 0, "starting labelgrove")
            limit_memory(self.memory)
        scratch = Scratch(run.path) if self._streams and run is not None else None
        data, held_out = self.documents.corpora(self.console, scratch)
        dev = self.documents.dev
        if held_out is not None:
            if held_out.labels.nnz == 0 and not held_out.unknown.any():
                raise DataError("no document has a label, so there is nothing to measure", file=dev)
            if known := repeated_texts(held_out.texts or (), data.texts or ()):
                self.console.print(
                    f"{dev}: {known:,} of {len(held_out):,} texts are also in "
                    f"{self.documents.corpus}, so its metrics are too good"
                )
        self._print_never_predicted(data)
        return data, held_out

    def _with_tree(self, data: T) -> tuple[T, dict[str, Any]]:
        """The corpus, whose labels get the groups of the label tree, and the tree for ``fit``."""
        if self.label_tree is None:
            return data, {}
        from labelgrove.labels.given_trees import read_label_groups, read_label_tree

        tree, conflicts = read_label_tree(self.label_tree, data.index)
        groups = read_label_groups(self.label_tree, data.index)  # for masks at prediction
        self.console.print(f"{self.label_tree}: {conflicts}")
        return replace(data, index=data.index.with_groups(groups)), {"label_tree": tree}

    def _plan(self, data: Corpus, given: dict[str, Any], run: RunFolder | None) -> Plan:
        """Makes and prints the plan; the time is measured unless it cannot be known."""
        from labelgrove.core.processes import process_count
        from labelgrove.experiments.planning.plan import plan_training

        stages = [] if run is None else [stage.name for stage in run.status().stages]
        unknown = None  # why no time can be estimated
        if self.work.engine is not None:
            unknown = "workers train several models at the same time"
        elif process_count() > 1:
            unknown = "several processes train together"
        elif any(name.startswith("network") for name in stages):
            unknown = "the run folder has a trained network"
        shown = self.saving.plan_only or not self.quiet
        measures = shown and not self.saving.no_estimate and unknown is None
        plan = plan_training(self.model, data, calibrate=measures, **given)
        notes = list(plan.notes)
        if unknown is not None and not self.saving.no_estimate:
            notes.append(f"no time is estimated: {unknown}")
        if self._streams:
            notes.append(
                "with --memory, features are on disk; the memory above is for training without"
            )
        plan = replace(plan, notes=tuple(notes))
        for line in plan.lines():
            self.console.print(line)
        if run is not None and stages:
            self.console.print(f"  note     matching stages in {run.path} are reused")
        return plan

    def _saved(self, plan: Plan | None, held_out: Corpus | None, spent: Facts) -> Facts:
        """Measures the model on --dev and saves it."""
        how: dict[str, Any] = {"documents": self.documents, "overwrite": self.saving.replaces}
        how |= {"plan": plan, "held_out": held_out, "spent": spent}
        return save(self.model, self.saving.folder, **how)

    def _print_never_predicted(self, data: Corpus) -> None:
        """Says which labels --all-labels adds in vain."""
        model = self.model
        if not self.documents.all_labels or model.learns_names():
            return
        count = len(data.index) - len(set(data.labels.indices.tolist()))
        if count:
            self.console.print(
                f"labels: {count:,} labels have no document, and {model.method} with these "
                "settings learns from documents only, so it never predicts them; train matcher, "
                "or linear with --set label_texts=names"
            )


def _worth_resuming(status: RunStatus, error: BaseException) -> bool:
    """After a wrong setting, a few seconds' work would only block the next try."""
    costly = any(stage.name.startswith("network") for stage in status.stages)
    refused = isinstance(error, ConfigError)
    return bool(status.checkpoints or costly or (status.stages and not refused))


def _how_to_continue(path: Path, status: RunStatus, *flags: str) -> str:
    """The command that continues an interrupted run."""
    if not (status.stages or status.checkpoints):
        return "Nothing was finished yet."
    done = list(dict.fromkeys(stage.name for stage in status.stages))
    steps = {checkpoint.name: checkpoint.step for checkpoint in status.checkpoints}  # the last ones
    done += [f"{name} up to step {step}" for name, step in steps.items()]
    arguments = [argument for argument in sys.argv[1:] if argument != "--resume"]
    command = shlex.join([common.command_name(), *arguments, "--resume", *flags])
    return f"{path} has the finished work ({', '.join(done)}). Continue with:\n  {command}"
