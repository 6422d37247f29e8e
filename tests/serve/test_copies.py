"""Somebody overwrites the files of a model that is being served."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from labelgrove.disk.bundle import read_manifest
from labelgrove.errors import ModelFormatError
from labelgrove.serve.copies import PREFIX, Copies, OpenFiles, own_folder
from labelgrove.serve.problems import Problem
from labelgrove.serve.served import ModelFolder, Options, Served
from support.forging import forge_manifest
from support.served_process import HANG, serving, wait_for
from support.services import fitted

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows protects mapped files"),
]
BODY = {"texts": ["this red hat"], "k": 2}


@pytest.fixture
def model(tmp_path):
    fitted().save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Another TMPDIR, here and in processes that tests start."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield folder


@pytest.fixture
def copies_folder(tmp_path):
    folder = tmp_path / "copies"
    folder.mkdir()
    return folder


def shorten(model):
    for file in model.rglob("*.safetensors"):
        os.truncate(file, 0)


def mapping(folder):
    """How many processes have mapped files of a folder; many, where the system does not say."""
    count = 0 if Path("/proc/self/maps").exists() else 99
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            count += str(folder) in maps.read_text()
    return count


@pytest.mark.parametrize("workers", [1, 2])
def test_files_cut_under_load_end_nothing(model, temporary, workers):
    stop = threading.Event()
    with serving(model, "reload_seconds=0.05", arguments=("--workers", str(workers))) as server:
        expected = server.client.post("/v1/predict", json=BODY).json()["predictions"]
        wait_for(lambda: mapping(temporary) >= workers)  # one that starts later finds no model

        def ask():
            asked = 0
            while not stop.is_set() or asked < 20:
                response = server.client.post("/v1/predict", json=BODY)
                assert response.status_code == 200, response.text
                assert response.json()["predictions"] == expected
                asked += 1
            return asked

        with ThreadPoolExecutor(4) as pool:
            asking = [pool.submit(ask) for _ in range(4)]
            try:
                shorten(model)
                for route in ("/v1/labels?q=red", "/v1/tree", "/v1/model"):
                    assert server.client.get(route).status_code == 200
            finally:
                stop.set()
            assert sum(future.result() for future in asking) >= 80
        before = server.client.get("/v1/model").json()["id"]
        # Copied onto the old files one after another, the manifest first.
        fitted(prefix="new ").save(model.parent / "next")
        manifest = model / "manifest.json"
        shutil.copyfile(model.parent / "next" / "manifest.json", manifest)
        failed = 'labelgrove_reloads_total{model="model",outcome="failed"}'
        wait_for(lambda: f"{failed} 0.0" not in server.client.get("/metrics").text)
        shutil.copytree(model.parent / "next", model, dirs_exist_ok=True)
        wait_for(lambda: server.client.get("/v1/model").json()["id"] != before)
    assert not list(temporary.iterdir())  # nothing is left behind


def test_a_change_during_a_batch_is_noticed_after_it(model):
    served = Served.load(model)
    predict = served._model.predict

    def and_touch(texts, **options):
        predictions = predict(texts, **options)
        os.utime(next(model.rglob("*.safetensors")), ns=(1, 1))
        return predictions

    served._model.predict = and_touch
    with pytest.raises(Problem) as caught:
        served.answer(Options(1), ["a red hat"])
    assert caught.value.code == "model-changed"


def test_a_folder_that_is_replaced_as_a_whole_is_no_change(model):
    served = Served.load(model)
    fitted(prefix="new ").save(model, overwrite=True)
    assert not served.changed
    shutil.rmtree(model)
    assert not served.changed and served.answer(Options(1), ["a red hat"])[1]


def test_open_files_are_closed_again(model):
    files = OpenFiles(model, ["manifest.json", "nothing"])
    (descriptor,) = files._descriptors
    os.fstat(descriptor)
    del files
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_copies_are_shared_and_large_models_are_not_copied(model, copies_folder):
    manifest = read_manifest(model, kind="model")
    megabytes = sum(file.stat().st_size for file in model.rglob("*.*")) / 1e6
    copies = Copies(copies_folder, megabytes + 0.001)
    copy = copies.make(model, manifest)
    assert copy is not None and copies.make(model, manifest) == copy
    names = set(manifest["files"]) | {"manifest.json"}
    assert {
        file.relative_to(copy).as_posix() for file in copy.rglob("*") if file.is_file()
    } == names
    for limit in (megabytes - 0.001, 0):
        assert Copies(copies_folder, limit).make(model, manifest) is None
    copies.remove(copy)
    assert not copy.exists()


def test_a_copy_of_a_damaged_folder_is_refused_by_its_own_name(model, copies_folder):
    file = next(model.rglob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(ModelFormatError, match=f"^{model}.*altered") as caught:
        ModelFolder(model, copies=Copies(copies_folder, 512))
    assert str(copies_folder) not in str(caught.value)
    assert [file.name for file in (copies_folder).iterdir()] == ["copying.lock"]


@pytest.mark.parametrize("claimed", [10, 3 << 30, -(3 << 30)])
def test_nothing_is_copied_before_its_size_is_checked(model, copies_folder, claimed, monkeypatch):
    file = next(model.rglob("*.safetensors"))
    os.truncate(file, 3 << 30)  # a sparse file, which would fill the disk as a copy
    files = read_manifest(model, kind="model")["files"]
    if claimed > 0:
        files[file.name]["size"] = claimed
    else:  # the sum is small
        files[file.name]["size"], files["labels.json"]["size"] = 3 << 30, claimed
    forge_manifest(model, {"files": files}, measure=False)
    monkeypatch.setattr(shutil, "copyfile", lambda *_: pytest.fail("copied"))
    with pytest.raises(ModelFormatError, match=r"bytes|altered"):
        ModelFolder(model, copies=Copies(copies_folder, 512))


def test_links_out_of_the_folder_are_not_copied(model, tmp_path, copies_folder):
    file = next(model.rglob("*.json"))
    shutil.move(file, tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelFormatError, match="outside"):
        ModelFolder(model, copies=Copies(copies_folder, 512))


def test_without_room_for_a_copy_the_model_is_mapped_in_place(
    model, copies_folder, monkeypatch, caplog
):
    def full(*files):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    served = ModelFolder(model, copies=Copies(copies_folder, 512)).current
    assert served.copy is None and served.files is not None
    assert "No space left" in caplog.text and "mapped in place" in caplog.text
    assert served.answer(Options(1), ["a red hat"])[1]


def test_folders_of_killed_services_are_removed(temporary):
    code = (
        "import time; from labelgrove.serve.copies import own_folder\n"
        "with own_folder() as folder:\n    print(folder, flush=True); time.sleep(9999)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    left = Path(process.stdout.readline().strip())
    (temporary / f"{PREFIX}of-somebody").mkdir()
    with own_folder() as own:
        assert own is not None and left.is_dir()  # it lives
    process.send_signal(signal.SIGKILL)
    process.wait(HANG)
    process.stdout.close()
    assert left.is_dir()
    with own_folder() as own:
        assert sorted(temporary.iterdir()) == sorted([own, temporary / f"{PREFIX}of-somebody"])
