"""Which texts count as English."""

import warnings

import pytest

from labelgrove import Linear, TfidfParams
from labelgrove.core.strings import StringTable
from labelgrove.data.languages import are_english, language_of, sampled, suited, unspaced_share
from labelgrove.errors import LabelgroveWarning
from labelgrove.methods.explaining.explain import explain
from labelgrove.text.tfidf import Tfidf

ENGLISH = "the committee has decided that these rules are to be read with the annex"
OTHERS = {
    "German": "der Ausschuss hat beschlossen, dass diese Regeln mit dem Anhang zu lesen sind",
    "French": "le comité a décidé que ces règles doivent être lues avec l'annexe",
    "Dutch": "het comité heeft besloten dat deze regels met de bijlage worden gelezen",
    "Spanish": "el comité ha decidido que estas reglas deben leerse junto con el anexo",
    "Chinese": "委员会决定这些规则应与附件一并阅读",
}


MORE = {name: text for name, text in OTHERS.items() if name != "Chinese"} | {
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
    "Greek": "η επιτροπή αποφάσισε ότι οι κανόνες διαβάζονται με το παράρτημα",
    "unknown": "12 xyzzy plugh 委员会",
}


@pytest.mark.parametrize("language", MORE)
def test_the_language_of_a_sentence(language):
    assert language_of(MORE[language]) == language


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


def test_the_choice_is_saved_and_explained(tmp_path):
    texts = ["\u6771\u4eac\u5929\u6c17\u597d", "\u5927\u962a\u5929\u6c17\u574f"] * 20
    labels = [["tokyo"], ["osaka"]] * 20
    model = Linear().fit(texts, labels)
    model.save(tmp_path / "model")
    again = Linear.load(tmp_path / "model")
    assert again.vectorizer_.fitted_params.analyzer == "char"
    assert again.predict(texts, k=1).ids() == model.predict(texts, k=1).ids()
    for own in (model, again):
        reasons = explain(own, texts[0], labels[0][0]).reasons
        assert all(texts[0][slice(*reason.spans[0])] == reason.text for reason in reasons)


@pytest.mark.parametrize(
    ("texts", "share"),
    [
        (["plain words", "12 34"], 0.0),
        ([], 0.0),
        (["\u6771\u4eac ab", "x"], 0.4),
        (["\u0e01\u0e34\u0e19"], 1.0),  # a Thai word; its vowel is no letter to Python
        (["\uac00\ub098 \ub2e4"], 0.0),  # Korean has spaces
    ],
)
def test_the_share_of_letters_without_spaces(texts, share):
    assert unspaced_share(texts) == share


def test_texts_with_few_such_letters_stay_words():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Tfidf().fit(["red shoes", "blue hat"] * 9).fitted_params.analyzer == "word"
        few = ["a long sentence about red shoes and blue hats \u6771\u4eac"] * 9
        tfidf = Tfidf()
        rows = tfidf.fit_transform(few)
    words = Tfidf(TfidfParams(analyzer="word"))
    assert tfidf.fitted_params.analyzer == "word"
    assert rows.data.tobytes() == words.fit_transform(few).data.tobytes()
    assert tfidf.terms() == words.terms() and "\u6771\u4eac" in words.terms()


def test_texts_with_some_such_letters_are_read_by_both():
    texts = ["Red shoes, blue hats \u6771\u4eac\u90fd a"] * 3
    with pytest.warns(LabelgroveWarning, match="some letters .* and the rest by words"):
        tfidf = Tfidf().fit(texts)
    assert tfidf.fitted_params.analyzer == "mixed"
    east, capital, city = "\u6771\u4eac\u90fd"
    runs = [capital, capital + city, east, east + capital, east + capital + city, city]
    assert tfidf.terms() == ["blue", "hats", "red", "shoes", *runs]
    with pytest.warns(LabelgroveWarning, match="tfidf.analyzer=mixed reads their characters"):
        Tfidf(TfidfParams(analyzer="word")).fit(texts)


def test_ngrams_that_were_set_stay():
    assert suited("auto", (2, 4), 1.0) == ("char", (2, 4))
    assert suited("auto", (1, 2), 0.1) == ("mixed", (1, 2))
    assert suited("auto", (1, 2), 0.09) == ("word", (1, 2))
    assert suited("space", (1, 1), 1.0) == ("space", (1, 1))
    own = Tfidf(analyzer=list).fit(["\u6771\u4eac"])
    assert own.fitted_params.analyzer == "word" and own.terms() == ["\u4eac", "\u6771"]
