"""Errors of the disk are told about the path that the user knows."""

import errno

import pytest

from labelgrove.core.storing import storing
from labelgrove.errors import ConfigError, StorageError


def test_the_path_of_the_user_replaces_the_temporary_one():
    message = r"^model: cannot be written: No space left on device$"
    with pytest.raises(StorageError, match=message), storing("model"):
        raise OSError(errno.ENOSPC, "No space left on device", "/x/.model.tmp")
    message = r"^run: cannot be deleted: cut$"
    with pytest.raises(StorageError, match=message), storing("run", "deleted"):
        raise OSError("cut")


def test_our_own_errors_pass():
    for error in (ConfigError("a"), StorageError("b: cannot be written")):
        with pytest.raises(type(error), match=str(error)), storing("model"):
            raise error
