"""Finding and choosing encoders in folders, packages and the Hub; messages if there are none."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from labelgrove.disk.hashing import content_hash
from labelgrove.disk.tensors import write_tensors
from labelgrove.errors import ConfigError
from labelgrove.nn.encoders import files
from labelgrove.nn.encoders.files import (
    ENGLISH,
    MULTILINGUAL,
    EncoderContent,
    EncoderParams,
    choose_encoder,
    find_encoder,
    longest_text,
    parameter_count,
    saved_pooling,
)


def fake_encoder(folder):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def install(site, package, files):
    """An installed distribution as pip leaves it: files, METADATA and RECORD."""
    about = site / f"{package.replace('-', '_')}-0.0.1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.0.1\n")
    for name, content in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_bytes(content)
    (about / "RECORD").write_text("".join(f"{name},,\n" for name in files))


@pytest.fixture
def site(tmp_path, monkeypatch):
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("LABELGROVE_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def no_hub(monkeypatch):
    hub = pytest.importorskip("huggingface_hub")

    def fail(*_, **__):
        raise OSError("no network here")

    monkeypatch.setattr(hub, "snapshot_download", fail)


def test_a_folder_is_taken_as_it_is(tmp_path, monkeypatch):
    folder = fake_encoder(tmp_path / "mine")
    assert find_encoder(str(folder)) == folder
    monkeypatch.chdir(tmp_path)
    assert find_encoder("mine") == Path("mine")
    (folder / "model.safetensors").unlink()
    pytest.raises(ConfigError, find_encoder, str(folder)).match(r"must have config\.json")
    for missing in ("./mine2", str(tmp_path / "a/b"), "a/b/c", "org/", "~/no such folder", ""):
        pytest.raises(ConfigError, find_encoder, missing).match("there is no such folder")


def test_a_package_with_weights_is_found_by_its_own_name(site):
    files = {"some_model/model/config.json": b"{}", "some_model/model/model.safetensors": b""}
    install(site, "some-model", files)
    assert find_encoder("some-model") == site / "some_model" / "model"


@pytest.mark.usefixtures("no_hub")
def test_what_is_nowhere_gets_the_three_ways():
    ways = r"\(1\) a folder.*\(2\) an installed package.*\(3\) the id of a Hub .*no network here"
    pytest.raises(ConfigError, find_encoder, "somebody/some-model").match(f".*{ways}")


def test_the_local_cache_of_the_hub_comes_before_the_network(tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    cache_only = []

    def download(repository, *, local_files_only, **_):
        cache_only.append(local_files_only)
        folder = tmp_path / repository.replace("/", "-")
        if repository == "org/cached" or not local_files_only:
            if not folder.exists():
                fake_encoder(folder)
            return str(folder)
        raise OSError("not in the cache")

    monkeypatch.setattr(hub, "snapshot_download", download)
    assert find_encoder("org/cached") == tmp_path / "org-cached"
    assert cache_only == [True]
    assert find_encoder("org/new") == tmp_path / "org-new"
    assert cache_only == [True, True, False]


@pytest.mark.parametrize(
    ("saved", "pooling"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "first"),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode": "cls"}, "first"),
        ({"pooling_mode_max_tokens": True}, None),
    ],
)
def test_saved_pooling_is_read(tmp_path, saved, pooling):
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(saved))
    assert saved_pooling(tmp_path) == pooling


@pytest.mark.parametrize(
    ("config", "longest"),
    [
        ({"model_type": "bert", "max_position_embeddings": 512, "pad_token_id": 0}, 512),
        ({"model_type": "xlm-roberta", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "mpnet", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "eurobert", "max_position_embeddings": 8192, "pad_token_id": 128001}, 8192),
        ({"model_type": "newer", "max_position_embeddings": 8192, "pad_token_id": 50283}, 8192),
        ({"model_type": "deberta-v2", "max_position_embeddings": 512, "pad_token_id": 0}, 512),
        ({"model_type": "xlnet", "pad_token_id": 5}, None),
        ({"model_type": "xlnet", "max_position_embeddings": -1}, None),
    ],
)
def test_the_longest_text_is_read_of_the_config(tmp_path, config, longest):
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert longest_text(tmp_path) == longest


def test_without_torch_settings_import_and_encoders_name_the_extra():
    source = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "transformers", "tokenizers", "huggingface_hub"}:
            raise ImportError(name)
sys.meta_path.insert(0, Blocker())
from labelgrove.errors import MissingExtraError
from labelgrove.nn.encoders.files import EncoderParams, find_encoder
from labelgrove.nn.encoders.tokens import tokenize
EncoderParams().validate()
def missing_extra(action):
    try:
        action()
    except MissingExtraError as error:
        return error.extra
import importlib
print([
    missing_extra(lambda: importlib.import_module("labelgrove.nn.encoders.encoder")),
    missing_extra(lambda: find_encoder("org/name")),
    missing_extra(lambda: tokenize(["a"], None, 8)),
])
"""
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout.strip() == "['torch', 'torch', 'torch']", done.stderr


def test_an_encoder_counts_as_what_its_files_hold(tmp_path):
    def key(folder, **settings):
        return content_hash(EncoderContent(EncoderParams(encoder=str(folder), **settings)))

    one, other = fake_encoder(tmp_path / "one"), fake_encoder(tmp_path / "other")
    assert key(one) == key(other)
    assert key(one) != key(one, max_tokens=16)
    before = key(one)
    weights = next(one.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes() + b"trained on")
    assert key(one) != before


@pytest.mark.parametrize("precision", [np.float16, np.float32])
def test_parameters_are_counted_whatever_their_precision(tmp_path, precision):
    for name in ("a.safetensors", "b.safetensors"):
        write_tensors(tmp_path / name, {"x": np.zeros((3, 4), precision), "y": np.zeros(1)})
    assert parameter_count(tmp_path) == 26


TEXTS = {"en": ["the roof of the house is on it"] * 3, "de": ["das Dach des Hauses"] * 3}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Names of encoders in the local cache of the Hub, or "NETWORK" if all can be downloaded."""
    hub = pytest.importorskip("huggingface_hub")
    names = set()

    def download(repository, *, local_files_only, **_):
        if repository in names or ("NETWORK" in names and not local_files_only):
            folder = tmp_path / repository
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "config.json").write_text("{}")
            (folder / "model.safetensors").write_bytes(b"")
            return str(folder)
        raise OSError("not there")

    monkeypatch.setattr(hub, "snapshot_download", download)
    monkeypatch.setattr(files, "_in_packages", lambda name: None)
    return names


@pytest.mark.parametrize(
    ("reachable", "language", "name", "reason"),
    [
        ({"NETWORK", ENGLISH[1]}, "en", ENGLISH[1], "in English, and it is on this machine"),
        ({"NETWORK", ENGLISH[1], MULTILINGUAL[2]}, "de", MULTILINGUAL[2], "on this machine"),
        ({"NETWORK", ENGLISH[1]}, "de", MULTILINGUAL[0], "it comes from the Hugging Face Hub"),
        ({ENGLISH[2]}, "de", ENGLISH[2], "no multilingual encoder can be reached"),
    ],
)
def test_files_here_come_before_downloads_and_the_language_counts(
    here, reachable, language, name, reason
):
    here |= reachable
    choice = choose_encoder(TEXTS[language])
    assert choice.name == name and reason in choice.reason


@pytest.mark.parametrize(("language", "remedy"), [("en", "pip install"), ("de", MULTILINGUAL[0])])
def test_or_a_sentence_that_says_what_to_do(here, language, remedy):
    with pytest.raises(ConfigError, match="no encoder can be reached") as refused:
        choose_encoder(TEXTS[language])
    assert remedy in str(refused.value)


def test_an_installed_package_is_local():
    pytest.importorskip("huggingface_hub")
    installed = files._in_packages("all-MiniLM-L6-v2") is not None
    assert files.is_local("all-MiniLM-L6-v2") == installed
    assert not files.is_local("no-such-encoder-anywhere")
