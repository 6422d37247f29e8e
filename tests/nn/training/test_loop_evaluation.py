"""Evaluation in the training loop: what it sees, what it chooses, and when it ends the training."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from labelgrove.errors import ConfigError  # noqa: E402
from labelgrove.nn.training.loop import Task, train  # noqa: E402
from support.toy_training import PARAMS, Batches, Model, loss_of, run  # noqa: E402

pytestmark = pytest.mark.slow


def test_weights_of_the_best_evaluation_survive_a_stop(tmp_path):
    scores = iter([1.0, 3.0, 2.0, 2.5])
    seen = []
    model = Model()

    def evaluate():
        seen.append(model.head.weight.clone())
        return next(scores)

    params = replace(PARAMS, checkpoint_minutes=0, evaluations_per_epoch=3)
    pytest.raises(StopIteration, run, model, params, folder=tmp_path, evaluate=evaluate)
    model = Model()
    result = run(model, params, folder=tmp_path, evaluate=lambda: 0.1)
    assert (result.best_score, result.best_step) == (3.0, 8)
    assert torch.equal(model.head.weight, seen[1])
    # All others are gone; the last checkpoint but one still names this one.
    assert [p.name for p in (tmp_path / "best").iterdir()] == ["step-000000000008"]


def test_dropout_is_on_again_after_an_evaluation_and_frozen_parts_stay_as_they_were():
    class Watched(Model):
        modes: list[tuple[bool, bool]]

        def train(self, mode=True):
            super().train(mode)
            self.head.eval()  # a frozen part
            return self

    model = Watched()
    model.modes = []

    def watched_loss(model, batch):
        model.modes.append((model.training, model.encoder[2].training, model.head.training))
        return loss_of(model, batch)

    params = replace(PARAMS, max_steps=6, evaluations_per_epoch=6)
    train(model, Task(Batches(), watched_loss, lambda: 0.0), params)
    assert model.modes == [(True, True, False)] * 6


def test_training_may_be_strict_about_float32():
    before = torch.get_float32_matmul_precision()
    precisions = []

    def watched_loss(model, batch):
        precisions.append(torch.get_float32_matmul_precision())
        return loss_of(model, batch)

    torch.set_float32_matmul_precision("medium")
    try:
        for tf32 in (True, False):
            params = replace(PARAMS, max_steps=1, tf32=tf32)
            train(Model(), Task(Batches(), watched_loss), params)
    finally:
        torch.set_float32_matmul_precision(before)
    assert precisions == ["medium", "highest"]


def watched_modes(**settings):
    """Whether the model and its dropout layer were in training mode, batch by batch."""
    modes = []

    def watched_loss(model, batch):
        modes.append((model.training, model.encoder[2].training))
        return loss_of(model, batch)

    params = replace(PARAMS, epochs=2, **settings)
    train(Model(), Task(Batches(), watched_loss, lambda: 0.0), params)
    return modes


@pytest.mark.parametrize(("share", "batches"), [(1.0, 12), (0.25, 3), (0.04, 0), (0.0, 0)], ids=str)
def test_every_epoch_begins_with_dropout_and_ends_without(share, batches):
    """As in LightXML's code, whose evaluation in the middle of an epoch leaves dropout off."""
    modes = watched_modes(dropout_share=share, evaluations_per_epoch=4)
    assert modes == ([(True, True)] * batches + [(False, False)] * (12 - batches)) * 2


def test_dropout_ends_with_an_update_not_inside_one():
    modes = watched_modes(dropout_share=0.25, accumulate=2)  # three of twelve batches
    assert [dropped for _, dropped in modes] == ([True] * 4 + [False] * 8) * 2


@pytest.mark.parametrize(
    ("settings", "samples"),
    [({"swa_start": 2, "swa_every": 2}, [2, 4, 6]), ({"swa_start": 0.5}, [4, 5, 6, 7])],
    ids=["as set", "more often in a short training"],
)
def test_evaluation_sees_the_mean_and_no_gradients(settings, samples):
    model = Model()
    after = []
    evaluated = []

    def noted_loss(model, batch):
        after.append(model.head.weight.detach().clone())
        return loss_of(model, batch)

    def evaluate():
        assert not torch.is_grad_enabled()
        evaluated.append(model.head.weight.detach().clone())
        return float(len(evaluated))

    params = replace(PARAMS, max_steps=8, average="swa", evaluations_per_epoch=12 / 7, **settings)
    result = train(model, Task(Batches(), noted_loss, evaluate), params)
    assert len(evaluated) == 2
    # `after` holds the weights before each update, so after[k] is what k updates made of them.
    expected = torch.stack([after[number] for number in samples]).mean(0)
    assert torch.allclose(evaluated[0], expected, atol=1e-6)
    assert result.best_step == 8
    assert torch.equal(model.head.weight, evaluated[1])


def test_a_loss_that_is_no_number_stops_the_run_with_advice():
    with pytest.raises(ConfigError, match=r"the loss became nan between updates 0 and 4; lower lr"):
        train(Model(), Task(Batches(), lambda m, b: loss_of(m, b) * torch.nan), PARAMS)
    params = replace(PARAMS, log_every=50, evaluations_per_epoch=6)
    with pytest.raises(ConfigError, match="the loss became nan between updates 0 and 2"):
        run(Model(), params, loss=lambda m, b: loss_of(m, b) * torch.nan, evaluate=lambda: 0.5)
    with pytest.raises(ConfigError, match="begin after 5,000 updates, but training has only 24"):
        run(Model(), replace(PARAMS, average="swa", swa_start=5000))
