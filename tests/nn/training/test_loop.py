"""The training loop: what it learns, what it promises when stopped, alone and with others."""

import os
import signal
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from labelgrove.core.callbacks import Reporter  # noqa: E402
from labelgrove.core.part import Part  # noqa: E402
from labelgrove.disk.run_folder import RunFolder, run_status  # noqa: E402
from labelgrove.disk.tensors import read_tensors  # noqa: E402
from labelgrove.errors import ConfigError, DataError  # noqa: E402
from labelgrove.nn.heads.rows import RowTable  # noqa: E402
from labelgrove.nn.training.loop import Task, train  # noqa: E402
from support import toy_training  # noqa: E402
from support.together import run_together  # noqa: E402
from support.toy_training import PARAMS, Batches, Model, interrupting, loss_of, run, stopped_after  # noqa: E402

pytestmark = pytest.mark.slow


def assert_same_bits(one, other):
    for name, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


def test_it_learns_and_reports():
    events = []
    model = Model()
    result = run(model, replace(PARAMS, epochs=8), reporter=Reporter([events.append], interval=0))
    losses = [record["loss"] for record in result.history if "loss" in record]
    assert losses[-1] < 0.5 * losses[0]
    assert result.step == 8 * 12
    assert result.tokens == 8 * 46 * 3
    assert result.tokens_per_second > 0
    assert [e.kind for e in events if e.kind.startswith("stage")] == ["stage_start", "stage_end"]
    assert events[-1].done == events[-1].total == 96
    logs = [e.values for e in events if "loss" in e.values]
    names = {"step", "loss", "lr", "tokens_per_second", "eta_seconds", "memory_bytes"}
    assert logs[0].keys() >= names
    assert [log["step"] for log in logs[:3]] == [4, 6, 8]  # every fourth, and with evaluations
    assert logs[0]["epoch"] == round(4 / 12, 3)
    assert logs[0]["lr"] == pytest.approx(0.01 * 4 / 10)  # the warm-up has ten updates
    assert logs[-1]["eta_seconds"] == 0 < logs[0]["eta_seconds"]
    assert all(log["tokens_per_second"] > 0 for log in logs)
    assert not model.training


def test_another_seed_gives_other_weights():
    one, other = Model(), Model()
    run(one, PARAMS)
    run(other, PARAMS, seed=6)
    assert not torch.equal(one.head.weight, other.head.weight)


@pytest.mark.parametrize(
    "settings",
    [
        {"average": "swa", "swa_every": 2, "accumulate": 2},
        {"average": "swa", "swa_start": 0},
        {"precision": "bf16", "schedule": "cascade", "beta1_low": 0.8},
        {"keep": "last", "precision": "fp16"},
        {"dropout_share": 0.5},
    ],
    ids=["swa", "swa from the start", "bf16", "fp16", "less dropout"],
)
def test_a_stopped_and_resumed_run_ends_with_the_same_bits(tmp_path, settings):
    params = replace(PARAMS, checkpoint_minutes=0, **settings)
    whole = Model()
    expected = run(whole, params)

    resumed = Model()
    for step in (3, 9):
        with pytest.raises(KeyboardInterrupt):
            run(resumed, params, folder=tmp_path, reporter=interrupting(step))
        resumed = Model()  # a new process starts with a new model
    result = run(resumed, params, folder=tmp_path)
    assert result.resumed_from == 8
    assert result.history == expected.history
    assert (result.best_score, result.tokens) == (expected.best_score, expected.tokens)
    assert_same_bits(whole, resumed)

    again = Model()
    finished = run(again, params, folder=tmp_path)
    assert (finished.resumed_from, finished.history) == (result.step, result.history)
    assert_same_bits(whole, again)


def test_ctrl_c_waits_for_the_update_and_writes_a_checkpoint(tmp_path):
    params = replace(PARAMS, epochs=2, checkpoint_minutes=None)
    whole, stopped = Model(), Model()
    run(whole, params)
    steps = []

    def press(model, batch):
        steps.append(1)
        if len(steps) == 5:
            signal.raise_signal(signal.SIGINT)
        return loss_of(model, batch)

    usual = signal.getsignal(signal.SIGINT)
    pytest.raises(KeyboardInterrupt, run, stopped, params, folder=tmp_path, loss=press)
    assert signal.getsignal(signal.SIGINT) is usual
    stopped = Model()
    assert run(stopped, params, folder=tmp_path).resumed_from == 5
    assert_same_bits(whole, stopped)


def test_a_second_ctrl_c_and_one_without_checkpoints_work_at_once(tmp_path):
    for folder, presses in ((tmp_path, 2), (None, 1)):

        def press(model, batch, presses=presses):
            for _ in range(presses):
                signal.raise_signal(signal.SIGINT)
            raise AssertionError("the interrupt came too late")

        pytest.raises(KeyboardInterrupt, run, Model(), PARAMS, folder=folder, loss=press)


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")
def test_a_killed_run_continues_from_its_last_checkpoint_to_the_same_bits(tmp_path):
    params = replace(PARAMS, checkpoint_minutes=0, average="swa")
    child = os.fork()  # a new interpreter would take seconds to import torch
    if child == 0:
        try:
            toy_training.run_until_killed(tmp_path, params, deadly=17)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    whole, resumed = Model(), Model()
    expected = run(whole, params)
    result = run(resumed, params, folder=tmp_path)
    assert result.resumed_from == 15
    assert result.history == expected.history
    assert_same_bits(whole, resumed)


def test_a_stage_of_a_run_folder_keeps_the_checkpoints_and_drops_them_when_it_is_done(tmp_path):
    params = replace(PARAMS, max_steps=8, checkpoint_minutes=0)

    def stage():
        with RunFolder(tmp_path / "run") as folder:

            def compute():
                where = folder.checkpoint("encoder").folder
                result = run(Model(), params, folder=where)
                return Part({"resumed_from": result.resumed_from})

            return int(folder.stage("encoder", {"x": 1}, compute).config["resumed_from"])

    with pytest.raises(KeyboardInterrupt), stopped_after(4):
        stage()
    assert run_status(tmp_path / "run").checkpoints[-1].step == 4
    assert stage() == 4
    assert run_status(tmp_path / "run").checkpoints == []


def test_a_checkpoint_of_other_settings_is_refused_and_none_is_a_pickle(tmp_path):
    params = replace(PARAMS, max_steps=2, checkpoint_minutes=None)
    run(Model(), params, folder=tmp_path)
    with pytest.raises(ConfigError, match=r"lr: the checkpoint was made with 0\.01, not 0\.02"):
        run(Model(), replace(params, lr=0.02), folder=tmp_path)
    pytest.raises(ConfigError, run, Model(), params, folder=tmp_path, seed=1).match("seed")
    result = run(Model(), replace(params, log_every=1), folder=tmp_path)
    assert result.resumed_from == 2
    kinds = {p.suffix for p in tmp_path.rglob("*") if p.is_file()}
    assert kinds == {".json", ".safetensors"}


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path):
    params = replace(PARAMS, checkpoint_minutes=0)
    with pytest.raises(KeyboardInterrupt), stopped_after(4):
        run(Model(), params, folder=tmp_path)
    last = max(tmp_path.glob("step-*"))
    file = next(last.glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    whole, resumed = Model(), Model()
    run(whole, params)
    messages = []
    reporter = Reporter([lambda event: messages.append(event.values.get("text"))])
    assert run(resumed, params, folder=tmp_path, reporter=reporter).resumed_from == 3
    assert "train: continues after 3 of 24 updates" in messages
    assert_same_bits(whole, resumed)


def test_gradients_are_clipped():
    """Adam takes steps of the same size whatever the gradients, until these are near its eps."""
    quiet = replace(PARAMS, weight_decay=0.0, head_weight_decay=0.0, keep="last", max_steps=3)

    def moved(clip_norm):
        model, start = Model(), Model()
        train(model, Task(Batches(), loss_of), replace(quiet, clip_norm=clip_norm))
        before = dict(start.named_parameters())
        return {n: (p - before[n]).abs().max().item() for n, p in model.named_parameters()}

    free, clipped = moved(None), moved(1e-11)
    assert all(clipped[name] < 0.01 * free[name] for name in free)


@pytest.mark.parametrize("clip_norm", [None, 0.05])
def test_accumulation_equals_the_large_batch(clip_norm):
    params = replace(PARAMS, clip_norm=clip_norm, keep="last")
    small = replace(params, accumulate=3)
    one, other = Model(dropout=0.0), Model(dropout=0.0)
    large = train(one, Task(Batches(12), loss_of), params)
    result = train(other, Task(Batches(4), loss_of), small)
    losses = [[record["loss"] for record in run.history] for run in (large, result)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert result.step == 2 * 4  # the last update of an epoch has three batches, one of them of 2
    for name, value in one.state_dict().items():
        assert torch.allclose(value, other.state_dict()[name], atol=2e-5), name


@pytest.mark.parametrize(("head_lr", "rate"), [(None, 0.01), (0.03, 0.03)])
def test_tables_learn_at_the_rate_of_the_heads(head_lr, rate):
    params = replace(PARAMS, max_steps=1, warmup=0, head_lr=head_lr, head_weight_decay=0.0)
    arrays = toy_training.gradients_of_updates(params)
    steps = np.abs(arrays["table.weight"] - Model().table.weight.numpy())
    assert steps.max() == pytest.approx(rate, rel=1e-3)  # the first of Adam


def test_seconds_are_those_of_updates_alone(monkeypatch):
    clock = {"now": 50.0}
    fake = SimpleNamespace(monotonic=lambda: clock["now"])
    monkeypatch.setattr("labelgrove.nn.training.loop.time", fake)

    def one_second(model, batch):
        clock["now"] += 1
        return loss_of(model, batch)

    def evaluate():
        clock["now"] += 100
        return 0.0

    result = run(Model(), replace(PARAMS, max_steps=9), loss=one_second, evaluate=evaluate)
    assert result.seconds == 9
    assert result.tokens_per_second == pytest.approx(9 * 4 * 3 / 9)


def test_fp16_leaves_out_updates_that_overflow():
    model = Model()
    before = model.head.weight.clone()
    params = replace(PARAMS, precision="fp16", max_steps=1, log_every=5)

    def huge(model, batch):
        return loss_of(model, batch) * 1e36

    train(model, Task(Batches(), huge), params)
    assert torch.equal(model.head.weight, before)


def test_limits_on_updates_and_what_cannot_be_trained():
    assert run(Model(), replace(PARAMS, epochs=0.5)).step == 6
    assert run(Model(), replace(PARAMS, max_steps=14)).step == 14
    pytest.raises(ConfigError, run, Model(), replace(PARAMS, accumulate=0)).match(
        "accumulate: must be"
    )

    class Nothing(Batches):
        def __len__(self):
            return 0

    class Lying(Batches):
        def epoch(self, number, *, start=0):
            return iter(())

    with pytest.raises(DataError, match="no batches"):
        train(Model(), Task(Nothing(), loss_of), PARAMS)
    with pytest.raises(DataError, match="epoch 0 has no batches"):
        train(Model(), Task(Lying(), loss_of), PARAMS)
    frozen = torch.nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(ConfigError, match="nothing to train"):
        train(frozen, Task(Batches(), loss_of), PARAMS)


def test_a_table_alone_can_be_trained():
    class OnlyTable(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = RowTable(100, 12, std=0)

    def loss(model, batch):
        logits = batch.x @ model.table.rows(torch.arange(12)).T
        return torch.nn.functional.cross_entropy(logits, batch.y)

    result = train(OnlyTable(), Task(Batches(), loss), replace(PARAMS, epochs=8))
    losses = [record["loss"] for record in result.history]
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.skipif(sys.platform == "win32", reason="gloo by environment variables")
def test_two_processes_make_the_updates_of_one_with_twice_the_batches(tmp_path):
    for ended in run_together(toy_training.__file__, tmp_path):
        assert ended.code == 0, ended.errors
    alone = toy_training.gradients_of_updates(replace(PARAMS, epochs=1.5, accumulate=2))
    first, second = (read_tensors(tmp_path / f"{rank}.safetensors") for rank in (0, 1))
    # The processes were stopped after four updates and continued with updates 4 to 8.
    assert {name.split()[0] for name in first if " " in name} == {str(s) for s in range(4, 9)}
    for name in first:
        assert np.array_equal(first[name], second[name]), name
        assert np.allclose(first[name], alone[name], atol=1e-5), name
    # Three updates with two batches in each process.
    alone = toy_training.gradients_of_updates(replace(PARAMS, max_steps=3, accumulate=4))
    for rank in (0, 1):
        arrays = read_tensors(tmp_path / f"accumulated-{rank}.safetensors")
        for key in arrays:
            assert np.allclose(arrays[key], alone[key], atol=1e-5), key
