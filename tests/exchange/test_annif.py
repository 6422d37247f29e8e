"""A made-up project of Annif, imported by the command, and files of strangers: bounded work."""

from __future__ import annotations

import configparser
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import labelgrove
from labelgrove.cli import app
from labelgrove.core.params import read_toml
from labelgrove.data.formats import ReadOptions, ReadReport
from labelgrove.data.formats.labels import NamedRow
from labelgrove.errors import ConfigError, DataError
from labelgrove.exchange.annif import (
    AnnifProject,
    Vocabulary,
    project_documents,
    project_vocabulary,
    read_project,
    read_sections,
    read_vocabulary,
)
from labelgrove.exchange.annif import starting_settings as settings_of
from labelgrove.methods import create

pytestmark = pytest.mark.timeout(30)
CATS, TEA, OLD = (f"http://example.org/{name}" for name in ("cats", "tea", "old"))
PROJECTS = f"""
[things-en]
language=en
vocab=things
backend=omikuji
analyzer=snowball(english,token_min_length=2)
cluster_balanced=False
ngram=2
min_df=1
limit=100

[things-de]
language=en
vocab=things(de,exclude={TEA})
backend=svc
"""
SUBJECTS = f"""uri,notation,label_en,label_de
<{CATS}>,,cats,Katzen
{TEA},,"tea, any",
{OLD},,,
"""


@pytest.fixture
def annif(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a configuration and a loaded vocabulary."""
    monkeypatch.delenv("ANNIF_DATADIR", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "projects.cfg").write_text(PROJECTS, encoding="utf-8")
    vocabulary = tmp_path / "data" / "vocabs" / "things"
    vocabulary.mkdir(parents=True)
    (vocabulary / "subjects.csv").write_text(SUBJECTS, encoding="utf-8")
    with gzip.open("train.tsv.gz", "wt", encoding="utf-8") as file:
        file.write(f"a purring cat\t<{CATS}>\na cup of tea\t<{TEA}> <{OLD}>\n")
    return tmp_path


def imported(*arguments: object) -> str:
    """What the command says; its errors are raised."""
    words = ["data", "import", *map(str, arguments), "--out", "out"]
    return CliRunner().invoke(app, words, catch_exceptions=False).output


def documents(name: str = "train") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(f"out/{name}.jsonl").read_text("utf-8").splitlines()]


def test_what_is_imported_can_be_trained(annif: Path) -> None:
    Path("texts").mkdir()
    Path("texts/a.txt").write_text("cats again")
    Path("texts/a.key").write_text("cats\n")
    Path("more.csv").write_text(f"document_id,text,subject_uris\n7,green tea,<{TEA}> {CATS}\n")
    record = {"text": "black tea", "subjects": [{"label": "tea, any"}, {"uri": CATS}]}
    Path("test.jsonl").write_text(json.dumps(record) + "\n")
    parts = ["--train", "train.tsv.gz", "--train", "texts", "--dev", "more.csv"]
    said = imported("projects.cfg:things-en", *parts, "--test", "test.jsonl")
    assert documents() == [
        {"text": "a purring cat", "labels": [CATS]},
        {"text": "a cup of tea", "labels": [TEA]},
        {"text": "cats again", "labels": [CATS], "id": "a"},
    ]
    assert documents("dev") == [{"text": "green tea", "labels": [TEA, CATS], "id": "7"}]
    assert documents("test") == [{"text": "black tea", "labels": [TEA, CATS]}]
    assert Path("out/labels.tsv").read_text() == f"{CATS}\tcats\n{TEA}\ttea, any\n"
    assert "train: left out 1 subjects" in said and "snowball" in said
    settings = read_toml("out/settings.toml")
    assert settings == {"method": "bonsai", "tfidf": {"analyzer": "stem"}}
    model = create(settings.pop("method"), settings).fit(labelgrove.read_corpus("out"))
    assert model.predict(["a purring thing"], k=1).names() == [["cats"]]


def test_language_and_exclusions_are_the_projects(annif: Path) -> None:
    imported("projects.cfg:things-de", "--train", "train.tsv.gz")
    assert Path("out/labels.tsv").read_text() == f"{CATS}\tKatzen\n"
    lines = Path("out/train.jsonl").read_text().splitlines()
    assert [json.loads(line)["labels"] for line in lines] == [[CATS], []]
    project = AnnifProject("a", {"vocab": f"things(exclude=*,include={TEA},exclude_type=x)"}, annif)
    vocabulary = project_vocabulary(project, data=annif / "data")
    assert [row.id for row in vocabulary.rows] == [TEA]
    assert "exclude_type is not applied" in vocabulary.notes[0]


def test_a_tsv_vocabulary(annif: Path) -> None:
    Path("things.tsv").write_text(f"<{CATS}>\tmoggies\n")
    imported("projects.cfg:things-en", "--train", "train.tsv.gz", "--labels", "things.tsv")
    assert Path("out/labels.tsv").read_text() == f"{CATS}\tmoggies\n"


def test_toml_and_folders_of_configurations(annif: Path) -> None:
    Path("projects.d").mkdir()
    Path("projects.d/a.toml").write_text('[a]\nvocab = "things"\nbackend = "omikuji"\n')
    Path("projects.d/b.cfg").write_text("[b]\nvocab=things\nbackend=tfidf\n")
    project = read_project("projects.d:a")
    assert settings_of(project) == ({"method": "parabel"}, [])
    assert len(project_vocabulary(project).rows) == 2
    assert settings_of(read_project("projects.d:b")) == ({"method": "linear"}, [])


@pytest.mark.parametrize(
    ("section", "method", "note"),
    [
        ({"backend": "svc"}, "ova", ""),
        ({"backend": "mllm"}, "linear", "matcher"),
        ({"backend": "ensemble"}, "linear", "import the projects behind it"),
        ({"backend": "fasttext"}, "linear", "fasttext has no counterpart"),
        ({"backend": "tfidf", "transform": "limit(9)"}, "linear", "left out: transform=limit(9)"),
        ({"backend": "tfidf", "analyzer": "voikko(fi)"}, "linear", "left out: analyzer=voikko(fi)"),
        ({"backend": "labelgrove"}, "auto", "labelgrove-model"),
    ],
)
def test_what_has_no_counterpart_is_said(section: Any, method: str, note: str) -> None:
    settings, notes = settings_of(AnnifProject("a", section, Path("projects.cfg")))
    assert settings == {"method": method}
    assert len(notes) == bool(note)
    assert all(note in sentence for sentence in notes)


def test_snowball_becomes_stems_and_other_settings_are_named() -> None:
    section = {"backend": "tfidf", "analyzer": "snowball(german)", "min_df": 1, "limit": 9}
    settings, notes = settings_of(AnnifProject("a", section, Path("projects.cfg")))
    assert settings == {"method": "linear", "tfidf": {"analyzer": "stem"}}
    assert "words are counted beside their stems" in notes[0]
    assert notes[1:] == ["left out: min_df=1"]


@pytest.mark.parametrize(
    ("project", "flags", "message"),
    [
        ("projects.cfg", [], r"several projects; choose one: projects\.cfg:things-en"),
        ("projects.cfg:thing", [], "has no project 'thing', only things-en, things-de"),
        ("nowhere.cfg:a", [], r"nowhere\.cfg: does not exist; the folder contains"),
        ("train.tsv.gz", [], r"is no projects\.cfg of Annif"),
        ("empty.cfg", [], "has no projects"),
        ("bad.cfg:no-vocab", [], "no-vocab has no vocab="),
        ("bad.cfg:odd-vocab", [], "must look like name"),
        ("bad.cfg:unloaded", [], "run annif load-vocab others"),
        ("bad.cfg:finnish", [], "'fi', only in en, de"),
        ("bad.cfg:nothing", [], "excludes every subject"),
        ("projects.cfg:things-en", ["--train", "gone.tsv"], r"gone\.tsv: does not exist"),
        ("projects.cfg:things-en", ["--train", "bad.tsv"], "line 1: there is no tab"),
        ("projects.cfg:things-en", ["--train", "bad.jsonl"], "line 1: is no document of Annif"),
        ("projects.cfg:things-en", ["--labels", "more.csv"], "needs the columns uri and label_en"),
    ],
)
def test_mistakes_leave_nothing_behind(
    annif: Path, project: str, flags: list[str], message: str
) -> None:
    Path("empty.cfg").touch()
    Path("bad.tsv").write_text("no subjects\n")
    Path("bad.jsonl").write_text("[1]\n")
    Path("more.csv").write_text("text\nhello\n")
    Path("bad.cfg").write_text(
        "[no-vocab]\nbackend=svc\n[odd-vocab]\nvocab=a(\n"
        "[unloaded]\nvocab=others\n[finnish]\nvocab=things\nlanguage=fi\n"
        "[nothing]\nvocab=things(exclude=*)\n"
    )
    with pytest.raises((ConfigError, DataError), match=message):
        imported(project, "--train", "train.tsv.gz", *flags)
    assert not Path("out").exists()


def test_existing_files_and_bad_lines(annif: Path) -> None:
    Path("bad.tsv").write_text(f"no subjects\na cat\t<{CATS}>\n")
    assert "1 bad line" in imported("projects.cfg:things-en", "--train", "bad.tsv", "--skip-bad")
    with pytest.raises(ConfigError, match=r"settings\.toml already exists; add --force"):
        imported("projects.cfg:things-en", "--train", "bad.tsv", "--skip-bad")
    imported("projects.cfg:things-en", "--train", "train.tsv.gz", "--force")
    assert len(documents()) == 2


SECTIONS = """# a comment
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
    (tmp_path / "projects.cfg").write_text(SECTIONS)
    parser = configparser.ConfigParser()
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(SECTIONS)
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


@pytest.mark.parametrize("suffix", ["ttl", "nt", "jsonld", "n3", "rdf", "xml"])
def test_rdf_is_refused_and_nothing_is_fetched(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"things.{suffix}").write_text('{"@context": "http://example.org/context"}')
    with pytest.raises(DataError, match=r"annif load-vocab makes a table of it"):
        read_vocabulary(tmp_path / f"things.{suffix}", "en")


def test_a_line_with_very_many_subjects(tmp_path: Path) -> None:
    uris = [f"http://example.org/{n}" for n in range(200_000)]
    (tmp_path / "train.tsv").write_text("a text\t" + " ".join(f"<{uri}>" for uri in uris * 2))
    vocabulary = Vocabulary([NamedRow(uri, uri) for uri in uris[1:]])
    paths = [tmp_path / "train.tsv"]
    (document,) = project_documents(paths, vocabulary, ReadOptions(), ReadReport())
    assert document.labels == uris[1:] and vocabulary.unknown == 2


def test_a_vocabulary_outside_the_data_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("{}")
    file = tmp_path / "project" / "projects.cfg"
    project = AnnifProject("a", {"vocab": "v"}, file)
    link = project.data(None) / "vocabs" / "v" / "subjects.csv"
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "secret")
    with pytest.raises(ConfigError, match=r"subjects\.csv: is outside the folder"):
        project_vocabulary(project)
    file.write_text("[../../a]\nvocab=v\n")
    pytest.raises(ConfigError, read_project, str(file)).match("is no id of a project")
