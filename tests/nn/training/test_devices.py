"""Devices, precisions, seeds and interrupts of a training run in one process."""

import signal
import threading

import pytest

torch = pytest.importorskip("torch")

from labelgrove.errors import ConfigError  # noqa: E402
from labelgrove.nn.training.devices import (  # noqa: E402
    autocast,
    choose_device,
    choose_precision,
    derived_seed,
    interrupts_held_back,
    memory_in_use,
    own_settings,
    seed_torch,
)

pytestmark = pytest.mark.slow
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def usual_interrupts():
    """Background jobs inherit a Ctrl-C that is ignored."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


def test_devices_by_name(monkeypatch):
    for available, chosen in ((False, "cpu"), (True, "cuda")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda known=available: known)
        assert choose_device().type == choose_device("auto").type == chosen
        assert choose_device("cpu") == CPU
    assert choose_device("cuda:1").index == 1
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    pytest.raises(ConfigError, choose_device, "cuda").match("needs a GPU, but torch finds none")
    pytest.raises(ConfigError, choose_device, "toaster").match("'toaster' is not a device")


@pytest.mark.parametrize(("native", "chosen"), [(True, "bf16"), (False, "fp16")])
def test_the_precision_suits_the_device(monkeypatch, native, chosen):
    monkeypatch.setattr(
        torch.cuda,
        "is_bf16_supported",
        lambda including_emulation=True: including_emulation or native,
    )
    assert choose_precision("auto", torch.device("cuda")) == chosen
    assert choose_precision("auto", CPU) == "fp32"
    assert choose_precision("fp16", CPU) == "fp16"


def test_the_callers_random_state_is_restored_and_products_run_in_the_precision():
    before = torch.random.get_rng_state()
    with pytest.raises(KeyError), own_settings(CPU):
        torch.rand(3)
        raise KeyError
    assert torch.equal(before, torch.random.get_rng_state())
    matrix = torch.ones(2, 2)
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        with autocast(precision, CPU):
            assert (matrix @ matrix).dtype == dtype


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_strict_float32_on_a_gpu():
    one, other = (torch.rand(512, 512, device="cuda") for _ in range(2))
    exact = one.double() @ other.double()
    errors = []
    for tf32 in (True, False):
        with own_settings(one.device, tf32=tf32):
            errors.append(((one @ other).double() - exact).abs().max().item())
    assert errors[1] < 1e-3 < errors[0]


def test_seeds_depend_on_every_number():
    seeds = [derived_seed(*numbers) for numbers in ((0, 1), (1, 0), (0, 1, 2), (0,), (2**40, 5))]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
    with torch.random.fork_rng(devices=[]):
        draws = []
        for seed in (3, 3, 4):
            seed_torch(seed, CPU)
            draws.append(torch.rand(2))
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
    assert memory_in_use(CPU) is None


def test_interrupts_are_held_back_only_where_that_is_possible():
    with pytest.raises(KeyboardInterrupt), interrupts_held_back(False) as interrupted:
        assert not interrupted()
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the interrupt came too late")
    handlers = []

    def elsewhere():
        with interrupts_held_back():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # somebody else handles it
    with interrupts_held_back():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
