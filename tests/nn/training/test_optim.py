"""Parameter groups, clipping, loss scaling, and learning rates against their closed forms."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from labelgrove.errors import ConfigError  # noqa: E402
from labelgrove.nn.training import checkpoint, optim  # noqa: E402
from labelgrove.nn.training.params import TrainingParams  # noqa: E402

pytestmark = pytest.mark.slow


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 4))
        self.head = nn.Linear(4, 3)


def test_each_parameter_has_the_rate_and_decay_of_its_place():
    model = Model()
    params = TrainingParams(lr=1e-4, head_lr=1e-3, weight_decay=0.05, head_weight_decay=0.005)
    groups = optim.parameter_groups(model, params)
    settings = {id(p): (g["lr"], g["weight_decay"]) for g in groups for p in g["params"]}
    names = {name: settings.pop(id(p)) for name, p in model.named_parameters()}
    assert settings == {}
    assert names == {
        "encoder.0.weight": (1e-4, 0.05),
        "encoder.1.weight": (1e-4, 0.0),
        "encoder.1.bias": (1e-4, 0.0),
        "encoder.2.weight": (1e-4, 0.05),
        "encoder.2.bias": (1e-4, 0.0),
        "head.weight": (1e-3, 0.005),
        "head.bias": (1e-3, 0.0),
    }


def test_frozen_parameters_are_in_no_group():
    model = Model()
    model.encoder.requires_grad_(False)
    params = TrainingParams(lr=1e-4, head_lr=None, beta1=0.7, beta2=0.9, eps=1e-3)
    groups = optim.parameter_groups(model, params)
    assert {(group["part"], group["peak"]) for group in groups} == {("head", 1e-4)}
    assert optim.parameter_groups(model.requires_grad_(False), params) == []


def test_updates_have_the_bits_of_torch():
    params = TrainingParams(lr=1e-2, head_lr=None, weight_decay=0.1, beta1=0.7, beta2=0.9, eps=1e-3)
    torch.manual_seed(0)
    ours, theirs = Model(), Model()
    theirs.load_state_dict(ours.state_dict())
    optimizer = optim.AdamW(optim.parameter_groups(ours, params), params)
    theirs_groups = optim.parameter_groups(theirs, params)
    other = torch.optim.AdamW(theirs_groups, betas=(0.7, 0.9), eps=1e-3, fused=True)
    for step in range(4):
        for group in (*optimizer.groups, *theirs_groups):
            group["lr"] = group["peak"] * (step + 1)
        for mine, its in zip(ours.parameters(), theirs.parameters(), strict=True):
            its.grad = torch.randn_like(its) if step != 2 or mine.ndim > 1 else None
            mine.grad = its.grad
        optimizer.step()
        other.step()
        if step == 1:  # continue with what a checkpoint holds
            kept = {name: tensor.clone() for name, tensor in optimizer.state().items()}
            optimizer = optim.AdamW(optimizer.groups, params)
            checkpoint.fill(optimizer.state(), kept, "a checkpoint")
    for mine, its in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, its)
    optimizer.clear()
    assert all(p.grad is None for p in ours.parameters())


def test_clipping_agrees_with_torch_and_leaves_small_gradients_alone():
    generator = torch.Generator().manual_seed(0)
    parameters = [nn.Parameter(torch.zeros(n)) for n in (3, 5)]
    for parameter in parameters:
        parameter.grad = torch.randn(len(parameter), generator=generator)
    ours = [p.grad.clone() for p in parameters]
    optim.clip_gradients(ours, 0.7)
    torch.nn.utils.clip_grad_norm_(parameters, 0.7)
    for mine, parameter in zip(ours, parameters, strict=True):
        assert torch.allclose(mine, parameter.grad)
    before = [g.clone() for g in ours]
    optim.clip_gradients(ours, 100.0)
    assert all(torch.equal(a, b) for a, b in zip(ours, before, strict=True))


def test_loss_scale_grows_after_patience_and_halves_on_overflow():
    scale = optim.LossScale(8.0, patience=2)
    gradient = torch.tensor([16.0])
    assert scale.restore([gradient])
    assert gradient.item() == 2.0
    assert scale.restore([gradient])
    assert (scale.value, scale.good) == (16.0, 0)
    assert not scale.restore([gradient, torch.tensor([float("nan")])])
    assert scale.value == 8.0
    patient = optim.LossScale(1.0)
    for _ in range(1999):
        assert patient.restore([])
    assert patient.value == 1.0
    patient.restore([])
    assert patient.value == 2.0
    with pytest.raises(ConfigError, match="fp16"):
        for _ in range(60):
            scale.restore([torch.tensor([float("inf")])])


def rates(total, **settings):
    params = TrainingParams(**settings).validate()
    return [optim.rate_factor(step, total, params) for step in range(total)]


def test_every_schedule_is_its_closed_form():
    rising = [(s + 1) / 10 for s in range(10)]
    linear = rising + [(100 - s) / 90 for s in range(10, 100)]
    assert rates(100, schedule="linear", warmup=0.1) == pytest.approx(linear)
    cosine = rising + [0.5 * (1 + math.cos(math.pi * (s - 10) / 90)) for s in range(10, 100)]
    assert rates(100, schedule="cosine", warmup=10) == pytest.approx(cosine)
    assert rates(7, schedule="constant", warmup=0) == [1.0] * 7
    rising = [0.1 + 0.9 * 0.5 * (1 - math.cos(math.pi * s / 20)) for s in range(20)]
    falling = [0.001 + 0.999 * 0.5 * (1 + math.cos(math.pi * s / 30)) for s in range(1, 31)]
    cascade = rates(100, schedule="cascade", warmup=0.2, cooldown=30)
    assert cascade == pytest.approx(rising + [1.0] * 50 + falling)
    assert (cascade[0], cascade[-1]) == pytest.approx((0.1, 0.001))


def test_the_first_moment_moves_against_the_rate_in_cascade_only():
    settings = {"beta1": 0.95, "beta1_low": 0.85, "warmup": 5, "cooldown": 5}
    cascade = TrainingParams(schedule="cascade", **settings)
    betas = [optim.first_beta(step, 20, cascade) for step in range(20)]
    assert betas[0] == betas[-1] == 0.95
    assert betas[5:15] == [pytest.approx(0.85)] * 10
    linear = TrainingParams(schedule="linear", **settings)
    assert optim.first_beta(10, 20, linear) == 0.95
    assert [optim.share_of_steps(x, 40) for x in (0, 0.25, 1, 30, 99)] == [0, 10, 1, 30, 40]


@given(
    st.sampled_from(["linear", "cosine", "constant", "cascade"]),
    st.integers(1, 60),
    st.floats(0, 80),
    st.floats(0, 80),
)
def test_any_setting_gives_rates_within_bounds(schedule, total, warmup, cooldown):
    factors = rates(total, schedule=schedule, warmup=warmup, cooldown=cooldown)
    assert all(0 < rate <= 1 for rate in factors)
    peak = factors.index(max(factors))
    assert factors[:peak] == sorted(factors[:peak])
    assert factors[peak:] == sorted(factors[peak:], reverse=True)
