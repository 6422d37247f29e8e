"""Bias, dropout, sum and norm in one kernel, against torch; a stand-in runs it without a GPU."""

import pytest

torch = pytest.importorskip("torch")

from labelgrove.nn.encoders import added_norm  # noqa: E402
from support.triton import interpret  # noqa: E402

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if GPU else "cpu")


@pytest.fixture
def kernel(monkeypatch):
    if not GPU:
        interpret(
            monkeypatch,
            added_norm,
            _forward_kernel="_added_norm",
            _backward_kernel="_added_norm_gradients",
        )
        monkeypatch.setattr(added_norm, "kept", added_norm._kept, raising=False)
    monkeypatch.setattr(added_norm, "PROGRAMS", 3)
    return added_norm


@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize(("rows", "width"), [(1, 16), (7, 24)])
def test_states_and_gradients_are_those_of_torch(kernel, rows, width, rate):
    torch.manual_seed(0)
    norm = torch.nn.LayerNorm(width, device=DEVICE)
    for weight in norm.parameters():
        torch.nn.init.normal_(weight)
    changed, before = (torch.randn(rows, width, device=DEVICE) for _ in range(2))
    bias = torch.randn(width, device=DEVICE)
    inputs = [tensor.requires_grad_() for tensor in (changed, bias, before)]
    learning = [*inputs, *norm.parameters()]
    found = kernel.added_norm(*inputs, norm, rate)
    gradient = torch.randn_like(found)
    ours = torch.autograd.grad(found, learning, gradient)
    # A dropped number has no gradient.
    left = (ours[0] != 0).float() / (1 - rate)
    expected = norm(before + (changed + bias) * left)
    torch.testing.assert_close(found, expected)
    theirs = torch.autograd.grad(expected, learning, gradient)
    for mine, its in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, its, rtol=1e-4, atol=1e-5)


def test_dropout_keeps_as_many_as_it_should_and_others_next_time(kernel):
    norm = torch.nn.LayerNorm(64, device=DEVICE)
    states = torch.randn(60, 64, device=DEVICE, requires_grad=True)
    bias, before = torch.zeros(64, device=DEVICE), torch.randn(60, 64, device=DEVICE)
    kept = []
    for _ in range(2):
        found = kernel.added_norm(states, bias, before, norm, 0.3)
        (gradient,) = torch.autograd.grad(found.square().sum(), states)
        kept.append(gradient != 0)
    assert kept[0].float().mean().item() == pytest.approx(0.7, abs=0.03)
    assert not torch.equal(*kept)


def test_only_learning_in_half_precision_on_a_gpu_uses_it(kernel, monkeypatch, caplog):
    states = torch.zeros(2, 16, dtype=torch.bfloat16)
    assert not kernel.fits(states) and not kernel.fits(torch.zeros(2, 16, device=DEVICE))

    class Broken:
        def __getitem__(self, grid):
            raise RuntimeError("no C compiler")

    monkeypatch.setattr(kernel, "_forward_kernel", Broken())
    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: torch.no_grad())
    kernel._works.cache_clear()
    assert not kernel._works(16, torch.float32, torch.device("cpu"))
    assert "no C compiler" in caplog.text
    kernel._works.cache_clear()
