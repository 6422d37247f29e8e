"""Texts to try come from the model's card, whatever is in it."""

import os

import pytest

from labelgrove.serve.served import EXAMPLE_CHARS, EXAMPLES, card_examples
from support.services import fitted, running

pytestmark = pytest.mark.slow
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
