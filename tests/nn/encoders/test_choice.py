"""Which encoder is chosen where nobody named one."""

import pytest

from labelgrove.errors import ConfigError
from labelgrove.nn.encoders import files
from labelgrove.nn.encoders.choice import ENGLISH, MULTILINGUAL, choose_encoder

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


def test_local_files_of_the_right_language_come_first(here):
    here |= {"NETWORK", ENGLISH[1], MULTILINGUAL[2]}
    name, reason = choose_encoder(TEXTS["en"])
    assert name == ENGLISH[1] and reason == "the texts are in English, and it is on this machine"
    assert choose_encoder(TEXTS["de"]).name == MULTILINGUAL[2]


def test_then_a_download(here):
    here |= {"NETWORK", ENGLISH[1]}
    name, reason = choose_encoder(TEXTS["de"])
    assert name == MULTILINGUAL[0] and reason.endswith("it comes from the Hugging Face Hub")


def test_then_an_english_one_with_a_word_of_warning(here):
    here |= {ENGLISH[2]}
    name, reason = choose_encoder(TEXTS["de"])
    assert name == ENGLISH[2] and "no multilingual encoder can be reached" in reason


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
