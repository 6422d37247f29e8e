"""Model folders: round trips, refusals, and damage of any kind."""

import json
import os
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import labelgrove
from labelgrove.core.part import Part
from labelgrove.disk import bundle
from labelgrove.disk.model_folder import load_model, model_size, save_model
from labelgrove.errors import ConfigError, ModelFormatError

PARTS = {
    "tree": Part({"depth": 2, "name": "grün \ud800"}, {"parents": np.arange(5, dtype=np.int32)}),
    "member0/ranker": Part(
        {},
        {
            "weights": np.linspace(0, 1, 9, dtype=np.float16),
            "mask": np.array([True, False]),
            "none": np.zeros((0, 3), np.float32),
            "bias": np.array(0.5),
        },
    ),
    "settings-only": Part({"nested": {"list": [1, 2.5, None, True, "x"]}}),
}
PARAMS = {"ranker": {"C": 1.0, "loss": "hinge"}, "random_state": None}


def save(path, **changes):
    options = {"method": "xr-linear", "params": PARAMS, "parts": PARTS, "metadata": {"P@1": 0.5}}
    save_model(path, **(options | changes))


def assert_as_saved(model):
    assert (model.method, model.params, model.metadata) == ("xr-linear", PARAMS, {"P@1": 0.5})
    assert list(model.parts) == list(PARTS)
    for name, part in PARTS.items():
        loaded = model.parts[name]
        assert loaded.config == part.config
        assert set(loaded.arrays) == set(part.arrays)
        for key, array in part.arrays.items():
            assert loaded.arrays[key].dtype == array.dtype
            np.testing.assert_array_equal(loaded.arrays[key], array)


@pytest.mark.parametrize("verify", ["auto", "full", "none"])
def test_round_trip(tmp_path, verify):
    save(tmp_path / "deep/er/model")
    model = load_model(str(tmp_path / "deep/er/model"), verify=verify)
    assert_as_saved(model)
    assert not model.parts["tree"].arrays["parents"].flags.writeable
    assert model.manifest["versions"]["labelgrove"] == labelgrove.__version__
    assert {"numpy", "scipy", "python"} <= set(model.manifest["versions"])


def test_the_folder_holds_json_and_safetensors_only(tmp_path):
    save(tmp_path / "m")
    files = {p.relative_to(tmp_path / "m").as_posix() for p in (tmp_path / "m").rglob("*.*")}
    assert files == {
        "manifest.json",
        "tree.json",
        "tree.safetensors",
        "member0/ranker.json",
        "member0/ranker.safetensors",
        "settings-only.json",
    }
    assert model_size(tmp_path / "m") == sum(
        p.stat().st_size for p in (tmp_path / "m").rglob("*.*")
    )


def test_extra_files_are_listed_and_checked_but_the_card_may_be_edited(tmp_path):
    def extra(folder):
        (folder / "encoder").mkdir()
        (folder / "encoder/config.json").write_text("{}")
        (folder / "README.md").write_text("card")

    save(tmp_path / "m", extra=extra)
    (tmp_path / "m/README.md").write_text("a longer card")
    assert_as_saved(load_model(tmp_path / "m"))
    (tmp_path / "m/encoder/config.json").write_text("[]")
    pytest.raises(ModelFormatError, load_model, tmp_path / "m").match("encoder/config.json: was")


@pytest.mark.parametrize("name", ["manifest.json", "tree.json", "tree.safetensors"])
def test_extra_files_cannot_take_our_names(tmp_path, name):
    with pytest.raises(ConfigError, match=f"{name}: labelgrove writes this file"):
        save(tmp_path / "m", extra=lambda folder: (folder / name).touch())
    assert not list(tmp_path.iterdir())


def test_arrays_outlive_an_overwritten_model(tmp_path):
    save(tmp_path / "m")
    pytest.raises(ConfigError, save, tmp_path / "m", params={}).match("exists already")
    old = load_model(tmp_path / "m")
    save(tmp_path / "m", parts={"tree": Part({}, {"parents": np.zeros(9)})}, overwrite=True)
    assert_as_saved(old)
    assert load_model(tmp_path / "m").parts["tree"].arrays["parents"].tolist() == [0.0] * 9
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_overwrite_never_removes_what_is_not_a_model(tmp_path):
    refused = "will not be overwritten"
    for content in ("notes.txt", "manifest.json"):
        (tmp_path / content).write_text("{}")
        pytest.raises(ModelFormatError, save, tmp_path, overwrite=True).match(refused)
        file = tmp_path / content
        pytest.raises(ModelFormatError, save, file, overwrite=True).match(refused)
        assert file.read_text() == "{}"
        file.unlink()
    save(tmp_path / "m")
    (tmp_path / "m/member0/thesis.tex").write_text("years of work")
    pytest.raises(ModelFormatError, save, tmp_path / "m", overwrite=True).match("thesis.tex")
    assert_as_saved(load_model(tmp_path / "m"))


@pytest.mark.parametrize(
    "name", ["", "Tree", "a b", "../up", "a//b", "/a", "a/", ".", "a.b", "manifest", "x" * 201]
)
def test_part_names_are_restricted(tmp_path, name):
    with pytest.raises(ConfigError, match="cannot be the name of a part"):
        save(tmp_path / "m", parts={name: Part()})
    assert not list(tmp_path.iterdir())


def test_odd_names_and_settings_survive(tmp_path):
    save(tmp_path / "m", parts={"x" * 200: Part({"a": 1})})
    assert load_model(tmp_path / "m").parts["x" * 200].config == {"a": 1}
    save(tmp_path / "n", params={"a": np.float32(0.5), "b": np.int64(3), "c": float("inf")})
    assert load_model(tmp_path / "n").params == {"a": 0.5, "b": 3, "c": float("inf")}


def test_what_json_cannot_hold_is_named_before_anything_is_written(tmp_path):
    with pytest.raises(ConfigError, match=r"tree.config.where: a PosixPath|WindowsPath"):
        save(tmp_path / "m", parts={"tree": Part({"where": tmp_path})})
    with pytest.raises(ConfigError, match=r"manifest.params.1: .*|the key 1 must be a string"):
        save(tmp_path / "m", params={1: 2})
    assert not list(tmp_path.iterdir())


def test_not_a_model(tmp_path):
    pytest.raises(ModelFormatError, load_model, tmp_path / "nothing").match("no such folder")
    pytest.raises(ModelFormatError, load_model, tmp_path).match(r"no manifest.json")
    (tmp_path / "file").write_text("x")
    pytest.raises(ModelFormatError, load_model, tmp_path / "file").match("is a file")
    pytest.raises(ConfigError, load_model, tmp_path, verify="fast").match("verify")


def edit_manifest(folder, change):
    """Changes a manifest as somebody who knows the format would, checksum included."""
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    manifest["checksum"] = bundle.manifest_checksum(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def renamed(new):
    return lambda m: m["files"].update({new: m["files"].pop("tree.safetensors")})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(format_version=3), "newer than this labelgrove.*upgrade"),
        (lambda m: m.update(format_version="1"), "is not a version"),
        (lambda m: m.update(format="pickle"), "does not describe a labelgrove model"),
        (renamed("../tree.safetensors"), "outside the folder"),
        (renamed("/etc/hostname"), "outside the folder"),
        (renamed("a\\..\\b"), "outside the folder"),
        (renamed("C:evil"), "outside the folder"),
        (renamed("./tree.safetensors"), "outside the folder"),
        (lambda m: m.update(parts=["../tree"]), "is not the name of a part"),
        (lambda m: m.update(parts=[["tree"]]), "is not the name of a part"),
        (lambda m: m.update(parts=["tree", "tree"]), "lists a part twice"),
        (lambda m: m.update(parts=["strange"]), r"does not list the file strange.json"),
        (lambda m: m.update(files=[]), "no lists of files"),
        (lambda m: m["files"].update(x=3), "does not state size"),
        (lambda m: m["files"]["tree.json"].update(size="1"), "does not state size"),
        (lambda m: m["files"]["tree.json"].update(size=7), "but 7 were written"),
        (lambda m: m.pop("method"), "method, params or metadata are missing"),
        (lambda m: m.update(method=3), "method, params or metadata are missing"),
        (lambda m: m.update(params=[]), "method, params or metadata are missing"),
    ],
)
def test_hostile_manifests_are_refused(tmp_path, change, message):
    save(tmp_path / "m")
    edit_manifest(tmp_path / "m", change)
    pytest.raises(ModelFormatError, load_model, tmp_path / "m").match(message)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe{}",
        b"[]",
        b"{",
        b'{"format": "labelgrove-model", "format": "labelgrove-model"}',
        b"[" * 100_000,
        b'{"format": "labelgrove-model", "format_version": 1, "x": '
        + b"[" * 700
        + b"]" * 700
        + b"}",
    ],
)
def test_manifests_that_are_not_json_objects_are_refused(tmp_path, content):
    save(tmp_path / "m")
    (tmp_path / "m/manifest.json").write_bytes(content)
    pytest.raises(ModelFormatError, load_model, tmp_path / "m").match(r"manifest.json")


@pytest.mark.skipif(os.name != "posix", reason="links and pipes")
def test_links_out_of_the_folder_and_pipes_are_refused(tmp_path):
    save(tmp_path / "m")
    file = tmp_path / "m/tree.safetensors"
    shutil.copy(file, tmp_path / "elsewhere")
    file.unlink()
    file.symlink_to("../elsewhere")
    pytest.raises(ModelFormatError, load_model, tmp_path / "m").match("link to outside")
    file.unlink()
    os.mkfifo(file)
    pytest.raises(ModelFormatError, load_model, tmp_path / "m").match("not a plain file")
    file.unlink()
    pytest.raises(ModelFormatError, load_model, tmp_path / "m").match("missing or unreadable")
    (tmp_path / "linked").symlink_to("m")  # the folder itself may be a link
    save(tmp_path / "m2")
    (tmp_path / "linked2").symlink_to("m2")
    assert_as_saved(load_model(tmp_path / "linked2"))


def test_large_models_are_not_read_to_check_them(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "_FULL_CHECK_LIMIT", 1000)
    save(tmp_path / "m", parts={"big": Part({}, {"w": np.zeros(2000, np.uint8)})})
    file = tmp_path / "m/big.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    load_model(tmp_path / "m")
    pytest.raises(ModelFormatError, load_model, tmp_path / "m", verify="full").match("was altered")


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pristine") / "m"
    save(folder)
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


@pytest.fixture(scope="module")
def copy(pristine, tmp_path_factory):
    folder = tmp_path_factory.mktemp("copy")
    for name, content in pristine.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@settings(max_examples=400)
@given(data=st.data())
def test_any_damaged_byte_or_end_is_noticed_or_harmless(pristine, copy, data):
    name = data.draw(st.sampled_from(sorted(pristine)))
    content, place = pristine[name], data.draw(st.integers(0, len(pristine[name]) - 1))
    rest = content[place + 1 :] if data.draw(st.booleans()) else b""
    (copy / name).write_bytes(content[:place] + data.draw(st.binary(max_size=9)) + rest)
    try:
        assert_as_saved(load_model(copy))
    except ModelFormatError:
        pass
    finally:
        (copy / name).write_bytes(content)
