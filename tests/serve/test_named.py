"""Names of models, and what the command line says of each."""

from pathlib import Path

import pytest

from labelgrove.errors import ConfigError
from labelgrove.serve.named import files_by_model, listed, named_models

pytestmark = pytest.mark.slow


def test_models_are_called_as_given_or_as_their_folders(tmp_path):
    for name in ("models/fi", "models/en", "models/unfinished", "one", "x=y"):
        (tmp_path / name).mkdir(parents=True)
        if name != "models/unfinished":
            (tmp_path / name / "manifest.json").touch()
    given = [f"{tmp_path}/one", f"b={tmp_path}/one", f"{tmp_path}/models", f"{tmp_path}/x=y"]
    assert named_models(given) == {
        "one": f"{tmp_path}/one",
        "b": f"{tmp_path}/one",
        "en": f"{tmp_path}/models/en",
        "fi": f"{tmp_path}/models/fi",
        "x-y": f"{tmp_path}/x=y",  # a folder that exists is no name and model
    }
    assert named_models(["hub:owner/name@v2", "nowhere"]) == {
        "name": "hub:owner/name@v2",
        "nowhere": "nowhere",
    }


def test_names_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="two models are called 'm'"):
        named_models(["a/m", "b/m"])
    for name in ("", "a b", "a/b", "-a", "x" * 65, "ä"):
        with pytest.raises(ConfigError, match="cannot be a model's name"):
            named_models([f"{name}=model"])


def test_files_belong_to_a_model():
    assert files_by_model(["x=y.html"], ["one"], "--report") == {"one": Path("x=y.html")}
    assert files_by_model(["b=t.jsonl"], ["a", "b"], "--train") == {"b": Path("t.jsonl")}
    for wrong in ("t.jsonl", "c=t.jsonl"):
        with pytest.raises(ConfigError, match="--train NAME=FILE, where NAME is a or b"):
            files_by_model([wrong], ["a", "b"], "--train")


def test_long_lists_are_cut():
    assert listed([str(n) for n in range(30)], 3) == "0, 1, 2 or 27 others"
