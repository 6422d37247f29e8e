"""A new model in the folder is taken up; no request notices but by its answer."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from labelgrove import Linear
from labelgrove.errors import ConfigError, ModelFormatError
from labelgrove.serve.served import ModelFolder
from support.served_process import wait_for
from support.services import fitted, running

pytestmark = pytest.mark.slow


def test_models_change_under_load_and_no_request_fails(tmp_path):
    path = tmp_path / "model"
    fitted(prefix="v0 ").save(path)
    seen = set()
    stop = threading.Event()

    with running(path, reload_seconds=0.05) as client:

        def ask():
            asked = 0
            while not stop.is_set():
                body = {"texts": ["this red hat"] * 3, "k": 2}
                response = client.post("/v1/predict", json=body)
                assert response.status_code == 200, response.text
                rows = response.json()["predictions"]
                versions = {label["name"].split()[0] for row in rows for label in row}
                assert len(versions) == 1  # never two models in one answer
                seen.update(versions)
                asked += 1
            return asked

        with ThreadPoolExecutor(6) as pool:
            asking = [pool.submit(ask) for _ in range(6)]
            try:
                for version in ("v1", "v2", "v3"):
                    fitted(prefix=f"{version} ").save(path, overwrite=True)
                    wait_for(lambda version=version: version in seen)
            finally:
                stop.set()
            assert sum(future.result() for future in asking) > 10
        assert (
            'labelgrove_reloads_total{model="model",outcome="loaded"} 3'
            in client.get("/metrics").text
        )
    assert seen == {"v0", "v1", "v2", "v3"}


def test_a_broken_new_model_leaves_the_old_one_in_place(tmp_path, monkeypatch):
    looks = []  # what the service has seen in the folder
    look = ModelFolder._signature
    monkeypatch.setattr(
        ModelFolder, "_signature", lambda folder: looks.append(look(folder)) or looks[-1]
    )
    path = tmp_path / "model"
    fitted().save(path)
    with running(path, reload_seconds=0.05) as client:
        before = client.get("/v1/model").json()["id"]
        (path / "manifest.json").write_text("{}", encoding="utf-8")
        failed = 'labelgrove_reloads_total{model="model",outcome="failed"} 1'
        wait_for(lambda: failed in client.get("/metrics").text)
        shutil.rmtree(path)
        wait_for(lambda: looks[-3:] == [None] * 3)  # it has looked since, more than once
        assert client.get("/v1/model").json()["id"] == before
        assert client.post("/v1/predict", json={"texts": ["red"]}).status_code == 200
        assert client.get("/readyz").status_code == 200
        fitted(prefix="new ").save(path)
        wait_for(lambda: client.get("/v1/model").json()["id"] != before)


def test_a_link_that_is_pointed_elsewhere_is_a_new_model(tmp_path):
    for version in ("a", "b"):
        fitted(prefix=f"{version} ").save(tmp_path / version)
    link = tmp_path / "current"
    link.symlink_to(tmp_path / "a")
    with running(link, reload_seconds=0.05) as client:
        before = client.get("/v1/model").json()["id"]
        (tmp_path / "next").symlink_to(tmp_path / "b")
        (tmp_path / "next").replace(link)
        wait_for(lambda: client.get("/v1/model").json()["id"] != before)


def test_a_folder_without_a_model_that_reads_texts_is_refused(tmp_path):
    with pytest.raises(ModelFormatError, match="no such folder"):
        ModelFolder(tmp_path / "nothing")
    features = fitted().vectorizer_.transform(["red hat", "blue hat"])
    Linear().fit(features, [["a"], ["b"]]).save(tmp_path / "features")
    with pytest.raises(ConfigError, match="trained on features"):
        ModelFolder(tmp_path / "features")
