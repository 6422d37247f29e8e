"""Feedback is kept line by line, whatever happens on the way."""

import asyncio
import errno
import fcntl
import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from labelgrove.errors import ConfigError
from labelgrove.serve.models import FeedbackFile
from labelgrove.serve.problems import Problem
from support.services import check_problem, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("feedback") / "new" / "folder"


@pytest.fixture(scope="module")
def kept(model_path, folder):
    with running({"a": model_path, "b": model_path}, feedback=folder, max_k=4) as client:
        yield client


def append(feedback, entry):
    asyncio.run(feedback.append(entry))


def lines(file):
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_an_entry_says_what_was_shown_and_chosen(kept, folder):
    model = kept.get("/v1/models/b").json()
    assert model["feedback"]
    body = {
        "text": "this red\nhat, grün",
        "labels": ["hat", "Red goods", "red"],  # by id, by name, and again
        "suggestions": [{"id": "red", "score": 0.75}, {"id": "lamp", "score": 0.25}],
        "threshold": 0.5,
    }
    answer = kept.post("/v1/models/b/feedback", json=body)
    assert answer.json() == {"model": model["id"], "labels": ["hat", "red"]}
    (entry,) = lines(folder / "b.jsonl")
    assert entry.pop("time").endswith("+00:00")
    assert entry == {
        "model": model["id"],
        "text": "this red\nhat, grün",
        "labels": ["hat", "red"],
        "suggestions": body["suggestions"],
        "threshold": 0.5,
        "names": {"hat": "Hat goods", "red": "Red goods", "lamp": "Lamp goods"},
    }
    assert not lines(folder / "a.jsonl")
    if os.name == "posix":
        assert stat.S_IMODE((folder / "b.jsonl").stat().st_mode) == 0o600
    assert 'labelgrove_feedback_total{model="b"} 1.0\n' in kept.get("/metrics").text


def test_labels_that_the_model_does_not_have_are_named(kept, folder):
    before = (folder / "a.jsonl").read_bytes()
    for body in (
        {"text": "x", "labels": ["zebra"]},
        {"text": "x", "labels": [], "suggestions": [{"id": "zebra"}]},
    ):
        problem = check_problem(kept.post("/v1/feedback", json=body), 422, "refused-by-model")
        assert "zebra" in problem["detail"]
    fields = {"text": {"title": "x"}, "labels": []}
    check_problem(kept.post("/v1/feedback", json=fields), 422, "refused-by-model")
    assert (folder / "a.jsonl").read_bytes() == before


def test_it_is_off_unless_asked_for(client):
    assert client.get("/v1/model").json()["feedback"] is False
    response = client.post("/v1/feedback", json={"text": "x", "labels": ["red"]})
    assert "--feedback" in check_problem(response, 404, "no-feedback")["detail"]


def test_a_full_file_takes_no_more(model_path, tmp_path):
    with running(model_path, feedback=tmp_path, max_feedback_mb=0.001) as client:
        body = {"text": "x" * 300, "labels": ["red"]}
        statuses = [client.post("/v1/feedback", json=body).status_code for _ in range(4)]
        assert statuses == [200, 200, 507, 507]
        check_problem(client.post("/v1/feedback", json=body), 507, "feedback-full")
        assert len(lines(tmp_path / "model.jsonl")) == 2
        (tmp_path / "model.jsonl").rename(tmp_path / "moved.jsonl")  # while the service runs
        assert client.post("/v1/feedback", json=body).status_code == 200
        assert len(lines(tmp_path / "model.jsonl")) == 1


def test_a_line_that_a_crash_cut_off_stays_alone(tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_bytes(b'{"n": 1}\n{"n": 2, "te')
    append(FeedbackFile(file, 1), {"n": 3})
    append(FeedbackFile(file, 1), {"n": 4})
    assert file.read_bytes() == b'{"n": 1}\n{"n": 2, "te\n{"n":3}\n{"n":4}\n'


def test_a_full_disk_leaves_whole_lines(tmp_path, monkeypatch):
    feedback = FeedbackFile(tmp_path / "x.jsonl", 1)
    append(feedback, {"n": 1})
    write = os.write

    def half(file, data):
        if len(data) > 4:
            return write(file, data[:4])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(Problem, match="could not be written"):
            append(feedback, {"n": 2})
    append(feedback, {"n": 3})
    assert lines(feedback.path) == [{"n": 1}, {"n": 3}]


def test_many_writers_do_not_mix_their_lines(tmp_path):
    async def work(first):  # as a worker process does
        file = FeedbackFile(tmp_path / "x.jsonl", 10)
        entries = [{"n": n, "text": "x" * 5000} for n in range(first, 80, 4)]
        await asyncio.gather(*(file.append(entry) for entry in entries))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda first: asyncio.run(work(first)), range(4)))
    assert sorted(line["n"] for line in lines(tmp_path / "x.jsonl")) == list(range(80))


def test_a_lock_held_elsewhere_stops_feedback_and_nothing_else(model_path, tmp_path, monkeypatch):
    monkeypatch.setattr("labelgrove.serve.models.LOCK_SECONDS", 1.0)
    body = {"text": "x", "labels": ["red"]}
    with running(model_path, feedback=tmp_path) as client, ThreadPoolExecutor(40) as pool:
        with (tmp_path / "model.jsonl").open("a") as holder:
            fcntl.flock(holder, fcntl.LOCK_EX)
            # More than there are threads for work beside the event loop.
            sent = [pool.submit(client.post, "/v1/feedback", json=body) for _ in range(40)]
            for path in ("/v1/labels", "/v1/tree"):
                assert client.get(path).status_code == 200
            assert not any(answer.done() for answer in sent)
            for answer in sent:
                problem = check_problem(answer.result(), 503, "feedback-locked")
                assert "locked by another program" in problem["detail"]
        assert client.post("/v1/feedback", json=body).status_code == 200
    assert len(lines(tmp_path / "model.jsonl")) == 1


def test_a_folder_that_cannot_be_written_is_said_at_the_start(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="choose another --feedback folder"):
        FeedbackFile(tmp_path / "file" / "x.jsonl", 1)
