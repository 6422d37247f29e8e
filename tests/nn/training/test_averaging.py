"""Running means against plain ones, and giving the weights back untouched."""

import pytest

torch = pytest.importorskip("torch")

from labelgrove.nn.training.averaging import Average  # noqa: E402

pytestmark = pytest.mark.slow


def walk(average, weight, steps):
    generator = torch.Generator().manual_seed(3)
    seen = []
    for step in range(1, steps + 1):
        weight += torch.randn(weight.shape, generator=generator)
        seen.append(weight.clone())
        average.update(step)
    return seen


def test_swa_is_the_plain_mean_of_its_samples():
    weight = torch.zeros(5)
    average = Average({"w": weight}, start=4, every=3)
    seen = walk(average, weight, 14)
    assert average.samples == 4
    expected = torch.stack([seen[step - 1] for step in (4, 7, 10, 13)]).mean(0)
    assert torch.allclose(average.state()["w"], expected, atol=1e-6)

    weight = torch.ones(2)
    average = Average({"w": weight}, start=10)
    average.update(9)
    with average.applied():
        assert weight.tolist() == [1.0, 1.0]
    average.apply()
    assert weight.tolist() == [1.0, 1.0]


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
