"""Commands that write, what they start from, and what must be there afterwards."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from labelgrove.disk.bundle import MANIFEST
from labelgrove.disk.model_folder import load_model
from support import tasks
from support.zygote import Outcome, Zygote

RUN = "model.run"
# What the user named, or is told about: a run folder and a study are named after the output.
KNOWN = ("model", "answers.jsonl", "tuned.toml", "rows.csv")
PRIVATE = (".labelgrove-tmp-", ".partial", ".tmp", "Traceback")
FAULTS = ("full", "no space once", "broken", "broken sync")


@dataclass(frozen=True)
class Scenario:
    """A command line and the path that it writes.

    ``old`` is a command whose result is there before. ``again`` are flags for the case that the
    command finds its own finished result. Studies continue with other trials, not ``same_bits``.
    """

    command: list[str]
    target: str
    old: list[str] | None = None
    again: tuple[str, ...] = ()
    resumes: bool = False
    same_bits: bool = True


TRAIN_MORE = [*tasks.TRAIN, "model", "--set", "ranker.C=0.5"]
PREDICT = ["predict", "base", "texts.txt", "--out"]
UPDATE = ["update", "base", "new.jsonl", "--train", "train.jsonl", "--out", "model"]
BASE = [*tasks.TRAIN, "model"]

SCENARIOS = {
    "train": Scenario(BASE, "model", again=("--force",), resumes=True),
    "train over a model": Scenario([*TRAIN_MORE, "--force"], "model", old=BASE, resumes=True),
    "update": Scenario(UPDATE, "model", again=("--force",)),
    "update over a model": Scenario([*UPDATE, "--force"], "model", old=BASE),
    "calibrate": Scenario(["calibrate", "model", "dev.jsonl"], "model", old=BASE),
    "predict": Scenario([*PREDICT, "answers.jsonl"], "answers.jsonl"),
    "predict over a file": Scenario(
        [*PREDICT, "answers.jsonl.gz", "-k", "3"],
        "answers.jsonl.gz",
        old=[*PREDICT, "answers.jsonl.gz"],
    ),
    "tune": Scenario(tasks.TUNE, "tuned.toml", same_bits=False),
    "convert": Scenario(
        ["data", "convert", "train.jsonl", "rows.csv"], "rows.csv", again=("--force",)
    ),
}


@dataclass(frozen=True)
class Arena:
    """A scenario with what its folder holds before and after an undisturbed run."""

    scenario: Scenario
    zygote: Zygote
    before: Path
    after: Path
    calls: list[list[str]]

    @classmethod
    def build(cls, scenario: Scenario, zygote: Zygote, base: Path, folder: Path) -> Arena:
        before, after = folder / "before", folder / "after"
        shutil.copytree(base, before)
        if scenario.old is not None:
            done(zygote("command", *scenario.old, folder=str(before)))
        shutil.copytree(before, after)
        outcome = zygote("command", *scenario.command, folder=str(after), harm={"kind": "none"})
        done(outcome)
        return cls(scenario, zygote, before, after, outcome.calls)

    def fresh(self) -> Path:
        """A new folder to attack in."""
        folder = self.before.with_name("attacked")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.before, folder)
        return folder

    def run(self, folder: Path, **how: object) -> Outcome:
        return self.zygote("command", *self.scenario.command, folder=str(folder), **how)

    def check_whole(self, folder: Path) -> bool:
        """The target is the old one, the new one or absent; True if it is the new one."""
        state = content(folder / self.scenario.target)
        old = content(self.before / self.scenario.target)
        new = content(self.after / self.scenario.target)
        if not self.scenario.same_bits:
            assert state is None or state.keys() == new.keys()
            return state is not None
        assert state in (old, new)
        return state == new

    def check_continues(self, folder: Path) -> None:
        """The same command again succeeds, gives the same bits and leaves nothing behind."""
        flags = ["--resume"] if self.scenario.resumes and (folder / RUN).exists() else []
        if (folder / self.scenario.target).exists():
            flags += self.scenario.again
        done(self.zygote("command", *self.scenario.command, *flags, folder=str(folder)))
        assert names(folder) == names(self.after)
        assert not list(folder.rglob(".*"))  # temporary names begin with a dot
        if self.scenario.same_bits:
            for name in names(self.after):
                assert content(folder / name) == content(self.after / name), name

    def counted(self, kind: str) -> int:
        """How many of the calls can meet this fault."""
        names = [name for name, _ in self.calls]
        if kind == "broken sync":
            return names.count("fsync")
        if kind == "short":
            return names.count("write")
        if kind == "broken":
            return len(names)
        return sum(name not in ("rmdir", "unlink", "remove") for name in names)

    def check_refused(self, folder: Path, outcome: Outcome) -> None:
        """The command failed as it should, or without harm; afterwards it works."""
        assert not any(word in outcome.stderr for word in PRIVATE)
        if outcome.status == 0:  # the call did not matter: a note, or something to delete
            assert self.check_whole(folder)
        else:
            assert outcome.status == 1
            assert outcome.facts["error"] == "StorageError"
            message = outcome.stderr.strip().splitlines()[-1]
            assert message.startswith("error: ")
            assert any(name in message for name in KNOWN)
            assert "No space left on device" in message or "Input/output error" in message
            self.check_whole(folder)
        self.check_continues(folder)


def done(outcome: Outcome) -> None:
    assert outcome.status == 0, outcome.stderr


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def content(path: Path) -> dict[str, object] | None:
    """Everything in a file or folder except times; a model is checked against its manifest."""
    if not path.exists():
        return None
    if path.is_file():
        return {"": path.read_bytes()}
    files: dict[str, object] = {
        file.relative_to(path).as_posix(): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file()
    }
    if MANIFEST in files:
        stored = load_model(path, verify="full")
        metadata = {key: value for key, value in stored.metadata.items() if key != "timings"}
        files[MANIFEST] = [stored.method, stored.params, metadata, sorted(stored.parts)]
    return files
