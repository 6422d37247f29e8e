"""Models travel to a stand-in for the Hub and back; nothing leaves this machine."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

import labelgrove
from labelgrove.cli import app
from labelgrove.errors import ConfigError, MissingExtraError, ModelFormatError
from labelgrove.exchange import hub as hub_module
from labelgrove.exchange.card import plain_name, published_files, without_paths

pytestmark = pytest.mark.slow
huggingface_hub = pytest.importorskip("huggingface_hub")
errors = pytest.importorskip("huggingface_hub.errors")
NOWHERE = "http://127.0.0.1:9"
LIBRARY = hub_module._hub
TEXTS, LABELS = ["red shoes", "blue hat", "red hat"], [["shoes"], ["hats"], ["hats", "red"]]


TOKEN = "hf_of_the_stand_in"


class FakeHub:
    """Stands for ``huggingface_hub.HfApi``; a repository is its commits by id, and its branches."""

    def __init__(self) -> None:
        self.repositories: dict[str, Any] = {}
        self.requests: list[str] = []

    def __call__(self, *, endpoint: str | None, token: Any) -> FakeHub:
        self.gone, self.token = endpoint == NOWHERE, token
        return self

    def ask(self, request: str, repo_id: str) -> Any:
        self.requests.append(request)
        if self.gone:
            raise ConnectionError("nobody answers")
        repository = self.repositories.get(repo_id)
        if repository is None or (repository.private and self.token != TOKEN):
            raise failure("RepositoryNotFoundError")
        return repository

    def files(self, repo_id: str, revision: str | None) -> tuple[str, dict[str, bytes]]:
        repository = self.ask(f"{repo_id} {revision}", repo_id)
        oid = repository.branches.get(revision or "main", revision)
        if oid not in repository.commits:
            raise failure("RevisionNotFoundError")
        return oid, repository.commits[oid]

    def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> None:
        if self.token == TOKEN and exist_ok:
            empty = SimpleNamespace(private=private, branches={"main": "0" * 40}, commits={})
            self.repositories.setdefault(repo_id, empty).commits.setdefault("0" * 40, {})
        self.ask("create", repo_id)

    def create_branch(self, repo_id: str, *, branch: str, exist_ok: bool) -> None:
        branches = self.ask("branch", repo_id).branches
        branches.setdefault(branch, branches["main"])

    def create_commit(
        self, repo_id: str, operations: Any, *, commit_message: str, revision: str | None
    ) -> Any:
        repository, oid = self.ask("commit", repo_id), f"{len(self.requests):040x}"
        before = repository.commits[repository.branches[revision or "main"]]
        added = {}
        for one in operations:
            with one.as_file() as file:
                added[one.path_in_repo] = file.read()
        repository.commits[oid] = before | added
        repository.branches[revision or "main"] = oid
        return SimpleNamespace(oid=oid)

    def model_info(self, repo_id: str, *, revision: str | None) -> Any:
        return SimpleNamespace(sha=self.files(repo_id, revision)[0])

    def hf_hub_download(self, repo_id: str, name: str, *, revision: str, local_dir: Path) -> None:
        if name not in self.files(repo_id, revision)[1]:
            raise failure("EntryNotFoundError")
        self.snapshot_download(
            repo_id, allow_patterns=[name], revision=revision, local_dir=local_dir
        )

    def snapshot_download(
        self, repo_id: str, *, allow_patterns: list[str], revision: str, local_dir: Path
    ) -> None:
        for name, content in self.files(repo_id, revision)[1].items():
            if any(fnmatch(name, pattern) for pattern in allow_patterns):
                self.requests.append(name)
                (local_dir / name).parent.mkdir(parents=True, exist_ok=True)
                (local_dir / name).write_bytes(content)


def failure(name: str) -> Exception:
    kind = getattr(errors, name)
    error: Exception = kind.__new__(kind)  # the library makes it from a response
    return error


def test_the_stand_in_has_the_arguments_of_the_library() -> None:
    for name in (
        "create_repo",
        "create_branch",
        "create_commit",
        "model_info",
        "snapshot_download",
    ):
        theirs = inspect.signature(getattr(huggingface_hub.HfApi, name)).parameters
        assert set(inspect.signature(getattr(FakeHub, name)).parameters) <= set(theirs)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeHub:
    monkeypatch.setenv("LABELGROVE_CACHE", str(tmp_path / "cache"))
    library = SimpleNamespace(HfApi=FakeHub(), CommitOperationAdd=LIBRARY().CommitOperationAdd)
    monkeypatch.setattr(hub_module, "_hub", lambda: library)
    return library.HfApi


@pytest.fixture(scope="module")
def model() -> Any:
    return labelgrove.Linear().fit(TEXTS, LABELS)


def there(hub: FakeHub) -> dict[str, Any]:
    return {"endpoint": "http://127.0.0.1", "token": TOKEN}


def test_there_and_back(hub: FakeHub, model: Any) -> None:
    commit = labelgrove.push(model, "me/tags", licence="mit", **there(hub))
    repository = hub.repositories["me/tags"]
    assert repository.private and repository.branches["main"] == commit
    back = labelgrove.from_pretrained("me/tags", **there(hub))
    assert back.predict(TEXTS, k=2).names() == model.predict(TEXTS, k=2).names()
    card = repository.commits[commit]["README.md"].decode()
    assert "license: mit" in card and 'from_pretrained("me/tags")' in card.replace("'", '"')
    # Of the training documents, nothing but counts.
    assert "shoes" not in card


def test_a_copy_is_fetched_once_and_serves_when_the_hub_is_gone(hub: FakeHub, model: Any) -> None:
    commit = labelgrove.push(model, "me/tags", **there(hub))
    labelgrove.from_pretrained("me/tags", **there(hub))
    before = len(hub.requests)
    labelgrove.from_pretrained("me/tags", **there(hub))
    assert len(hub.requests) == before + 1  # which commit it is now
    labelgrove.from_pretrained("me/tags", revision=commit, **there(hub))
    assert len(hub.requests) == before + 1  # a commit never changes
    nowhere = {"endpoint": NOWHERE, "token": TOKEN}
    found = labelgrove.from_pretrained("me/tags", **nowhere)
    assert found.index_ == model.index_
    with pytest.raises(ConfigError, match="hub:me/other"):
        labelgrove.from_pretrained("me/other", **nowhere)


def test_revisions(hub: FakeHub, model: Any) -> None:
    first = labelgrove.push(model, "me/tags", **there(hub))
    other = labelgrove.Linear().fit(TEXTS, [["x"], ["y"], ["z"]])
    labelgrove.push(other, "me/tags", revision="next", **there(hub))
    assert hub.repositories["me/tags"].branches["main"] == first
    ids = {
        revision: list(
            labelgrove.from_pretrained("me/tags", revision=revision, **there(hub)).index_.ids
        )
        for revision in (None, "next", first)
    }
    assert ids["next"] == ["x", "y", "z"] and ids[None] == ids[first] == list(model.index_.ids)
    with pytest.raises(ConfigError, match="no such revision"):
        labelgrove.from_pretrained("me/tags", revision="gone", **there(hub))


def test_a_card_that_somebody_wrote_is_kept(hub: FakeHub, model: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    (tmp_path / "model" / "README.md").write_text("# Mine\n")
    (tmp_path / "model" / "notes.txt").write_text("not listed, so not published")
    commit = labelgrove.push(tmp_path / "model", "me/tags", private=False, **there(hub))
    files = hub.repositories["me/tags"].commits[commit]
    assert files["README.md"] == b"# Mine\n" and "notes.txt" not in files
    assert labelgrove.from_pretrained("me/tags", token=False).index_


def part_of(folder: Path) -> Path:
    return next(folder.glob("*.safetensors"))


def link_out(file: Path) -> None:
    file.rename(file.parents[1] / "secret")
    file.symlink_to(file.parents[1] / "secret")


def link_inside(file: Path) -> None:
    file.rename(file.parent / "secret")
    file.symlink_to("secret")


def write_a_byte(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda folder: link_out(part_of(folder)), "safetensors: is a link"),
        (lambda folder: link_inside(part_of(folder)), "safetensors: is a link"),
        (lambda folder: write_a_byte(part_of(folder)), "safetensors: was altered or damaged"),
        (lambda folder: part_of(folder).unlink(), "safetensors: missing"),
        (lambda folder: link_out(folder / "README.md"), r"README.md: is a link"),
        (lambda folder: link_inside(folder / "README.md"), r"README.md: is a link"),
        (lambda folder: link_out(folder / "manifest.json"), "manifest.json: is a link"),
    ],
)
def test_only_plain_and_whole_files_are_uploaded(
    hub: FakeHub, model: Any, tmp_path: Path, harm: Callable[[Path], None], message: str
) -> None:
    model.save(tmp_path / "model")
    (tmp_path / "model" / "README.md").write_text("# Mine\n")
    harm(tmp_path / "model")
    with pytest.raises(ModelFormatError, match=message):
        labelgrove.push(tmp_path / "model", "me/tags", **there(hub))
    assert not hub.requests


def test_local_paths_stay_at_home(hub: FakeHub, tmp_path: Path) -> None:
    from support.exported_models import trained

    model = trained("parabel-pretrained-tfidf")
    encoder = Path(model.encoder.encoder)
    assert encoder.is_absolute()
    both = labelgrove.Ensemble(members=[model, model], rule="mean")
    both.fit(["a red shoe", "a blue hat"] * 2, [["a"], ["b"]] * 2).save(tmp_path / "both")
    model.save(tmp_path / "one")
    for folder in ("one", "both"):
        assert any(
            str(encoder.parent).encode() in file.read_bytes()
            for file in (tmp_path / folder).rglob("*.*")
        )
        for content in published_files(tmp_path / folder).values():
            content = content if isinstance(content, bytes) else content.read_bytes()
            assert str(encoder.parent).encode() not in content
        labelgrove.push(tmp_path / folder, f"me/{folder}", **there(hub))
        back = labelgrove.from_pretrained(f"me/{folder}", verify="full", **there(hub))
        here = labelgrove.load(tmp_path / folder)
        assert (
            back.predict(["a red shoe"], k=2).names() == here.predict(["a red shoe"], k=2).names()
        )
    assert back.members_[0].encoder.encoder == encoder.name
    assert without_paths({"a": [{"text_encoder": "../e"}, 3]}) == {"a": [{"text_encoder": "e"}, 3]}
    names = [plain_name(name) for name in ("/home/me/gte-small", "C:\\models\\e", "org/name")]
    assert names == ["gte-small", "e", "org/name"]
    names = [plain_name(name) for name in ("org/name@a/b", "name@main", "/home/me@x/gte")]
    assert names == ["org/name@a/b", "name@main", "gte"]


def test_what_is_no_model_is_not_fetched(hub: FakeHub, model: Any) -> None:
    labelgrove.push(model, "me/tags", **there(hub))
    repository = hub.repositories["me/tags"]
    oid = "b" * 40
    repository.commits[oid] = {"manifest.json": b"{}"}
    with pytest.raises(ModelFormatError, match="does not describe"):
        labelgrove.from_pretrained("me/tags", revision=oid, **there(hub))
    hub.requests.clear()
    repository.commits[oid] = {"config.json": b"{}", "weights.bin": b"x"}
    with pytest.raises(ConfigError, match="holds no labelgrove model"):
        labelgrove.from_pretrained("me/tags", revision=oid, **there(hub))
    assert not any("weights.bin" in asked for asked in hub.requests)


def test_a_file_that_was_changed_on_the_hub_is_refused(hub: FakeHub, model: Any) -> None:
    commit = labelgrove.push(model, "me/tags", **there(hub))
    files = hub.repositories["me/tags"].commits[commit]
    name = next(name for name in files if name.endswith(".safetensors"))
    files[name] = files[name][:-1] + bytes([files[name][-1] ^ 1])
    with pytest.raises(ModelFormatError, match="altered or damaged"):
        labelgrove.from_pretrained("me/tags", **there(hub))


def test_refusals_are_sentences(hub: FakeHub, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="no such repository, or no access"):
        labelgrove.from_pretrained("me/nothing", **there(hub))
    with pytest.raises(ConfigError, match="hub:me/tags"):
        labelgrove.push(model, "me/tags", token="hf_wrong")
    with pytest.raises(ConfigError, match="'tags' is not the name of a repository: owner/name"):
        labelgrove.push(model, "tags")
    with pytest.raises(ConfigError, match="neither a folder nor the name of a repository"):
        labelgrove.from_pretrained("tags", **there(hub))
    with pytest.raises(ConfigError, match="licence: must be an identifier"):
        labelgrove.push(model, "me/tags", licence="mit\nbase_model: x", **there(hub))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    pytest.raises(MissingExtraError, LIBRARY).match(r"the extra `hub`")


def test_the_command_line(
    hub: FakeHub, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.save(tmp_path / "model")
    monkeypatch.setattr(FakeHub, "token", property(lambda self: TOKEN, lambda self, _: None), False)

    def run(*words: str) -> Any:
        done = CliRunner().invoke(app, words, input="a red hat\n", catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    folder = str(tmp_path / "model")
    upload = ("export", folder, "--set", "licence=mit", "--set", "language=en", "--json", "--hub")
    branches = {"me/tags": "main", "me/tags@other": "other"}
    for name, branch in branches.items():
        assert run(*upload, name)["commit"] == hub.repositories["me/tags"].branches[branch]
    found = run("predict", "hub:me/tags", "-", "--k", "1")
    assert found["labels"] == model.predict(["a red hat"], k=1).names()[0]


def test_two_processes_may_fetch_the_same_model(
    hub: FakeHub, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    labelgrove.push(model, "me/tags", **there(hub))
    download = hub_module._download

    def overtaken(*given: Any) -> None:
        monkeypatch.setattr(hub_module, "_download", download)
        hub_module.fetch("me/tags", **there(hub))
        download(*given)

    monkeypatch.setattr(hub_module, "_download", overtaken)
    folder = hub_module.fetch("me/tags", **there(hub))
    assert labelgrove.load(folder).predict(["hat"], k=1).names() == [["hats"]]


def test_a_note_of_the_last_commit_that_was_cut_off_is_no_copy(hub: FakeHub, model: Any) -> None:
    labelgrove.push(model, "me/tags", **there(hub))
    folder = hub_module.fetch("me/tags", **there(hub))
    (folder.parent / "revisions" / "main").write_text("")
    with pytest.raises(ConfigError, match="hub:me/tags"):
        hub_module.fetch("me/tags", endpoint=NOWHERE, token=TOKEN)
