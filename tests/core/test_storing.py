"""Errors of the disk are told about the path that the user knows."""

import errno

import pytest

from labelgrove.core.storing import storing
from labelgrove.errors import ConfigError, StorageError


def test_the_path_of_the_user_replaces_the_temporary_one():
    message = (
        r"^model: cannot be written: No space left on device; make room there, then start again$"
    )
    with pytest.raises(StorageError, match=message), storing("model"):
        raise OSError(errno.ENOSPC, "No space left on device", "/x/.model.tmp")
    message = r"^run: cannot be deleted: broken$"
    with pytest.raises(StorageError, match=message), storing("run", "deleted"):
        raise OSError(errno.EIO, "broken")


def test_errors_that_are_not_the_disks_pass():
    for error in (OSError("404"), ConfigError("a"), StorageError("b: cannot be written")):
        with pytest.raises((OSError, ConfigError)) as caught, storing("model"):
            raise error  # the first as HTTP libraries raise it
        assert caught.value is error
