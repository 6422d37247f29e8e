"""Run folders: finished stages and checkpoints that a killed or repeated run uses again.

A stage is identified by the content of its inputs. With the same inputs, its result is mapped from
disk; with other inputs, it is computed and stored beside the earlier one, so that a run with
another ranker setting uses the same features. In the folder::

    run.json                              the format, and when the run began
    log.jsonl                             events with their times
    stages/NAME/KEY/                      the result of a finished stage
    locks/KEY                             of stages that several processes may compute
    checkpoints/NAME/KEY/step-STEP/       the last two checkpoints of an unfinished one
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Self

from labelgrove.core import jsonio
from labelgrove.core.callbacks import Event, JsonlLog
from labelgrove.core.part import Part
from labelgrove.core.processes import is_first_process
from labelgrove.core.storing import storing
from labelgrove.core.versions import VERSION
from labelgrove.disk import atomic
from labelgrove.disk.bundle import FORMAT_VERSION, read_bundle, read_manifest, write_bundle
from labelgrove.disk.hashing import content_hash
from labelgrove.errors import ConfigError, ModelFormatError

_STAGE_NAME = re.compile(r"[a-z0-9_-]+(/[a-z0-9_-]+)*")
_RUN, _LOCK, _LOCKS, _LOG = "run.json", "lock", "locks", "log.jsonl"
_FORMAT = "labelgrove-run"
_CHECKPOINTS = 2


def stage_key(name: str, inputs: Mapping[str, object]) -> str:
    """The key of a stage's result, which later stages hash instead of the result."""
    return _key(name, _input_hashes(inputs))


class RunFolder:
    """A folder for one training run, used by one process at a time unless that one shares it.

    Without ``resume``, a folder with a run in it is an error, so that nobody continues an old run
    by accident. Of several processes that train one model, only the first writes.

    ``used`` lists the name and the key of each stage that was computed or read, and whether it was
    read. ``unfinished`` says that a model was saved, but that the run can go on to a better one.

    >>> import tempfile
    >>> with RunFolder(Path(tempfile.mkdtemp()) / "run") as run:
    ...     part = run.stage("double", {"x": 2}, lambda: Part({"answer": 4}))
    ...     again = run.stage("double", {"x": 2}, lambda: Part({"answer": "not computed"}))
    >>> part.config, again.config
    ({'answer': 4}, {'answer': 4})
    """

    def __init__(self, path: str | Path, *, resume: bool = True) -> None:
        self.path = Path(path)
        self.used: list[tuple[str, str, bool]] = []
        self.unfinished = False
        self._computing: dict[str, str] = {}
        self._lock: atomic.FileLock | None = None
        self._shared = self._guest = False
        self._writes = is_first_process()
        if self._writes:
            atomic.clean_up(self.path)  # what a killed process had begun to delete
        _check_usable(self.path)
        with storing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        if not self._writes:
            return
        self._log = JsonlLog(self.path / _LOG)
        try:
            with storing(self.path):
                lock = self._lock = atomic.FileLock(self.path / _LOCK)
            try:
                if lock.taken:
                    self._open(resume)
                    self.log({"kind": "run_start", "took_over_from": lock.previous})
                elif (lock.previous or {}).get("shared"):
                    self._shared = self._guest = True
                else:
                    raise ConfigError(f"{path}: is in use by {_who(lock.previous)}")
            except BaseException:
                lock.release()
                raise
        except OSError as error:
            if self.path.exists() and not isinstance(error, FileNotFoundError):
                raise
            raise ConfigError(
                f"{path}: another process that trained here has just ended and deleted this "
                "folder; run the command again if its model is not the one you want"
            ) from error

    @classmethod
    def join(cls, path: str | Path) -> Self:
        """A folder that another process has opened and shares, for a task of that process."""
        if _is_run(Path(path)):
            run = cls(path)
            if run._guest or not run._writes:
                return run
            run.close()
        raise ConfigError(
            f"{path}: {platform.node()} does not see the run folder of the process that started "
            "this task; put it on a path that all machines share"
        )

    @contextmanager
    def shared(self) -> Iterator[None]:
        """While it lasts, other processes may open the folder, and compute different stages."""
        assert self._lock is not None, "a process that does not write has nothing to share"
        with storing(self.path):
            (self.path / _LOCKS).mkdir(exist_ok=True)
        self._shared = True
        self._lock.note(shared=True)
        try:
            yield
        finally:
            self._lock.note()
            self._shared = False

    @contextmanager
    def _alone(self, key: str) -> Iterator[None]:
        """Waits while another process computes this stage."""
        if not self._shared or key in self._computing.values():  # a stage that asks for itself
            yield
            return
        with storing(self.path):
            lock = atomic.FileLock(self.path / _LOCKS / key, wait=True)
        try:
            yield
        finally:
            lock.release()

    def _open(self, resume: bool) -> None:
        known = _is_run(self.path)
        if known and not resume:
            raise ConfigError(
                f"{self.path}: has an earlier run; add --resume to continue it (finished stages "
                "are used again) or choose another folder"
            )
        if not known:
            created = datetime.now(UTC).isoformat(timespec="seconds")
            about = {"format": _FORMAT, "format_version": FORMAT_VERSION, "created": created}
            atomic.replace_file(self.path / _RUN, jsonio.dump(about))
        for kind in ("stages", "checkpoints"):
            # No other process writes here, so a killed one left whatever is half-written.
            for folder in self.path.glob(f"{kind}/**/"):
                atomic.clean_up_inside(folder)
        shutil.rmtree(self.path / _LOCKS, ignore_errors=True)

    def stage(self, name: str, inputs: Mapping[str, object], compute: Callable[[], Part]) -> Part:
        """The result of ``compute()``, or the stored result for the same inputs.

        ``inputs`` must contain everything that the result depends on. The result is always read
        from disk: its arrays are read-only maps of files, and tuples in its config are lists.
        """
        hashes = _input_hashes(inputs)
        key = _key(name, hashes)
        with self._alone(key):
            return self._stage(name, key, hashes, compute)

    def _stage(
        self, name: str, key: str, hashes: Mapping[str, str], compute: Callable[[], Part]
    ) -> Part:
        folder = self._folder("stages", name, key)
        if folder.exists():
            try:
                result = read_bundle(folder, kind="stage").parts["result"]
            except (ModelFormatError, KeyError) as error:
                self.log({"kind": "stage_damaged", "stage": name, "key": key, "why": str(error)})
                if self._writes:
                    shutil.rmtree(folder)
            else:
                self.used.append((name, key, True))
                self.log({"kind": "stage_reused", "stage": name, "key": key})
                return result
        if name in self._computing:
            raise ConfigError(f"stage {name!r} asks for itself while it is being computed")
        self._computing[name] = key
        self.log({"kind": "stage_computing", "stage": name, "key": key, "inputs": hashes})
        start = time.perf_counter()
        try:
            part = compute()
        finally:
            del self._computing[name]
        if not self._writes:
            return part
        fields = {"stage": name, "inputs": hashes, "seconds": time.perf_counter() - start}
        write_bundle(folder, kind="stage", fields=fields, parts={"result": part})
        shutil.rmtree(self._folder("checkpoints", name, key), ignore_errors=True)
        self.used.append((name, key, False))
        self.log({"kind": "stage_stored", "stage": name, "key": key, "seconds": fields["seconds"]})
        return read_bundle(folder, kind="stage", verify="none").parts["result"]

    def discard(self, name: str, key: str) -> None:
        """Deletes the result of a stage."""
        with self._alone(key):
            shutil.rmtree(self._folder("stages", name, key), ignore_errors=True)

    def checkpoint(self, stage: str) -> Checkpoints:
        """The checkpoints of the stage that is being computed, for its present inputs."""
        if stage not in self._computing:
            raise ConfigError(f"stage {stage!r} is not being computed: it has no checkpoints")
        return Checkpoints(self._folder("checkpoints", stage, self._computing[stage]))

    def log(self, event: Event | Mapping[str, object]) -> None:
        """Appends an event to ``log.jsonl``; this method can be a callback."""
        if not self._writes:
            return
        with storing(self.path):
            if isinstance(event, Event):
                self._log(event)
            else:
                by = {"by": f"{platform.node()} {os.getpid()}"} if self._guest else {}
                jsonio.append_line(self._log.path, {"time": time.time(), **event, **by})

    def status(self) -> RunStatus:
        """The content of the folder; see :func:`run_status`."""
        return run_status(self.path)

    def close(self) -> None:
        """Lets another process use the folder."""
        if self._lock is not None:
            self._lock.release()

    def remove(self) -> None:
        """Deletes the folder; for runs whose result is stored elsewhere."""
        if self._writes and not self._guest:
            atomic.remove_folder(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _folder(self, kind: str, name: str, key: str) -> Path:
        if not _STAGE_NAME.fullmatch(name):
            raise ConfigError(f"{name!r} cannot be the name of a stage: use a-z, 0-9, _, - and /")
        return self.path / kind / name.replace("/", ".") / key


class Checkpoints:
    """The checkpoints of one stage: the last two, in case the last one is damaged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, part: Part, *, step: int) -> None:
        """Stores ``part`` as the state after ``step``, whole or not at all."""
        path, parts = self._path(step), {"state": part}
        write_bundle(path, kind="checkpoint", fields={"step": step}, parts=parts, replace=True)
        # A later step than the one just saved belongs to an abandoned attempt.
        steps = self.steps()
        latest = [s for s in steps if s <= step][-_CHECKPOINTS:]
        for other in set(steps) - set(latest):
            shutil.rmtree(self._path(other), ignore_errors=True)

    def latest(self) -> tuple[int, Part] | None:
        """The last checkpoint that is undamaged, or None."""
        for step in reversed(self.steps()):
            part = self.read(step)
            if part is not None:
                return step, part
            shutil.rmtree(self._path(step), ignore_errors=True)
        return None

    def read(self, step: int) -> Part | None:
        """The checkpoint after ``step``, or None if it is damaged or not there."""
        try:
            return read_bundle(self._path(step), kind="checkpoint").parts["state"]
        except (ModelFormatError, KeyError):
            return None

    def others(self) -> bool:
        """Whether the stage has checkpoints of other inputs, which it cannot use now."""
        return any(p.parent != self.folder for p in self.folder.parent.glob("*/step-*"))

    def steps(self) -> list[int]:
        """The steps that have checkpoints, in order."""
        return sorted(int(p.name.removeprefix("step-")) for p in self.folder.glob("step-*"))

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:012d}"


class StageStatus(NamedTuple):
    """A stored stage result, or the latest checkpoint (``step``) of one not finished."""

    name: str
    key: str
    created: str
    bytes: int
    seconds: float | None = None
    step: int | None = None


class RunStatus(NamedTuple):
    """The content of a run folder, in the order in which it was stored."""

    stages: list[StageStatus]
    checkpoints: list[StageStatus]


def run_status(path: str | Path) -> RunStatus:
    """Reads a run folder without opening the run; works while it is running."""
    folder = Path(path)
    if not _is_run(folder):
        raise ConfigError(f"{path}: not a run folder (it has no {_RUN})")
    return RunStatus(
        _statuses(folder.glob("stages/*/*/"), "stage"),
        _statuses(folder.glob("checkpoints/*/*/step-*/"), "checkpoint"),
    )


def _statuses(folders: Iterable[Path], kind: str) -> list[StageStatus]:
    statuses = []
    for folder in folders:
        if folder.name.startswith("."):
            continue  # being written
        try:
            manifest = read_manifest(folder, kind=kind)
        except ModelFormatError:
            continue  # damaged, or just being removed
        place = folder if kind == "stage" else folder.parent
        status = StageStatus(
            name=place.parent.name.replace(".", "/"),
            key=place.name,
            created=manifest["created"],
            bytes=sum(entry["size"] for entry in manifest["files"].values()),
            seconds=manifest.get("seconds"),
            step=manifest.get("step"),
        )
        statuses.append(status)
    return sorted(statuses, key=lambda s: (s.created, s.name, s.step or 0))


def _input_hashes(inputs: Mapping[str, object]) -> dict[str, str]:
    return {name: content_hash(value) for name, value in inputs.items()}


def _key(name: str, hashes: Mapping[str, str]) -> str:
    # Another version of the library may compute something else from the same inputs.
    return content_hash(VERSION, FORMAT_VERSION, name, hashes)[:32]


def _check_usable(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ConfigError(f"{folder}: is a file; choose a folder for the run")
    names = {p.name for p in folder.iterdir() if p.suffix != atomic.PARTIAL}
    if _RUN not in names and names - {_LOCK}:
        raise ConfigError(
            f"{folder}: has other files and is not a run folder; choose a new or empty folder"
        )


def _is_run(folder: Path) -> bool:
    file = folder / _RUN
    if not file.is_file():
        return False
    about = jsonio.parse(file.read_bytes(), file=file)
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise ModelFormatError(f"{file}: does not describe a labelgrove run")
    if about.get("format_version") != FORMAT_VERSION:
        raise ModelFormatError(
            f"{file}: was made by another version of labelgrove; choose another folder"
        )
    return True


def _who(holder: Mapping[str, object] | None) -> str:
    if not holder:
        return "another process"
    return f"process {holder.get('pid')} on {holder.get('host')}; wait for it or stop it first"
