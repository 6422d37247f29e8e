"""Locks hold between processes and end with them."""

import os
import signal
import subprocess
import sys

import pytest

from labelgrove.disk.locks import FileLock

HOLDER = """
import signal, sys
from pathlib import Path
from labelgrove.disk.locks import FileLock
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
    lock.release()
    again = FileLock(file)
    assert (again.taken, again.previous) == (True, None)
    again.release()

    file = tmp_path / "lock"
    first, second = FileLock(file), FileLock(file)
    assert not second.taken
    second.release()
    assert not FileLock(file).taken
    first.release()

    lock = FileLock(tmp_path / "lock")
    del lock
    assert FileLock(tmp_path / "lock").taken


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
from labelgrove.disk.locks import FileLock
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
