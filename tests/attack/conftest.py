"""The short form of the attacks, and the long one: LABELGROVE_ATTACK is its length in seconds."""

import os
import random
import shutil
import time
from collections import Counter

import pytest

from labelgrove import Linear
from labelgrove.data.shop import shop_corpus
from support import tasks
from support.scenarios import BASE, SCENARIOS, Arena, done
from support.zygote import Zygote

SECONDS = float(os.environ.get("LABELGROVE_ATTACK", "0"))
TALLY = Counter()


@pytest.fixture(scope="session")
def tally():
    """How often each kind of attack was tried; the long form prints it."""
    return TALLY


@pytest.fixture(scope="session")
def zygote():
    with Zygote() as process:
        yield process


@pytest.fixture(scope="session")
def base(zygote, tmp_path_factory):
    """A folder with small corpora and a trained model."""
    folder = tmp_path_factory.mktemp("base")
    tasks.write_corpora(folder)
    done(zygote("command", *BASE, folder=str(folder)))
    (folder / "model").rename(folder / "base")
    return folder


@pytest.fixture(scope="session")
def calibrated(zygote, base, tmp_path_factory):
    """A calibrated model."""
    folder = tmp_path_factory.mktemp("calibrated")
    shutil.copytree(base, folder, dirs_exist_ok=True)
    command = ("calibrate", "base", "dev.jsonl", "--target", "macro-F1")
    done(zygote("command", *command, folder=str(folder)))
    return folder / "base"


@pytest.fixture(scope="session")
def shop():
    return shop_corpus(2000, labels=300)


@pytest.fixture(scope="session")
def model(shop, tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "model"
    Linear().fit(shop).save(path)
    return path


@pytest.fixture(scope="module")
def server(model, request):
    """The model, served with the SETTINGS of the test's module."""
    from support.served_process import serving

    with serving(model, *request.module.SETTINGS) as server:
        yield server


@pytest.fixture(scope="session")
def arena(zygote, base, tmp_path_factory):
    arenas = {}

    def build(name):
        if name not in arenas:
            folder = tmp_path_factory.mktemp("arena")
            arenas[name] = Arena.build(SCENARIOS[name], zygote, base, folder)
        return arenas[name]

    return build


@pytest.fixture
def chosen(request):
    """The attacks to try: ``few`` in the short form, in the long one as many as the time allows.

    ``share`` is the part of the long form's time that this test may take; None: try all.
    """

    def choose(attacks, few, share):
        seed = request.node.nodeid if not SECONDS else None
        order = random.Random(seed).sample(attacks, len(attacks))
        if not SECONDS:
            yield from order[:few]
            return
        end = time.monotonic() + (float("inf") if share is None else share * SECONDS)
        for number, attack in enumerate(order):
            if time.monotonic() > end:
                TALLY["left out for lack of time"] += len(order) - number
                return
            yield attack

    return choose


@pytest.fixture
def rounds():
    """Once in the short form; in the long one again until its share of the time is used up."""

    def repeat(share):
        end = time.monotonic() + share * SECONDS
        yield
        while time.monotonic() < end:
            yield

    return repeat


def pytest_terminal_summary(terminalreporter):
    if SECONDS and TALLY:
        terminalreporter.section("attacks")
        for kind, number in sorted(TALLY.items()):
            terminalreporter.line(f"{number:9,} {kind}")
