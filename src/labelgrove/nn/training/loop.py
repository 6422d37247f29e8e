"""The training loop: every neural method gives it a model, batches and a loss.

An update depends only on the weights, the batches and the seed. So a run that was stopped in any
way continues from its last checkpoint and, on the CPU, ends with the same bits.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import nn

from labelgrove.core import jsonio
from labelgrove.core.callbacks import Reporter, Stage
from labelgrove.core.part import Part
from labelgrove.disk.hashing import content_hash
from labelgrove.disk.run_folder import Checkpoints
from labelgrove.errors import ConfigError, DataError, ModelFormatError
from labelgrove.nn.batches import prefetched
from labelgrove.nn.training import devices
from labelgrove.nn.training.checkpoint import BestWeights, fill, from_part, to_part
from labelgrove.nn.training.devices import Workers
from labelgrove.nn.training.optim import rate_factor
from labelgrove.nn.training.params import TrainingParams
from labelgrove.nn.training.updates import BatchesLike, LossOf, Share, Updates, shared

Record = dict[str, float]  # the numbers of a log line or an evaluation


@dataclass(frozen=True)
class Task:
    """What a model learns: its batches, and the mean loss of one, ``loss_of(model, batch)``.

    Random numbers of the loss must come from torch. ``evaluate()`` scores the model on held-out
    documents, higher is better, in evaluation mode, without gradients, in the first process only.
    """

    batches: BatchesLike
    loss_of: LossOf
    evaluate: Callable[[], float] | None = None


@dataclass
class LoopResult:
    """How far training is, or how it went: numbers that its checkpoints store as JSON."""

    step: int = 0
    epoch: int = 0
    position: int = 0  # of the next batch in this epoch
    tokens: int = 0
    seconds: float = 0.0
    logged_step: int = 0
    best_score: float | None = None
    best_step: int = 0
    finished: bool = False
    history: list[Record] = field(default_factory=list)  # one per log line and evaluation
    resumed_from: int = 0

    @property
    def tokens_per_second(self) -> float:
        """The mean speed."""
        return self.tokens / max(self.seconds, 1e-9)

    def summary(self) -> dict[str, object]:
        """What a model folder stores about its training."""
        names = ("best_step", "seconds", "tokens_per_second", "history")
        return {"steps": self.step} | {name: getattr(self, name) for name in names}


def train(
    model: nn.Module,
    task: Task,
    params: TrainingParams,
    *,
    folder: Path | None = None,
    reporter: Reporter | None = None,
    seed: int = 0,
    stage: str = "train",
) -> LoopResult:
    """Trains ``model`` where it is; at the end it has its final weights and is in evaluation mode.

    In a ``folder`` the run writes checkpoints and continues from the last one. Parameters of
    ``model.encoder`` are the encoder's and all others the heads'.
    """
    workers = Workers.start(devices.device_of(model))
    if len(task.batches) == 0:
        raise DataError("there are no batches to train on")
    model.to(workers.device).train()
    per_epoch = math.ceil(len(task.batches) / (params.validate().accumulate * workers.count))
    total = params.max_steps or math.ceil(params.epochs * per_epoch)
    with devices.own_settings(workers.device, tf32=params.tf32):
        updates = Updates(model, task.loss_of, params, total=total, workers=workers, seed=seed)
        run = _Run(model, task, updates, per_epoch, folder)
        if workers.rank != 0 or reporter is None:
            reporter = Reporter()
        try:
            return run.train(reporter, stage)
        finally:
            updates.release()


class _Run:
    def __init__(
        self, model: nn.Module, task: Task, updates: Updates, per_epoch: int, folder: Path | None
    ) -> None:
        self.model, self.updates, self.updates_per_epoch = model, updates, per_epoch
        self.batches, self.evaluate = task.batches, task.evaluate
        self.params, self.workers, self.total = updates.params, updates.workers, updates.total
        self.writes = self.workers.rank == 0
        self.checkpoints = None if folder is None else Checkpoints(folder)
        self.best = BestWeights(None if folder is None else folder / "best", writes=self.writes)
        self.progress = self._resume()
        self.progress.resumed_from = self.progress.step
        self.seconds_before = self.progress.seconds
        self.started = self.saved = time.monotonic()
        self.paused = 0.0  # seconds since then spent on evaluation and checkpoints
        self.logged_at = 0.0, self.progress.tokens
        self.interrupted: Callable[[], bool] = lambda: False

    def train(self, reporter: Reporter, stage_name: str) -> LoopResult:
        progress = self.progress
        if not progress.finished:
            if progress.step:
                done = f"{progress.step:,} of {self.total:,} updates"
                reporter.message(f"{stage_name}: continues after {done}")
            # Ctrl-C waits for the end of an update if a checkpoint can be saved then.
            delays = self.checkpoints is not None and self.workers.count == 1
            with (
                devices.interrupts_held_back(delays) as self.interrupted,
                reporter.stage(stage_name, total=self.total) as stage,
            ):
                stage.advance(progress.step)
                while not self._is_over():
                    self._epoch(stage)
                self._finish()
        self.model.eval()
        return progress

    def _is_over(self) -> bool:
        return self.progress.step >= self.total

    def _epoch(self, stage: Stage) -> None:
        progress, params, workers = self.progress, self.params, self.workers
        shares: deque[Share] = deque()
        own = shared(
            iter(self.batches.epoch(progress.epoch, start=progress.position)),
            shares,
            accumulate=params.accumulate,
            count=workers.count,
            rank=workers.rank,
        )
        # Closing ends the prefetching thread, which must not outlive this loop.
        with contextlib.closing(prefetched(own, workers.device)) as ahead:
            for first in ahead:
                share = shares.popleft()
                rest = itertools.islice(ahead, len(share.weights) - 1)
                if params.dropout_share < 1:
                    limit = round(params.dropout_share * len(self.batches))
                    self.model.train(progress.position < limit)
                self.updates.make(progress.step, share, itertools.chain([first], rest))
                progress.step += 1
                progress.position += share.batches
                progress.tokens += share.tokens
                stage.advance()
                self._look_around(stage)
                if self._is_over():
                    return
        if progress.position == 0:
            raise DataError(f"epoch {progress.epoch} has no batches")
        progress.epoch += 1
        progress.position = 0

    def _look_around(self, stage: Stage) -> None:
        """Between two updates: logging, evaluation, a checkpoint."""
        progress, params = self.progress, self.params
        at_end = progress.step >= self.total
        due = at_end
        if params.evaluations_per_epoch:
            every = max(1, round(self.updates_per_epoch / params.evaluations_per_epoch))
            due |= progress.step % every == 0
        judge = self.evaluate if due else None
        if progress.step % params.log_every == 0 or at_end or judge is not None:
            self._log(stage)  # first, so that a broken network is neither evaluated nor saved
        before = time.monotonic()
        progress.seconds = self.seconds_before + self._seconds()
        if judge is not None:
            self._evaluate(stage, judge)
        if not self._is_over() and self._checkpoint_is_due(before):
            self._save()
            self.saved = time.monotonic()
        self.paused += time.monotonic() - before
        if self.interrupted() and not self._is_over():
            self._save()
            raise KeyboardInterrupt

    def _checkpoint_is_due(self, now: float) -> bool:
        minutes = self.params.checkpoint_minutes
        if minutes is None or self.checkpoints is None:
            return False
        return now - self.saved >= 60 * minutes

    def _seconds(self) -> float:
        return time.monotonic() - self.started - self.paused

    def _log(self, stage: Stage) -> None:
        progress, total = self.progress, self.updates.loss_sum
        loss = self.workers.mean(total).item() / (progress.step - progress.logged_step)
        if not math.isfinite(loss):
            raise ConfigError(
                f"the loss became {loss} between updates {progress.logged_step} and "
                f"{progress.step}; lower lr or head_lr, or set clip_norm"
            )
        total.zero_()
        progress.logged_step = progress.step
        rate = self.params.lr * rate_factor(progress.step - 1, self.total, self.params)
        record = {"step": progress.step, "loss": loss, "lr": rate}
        progress.history.append(record)
        (then, tokens), now = self.logged_at, self._seconds()
        self.logged_at = now, progress.tokens
        done = progress.step - progress.resumed_from
        stage.metrics(
            **record,
            epoch=round(progress.step / self.updates_per_epoch, 3),
            tokens_per_second=(progress.tokens - tokens) / max(now - then, 1e-9),
            eta_seconds=(now + self.paused) / done * (self.total - progress.step),
            memory_bytes=devices.memory_in_use(self.workers.device),
        )

    def _evaluate(self, stage: Stage, evaluate: Callable[[], float]) -> None:
        progress, average = self.progress, self.updates.average
        modes = [(module, module.training) for module in self.model.modules()]
        self.model.eval()
        try:
            with contextlib.nullcontext() if average is None else average.applied():
                with torch.no_grad():
                    mine = float(evaluate()) if self.writes else math.nan
                score = self.workers.agree(mine)
                best = -math.inf if progress.best_score is None else progress.best_score
                if score > best:
                    progress.best_score, progress.best_step = score, progress.step
                    if self.params.keep == "best":
                        self.best.save(self.model, progress.step)
        finally:
            # LightXML's code leaves this out on purpose: the rest of the epoch has no dropout, and
            # training fits faster. Here that is training.dropout_share, whenever one evaluates.
            for module, training in modes:
                module.training = training
        progress.history.append({"step": progress.step, "score": score})
        stage.metrics(step=progress.step, score=score, best_score=progress.best_score)

    def _finish(self) -> None:
        """Gives the model its final weights and saves that this run is finished."""
        progress, average = self.progress, self.updates.average
        self.workers.agree(0)  # the best weights are on disk
        if self.params.keep == "best" and progress.best_score is not None:
            self.best.load(self.model, progress.best_step)
        elif average is not None:
            average.apply()
        self.workers.agree(0)  # every process has read them
        progress.finished = True
        self._save()

    def _identity(self) -> dict[str, object]:
        """What must be the same for a checkpoint to be continued."""
        shapes = {name: list(t.shape) for name, t in self.model.state_dict().items()}
        return {
            **self.params.identity(),
            "precision": self.updates.precision,
            "seed": self.updates.seed,
            "batches": len(self.batches),
            "processes": self.workers.count,
            "model": content_hash(shapes),
        }

    def _save(self) -> None:
        if self.checkpoints is None or not self.writes:
            return
        progress, updates = self.progress, self.updates
        if not progress.finished and not updates.loss_sum.isfinite().item():
            return  # the next log line reports that training went wrong
        config: dict[str, object] = {"identity": self._identity(), "progress": asdict(progress)}
        config["numbers"] = updates.numbers()
        rest = {} if progress.finished else updates.tensors()
        part = to_part(config, {"model": self.model.state_dict(), **rest})
        self.checkpoints.save(part, step=progress.step)
        needed = progress.best_score is not None and not progress.finished
        self.best.named_by_checkpoint(progress.best_step if needed else None)

    def _resume(self) -> LoopResult:
        part = self._latest()
        if part is None:
            return LoopResult()
        theirs = part.config["identity"]
        for name, value in jsonio.plain(self._identity()).items():
            if theirs.get(name) != value:
                raise ConfigError(
                    f"{name}: the checkpoint was made with {theirs.get(name)!r}, not {value!r}; "
                    "train with the same settings or choose another folder"
                )
        progress = LoopResult(**part.config["progress"])
        fill(self.model.state_dict(), from_part(part, "model"), "the checkpoint")
        if not progress.finished:
            groups = {name: from_part(part, name) for name in self.updates.tensors()}
            self.updates.load(groups, part.config["numbers"], "the checkpoint")
            if progress.best_score is not None:
                self.best.named_by_checkpoint(progress.best_step)
        return progress

    def _latest(self) -> Part | None:
        if self.checkpoints is None:
            return None
        latest = self.checkpoints.latest() if self.workers.rank == 0 else None
        step = int(self.workers.agree(-1 if latest is None else latest[0]))
        if step < 0:
            return None
        part = self.checkpoints.read(step) if latest is None else latest[1]
        if part is None:
            raise ModelFormatError(
                f"{self.checkpoints.folder}: process {self.workers.rank} does not see the "
                f"checkpoint of step {step}; all processes need the same folder"
            )
        return part
