"""Events reach every listener, stops reach the caller, and the terminal stays whole."""

import io
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from labelgrove.core import callbacks
from labelgrove.core.callbacks import Event, JsonlLog, Reporter, RichProgress

SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"


def terminal():
    return Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)


def shown(console):
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_stage_sends_start_progress_and_end():
    events = []
    reporter = Reporter([events.append], interval=0)
    with reporter.stage("tf-idf", total=3) as stage:
        stage.advance()
        stage.advance(2)
        stage.metrics(loss=0.5)
    assert [(e.kind, e.stage, e.done, e.total) for e in events] == [
        ("stage_start", "tf-idf", 0, 3),
        ("progress", "tf-idf", 1, 3),
        ("progress", "tf-idf", 3, 3),
        ("metrics", "tf-idf", 3, 3),
        ("stage_end", "tf-idf", 3, 3),
    ]
    assert events[3].values == {"loss": 0.5}
    assert set(events[4].values) == {"wall_seconds", "cpu_seconds"}


def test_progress_is_throttled_but_the_last_step_is_sent():
    events = []
    with Reporter([events.append], interval=60).stage("x", total=1000) as stage:
        for _ in range(1000):
            stage.advance()
    assert [e.done for e in events if e.kind == "progress"] == [1000]


def test_timings_add_up_and_tell_waiting_from_work(monkeypatch):
    now = {"wall": 7.0, "cpu": 3.0}
    clock = {"perf_counter": lambda: now["wall"], "process_time": lambda: now["cpu"]}
    clock |= {"monotonic": time.monotonic, "time": time.time}
    monkeypatch.setattr(callbacks, "time", SimpleNamespace(**clock))
    reporter = Reporter()
    for _ in range(2):
        with reporter.stage("sleep"):
            now["wall"] += 2
    with reporter.stage("work"):
        now["wall"] += 1
        now["cpu"] += 5  # of several threads
    sleep, work = reporter.timings["sleep"], reporter.timings["work"]
    assert (sleep.runs, sleep.wall, sleep.cpu) == (2, 4, 0)
    assert (work.runs, work.wall, work.cpu) == (1, 1, 5)


class Stop(Exception):
    pass


@pytest.mark.parametrize("error", [Stop, KeyboardInterrupt])
@pytest.mark.parametrize("when", ["stage_start", "progress", "stage_end"])
def test_a_callback_can_stop_the_run(error, when):
    events = []

    def stop(event):
        if event.kind == when:
            raise error

    reporter = Reporter([stop, events.append], interval=0)
    with pytest.raises(error), reporter.stage("x", total=2) as stage:
        stage.advance()
        stage.advance()
    assert events[-1].kind == "stage_end"
    assert [e.kind for e in events].count("progress") == {"stage_start": 0, "progress": 1}.get(
        when, 2
    )
    assert "x" in reporter.timings


def test_a_failing_stage_is_not_hidden_by_a_failing_callback():
    def complain(event):
        if event.kind == "stage_end":
            raise Stop

    with pytest.raises(ZeroDivisionError), Reporter([complain]).stage("x"):
        raise ZeroDivisionError


def test_the_log_keeps_some_progress_and_takes_any_value(tmp_path):
    log = JsonlLog(tmp_path / "log.jsonl", interval=10)
    for done in range(31):
        log(Event("progress", "x", done=done, total=30, time=1000.0 + done))
    log(Event("metrics", "x", values={"confusion": np.eye(2), "who": Path("a")}))
    records = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert [r["done"] for r in records[:-1]] == [0, 10, 20, 30]
    assert records[-1]["values"] == {"confusion": str(np.eye(2)), "who": "a"}


def test_bars_appear_on_a_terminal_and_leave_it_whole():
    console = terminal()
    reporter = Reporter([RichProgress(console=console)], interval=0)
    with reporter.stage("outer [b]", total=4) as outer:
        outer.advance(2)
        with reporter.stage("inner") as inner:
            inner.advance(5)
        reporter.message("[not markup] said")
        outer.metrics(loss=0.123456)
        outer.advance(2)
    output = shown(console)
    assert "4/4" in output
    assert "5/5" in output  # at its end, a stage without a total has done all there was
    assert "outer [b]" in output
    assert "inner" in output
    assert "[not markup] said" in output
    assert "loss 0.1235" in output
    assert output.count(HIDE_CURSOR) == output.count(SHOW_CURSOR) == 1


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_the_terminal_is_whole_after_an_error(error):
    console = terminal()
    reporter = Reporter([RichProgress(console=console)], interval=0)
    with pytest.raises(error), reporter.stage("a", total=9), reporter.stage("b") as stage:
        stage.advance()
        raise error
    assert shown(console).rindex(SHOW_CURSOR) > shown(console).rindex(HIDE_CURSOR)
    assert "1/?" in shown(console) and "1/1" not in shown(console)  # not all, as far as we know


def test_the_terminal_is_whole_when_another_callback_interrupts_at_the_end():
    def interrupt(event):
        if event.kind != "stage_start":
            raise KeyboardInterrupt

    console = terminal()
    reporter = Reporter([interrupt, RichProgress(console=console)], interval=0)
    with pytest.raises(KeyboardInterrupt), reporter.stage("a", total=2) as stage:
        stage.advance()
    assert shown(console).rindex(SHOW_CURSOR) > shown(console).rindex(HIDE_CURSOR)


def test_closing_gives_the_terminal_back_in_mid_stage():
    console = terminal()
    with RichProgress(console=console) as progress:
        progress(Event("stage_start", "a", total=2))
    assert shown(console).rindex(SHOW_CURSOR) > shown(console).rindex(HIDE_CURSOR)
    progress(Event("progress", "a", done=1, total=2))  # late events do no harm
    progress(Event("stage_end", "a", done=2, total=2))


def test_without_a_terminal_lines_are_written_and_rich_is_not_imported():
    code = (
        "import sys\n"
        "from labelgrove.core.callbacks import Event, Reporter, RichProgress\n"
        "reporter = Reporter([RichProgress()])\n"
        "with reporter.stage('x', total=1) as stage:\n"
        "    stage.advance()\n"
        "reporter.message('hello')\n"
        "for at, values in ((100, {'loss': 3}), (130, {'loss': 2}), (131, {'score': 0.25}),\n"
        "                   (161, {'loss': 1})):\n"
        "    reporter.send(Event('metrics', 'training', values=values, time=at))\n"
        "assert 'rich' not in sys.modules\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert result.stdout == b""
    lines = result.stderr.decode().splitlines()
    assert lines == ["hello", "training loss 3", "training score 0.25", "training loss 1"]


def test_other_processes_of_a_distributed_run_are_silent(monkeypatch):
    class Tty(io.StringIO):
        def isatty(self):
            return True

    def written(rank):
        stream = Tty()
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", "2")
        monkeypatch.setenv("TERM", "xterm")
        with Reporter([RichProgress()]).stage("x", total=1) as stage:
            stage.advance()
        return stream.getvalue()

    assert written("1") == ""
    assert "x" in written("0")
