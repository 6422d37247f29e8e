"""Which texts count as English."""

from __future__ import annotations

import pytest

from labelgrove.text.languages import are_english

ENGLISH = "the committee has decided that these rules are to be read with the annex"
OTHERS = {
    "German": "der Ausschuss hat beschlossen, dass diese Regeln mit dem Anhang zu lesen sind",
    "French": "le comité a décidé que ces règles doivent être lues avec l'annexe",
    "Dutch": "het comité heeft besloten dat deze regels met de bijlage worden gelezen",
    "Spanish": "el comité ha decidido que estas reglas deben leerse junto con el anexo",
    "Chinese": "委员会决定这些规则应与附件一并阅读",
}


@pytest.mark.parametrize("language", OTHERS)
def test_other_languages_are_not(language: str) -> None:
    assert not are_english([OTHERS[language]] * 10)


def test_two_thirds_of_the_texts_decide() -> None:
    assert are_english([ENGLISH] * 10)
    assert are_english([ENGLISH] * 2 + [OTHERS["German"]])
    assert not are_english([ENGLISH] * 3 + [OTHERS["German"]] * 2)
    assert are_english([ENGLISH, "", "123 -"])  # without words, a text says nothing
    assert not are_english([])


def test_a_word_in_ten_is_enough() -> None:
    assert are_english(["the " + "nouns " * 9])
    assert not are_english(["the " + "nouns " * 10])
    assert are_english(["the " * 20 + "x " * 180 + "y " * 1000])  # the first 200 words are read
