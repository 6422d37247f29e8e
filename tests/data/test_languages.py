"""Which texts count as English."""

import pytest

from labelgrove.core.strings import StringTable
from labelgrove.data.languages import are_english, language_of, sampled, scripts_of

ENGLISH = "the committee has decided that these rules are to be read with the annex"
OTHERS = {
    "German": "der Ausschuss hat beschlossen, dass diese Regeln mit dem Anhang zu lesen sind",
    "French": "le comité a décidé que ces règles doivent être lues avec l'annexe",
    "Dutch": "het comité heeft besloten dat deze regels met de bijlage worden gelezen",
    "Spanish": "el comité ha decidido que estas reglas deben leerse junto con el anexo",
    "Chinese": "委员会决定这些规则应与附件一并阅读",
}


MORE = OTHERS | {
    "English": ENGLISH,
    "Italian": "il comitato ha deciso che le regole della tabella sono lette con gli allegati",
    "Portuguese": "a comissão decidiu que as regras não são lidas em conjunto com uma tabela",
    "Swedish": "kommittén har beslutat att reglerna är till för att läsas med bilagan och tabellen",
    "Danish or Norwegian": "udvalget har besluttet at reglerne er til for at læses og ikke glemmes",
    "Finnish": "komitea on päättänyt että säännöt ja liitteet ovat yhdessä tai erikseen",
    "Polish": "komisja zdecydowała że dokument nie jest do czytania przez dzieci na przerwie",
    "Czech": "výbor rozhodl že pravidla jsou pro všechny a které se na to hodí nebo ne",
    "Hungarian": "a bizottság úgy döntött hogy az elnök nem olvas és egy tag van jelen",
    "Turkish": "kurul bu kurallar için bir karar verdi ve ek ile okunur",
    "Russian": "комитет решил что это не для всех и на этом с ним по праву",
    "Ukrainian": "комітет вирішив що це не для всіх та як до цього з ним",
    "Japanese": "委員会はこの規則を附属書とともに読むことに決めた",
    "Korean": "위원회는 이 규칙을 부속서와 함께 읽기로 결정했다",
    "Thai": "คณะกรรมการตัดสินใจว่ากฎเหล่านี้ต้องอ่านร่วมกับภาคผนวก",
    "Greek": "η επιτροπή αποφάσισε ότι οι κανόνες διαβάζονται με το παράρτημα",
    "unknown": "12 xyzzy plugh",
}


@pytest.mark.parametrize("language", MORE)
def test_the_language_of_a_sentence(language):
    assert language_of(MORE[language]) == language


def test_scripts_are_counted_by_letters():
    assert scripts_of("ab \uff21 12.") == {"Latin": 3}  # one is as wide as a Chinese one
    assert scripts_of("\u043f\u0440\u0438\u3005") == {"Cyrillic": 3, "Han": 1}
    assert scripts_of("") == {} and language_of("") == "unknown"


def test_two_thirds_of_the_texts_decide_and_a_word_in_ten_is_enough():
    for other in OTHERS.values():
        assert not are_english([other] * 10)
    assert are_english([ENGLISH] * 10)
    assert are_english([ENGLISH] * 2 + [OTHERS["German"]])
    assert not are_english([ENGLISH] * 3 + [OTHERS["German"]] * 2)
    assert are_english([ENGLISH, "", "123 -"])  # without words, a text says nothing
    assert not are_english([])
    assert are_english(["the " + "nouns " * 9])
    assert not are_english(["the " + "nouns " * 10])
    assert are_english(["the " * 20 + "x " * 180 + "y " * 1000])  # the first 200 words are read


def test_samples_of_any_kind_of_texts():
    texts = [str(number) for number in range(1000)]
    for kind in (list, tuple, StringTable.from_strings):
        sample, all_texts = sampled(kind(texts))
        assert (len(sample), sample[-1], list(all_texts)) == (200, "995", texts)
    sample, all_texts = sampled(iter(texts))
    assert (len(sample), list(all_texts)) == (200, texts)
    assert sampled("one string") == ([], "one string")
    assert sampled(3) == ([], 3)
    assert sampled([1, "a"])[0] == ["a"]
