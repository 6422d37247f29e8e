"""ServiceSetup are checked, and the documentation lists them."""

import logging
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from labelgrove import serve
from labelgrove.errors import ConfigError
from labelgrove.serve.models import Source
from labelgrove.serve.problems import CODES
from labelgrove.serve.run import OncePerSecond, ServiceSetup
from labelgrove.serve.settings import ServeParams

pytestmark = pytest.mark.slow
DOCS = Path(__file__).parents[2] / "docs" / "service.md"


def test_the_documentation_lists_every_setting_with_its_default():
    section = DOCS.read_text(encoding="utf-8").split("## Limits")[1].split("\n## ")[0]
    listed = {}
    for names, defaults in re.findall(r"^\| (`.+?`) \| (.+?) \|", section, re.MULTILINE):
        listed |= zip(re.findall(r"`(\w+)`", names), defaults.split(", "), strict=True)
    defaults = {
        name: str(value).lower() if isinstance(value, bool) else f"{value:.15g}"
        for name, value in ServeParams().get_params().items()
    }
    assert listed == defaults


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_body": 1000, "max_bodies": 999}, "max_bodies: must be at least max_body"),
        ({"max_headers": 0}, "max_headers"),
        ({"max_header_seconds": 0}, "max_header_seconds"),
        ({"max_connections": 0}, "max_connections"),
        ({"copy_mb": -1}, "copy_mb"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        ServeParams.from_dict(settings).checked()


def test_worker_processes_get_the_settings_as_they_are():
    limits = {"copy_mb": float("inf"), "max_k": 7}
    sources = [Source("a", Path("caf\udce9")), Source("b", Path("b"), train=Path("t"))]
    settings = ServiceSetup(sources, "a", limits, "cpu", 2, ["x"], None)
    assert ServiceSetup.from_json(settings.to_json()) == settings


def test_a_message_is_written_once_per_second(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("labelgrove.serve.run.time", SimpleNamespace(monotonic=lambda: now[0]))
    once = OncePerSecond()

    def is_written(message):
        return once.filter(logging.LogRecord("x", logging.ERROR, "", 0, message, None, None))

    failed = "socket.accept() out of system resource\nsocket: "
    assert [is_written(f"{failed}{number}") for number in range(3)] == [True, False, False]
    assert is_written("something else")
    now[0] += 1.0
    assert is_written(failed)
    assert all(is_written(str(number)) for number in range(5000))
    assert len(once._last) < 2000  # messages that never repeat do not pile up


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
