"""Trials survive what a killed process leaves: half a line, and Optuna's lock."""

import errno
import os

import pytest

from labelgrove.errors import StorageError
from labelgrove.experiments.tuning.journal import open_journal

pytestmark = pytest.mark.slow


optuna = pytest.importorskip("optuna")


def study(file):
    return optuna.create_study(
        storage=open_journal(optuna, file), study_name="s", load_if_exists=True
    )


def test_half_a_line_does_not_spoil_the_next(tmp_path):
    file = tmp_path / "journal.log"
    study(file).add_trial(optuna.trial.create_trial(value=1.0))
    with file.open("ab") as journal:
        journal.write(b'{"op_code": 4, "wor')
    study(file).add_trial(optuna.trial.create_trial(value=2.0))
    assert [trial.value for trial in study(file).trials] == [1.0, 2.0]


def test_the_lock_of_a_killed_process_is_not_waited_for(tmp_path):
    file = tmp_path / "journal.log"
    # Optuna's link; a relative one leads nowhere, and then Optuna waits for ever.
    (tmp_path / "journal.log.lock").symlink_to("study/journal.log")
    study(file).add_trial(optuna.trial.create_trial(value=1.0))
    assert len(study(file).trials) == 1


def test_a_full_disk_names_the_journal(tmp_path, monkeypatch):
    trials = study(tmp_path / "journal.log")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"journal\.log: cannot be written: No space left"):
        trials.add_trial(optuna.trial.create_trial(value=1.0))
