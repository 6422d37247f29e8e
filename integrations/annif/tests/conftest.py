"""A small made-up vocabulary and corpus, and projects over them, in a folder of their own."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

pytest.importorskip("annif")

import annif.cli
import annif.registry
import nltk.data
import nltk.tokenize
from click.testing import CliRunner

SUBJECTS = {
    "cats": "purr whiskers kitten paw",
    "dogs": "bark leash puppy paw",
    "tea": "leaf kettle cup brew",
    "coffee": "bean roast cup brew",
    "ships": "harbour sail deck anchor",
    "trains": "rail station track engine",
}
OTHER = ["a", "the", "with", "some", "near", "old", "new", "small", "very", "other", "about"]
PROJECTS = """
[linear]
name=Linear
language=en
vocab=things
backend=labelgrove
method=linear
transform=limit(5000)
ranker.C=2
tfidf.ngram_range=[1, 2]
random_state=7
allow_learn=true

[stemmed]
name=With an analyzer and probabilities
language=en
vocab=things
backend=labelgrove
analyzer=snowball(english)
calibrate=0.3
keep_training_data=yes
allow_learn=true

[without-tea]
name=Without tea
language=en
vocab=things(exclude=http://example.org/tea)
backend=labelgrove

[misspelt]
name=Misspelt
language=en
vocab=things
backend=labelgrove
ranker.D=2

[ensemble]
name=Annif's own ensemble
language=en
vocab=things
backend=ensemble
sources=linear:2,stemmed:1
"""


def uri(name: str) -> str:
    return f"http://example.org/{name}"


def documents(count: int, seed: int) -> list[tuple[str, list[str]]]:
    """Texts with words of one or two subjects among others."""
    chance = random.Random(seed)
    made = []
    for _ in range(count):
        names = chance.sample(list(SUBJECTS), chance.choice([1, 2]))
        words = chance.choices(OTHER, k=8)
        for name in names:
            words += chance.choices(SUBJECTS[name].split(), k=4)
        chance.shuffle(words)
        made.append((" ".join(words), names))
    return made


def write_tsv(path: Path, made: list[tuple[str, list[str]]]) -> None:
    lines = [f"{text}\t{' '.join(f'<{uri(name)}>' for name in names)}\n" for text, names in made]
    path.write_text("".join(lines), encoding="utf-8")


class Workbench:
    """A folder with projects; ``run`` is the annif command, in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *arguments: str, text: str | None = None, fails: bool = False) -> str:
        done = CliRunner().invoke(annif.cli.cli, list(arguments), input=text)
        assert (done.exit_code != 0) == fails, done.output + repr(done.exception)
        if fails:  # a sentence, not a traceback
            assert isinstance(done.exception, SystemExit), repr(done.exception)
        return done.output

    def model(self, project: str) -> Path:
        return self.folder / "data" / "projects" / project / "labelgrove-model"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANNIF_CONFIG", "annif.default_config.Config")
    # Annif's analyzers fetch data for splitting texts into words; tests must do without a network.
    monkeypatch.setattr(nltk.data, "find", lambda name: name)
    monkeypatch.setattr(nltk.tokenize, "word_tokenize", lambda text: re.findall(r"\w+", text))
    Path("projects.cfg").write_text(PROJECTS, encoding="utf-8")
    vocabulary = "".join(f"<{uri(name)}>\t{name}\n" for name in SUBJECTS)
    Path("things.tsv").write_text(vocabulary, encoding="utf-8")
    write_tsv(Path("train.tsv"), documents(300, seed=1))
    write_tsv(Path("test.tsv"), documents(60, seed=2))
    bench = Workbench(tmp_path)
    bench.run("load-vocab", "things", "things.tsv", "--language", "en")
    return bench
