"""Folders appear whole or not at all, whenever the writer dies."""

import ctypes
import errno
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from labelgrove.disk import atomic
from labelgrove.disk.atomic import (
    FileLock,
    clean_up,
    leftovers,
    remove_folder,
    replace_file,
    write_file,
    write_folder,
)
from labelgrove.errors import ConfigError, StorageError


def fill(text):
    return lambda folder: write_file(folder / "a.txt", text.encode())


def test_what_fails_leaves_nothing_and_names_the_folder_as_the_user_did(tmp_path, monkeypatch):
    def fail(folder):
        (folder / "half").write_text("x")
        raise RuntimeError("disk trouble")

    pytest.raises(RuntimeError, write_folder, tmp_path / "out", fail).match("disk trouble")
    assert not list(tmp_path.iterdir())

    def full(folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StorageError, match=r"model: cannot be written: No space left on device"):
        write_folder(tmp_path / "model", full)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file/model: cannot be written"):
        write_folder(tmp_path / "file" / "model", lambda folder: None)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]


def test_an_empty_folder_is_filled_and_a_full_or_set_aside_one_stays(tmp_path):
    (tmp_path / "out").mkdir()
    write_folder(tmp_path / "out", fill("1"))
    pytest.raises(ConfigError, write_folder, tmp_path / "out", fill("2")).match("exists already")
    assert (tmp_path / "out/a.txt").read_text() == "1"
    write_folder(tmp_path / ".out.labelgrove-old-1", fill("1"))
    pytest.raises(ConfigError, write_folder, tmp_path / "out", fill("2")).match("exists already")
    assert (tmp_path / "out/a.txt").read_text() == "1"


@pytest.mark.parametrize("exchange", [True, False])
def test_replacing_swaps_and_removes_the_old(tmp_path, monkeypatch, exchange):
    if not exchange:
        monkeypatch.setattr(atomic, "_exchange", lambda first, second: False)
    write_folder(tmp_path / "out", fill("1"))
    write_folder(tmp_path / "out", fill("2"), replace=True)
    assert (tmp_path / "out/a.txt").read_text() == "2"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.skipif(sys.platform != "linux", reason="a call of Linux")
def test_folders_are_exchanged_in_one_step_where_the_system_can(tmp_path):
    names = [tmp_path / "a", tmp_path / "b"]
    for name in names:
        write_folder(name, fill(name.name))
    call = getattr(ctypes.CDLL(None), "renameat2", lambda *arguments: -1)
    possible = call(-100, os.fsencode(names[0]), -100, os.fsencode(names[1]), 2) == 0
    assert atomic._exchange(*names) == possible
    assert [(name / "a.txt").read_text() for name in names] == ["a", "b"]  # twice, or never


def test_an_old_folder_that_cannot_be_removed_does_not_stop_its_replacement(tmp_path, monkeypatch):
    def refused(*arguments, **options):
        raise PermissionError

    write_folder(tmp_path / "out", fill("1"))
    with monkeypatch.context() as patch:
        patch.setattr(atomic, "_exchange", lambda first, second: False)
        patch.setattr(os, "unlink", refused)
        for text in "23":
            write_folder(tmp_path / "out", fill(text), replace=True)
    assert (tmp_path / "out/a.txt").read_text() == "3"
    clean_up(tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_link_stays_a_link(tmp_path):
    write_folder(tmp_path / "v1", fill("1"))
    (tmp_path / "current").symlink_to("v1")
    write_folder(tmp_path / "current", fill("2"), replace=True)
    assert (tmp_path / "current").is_symlink()
    assert (tmp_path / "v1/a.txt").read_text() == "2"


@pytest.mark.skipif(os.name != "posix", reason="locks on folders need flock")
def test_only_abandoned_leftovers_are_removed(tmp_path):
    (tmp_path / ".out.labelgrove-tmp-dead").mkdir()
    (tmp_path / ".other.labelgrove-tmp-dead").mkdir()
    seen = []

    def write(folder):
        seen.extend(leftovers(tmp_path / "out"))
        atomic.clean_up(tmp_path / "out")  # as another process would
        fill("1")(folder)

    write_folder(tmp_path / "out", write)
    assert len(seen) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == [".other.labelgrove-tmp-dead", "out"]


KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
from labelgrove.disk import atomic
calls, deadly, target, exchange = 0, int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "yes"
def deadly_call(name, owner):
    real = getattr(owner, name)
    def call(*arguments, **options):
        global calls
        calls += 1
        if calls == deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)
    setattr(owner, name, call)
for name, owner in [("fsync", os), ("rename", Path), ("rmtree", atomic.shutil), ("mkdir", Path)]:
    deadly_call(name, owner)
if not exchange:
    atomic._exchange = lambda first, second: False
def write(folder):
    for name in "ab":
        atomic.write_file(folder / name, b"new")
atomic.write_folder(target, write, replace=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
@pytest.mark.parametrize("exchange", ["yes", "no"])
def test_killed_at_any_step_the_folder_is_old_or_new(tmp_path, exchange):
    def write_old(folder):
        for name in "ab":
            write_file(folder / name, b"old")

    for deadly in range(1, 30):
        target = tmp_path / str(deadly) / "out"
        write_folder(target, write_old)
        command = [sys.executable, "-c", KILLED_WRITER, str(deadly), str(target), exchange]
        killed = subprocess.run(command, check=False).returncode != 0
        atomic.clean_up(target)
        assert {file.read_bytes() for file in target.iterdir()} in ({b"old"}, {b"new"})
        assert len(list(target.iterdir())) == 2
        assert [p.name for p in target.parent.iterdir()] == ["out"]
        if not killed:
            break
    assert deadly > 6  # it did die in many places
    assert not killed


def test_a_kill_while_a_folder_is_deleted_leaves_nothing_under_its_name(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a").write_text("")

    def killed(path, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shutil, "rmtree", killed)
        remove_folder(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    clean_up(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_writers_to_one_folder_do_not_disturb_each_other(tmp_path: Path) -> None:
    target = tmp_path / "goal"

    def write(number: int) -> None:
        write_folder(target, lambda folder: (folder / "a").touch(), replace=True)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(300)))
    assert [file.name for file in tmp_path.iterdir()] == ["goal"]


def test_writers_to_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    target = tmp_path / "goal"
    contents = [bytes([number]) * 50_000 for number in range(6)]

    def write(number: int) -> None:
        replace_file(target, contents[number % 6])
        assert target.read_bytes() in contents

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(60)))
    assert [file.name for file in tmp_path.iterdir()] == ["goal"]


@pytest.mark.parametrize("moment", ["before the lock", "before the move"])
def test_another_process_may_be_quicker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    target, name = tmp_path / "goal", {"before the lock": "_locked", "before the move": "occupied"}
    usual, calls = getattr(atomic, name[moment]), []

    def other(path: Path) -> Any:
        calls.append(path)
        if moment == "before the lock" and len(calls) == 1:
            path.rmdir()
        if moment == "before the move" and len(calls) == 1:
            target.mkdir()
            (target / "a").touch()
            return False  # as it was a moment ago
        return usual(path)

    monkeypatch.setattr(atomic, name[moment], other)
    write_folder(target, lambda folder: (folder / "b").touch(), replace=True)
    assert [file.name for file in target.iterdir()] == ["b"]
    assert [file.name for file in tmp_path.iterdir()] == ["goal"] and len(calls) == 2


HOLDER = """
import signal, sys
from pathlib import Path
from labelgrove.disk.atomic import FileLock
lock = FileLock(Path(sys.argv[1]))
print(lock.taken, flush=True)
signal.pause()
"""


def test_released_and_forgotten_locks_are_free_and_a_refused_one_disturbs_nobody(tmp_path):
    file = tmp_path / "lock"
    lock = FileLock(file)
    other = FileLock(file)
    assert not other.taken
    assert other.previous["pid"] == os.getpid()
    other.release()
    assert not FileLock(file).taken
    lock.release()
    again = FileLock(file)
    assert (again.taken, again.previous) == (True, None)
    del again
    assert FileLock(file).taken


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_holder_holds_nothing_but_is_remembered(tmp_path):
    file = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(file)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "True\n"
        lock = FileLock(file)
        assert not lock.taken
        lock.release()
        process.send_signal(signal.SIGKILL)
    lock = FileLock(file)
    assert lock.taken
    assert lock.previous["pid"] == process.pid
    lock.release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_neither_frees_nor_keeps_the_lock(tmp_path):
    code = """
import os, sys, time
from pathlib import Path
from labelgrove.disk.atomic import FileLock
file = Path(sys.argv[1])
lock = FileLock(file)
child = os.fork()
if child == 0:
    sys.exit(0)  # an orderly end, finalizers included
os.waitpid(child, 0)
other = FileLock(file)
assert not other.taken and other.previous["pid"] == os.getpid()
child = os.fork()
if child == 0:
    time.sleep(600)
    os._exit(0)
lock.release()
assert FileLock(file).taken
os.kill(child, 9)
os.waitpid(child, 0)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "lock")], check=True)
