"""Which process writes, by the variables that launchers set."""

import pytest

from labelgrove.core.processes import is_first_process, process_count, wait_for_all


@pytest.mark.parametrize(
    ("variables", "count", "first"),
    [
        ({}, 1, True),
        ({"WORLD_SIZE": "4"}, 1, True),  # set by something else: launchers give a rank, too
        ({"WORLD_SIZE": "4", "RANK": "0"}, 4, True),
        ({"WORLD_SIZE": "4", "RANK": "3"}, 4, False),
        ({"WORLD_SIZE": "1", "RANK": "0"}, 1, True),
        ({"RANK": "2"}, 1, True),
    ],
)
def test_the_first_of_several_processes_writes(monkeypatch, variables, count, first):
    for name in ("WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert (process_count(), is_first_process()) == (count, first)


def test_a_process_on_its_own_waits_for_nobody(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr("labelgrove.core.processes.join", None)
    wait_for_all()
