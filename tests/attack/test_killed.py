"""Whenever a command is killed, nothing is lost, and the same command again finishes the work."""

import pytest

from support.scenarios import SCENARIOS

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
