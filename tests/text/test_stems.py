"""The analyser "stem": words and stems by the language of each text, in features and models."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("snowballstemmer")

from labelgrove import Linear, TfidfParams, load
from labelgrove.errors import ConfigError
from labelgrove.text.feeding import words_and_stems

GERMAN = ["das sind die Häuser in der Stadt", "ein Baum und die Bäume im Wald"]


def test_stems_follow_the_language_of_the_text():
    assert "haus" in list(words_and_stems("das sind die Häuser in der Stadt"))
    english = list(words_and_stems("the houses of the city and the house"))
    assert {"houses", "hous", "house"} <= set(english)
    assert list(words_and_stems("Häuser")) == ["häuser"]  # too short for a language
    ukrainian = ["не", "на", "що", "та", "до", "як", "це", "для"]  # not in Snowball
    assert list(words_and_stems(" ".join(ukrainian))) == ukrainian
    with pytest.raises(ConfigError, match=r"ngram_range: must be \[1, 1\] with the analyzer stem"):
        TfidfParams(analyzer="stem", ngram_range=(1, 2)).validate()


def test_models_find_other_endings(tmp_path):
    model = Linear(tfidf=TfidfParams(analyzer="stem"))
    model.fit(GERMAN * 3, [["houses"], ["trees"]] * 3)
    question = "das ist ein Haus und der Garten"
    assert model.predict([question], k=1).names() == [["houses"]]
    reasons = model.explain(question, "houses").reasons
    assert "haus" in [reason.text for reason in reasons]
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert (again.predict([question]).scores == model.predict([question]).scores).all()


def test_threads_have_stemmers_of_their_own():
    texts = [f"{text} {number}" for number in range(200) for text in GERMAN]
    alone = [list(words_and_stems(text)) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda text: list(words_and_stems(text)), texts)) == alone


def test_without_the_package_its_extra_is_named():
    source = (
        "import sys; sys.modules['snowballstemmer'] = None\n"
        "from labelgrove import Linear, TfidfParams\n"
        "Linear(tfidf=TfidfParams(analyzer='stem')).fit(['a text', 'two'], [['a'], ['b']])"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert "needs the extra `stem`: pip install" in done.stderr
