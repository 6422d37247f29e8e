"""Killed and failing exports, with a stand-in for the graph; they need torch: long form only."""

import pytest

from support import tasks
from support.scenarios import FAULTS, Arena, Scenario
from support.zygote import Zygote

pytestmark = [pytest.mark.slow, pytest.mark.long_attack]
EXPORT = Scenario(["export", "neural", "--out", "model"], "model", again=("--force",))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    pytest.importorskip("onnxscript")
    base = tmp_path_factory.mktemp("neural")
    tasks.unpack_neural(base)
    with Zygote("neural") as zygote:
        yield Arena.build(EXPORT, zygote, base, tmp_path_factory.mktemp("arena"))


def test_kills_and_faults(place, chosen, tally):
    attacks = [("kill", at) for at in range(1, len(place.calls) + 1)]
    attacks += [(kind, at) for kind in FAULTS for at in range(1, place.counted(kind) + 1)]
    for kind, at in chosen(attacks, 0, 0.06):
        folder = place.fresh()
        outcome = place.run(folder, harm={"kind": kind, "at": at})
        about = f"{kind} at call {at}: {outcome.calls[at - 1 : at]}\n{outcome.stderr}"
        try:
            if kind == "kill":
                assert outcome.status == -9
                place.check_whole(folder)
                place.check_continues(folder)
            else:
                place.check_refused(folder, outcome)
        except AssertionError as error:
            raise AssertionError(about) from error
        tally["kills of export" if kind == "kill" else f"disk {kind}"] += 1
