"""Run folders: reuse by content, checkpoints, locks, and being killed at any moment."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from labelgrove.core.callbacks import Event, Reporter
from labelgrove.core.part import Part
from labelgrove.disk.run_folder import Checkpoints, RunFolder, run_status, stage_key
from labelgrove.errors import ConfigError, ModelFormatError


def counted(calls, name, value=1):
    def compute():
        calls.append(name)
        return Part({"value": value}, {"x": np.full(3, value, dtype=np.float32)})

    return compute


def log_kinds(folder):
    return [json.loads(line)["kind"] for line in (folder / "log.jsonl").read_text().splitlines()]


def test_a_stage_is_computed_once_per_inputs(tmp_path):
    calls = []
    for C in (1.0, 2.0, 1.0):
        with RunFolder(tmp_path / "run") as run:
            features = run.stage("tfidf", {"texts": ["a", "b"]}, counted(calls, "tfidf"))
            ranker = run.stage("ranker", {"C": C}, counted(calls, f"ranker {C}", C))
            assert ranker.arrays["x"].tolist() == [C] * 3
            assert not features.arrays["x"].flags.writeable
    assert calls == ["tfidf", "ranker 1.0", "ranker 2.0"]


def test_a_fresh_result_is_just_like_a_stored_one(tmp_path):
    with RunFolder(tmp_path) as run:
        fresh = run.stage("a", {}, lambda: Part({"t": (1, 2)}, {"x": np.arange(3)}))
        stored = run.stage("a", {}, lambda: Part())
    for part in (fresh, stored):
        assert part.config == {"t": [1, 2]}
        assert not part.arrays["x"].flags.writeable


def test_what_a_killed_process_left_half_written_is_removed(tmp_path):
    half = tmp_path / "stages" / ".a.labelgrove-tmp-1"
    RunFolder(tmp_path).close()
    half.mkdir(parents=True)
    RunFolder(tmp_path).close()
    assert not half.exists()


def test_what_cannot_be_a_stage(tmp_path):
    with RunFolder(tmp_path) as run:
        run.stage("member0/tree", {"x": 1}, lambda: Part({"v": 0}))
        assert run.stage("member1/tree", {"x": 1}, lambda: Part({"v": 1})).config == {"v": 1}
        assert [s.name for s in run.status().stages] == ["member0/tree", "member1/tree"]
        pytest.raises(ConfigError, run.stage, "../up", {}, Part).match("cannot be the name of a")
    with RunFolder(tmp_path) as run:
        part = run.stage("a", {}, lambda: run.stage("b", {}, lambda: Part({"x": 1})))
        assert part.config == {"x": 1}
        with pytest.raises(ConfigError, match="asks for itself"):
            run.stage("c", {}, lambda: run.stage("c", {}, Part))

    with RunFolder(tmp_path) as run, pytest.raises(ConfigError, match="has no content hash"):
        run.stage("a", {"model": object()}, Part)


def test_keys_chain_stages_without_hashing_results(tmp_path):
    inputs = {"texts": ["a"]}
    assert stage_key("tfidf", inputs) == stage_key("tfidf", {"texts": ("a",)})
    assert stage_key("tfidf", inputs) != stage_key("tree", inputs)
    with RunFolder(tmp_path) as run:
        run.stage("tfidf", inputs, Part)
        assert run.status().stages[0].key == stage_key("tfidf", inputs)


def test_a_failed_or_damaged_stage_is_computed_again(tmp_path):
    with RunFolder(tmp_path) as run:
        pytest.raises(ZeroDivisionError, run.stage, "a", {}, lambda: Part({"x": 1 / 0}))
        calls = []
        run.stage("a", {}, counted(calls, "a"))
        file = next(tmp_path.glob("stages/a/*/result.safetensors"))
        file.write_bytes(file.read_bytes()[:-1])
        assert run.stage("a", {}, counted(calls, "a")).arrays["x"].tolist() == [1, 1, 1]
    assert calls == ["a", "a"]
    assert "stage_damaged" in log_kinds(tmp_path)


def test_checkpoints_belong_to_a_stage_and_its_inputs(tmp_path):
    class Killed(Exception):
        pass

    def train(run, stop_at):
        def compute():
            checkpoint = run.checkpoint("train")
            found = checkpoint.latest()
            step, total = (0, 0) if found is None else (found[0], found[1].config["total"])
            started.append(step)
            while step < 5:
                if step == stop_at:
                    raise Killed
                step, total = step + 1, total + 10
                checkpoint.save(Part({"total": total}), step=step)
            return Part({"total": total})

        return compute

    started = []
    with RunFolder(tmp_path) as run:
        pytest.raises(Killed, run.stage, "train", {"lr": 1}, train(run, 3))
        pytest.raises(Killed, run.stage, "train", {"lr": 2}, train(run, 0))
        assert [(c.name, c.step) for c in run.status().checkpoints] == [("train", 2), ("train", 3)]
        assert run.stage("train", {"lr": 1}, train(run, None)).config == {"total": 50}
        assert run.status().checkpoints == []
        pytest.raises(ConfigError, run.checkpoint, "train").match("not being computed")
    assert started == [0, 0, 3]


def test_the_last_two_checkpoints_are_kept_and_damage_is_skipped(tmp_path):
    checkpoints = Checkpoints(tmp_path / "c")
    assert checkpoints.latest() is None
    for step in (1, 2, 10):
        checkpoints.save(Part({"step": step}, {"w": np.ones(step)}), step=step)
    assert checkpoints.steps() == [2, 10]
    (tmp_path / "c/step-000000000010/state.safetensors").unlink()
    found = checkpoints.latest()
    assert (found[0], found[1].config) == (2, {"step": 2})
    checkpoints.save(Part({"step": 3}), step=3)
    assert checkpoints.steps() == [2, 3]
    checkpoints.save(Part({"step": "again"}), step=3)
    found = checkpoints.latest()
    assert found[1].config == {"step": "again"}
    checkpoints.save(Part({"step": 1}), step=1)  # starting over
    assert checkpoints.steps() == [1]


def test_a_used_folder_needs_resume_and_holds_one_process(tmp_path):
    RunFolder(tmp_path / "run", resume=False).close()
    with pytest.raises(ConfigError, match=r"an earlier run; add --resume .* another folder"):
        RunFolder(tmp_path / "run", resume=False)
    RunFolder(tmp_path / "run").close()  # the refusals have let go of the lock
    with RunFolder(tmp_path / "run"):
        pytest.raises(ConfigError, RunFolder, tmp_path / "run").match(f"process {os.getpid()}")
    RunFolder(tmp_path / "run").close()


def test_folders_of_other_people_are_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    pytest.raises(ConfigError, RunFolder, tmp_path).match("has other files")
    pytest.raises(ConfigError, RunFolder, tmp_path / "thesis.tex").match("is a file")
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]
    pytest.raises(ConfigError, run_status, tmp_path).match("not a run folder")


@pytest.mark.parametrize("content", ["{", "[]", '{"format": "labelgrove-run"}'])
def test_strange_run_files_are_refused(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    pytest.raises(ModelFormatError, RunFolder, tmp_path).match(r"run.json")


def test_status_and_log(tmp_path):
    with RunFolder(tmp_path) as run:
        run.stage("a", {}, lambda: Part({}, {"x": np.zeros(1000)}))
        reporter = Reporter([run.log])
        reporter.metrics({"P@1": np.float32(0.5)}, stage="dev")
        run.log(Event("message", values={"text": "hi"}))
        assert [s.name for s in run.status().stages] == ["a"]  # while it is running, too
    status = run_status(tmp_path)
    assert [s.name for s in status.stages] == ["a"]
    assert status.stages[0].bytes > 8000
    assert log_kinds(tmp_path) == [
        "run_start",
        "stage_computing",
        "stage_stored",
        "metrics",
        "message",
    ]


def test_a_kill_while_a_run_is_removed_does_not_block_its_folder(tmp_path, monkeypatch):
    run = RunFolder(tmp_path / "run")
    run.stage("x", {"a": 1}, lambda: Part({}))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("shutil.rmtree", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        run.remove()
    run.close()
    with RunFolder(tmp_path / "run", resume=False):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_folder_that_goes_while_it_is_opened_is_said_so(tmp_path, monkeypatch):
    def gone(path, *arguments, **options):
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr("labelgrove.disk.atomic.replace_file", gone)
    pytest.raises(ConfigError, RunFolder, tmp_path / "run").match("another process that trained")


@pytest.mark.slow
def test_a_shared_folder_has_guests_that_compute_each_stage_once(tmp_path):
    source = """
import sys, time
from labelgrove.core.part import Part
from labelgrove.disk.run_folder import RunFolder
with RunFolder.join(sys.argv[1]) as run:
    print(run.stage("slow", {"x": 1}, lambda: time.sleep(1) or Part({"by": sys.argv[2]})).config)
"""
    with RunFolder(tmp_path / "run") as run:
        pytest.raises(ConfigError, RunFolder, tmp_path / "run").match("in use by process")
        with run.shared():
            guests = [
                subprocess.Popen(
                    [sys.executable, "-c", source, str(run.path), str(number)],
                    stdout=subprocess.PIPE,
                )
                for number in range(2)
            ]
            said = [guest.communicate()[0] for guest in guests]
            RunFolder.join(run.path).remove()  # what is shared is not a guest's to delete
        events = [json.loads(line) for line in (run.path / "log.jsonl").read_text().splitlines()]
        own = run.stage("slow", {"x": 1}, lambda: Part({"by": "nobody"}))
        pytest.raises(ConfigError, RunFolder, tmp_path / "run").match("in use by process")
    assert said[0] == said[1] == f"{own.config}\n".encode()
    kinds = [event["kind"] for event in events]
    assert kinds.count("stage_computing") == 1 and kinds.count("stage_reused") == 1
    by = {event["by"].rpartition(" ")[2] for event in events if "by" in event}
    assert by == {str(guest.pid) for guest in guests}


def test_a_task_must_see_the_folder(tmp_path):
    pytest.raises(ConfigError, RunFolder.join, tmp_path / "elsewhere").match("on a path that all")
    assert not (tmp_path / "elsewhere").exists()
    with RunFolder(tmp_path / "run"):
        pass
    pytest.raises(ConfigError, RunFolder.join, tmp_path / "run").match("on a path that all")
