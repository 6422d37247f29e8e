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
