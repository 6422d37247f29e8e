"""When the disk is full or broken, a command ends with a sentence, and nothing is lost."""

import pytest

from support.scenarios import FAULTS, SCENARIOS

pytestmark = pytest.mark.slow


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
