"""Updates of a model with a full head, which learns while its loss is computed."""

from collections import deque
from dataclasses import replace
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from labelgrove.errors import ConfigError  # noqa: E402
from labelgrove.nn.heads.full import FullHead  # noqa: E402
from labelgrove.nn.training.devices import Workers  # noqa: E402
from labelgrove.nn.training.updates import Share, Updates, shared  # noqa: E402
from reference.full_head import DenseHead  # noqa: E402
from support.toy_training import LABELS, PARAMS, WIDTH, Batches, interrupting, run  # noqa: E402

pytestmark = pytest.mark.slow


class Model(torch.nn.Module):
    """An encoder below a full head of which each document has one label."""

    def __init__(self, *, frozen=False, dropout=0.2):
        super().__init__()
        torch.manual_seed(1)
        layers = torch.nn.Linear(WIDTH, 8), torch.nn.LayerNorm(8), torch.nn.Dropout(dropout)
        self.encoder = torch.nn.Sequential(*layers).requires_grad_(not frozen)
        self.heads = FullHead(8, LABELS, chunk=5)

    def loss(self, batch):
        return self.heads.loss(self.encoder(batch.x), batch.y[:, None])


@pytest.mark.parametrize("frozen", [False, True])
def test_it_learns_without_gradients_of_its_own(frozen):
    model = Model(frozen=frozen)
    before = model.heads.weight.clone()
    result = run(model, replace(PARAMS, epochs=8))
    losses = [record["loss"] for record in result.history if "loss" in record]
    assert losses[-1] < 0.7 * losses[0]
    assert (model.heads.weight != before).any(1).all()
    assert model.heads.change is None  # nothing changes it after training


@pytest.mark.parametrize(
    "settings",
    [
        {"average": "swa", "swa_every": 2, "accumulate": 2},
        {"average": "swa", "swa_start": 0},
        {"precision": "bf16", "keep": "last"},
        {"precision": "fp16"},
        {"average": "swa", "swa_every": 2, "weights": torch.bfloat16},
    ],
    ids=["swa", "swa from the start", "bf16", "fp16", "bf16 weights"],
)
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, settings):
    settings = dict(settings)
    dtype = settings.pop("weights", torch.float32)

    def model():
        made = Model()
        made.heads.weight = made.heads.weight.to(dtype)
        return made

    params = replace(PARAMS, checkpoint_minutes=0, **settings)
    whole, parts = model(), model()
    run(whole, params)
    for step in (3, 9):
        with pytest.raises(KeyboardInterrupt):
            run(parts, params, folder=tmp_path, reporter=interrupting(step))
        parts = model()
    result = run(parts, params, folder=tmp_path)
    assert result.resumed_from > 0
    for name, value in whole.state_dict().items():
        assert torch.equal(value, parts.state_dict()[name]), name
    assert parts.heads.weight.dtype == dtype


def test_the_mean_of_weights_has_the_heads_too():
    last, mean = Model(), Model()
    settings = {"keep": "last", "swa_start": 0.5, "swa_every": 1}
    run(last, replace(PARAMS, **settings))
    run(mean, replace(PARAMS, average="swa", **settings))
    assert not torch.equal(mean.heads.weight, last.heads.weight)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_head_takes_a_step_for_each_batch_and_is_not_clipped(accumulate):
    model = Model(frozen=True, dropout=0.0)
    dense = DenseHead(model.heads.weight, model.heads.bias)
    params = replace(
        PARAMS, max_steps=2, accumulate=accumulate, clip_norm=1e-6, schedule="constant", warmup=0
    )
    run(model, params, evaluate=None)
    batches = list(Batches().epoch(0))
    for step in range(2):
        together = batches[step * accumulate : (step + 1) * accumulate]
        documents = sum(len(batch.rows) for batch in together)
        for batch in together:
            text, rows = model.encoder(batch.x), [[int(label)] for label in batch.y]
            loss = dense.loss(text, rows) * (len(rows) / documents)
            dense.learn(loss, lr=0.03, weight_decay=0.1)
    assert torch.allclose(model.heads.weight, dense.weight, atol=1e-5)
    assert torch.allclose(model.heads.bias, dense.bias, atol=1e-5)


def test_several_processes_are_refused():
    together = Workers(torch.device("cpu"), rank=0, count=2)
    with pytest.raises(ConfigError, match=r"heads\.full: .* one process"):
        Updates(Model(), lambda *_: None, PARAMS, total=1, workers=together, seed=0)


SIZES = (3, 1, 2, 2, 5)  # of batches that are shared out among processes and updates


def split(accumulate, count, rank):
    batches = [SimpleNamespace(rows=[0] * n, tokens=10 * n) for n in SIZES]
    shares = deque()
    own = list(shared(iter(batches), shares, accumulate=accumulate, count=count, rank=rank))
    return [len(batch.rows) for batch in own], list(shares)


def test_every_document_of_an_update_counts_the_same():
    sizes, shares = split(2, 1, 0)
    assert sizes == list(SIZES)
    assert shares == [Share([0.75, 0.25], 2, 40), Share([0.5, 0.5], 2, 40), Share([1.0], 1, 50)]


def test_processes_take_turns_and_wait_for_each_other():
    first, shares = split(1, 2, 0)
    second, others = split(1, 2, 1)
    assert (first, second) == ([3, 2, 5], [1, 2, 5])  # the last batch fills up, with weight 0
    # Gradients are averaged over two processes, so weights of an update add up to 2.
    assert [share.weights for share in shares] == [[1.5], [1.0], [2.0]]
    assert [share.weights for share in others] == [[0.5], [1.0], [0.0]]
    assert [(share.batches, share.tokens) for share in others] == [(2, 40), (2, 40), (1, 50)]
