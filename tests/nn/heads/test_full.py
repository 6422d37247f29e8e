"""A full head against dense logits and autograd, in chunks of all kinds."""

from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from labelgrove.nn.heads.candidates import RaggedLabels  # noqa: E402
from labelgrove.nn.heads.full import (  # noqa: E402
    FullDescent,
    FullHead,
    full_heads,
    weight_type,
)
from labelgrove.nn.heads.row_step import RowStep  # noqa: E402
from reference.full_head import DenseHead  # noqa: E402

LABELS, WIDTH = 23, 7
CHUNKS = [1, 5, 22, 23, 1000]


def new(chunk, seed=0):
    torch.manual_seed(seed)
    head = FullHead(WIDTH, LABELS, chunk=chunk)
    head.bias.normal_()
    return head


def documents(seed, count=6):
    """Text vectors and labels; one document has none, one has the first and the last."""
    rng = np.random.default_rng(seed)
    rows = [sorted(rng.choice(LABELS, rng.integers(1, 6), replace=False)) for _ in range(count)]
    rows[1], rows[2] = [], [0, LABELS - 1]
    text = torch.tensor(rng.normal(size=(count, WIDTH)), dtype=torch.float32)
    truth = RaggedLabels.from_rows(rows).padded().sort(dim=1).values
    return text, [[int(label) for label in row] for row in rows], truth


@pytest.mark.parametrize("scale", [1.0, 1 / LABELS])
@pytest.mark.parametrize("chunk", CHUNKS)
def test_several_steps_are_those_of_dense_logits(chunk, scale):
    head = new(chunk)
    dense = DenseHead(head.weight, head.bias)
    inputs = FullDescent(head)
    for step in range(4):
        text, rows, truth = documents(step)
        ours, theirs = text.clone().requires_grad_(), text.clone().requires_grad_()
        options = {"lr": 0.1 / (step + 1), "weight_decay": 0.2}
        head.change = partial(inputs.change, step=RowStep(update=step + 1, **options))
        loss = head.loss(ours, truth, scale=scale)
        expected = dense.loss(theirs, rows, scale=scale)
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
        (3 * loss).backward()
        (3 * expected).backward(retain_graph=True)
        assert torch.allclose(ours.grad, theirs.grad, atol=1e-5)
        dense.learn(expected, **options)
        assert torch.allclose(head.weight, dense.weight, atol=1e-5)
        assert torch.allclose(head.bias, dense.bias, atol=1e-5)


def test_it_changes_only_where_gradients_are_wanted():
    head = new(5)
    before = head.weight.clone()
    text, _, truth = documents(0)
    plain = head.loss(text.requires_grad_(), truth)  # nobody teaches it
    head.change = partial(FullDescent(head).change, step=RowStep(lr=0.1))
    with torch.no_grad():
        assert head.loss(text, truth) == plain
    assert torch.equal(head.weight, before)
    loss = head.loss(text.detach(), truth)  # of a frozen encoder
    loss.backward()
    assert (head.weight != before).any(1).all()

    head = new(5)
    text = torch.randn(1, WIDTH)
    once, twice = (RaggedLabels.from_rows([row]).padded() for row in ([3, 9], [3, 3, 9]))
    assert head.loss(text, once) == pytest.approx(head.loss(text, twice).item())


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("k", [1, 4, LABELS, LABELS + 5])
def test_the_best_labels_of_all_chunks(chunk, k):
    head = new(chunk)
    text, *_ = documents(0)
    logits = text @ head.weight.T + head.bias
    expected = logits.topk(min(k, LABELS))
    top = head.top(text, k)
    assert torch.equal(top.columns, expected.indices)
    assert torch.allclose(top.scores, expected.values, atol=1e-6)
    allowed = torch.arange(LABELS) % 4 == 1
    most = int(allowed.sum())
    top = head.top(text, k, allowed)
    expected = logits.masked_fill(~allowed, -torch.inf).topk(min(k, most))
    assert torch.equal(top.columns[:, :most], expected.indices)
    assert (top.columns[:, most:] == -1).all() and (top.scores[:, most:] == 0).all()


def test_logits_of_all_labels_are_never_stored():
    from torch.utils._python_dispatch import TorchDispatchMode

    sizes = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            views = func.is_view or str(func).startswith("aten.detach")
            if isinstance(result, torch.Tensor) and not views:
                sizes.append(result.numel())
            return result

    torch.manual_seed(0)
    head = FullHead(WIDTH, 4000, chunk=100)
    head.change = partial(FullDescent(head).change, step=RowStep(lr=0.1))
    text, _, truth = documents(0)
    with Sizes():
        head.loss(text.requires_grad_(), truth).backward()
        head.top(text, 5)
    assert 0 < max(sizes) <= 100 * WIDTH


def test_bfloat16_learns_from_changes_too_small_for_it():
    """Plain rounding would leave a weight of 1 as it is: a 512th would be needed below it."""

    def after(steps):
        head = FullHead(64, 50, chunk=20)
        head.weight = torch.ones(50, 64, dtype=torch.bfloat16)
        inputs = FullDescent(head)
        for step in range(steps):  # each is as long as the rate
            gradients = torch.ones(50, 64), torch.ones(50)
            small = RowStep(lr=2.5e-4, update=step + 1, seed=step)
            inputs.change(slice(0, 50), *gradients, step=small)
        return head.weight

    weight = after(400)
    assert 1 - float(weight.float().mean()) == pytest.approx(0.1, rel=0.05)
    assert torch.equal(weight, after(400))  # the seed alone decides


def test_bfloat16_gives_about_the_same_loss_and_gradients():
    head = new(5)
    text, _, truth = documents(0)
    ours, theirs = text.clone().requires_grad_(), text.clone().requires_grad_()
    expected = head.loss(theirs, truth)
    head.weight = head.weight.bfloat16()
    loss = head.loss(ours, truth)
    loss.backward()
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=0.01)
    assert torch.allclose(ours.grad, theirs.grad, atol=0.02)
    assert ours.grad.dtype == torch.float32

    model = torch.nn.Sequential(torch.nn.Linear(2, 2), new(5))
    assert list(full_heads(model)) == ["1"]
    assert weight_type(None) == weight_type(torch.device("cpu")) == torch.float32
