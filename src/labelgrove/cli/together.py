"""``labelgrove train`` of a network with --engine: every worker runs this training."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from labelgrove.cli import common, options
from labelgrove.cli.summary import Facts, fit, save
from labelgrove.cli.training_data import TrainingData
from labelgrove.core.callbacks import Callback, Event, RichProgress
from labelgrove.core.processes import is_first_process, wait_for_all
from labelgrove.data.corpus import Corpus
from labelgrove.data.formats.shards import read_joined_shards, shards_of
from labelgrove.disk.run_folder import RunFolder
from labelgrove.errors import StorageError, UnsupportedError
from labelgrove.methods import create
from labelgrove.methods.base import Model


@dataclass(frozen=True)
class NetworkTraining:
    """A training in values that other processes can be given."""

    method: str
    tables: options.Tables
    work: options.Work
    documents: TrainingData
    out: Path

    def check(self, model: Model) -> None:
        """Refuses, before workers are started, what they cannot train."""
        if model.workers != "processes":
            raise UnsupportedError(
                "--engine: trains linear and its settings (parabel, bonsai, ova) and methods with "
                f"an encoder, such as cascadexml; leave it out for {model.method}"
            )
        extra = self.documents.features or self.documents.dense
        if extra is not None and not self.documents.corpus.is_file():
            raise UnsupportedError(
                "--engine: a corpus in shards has texts alone; leave out --features and --dense, "
                "or give one file"
            )
        shards_of(self.documents.corpus)

    @property
    def threads(self) -> int:
        """The threads of each process; 0 as the settings say."""
        return self.work.worker_threads(self.work.threads)

    def start(self, run: Path, *, quiet: bool) -> Facts:
        """Trains by the workers of an engine, with the run folder that this process has open."""
        with self.work.open() as engine, RichProgress() as progress:
            ended = engine.together(
                partial(self.fit, run),
                folder=run,
                device=self.work.device,
                threads=self.threads,
                callback=(lambda event: None) if quiet else progress,
            )
        if ended is None or not self.out.exists():
            raise StorageError(
                f"{self.out}: a worker wrote the model there, but this machine does not see it; "
                "give a path that all machines share"
            )
        return ended

    def fit(self, folder: Path, tell: Callback) -> Facts | None:
        """Trains; the first process writes the model and returns its summary."""
        callbacks = [tell] if is_first_process() else []
        with RunFolder.join(folder) as run:
            data, held_out = self._read(callbacks)
            model = create(self.method, self.tables)
            common.use_device(model, self.work.device)
            usual, model.n_jobs = model.n_jobs, self.threads or model.n_jobs
            spent = fit(model, data, callbacks=callbacks, run=run)
            # From here on only the first process needs the run folder.
            wait_for_all(self.work.device)
            if not is_first_process():
                return None
            model.n_jobs = usual  # a worker's share is not the model's
            # The command has checked what is there; this process may be the second to write.
            how: dict[str, Any] = {"documents": self.documents, "overwrite": True}
            return save(model, self.out, spent=spent, held_out=held_out, **how)

    def _read(self, callbacks: list[Callback]) -> tuple[Corpus, Corpus | None]:
        """The documents to learn from and those of --dev; every process reads all of them."""
        console = common.stdout_console(file=_Messages(callbacks))
        if self.documents.corpus.is_file():
            return self.documents.corpora(console)
        return self.documents.shards(read_joined_shards, console)


class _Messages(io.StringIO):
    """Lines for people, sent as events."""

    def __init__(self, callbacks: list[Callback]) -> None:
        super().__init__()
        self.callbacks = callbacks

    def write(self, text: str) -> int:
        for callback in self.callbacks if text.strip() else ():
            callback(Event("message", values={"text": text.rstrip()}))
        return len(text)
