"""When memory or threads run out, a command succeeds or says so in a sentence, and never hangs."""

import pytest

from support.scenarios import SCENARIOS

pytestmark = pytest.mark.slow
COMMANDS = ("train", "update over a model", "calibrate", "predict", "tune")
MEGABYTES = [*range(0, 24, 2), *range(24, 200, 16), 500]


@pytest.mark.parametrize("name", COMMANDS)
def test_little_memory(arena, chosen, tally, name):
    place = arena(name)
    for megabytes in chosen(MEGABYTES, 1, 0.04 / len(COMMANDS)):
        folder = place.fresh()
        outcome = place.run(folder, limits={"memory": megabytes << 20})
        about = f"{megabytes} megabytes: {outcome}"
        assert outcome.status in (0, 1), about
        if outcome.status == 1:
            assert outcome.stderr.strip().splitlines()[-1].startswith("error: "), about
            assert "Traceback" not in outcome.stderr, about
            tally["too little memory, refused"] += 1
        assert place.check_whole(folder) or outcome.status == 1, about
        place.check_continues(folder)
        tally["too little memory"] += 1


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_thread_can_be_started(arena, tally, name):
    place = arena(name)
    folder = place.fresh()
    outcome = place.run(folder, limits={"threads": False})
    assert outcome.status == 0, outcome.stderr
    assert place.check_whole(folder)
    tally["no threads"] += 1


def test_threads_are_really_refused(arena):
    zygote = arena("train").zygote
    assert zygote("start_a_thread", limits={}).status == 0
    assert "can't start new thread" in zygote("start_a_thread", limits={"threads": False}).stderr
