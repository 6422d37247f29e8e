"""Files of Annif's projects from strangers: bounded work, and nothing else is read."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest

from labelgrove.data.formats import ReadOptions, ReadReport
from labelgrove.data.formats.labels import LabelRow
from labelgrove.errors import ConfigError, DataError
from labelgrove.exchange.annif import (
    AnnifProject,
    Vocabulary,
    corpus_paths,
    project_documents,
    project_vocabulary,
    read_project,
    read_sections,
    read_vocabulary,
    starting_settings,
)

pytestmark = pytest.mark.timeout(30)
USUAL = """# a comment
[DEFAULT]
language=en
base: things
[a]
name = The A first
vocab=things(exclude=
    http://example.org/1|
  ; not this
    http://example.org/2)
Analyzer=simple
percent=100%%
[b]
vocab=more
; another comment
empty=
"""


def test_sections_are_those_of_configparser(tmp_path: Path) -> None:
    (tmp_path / "projects.cfg").write_text(USUAL)
    parser = configparser.ConfigParser()
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(USUAL)
    expected = {name: dict(parser[name]) for name in parser.sections()}
    assert read_sections(tmp_path / "projects.cfg") == expected


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("x0=ha\nx=%(x0)s\n", r"line 3: references such as %\(key\)s are not read"),
        ("x" + " " * 100_000 + "y\n", "line 2: is no projects.cfg of Annif"),
        ("key\n" * 200_000, "line 2: is no projects.cfg of Annif"),
        ("x=1\nx=2\n", "line 3: x occurs twice"),
    ],
)
def test_hostile_sections(tmp_path: Path, lines: str, message: str) -> None:
    file = tmp_path / "projects.cfg"
    file.write_text(f"[a]\n{lines}")
    pytest.raises(ConfigError, read_sections, file).match(message)


@pytest.mark.parametrize("suffix", ["jsonld", "n3", "rdf", "xml"])
def test_nothing_is_fetched(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"things.{suffix}").write_text('{"@context": "http://example.org/context"}')
    with pytest.raises(DataError, match="convert it to Turtle"):
        read_vocabulary(tmp_path / f"things.{suffix}", "en")


def test_a_line_with_very_many_subjects(tmp_path: Path) -> None:
    uris = [f"http://example.org/{n}" for n in range(200_000)]
    (tmp_path / "train.tsv").write_text("a text\t" + " ".join(f"<{uri}>" for uri in uris * 2))
    vocabulary = Vocabulary([LabelRow(uri, uri) for uri in uris[1:]])
    paths = [tmp_path / "train.tsv"]
    (document,) = project_documents(paths, vocabulary, ReadOptions(), ReadReport())
    assert document.labels == uris[1:] and vocabulary.unknown == 2


@pytest.mark.parametrize("config", ["../secret.toml", "/etc/hostname", "link.toml"])
def test_a_config_outside_the_folder(tmp_path: Path, config: str) -> None:
    (tmp_path / "secret.toml").write_text('method = "linear"\n')
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "link.toml").symlink_to(tmp_path / "secret.toml")
    section = {"backend": "labelgrove", "config": config}
    with pytest.raises(ConfigError, match=r"is outside the folder .*; nothing there is read"):
        starting_settings(AnnifProject("a", section, tmp_path / "project" / "projects.cfg"))


def test_data_outside_the_data_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("{}")
    file = tmp_path / "project" / "projects.cfg"
    project = AnnifProject("a", {"vocab": "v"}, file)
    for name in ("projects/a/labelgrove-train/corpus.jsonl", "vocabs/v/subjects.csv"):
        link = project.data(None) / name
        link.parent.mkdir(parents=True)
        link.symlink_to(tmp_path / "secret")
    with pytest.raises(ConfigError, match=r"corpus\.jsonl: is outside the folder"):
        corpus_paths(project, [], None)
    with pytest.raises(ConfigError, match=r"subjects\.csv: is outside the folder"):
        project_vocabulary(project)
    file.write_text("[../../a]\nvocab=v\n")
    pytest.raises(ConfigError, read_project, str(file)).match("is no id of a project")
