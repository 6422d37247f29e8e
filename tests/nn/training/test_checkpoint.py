"""Tensors to parts and back, the weights of the best evaluation, and running means of weights."""

import pytest

torch = pytest.importorskip("torch")

from labelgrove.errors import ModelFormatError  # noqa: E402
from labelgrove.nn.training.checkpoint import (  # noqa: E402
    BestWeights,
    fill,
    from_part,
    to_part,
)
from labelgrove.nn.training.updates import Average  # noqa: E402

pytestmark = pytest.mark.slow


def test_groups_of_tensors_come_back_whatever_their_type():
    groups = {
        "model": {
            "w": torch.tensor([1.5, -2.0]),
            "half": torch.tensor([0.25], dtype=torch.bfloat16),
        },
        "model2": {"w": torch.tensor([7])},
        "empty": {"none": torch.zeros(0, 3)},
    }
    part = to_part({"step": 3}, groups)
    assert part.config == {"step": 3}
    for group, tensors in groups.items():
        again = from_part(part, group)
        assert again.keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert again[name].dtype == tensor.dtype and torch.equal(again[name], tensor)
    assert from_part(part, "model")["w"].data_ptr() == groups["model"]["w"].data_ptr()  # no copy


def test_only_tensors_that_fit_are_filled():
    weight = torch.zeros(2)
    fill({"w": weight}, {"w": torch.ones(2)}, "it")
    assert weight.tolist() == [1.0, 1.0]
    with pytest.raises(ModelFormatError, match=r"it: w has the shape \(3,\), not \(2,\)"):
        fill({"w": weight}, {"w": torch.ones(3)}, "it")
    with pytest.raises(ModelFormatError, match=r"does not hold this model's tensors \(b differs\)"):
        fill({"w": weight}, {"w": torch.ones(2), "b": torch.ones(1)}, "it")


@pytest.mark.parametrize("in_memory", [True, False])
def test_the_best_weights_come_back(tmp_path, in_memory):
    model = torch.nn.Linear(2, 1)
    kept = model.weight.detach().clone()
    best = BestWeights(None if in_memory else tmp_path)
    best.save(model, 10)
    torch.nn.init.constant_(model.weight, 7.0)
    best.load(model, 10)
    assert torch.equal(model.weight, kept)


def test_weights_stay_as_long_as_one_of_two_checkpoints_names_them(tmp_path):
    def steps():
        return sorted(int(path.name.removeprefix("step-")) for path in tmp_path.glob("step-*"))

    model, best = torch.nn.Linear(1, 1), BestWeights(tmp_path)
    for step in (1, 2, 3):
        best.save(model, step)
    best.named_by_checkpoint(2)
    assert steps() == [2]
    best.save(model, 4)
    best.named_by_checkpoint(4)
    assert steps() == [2, 4]
    reader = BestWeights(tmp_path, writes=False)
    reader.save(model, 9)
    reader.named_by_checkpoint(9)
    assert steps() == [2, 4]
    best.named_by_checkpoint(None)
    assert steps() == [4]


def walk(average, weight, steps):
    generator = torch.Generator().manual_seed(3)
    seen = []
    for step in range(1, steps + 1):
        weight += torch.randn(weight.shape, generator=generator)
        seen.append(weight.clone())
        average.update(step)
    return seen


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_come_back_to_the_bit_also_after_an_error(dtype):
    weight = torch.zeros(5, dtype=dtype)
    average = Average({"w": weight})
    seen = walk(average, weight, 3)
    mean = average.state()["w"].clone()
    assert mean.dtype == torch.float32
    for _ in range(2):
        with pytest.raises(KeyError), average.applied():
            assert torch.equal(weight, mean.to(dtype))
            raise KeyError
        assert torch.equal(weight, seen[-1])
        assert torch.equal(average.state()["w"], mean)
    average.apply()
    assert torch.equal(weight, mean.to(dtype))
