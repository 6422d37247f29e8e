"""labelgrove serve: the real command with several worker processes, and what it refuses."""

import shutil
import socket
import sys

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("httpx")

from support.served_process import serving

pytestmark = pytest.mark.slow


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_service_that_everybody_can_reach_says_so(model, tmp_path, monkeypatch):
    note = "note: everybody who can reach 0.0.0.0 can ask this service and write feedback"
    for arguments, token, open_to_all in (
        (("--host", "0.0.0.0"), None, True),
        (("--host", "0.0.0.0"), "abc", False),
        ((), None, False),
    ):
        monkeypatch.setenv("LABELGROVE_TOKEN", token) if token else monkeypatch.undo()
        arguments = (*arguments, "--feedback", str(tmp_path))
        with serving(model, token=token, arguments=arguments) as server:
            assert (note in server.log.read_text()) == open_to_all


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("workers", [1, 2])
def test_other_names_and_links_out_of_the_folder_are_refused(model, tmp_path, workers):
    copy = tmp_path / "model"
    shutil.copytree(model, copy)
    (tmp_path / "secret").write_text("of this machine", encoding="utf-8")
    (copy / "report.html").symlink_to(tmp_path / "secret")
    names = ("--host-header", "labels.example.org", "--workers", str(workers))
    with serving(copy, arguments=names) as server:
        client = server.client
        assert client.get("/report").status_code == 404
        assert client.get("/v1/model").json()["report"] is False
        for host, status in {"labels.example.org": 200, "evil.example": 421}.items():
            assert client.get("/v1/model", headers={"host": host}).status_code == status


def test_several_models_over_several_workers(model, tmp_path):
    (tmp_path / "models").mkdir()
    for name in ("a", "b"):
        shutil.copytree(model, tmp_path / "models" / name)
    (tmp_path / "b.html").write_text("<p>about b</p>", encoding="utf-8")
    said, token = tmp_path / "said", tmp_path / "token"
    token.write_text("a long secret\n", encoding="utf-8")
    arguments = ("--default", "b", "--report", f"b={tmp_path}/b.html", "--workers", "2")
    arguments += (f"c={model}", "--feedback", str(said), "--token-file", str(token))
    models = tmp_path / "models"
    with serving(models, "max_k=2", token="a long secret", arguments=arguments) as server:
        client = server.client
        client.headers["connection"] = "close"  # so that both workers get some
        assert client.get("/v1/model", headers={"authorization": ""}).status_code == 401
        listed = client.get("/v1/models").json()
        assert listed["default"] == "b"
        assert [one["name"] for one in listed["models"]] == ["a", "b", "c"]
        for name, status in (("", 200), ("/b", 200), ("/a", 404)):
            assert client.get(f"/report{name}").status_code == status
        for name, k, status in (("a", 3, 422), ("a", 2, 200), ("c", 2, 200), ("d", 2, 404)):
            body = {"texts": ["a red shoe"], "k": k}
            assert client.post(f"/v1/models/{name}/predict", json=body).status_code == status
        before = server.metric('texts_total{model="b"}')
        for _ in range(20):
            given = {"text": "a red shoe", "labels": ["c:red"]}
            assert client.post("/v1/feedback", json=given).status_code == 200
            assert (
                client.post("/v1/predict", json={"texts": ["a red shoe"], "k": 1}).status_code
                == 200
            )
        for _ in range(5):  # whichever worker answers
            assert server.metric('texts_total{model="b"}') == before + 20
    assert len((said / "b.jsonl").read_text(encoding="utf-8").splitlines()) == 20


def test_what_cannot_be_served_is_said_in_a_sentence(run, model, tmp_path):
    (tmp_path / "empty").write_text("\n", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for arguments, words in (
            ((tmp_path / "nothing",), "no such folder"),
            ((model, model), "two models are called"),
            ((f"a={model}", f"b={model}", "--default", "c"), "no such model, only a or b"),
            ((f"a={model}", f"b={model}", "--train", "x"), "--train NAME=FILE"),
            ((model, "--set", "max_kk=2"), "did you mean max_k?"),
            ((model, "--token-file", tmp_path / "empty"), "one line of printable ASCII"),
            ((model, "--port", taken.getsockname()[1]), "in use; choose another"),
        ):
            done = run("serve", *arguments, check=False)
            assert done.returncode == 1 and words in done.stderr, done.stderr
            assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
