"""Sizes, limits and the check before work starts."""

import contextlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelgrove.core import memory
from labelgrove.core.memory import check_announced, format_size, parse_size, require
from labelgrove.errors import ConfigError, DataError, ResourceError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8G", 8 << 30),
        ("512M", 512 << 20),
        ("1.5GiB", 3 << 29),
        ("2 tb", 2 << 40),
        (" 10k ", 10 << 10),
        ("100", 100),
        ("100B", 100),
        (7, 7),
    ],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "G", "-1G", "0", "0.1", "1e3", "8X", "8 G G", "1,5G", "nan", 0, -5, True, None, 1.5],
)
def test_what_is_not_a_size_is_refused_by_name(text):
    pytest.raises(ConfigError, parse_size, text, name="train.memory").match("train.memory: must")


@given(st.text(alphabet="0123456789.kKmMgGiIbB -", max_size=400))
def test_any_text_is_a_size_or_refused(text):
    with contextlib.suppress(ConfigError):
        assert parse_size(text) > 0


@given(st.integers(1, 1 << 45))
def test_formatted_sizes_read_back_about_equal(size):
    text = format_size(size).replace(" bytes", "").replace(",", "")
    assert parse_size(text) == pytest.approx(size, rel=0.06)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows is not asked for it")
def test_the_peak_stays_when_memory_is_given_back():
    code = (
        "from labelgrove.core.memory import peak_rss; before = peak_rss(); "
        "ballast = bytearray(b'x') * (200 << 20); del ballast; print(peak_rss() - before)"
    )
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert int(output.stdout) == pytest.approx(200 << 20, rel=0.1)


def test_the_peak_of_a_child_is_its_own():
    code = "from labelgrove.core.memory import peak_rss; print(peak_rss() or 0)"
    ballast = np.ones(300 << 20, np.uint8)
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert int(output.stdout) < ballast.nbytes


def test_require_compares_with_the_budget_or_with_what_is_free(monkeypatch):
    require("1G", 1 << 30, "features")
    with pytest.raises(
        ResourceError, match=r"features needs about 1.5 GiB but .* 1.0 GiB; use less"
    ):
        require("1G", 3 << 29, "features", advice="use less")
    pytest.raises(ConfigError, require, "lots", 1, "features")
    monkeypatch.setattr(memory, "available_memory", lambda: 1 << 20)
    require(None, 1 << 20, "features")
    pytest.raises(ResourceError, require, None, 1 << 21, "features").match(r"free now is 1.0 MiB")
    monkeypatch.setattr(memory, "available_memory", lambda: None)
    require(None, 1 << 60, "features")


def group(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def test_limits_of_control_groups_count(tmp_path):
    member, root = tmp_path / "cgroup", tmp_path / "fs"
    assert memory._left_in_container(root, member) is None
    member.write_text("0::/job/step\n")
    assert memory._left_in_container(root, member) is None
    stat = "anon 600\ninactive_file 50\n"
    group(root / "job", {"memory.max": "1000\n", "memory.current": "700\n", "memory.stat": stat})
    group(root / "job/step", {"memory.max": "max\n", "memory.current": "600\n"})
    assert memory._left_in_container(root, member) == 350
    group(root / "job/step", {"memory.max": "700\n"})
    assert memory._left_in_container(root, member) == 100
    group(root, {"memory.max": "10\n", "memory.current": "20\n"})
    assert memory._left_in_container(root, member) == 0
    member.write_text("4:memory:/job\n")  # of version 1
    assert memory._left_in_container(root, member) is None


def test_announcements_are_compared_with_the_file_and_with_memory(monkeypatch):
    check_announced(1 << 24, 10, "columns", file="a.txt")  # harmless, however small the file
    with pytest.raises(DataError, match=r"a\.txt: announces 16,777,217 columns.* only 10 bytes"):
        check_announced((1 << 24) + 1, 10, "columns", file="a.txt")
    asked = []
    monkeypatch.setattr(memory, "require", lambda budget, size, what: asked.append(size))
    check_announced(1000, 10_000, "rows", file="a.txt", harmless=1000)
    assert asked == []  # too few to ask for memory
    check_announced(1001, 10_000, "rows", file="a.txt", harmless=1000)
    assert asked == [8008]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the units differ")
def test_without_proc_the_peak_is_what_the_system_counts(monkeypatch):
    import resource

    def counted():
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    assert memory.peak_rss() > 1 << 20
    monkeypatch.setattr(memory, "_proc_value", lambda file, key: 1000)  # in KiB
    monkeypatch.setattr(memory, "_left_in_container", lambda root, member: None)
    assert memory.peak_rss() == memory.available_memory() == 1_024_000
    monkeypatch.setattr(memory, "_proc_value", lambda file, key: None)
    before = counted()
    assert before <= memory.peak_rss() <= counted()


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")
def test_free_memory_respects_the_limit_of_the_process(monkeypatch):
    import resource

    infinite = resource.RLIM_INFINITY
    monkeypatch.setattr(memory, "available_memory", lambda: 1 << 40)
    monkeypatch.setattr(memory, "_proc_value", lambda file, key: 1024)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (3 << 20, infinite))
    assert memory.free_memory() == 2 << 20
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1 << 10, infinite))
    assert memory.free_memory() == 0
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (infinite, infinite))
    assert memory.free_memory() == 1 << 40
