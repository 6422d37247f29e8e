"""Text analysers of the user's own: a model names one, and only the user brings its code."""

import copy
import json
import os
import pickle
import subprocess
import sys
import types

import pytest

import labelgrove
from labelgrove import Ensemble, Linear, TfidfParams
from labelgrove.core.strings import StringTable
from labelgrove.errors import ConfigError, DataError
from labelgrove.methods.explaining.explain import explain
from labelgrove.text import feeding
from labelgrove.text.feeding import import_analyzer, text_analyzer
from labelgrove.text.tfidf import Tfidf
from support.forging import forge_manifest, forge_settings

TEXTS, LABELS = ["Bücher lesen", "Bäume pflanzen"], [["books"], ["trees"]]
EVIL = "from pathlib import Path\nPath('ran').touch()\ndef f(text): return text.split()\n"
EVIL += "f.__labelgrove_text_analyzer__ = True\n"


def stems(text):
    return [word[:4] for word in text.lower().split()]


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    monkeypatch.setattr(feeding, "_known", {})
    monkeypatch.delenv(feeding.ANALYZERS, raising=False)


@pytest.fixture
def module(monkeypatch):
    """An importable module with an analyser that nobody has imported for labelgrove."""
    module = types.ModuleType("my_stemmers")
    module.stems, module.number = stems, 3
    monkeypatch.setitem(sys.modules, "my_stemmers", module)
    return module


@pytest.fixture
def saved(tmp_path, module):
    """A model that stores the name my_stemmers:stems, which is then forgotten."""
    import_analyzer("my_stemmers:stems")
    model = Linear(tfidf=TfidfParams(analyzer="my_stemmers:stems")).fit(TEXTS, LABELS)
    model.save(tmp_path / "model")
    feeding._known.clear()
    return tmp_path / "model"


@pytest.mark.slow
@pytest.mark.parametrize("place", ["part", "manifest"])
def test_a_model_folder_cannot_run_its_own_code(tmp_path, place):
    folder = tmp_path / "model"
    Linear().fit(TEXTS, LABELS).save(folder)
    (folder / "evil.py").write_text(EVIL)
    if place == "part":
        params = json.loads((folder / "tfidf.json").read_text())["params"]
        forge_settings(folder, "tfidf", {"params": params | {"analyzer": "model.evil:f"}})
    else:
        params = json.loads((folder / "manifest.json").read_text())["params"]
        params["tfidf"]["analyzer"] = "model.evil:f"
        forge_manifest(folder, {"params": params})
    script = (
        "import labelgrove; model = labelgrove.load('model'); model.predict(['x'], k=1);"
        "model.fit(['a b', 'c d'], [['x'], ['y']])"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 1
    assert "ConfigError: the text analyser 'model.evil:f' is not known here" in run.stderr
    assert not (tmp_path / "ran").exists()


def test_loading_needs_the_function_and_takes_it_from_the_user(saved, module):
    pytest.raises(ConfigError, labelgrove.load, saved).match("my_stemmers:stems' is not")
    model = labelgrove.load(saved, analyzer=stems)
    assert model.predict(["alte bäumchen", "bücherei"], k=1).names() == [["trees"], ["books"]]
    assert [reason.text for reason in explain(model, "alte bäumchen", "trees").reasons] == ["bäum"]
    with pytest.raises(ConfigError, match="is not known"):  # it was given to that model alone
        labelgrove.load(saved)
    again = pickle.loads(pickle.dumps(model))
    assert again.predict(["alte bäumchen"], k=1).names() == [["trees"]]
    assert copy.deepcopy(model).predict(["bäumchen"], k=1).names() == [["trees"]]


def test_a_function_is_known_by_its_mark_or_by_the_environment(saved, module, monkeypatch):
    monkeypatch.setattr(stems, "__module__", "my_stemmers")
    assert text_analyzer(stems) is stems
    assert labelgrove.load(saved).predict(["bäumchen"], k=1).names() == [["trees"]]
    monkeypatch.setenv(feeding.ANALYZERS, "other:f my_stemmers:stems")
    assert labelgrove.load(saved).predict(["bäumchen"], k=1).names() == [["trees"]]


def test_the_members_of_an_ensemble_get_the_function(tmp_path, module):
    import_analyzer("my_stemmers:stems")
    member = Linear(tfidf=TfidfParams(analyzer="my_stemmers:stems"))
    Ensemble(members=[member, Linear()]).fit(TEXTS, LABELS).save(tmp_path / "model")
    feeding._known.clear()
    pytest.raises(ConfigError, labelgrove.load, tmp_path / "model").match("is not known")
    model = labelgrove.load(tmp_path / "model", analyzer=stems)
    assert model.predict(["bäumchen"], k=1).names() == [["trees"]]


def test_a_saved_model_stores_the_name_however_it_got_the_function(saved, tmp_path):
    labelgrove.load(saved, analyzer=stems).save(tmp_path / "again")
    config = json.loads((tmp_path / "again" / "tfidf.json").read_text())
    assert config["params"]["analyzer"] == "my_stemmers:stems"
    assert config["own_analyzer"] is False
    part = Tfidf(analyzer=stems).fit(TEXTS).state()
    assert part.config["own_analyzer"] is True
    with feeding.using_analyzer(stems):
        assert Tfidf.from_state(part).transform(["bäumchen"]).nnz == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:f", "cannot be imported: No module"),
        ("my_stemmers:no", "cannot be imported"),
        ("my_stemmers:number", "is not a function"),
        (":f", "cannot be imported"),
    ],
)
def test_names_that_the_user_typed_wrong(name, message, module):
    pytest.raises(ConfigError, import_analyzer, name).match(message)


def test_the_command_imports_what_it_is_told_and_nothing_else(
    tmp_path, module, call_both, monkeypatch
):
    corpus, model = tmp_path / "train.jsonl", tmp_path / "model"
    rows = [json.dumps({"text": t, "labels": y}) for t, y in zip(TEXTS, LABELS, strict=True)]
    corpus.write_text("\n".join(rows))
    setting = "tfidf.analyzer=my_stemmers:stems"
    code, _, errors = call_both("train", corpus, "--out", model, "--set", setting, "--no-estimate")
    assert code == 0, errors
    feeding._known.clear()
    # The config file is part of the model folder: what it names is not imported.
    config = ["--config", model / "config.toml"]
    code, _, errors = call_both("train", corpus, "--out", tmp_path / "two", *config)
    assert (code, "is not known here" in errors) == (1, True), errors
    code, _, errors = call_both("predict", model, corpus, "--k", 1)
    assert (code, "set LABELGROVE_ANALYZERS=my_stemmers:stems" in errors) == (1, True), errors
    monkeypatch.setenv(feeding.ANALYZERS, "my_stemmers:stems")
    code, answers, errors = call_both("predict", model, corpus, "--k", 1)
    assert code == 0, errors
    assert [json.loads(line)["labels"] for line in answers.splitlines()] == LABELS


@pytest.mark.parametrize("nfc", [True, False])
def test_tables_are_read_as_lists_are(nfc, monkeypatch):
    monkeypatch.setattr(feeding, "_TEXTS_PER_BATCH", 2)
    texts = ["plain words", "more", "Bu\u0308cher lesen", "B\u00e4ume", ""]
    terms = {"B\u00e4ume", "lesen", "more", "plain", "words"}
    terms |= {"B\u00fccher"} if nfc else {"Bu\u0308cher"}
    params = TfidfParams(nfc=nfc, lowercase=False, min_df=1, analyzer="space")
    for given in (texts, StringTable.from_strings(texts)):
        assert set(Tfidf(params).fit(given).vocabulary) == terms


@pytest.mark.parametrize(
    ("tokens", "message"), [("one", "tokens, not one string"), ([7], "must return strings")]
)
def test_analysers_that_return_something_else_are_told_the_text(tokens, message, monkeypatch):
    monkeypatch.setattr(feeding, "_TEXTS_PER_BATCH", 2)
    analyzer = Tfidf(analyzer=lambda text: tokens if text == "odd" else [text])
    with pytest.raises(DataError, match=f"text 3: the analyser .*{message}"):
        analyzer.fit(["a", "b", "c", "odd"])
