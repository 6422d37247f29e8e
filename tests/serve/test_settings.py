"""Settings are checked, the documentation lists them, and texts to try come from the card."""

import logging
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from labelgrove import serve
from labelgrove.errors import ConfigError
from labelgrove.serve.models import Source
from labelgrove.serve.problems import CODES
from labelgrove.serve.run import OncePerSecond, Settings
from labelgrove.serve.served import EXAMPLE_CHARS, EXAMPLES, card_examples
from labelgrove.serve.settings import ServeParams
from support.limits import check_settings
from support.services import fitted, running

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


def test_limits_may_be_one():
    defaults = ServeParams().get_params()
    names = ("max_texts", "max_text_chars", "max_k", "max_labels", "max_explained", "max_requests")
    names += ("max_waiting", "max_headers", "max_connections", "max_connections_per_address")
    check_settings(ServeParams, {name: (defaults[name], 1, 0) for name in (*names, "batch_texts")})


def test_worker_processes_get_the_settings_as_they_are():
    limits = {"copy_mb": float("inf"), "max_k": 7}
    sources = [Source("a", Path("caf\udce9")), Source("b", Path("b"), train=Path("t"))]
    settings = Settings(sources, "a", limits, "cpu", 2, ["x"], None)
    assert Settings.from_json(settings.to_json()) == settings


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


CARD = """---
license: mit
widget:
- text: plain words
    of the first
- text: "quoted: \\"second\\""
- text: 'it''s the third'
- example_title: x
  text: after another key # comment
- text: >
    folded over
    two lines
- other: x
- 5
---

# A model
- text: not this
"""


def test_the_texts_of_a_card_are_told(tmp_path):
    fitted().save(tmp_path / "model")
    (tmp_path / "model" / "README.md").write_text(CARD, encoding="utf-8")
    expected = [
        "plain words of the first",
        'quoted: "second"',
        "it's the third",
        "after another key",
    ]
    assert card_examples(tmp_path / "model") == expected
    with running(tmp_path / "model") as client:
        assert client.get("/v1/model").json()["examples"] == expected


def test_a_generated_card_has_them(tmp_path):
    pytest.importorskip("huggingface_hub")
    from labelgrove.exchange.card import model_card

    fitted().save(tmp_path)
    texts = ["a red hat " * 30, "- lamp: 'green'\n--- # x", "grün"]
    card = model_card(tmp_path, examples=texts)
    (tmp_path / "README.md").write_text(card, encoding="utf-8")
    assert card_examples(tmp_path) == [" ".join(text.split()) for text in texts]


ALIASES = "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 20)}]}}\n" for n in range(1, 8))


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "card",
    [
        "",
        "# no front matter\nwidget:\n- text: x\n",
        "---\nwidget: [\n---\n",
        "---\n- widget: x\n---\n",
        "---\nwidget: a text\n---\n",
        "---\nwidget:\n- text: [x]\n- text:\n- text: ''\n---\n",
        f"---\nwidget:\n- text: {'x' * (EXAMPLE_CHARS + 1)}\n---\n",
        f"---\na0: &a0 {{x: y}}\n{ALIASES}widget:\n- text: *a7\n---\n",
        "---\nwidget: !!bool x\n---\n",
        "---\nwidget:\n- text: !!bool x\n---\n",
        "---\nwidget:\n" + "- " * 30_000 + "\n---\n",
        "---\nwidget:\n" + "\n" * 2_000 + "- text: too far down\n---\n",
        '---\nwidget:\n- text: "' + "[" * 30_000 + '"\n---\n',
    ],
)
def test_cards_without_texts(tmp_path, card):
    (tmp_path / "README.md").write_text(card, encoding="utf-8")
    assert card_examples(tmp_path) == []


def test_only_a_few_and_no_other_file(tmp_path):
    card = tmp_path / "README.md"
    assert card_examples(tmp_path) == []
    card.write_text("---\nwidget:\n" + "- text: x\n" * 50 + "---\n", encoding="utf-8")
    assert card_examples(tmp_path) == ["x"] * EXAMPLES
    card.rename(tmp_path / "other.md")
    card.symlink_to(tmp_path / "other.md")
    assert card_examples(tmp_path) == []
    card.unlink()
    card.mkdir()
    assert card_examples(tmp_path) == []
    card.rmdir()
    os.mkfifo(card)  # reading it would never end
    assert card_examples(tmp_path) == []
