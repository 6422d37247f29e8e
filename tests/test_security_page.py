"""SECURITY.md names the tests that show its promises; they exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "SECURITY.md").read_text("utf-8")
ROWS = re.findall(r"^\| (.+?) \|.*\| (.*`tests/.*) \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("subject", "tests"), ROWS, ids=[subject for subject, _ in ROWS])
def test_the_tests_of_a_promise_exist(subject, tests):
    for name in re.findall(r"`([^`]+)`", tests):
        file, _, function = name.partition("::")
        assert (ROOT / file).is_file(), name
        assert f"def {function}(" in (ROOT / file).read_text("utf-8") or not function, name
