"""Every error has one code, and the documentation has them all."""

import re
from pathlib import Path

import pytest

from labelgrove import serve
from labelgrove.serve.problems import CODES

pytestmark = pytest.mark.slow
DOCS = Path(__file__).parents[2] / "docs" / "service.md"


def test_the_documentation_lists_every_code_with_its_status():
    section = DOCS.read_text(encoding="utf-8").split("## Errors")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([a-z-]+)` \| (\d{3}) \| (.+) \|$", section, re.MULTILINE)
    assert {code: int(status) for code, status, _ in rows} == CODES
    assert len(rows) == len(CODES)
    assert all(len(meaning) > 5 for _, _, meaning in rows)


def test_every_code_is_used():
    assert serve.__file__ is not None
    folder = Path(serve.__file__).parent
    source = "".join(file.read_text(encoding="utf-8") for file in folder.glob("*.py"))
    raised = set(re.findall(r'Problem\(\s*"([a-z-]+)"', source))
    framework = {"not-found", "method-not-allowed", "invalid-json", "internal-error"}
    assert raised | framework == set(CODES)
