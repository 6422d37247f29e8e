"""Commands that are killed, or run out of disk, memory or threads: nothing is lost."""

import pytest

from support.scenarios import FAULTS, SCENARIOS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_at_any_change_of_the_disk(arena, chosen, tally, name):
    place = arena(name)
    for at in chosen(range(1, len(place.calls) + 1), 2, None):
        folder = place.fresh()
        outcome = place.run(folder, harm={"kind": "kill", "at": at})
        about = f"killed at call {at}: {place.calls[at - 1]}"
        assert outcome.status == -9, about
        try:
            place.check_whole(folder)
            place.check_continues(folder)
        except AssertionError as error:
            raise AssertionError(about) from error
        tally[f"kills of {name}"] += 1


@pytest.mark.parametrize("name", SCENARIOS)
def test_faults_at_any_call(arena, chosen, tally, name):
    place = arena(name)
    attacks = [(kind, at) for kind in FAULTS for at in range(1, place.counted(kind) + 1)]
    for kind, at in chosen(attacks, 1, 0.35 / len(SCENARIOS)):
        folder = place.fresh()
        outcome = place.run(folder, harm={"kind": kind, "at": at})
        about = f"{kind} at call {at}: {outcome.calls[at - 1 : at]}"
        try:
            place.check_refused(folder, outcome)
        except AssertionError as error:
            raise AssertionError(f"{about}\n{outcome.stderr}") from error
        tally[f"disk {kind}"] += 1


@pytest.mark.parametrize("name", SCENARIOS)
def test_short_writes_are_continued(arena, chosen, tally, name):
    place = arena(name)
    for at in chosen(range(1, place.counted("short") + 1), 1, 0.04 / len(SCENARIOS)):
        folder = place.fresh()
        outcome = place.run(folder, harm={"kind": "short", "at": at})
        assert outcome.status == 0, outcome.stderr
        assert place.check_whole(folder), f"write {at} was cut short"
        tally["short writes"] += 1


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
