"""Encoders by revision, and pickled weights that become safetensors if the user says so."""

import os
import pickle
from copy import deepcopy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
hub = pytest.importorskip("huggingface_hub")

from labelgrove import Corpus  # noqa: E402
from labelgrove.errors import ConfigError, LabelgroveWarning, StorageError  # noqa: E402
from labelgrove.exchange.loading import load  # noqa: E402
from labelgrove.experiments.planning.plan import plan_training  # noqa: E402
from labelgrove.methods import create  # noqa: E402
from labelgrove.nn.encoders.encoder import EncoderParams, load_encoder  # noqa: E402
from labelgrove.nn.encoders.files import find_encoder, is_local  # noqa: E402
from support.small_models import planted, tiny_training  # noqa: E402
from support.tiny_encoders import TEXTS, make_encoder  # noqa: E402

IDS = torch.tensor([[5, 6, 7]])
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def pickled_encoder(folder, *, pieces=1, legacy=False):
    """A tiny XLNet whose weights are pickles, as its authors' repository has them."""
    make_encoder(folder, "xlnet")
    weights = {f"transformer.{n}": w for n, w in load_tensors(folder / "model.safetensors").items()}
    # A language model's output layer shares the memory of its embeddings.
    weights["lm_loss.weight"] = weights["transformer.word_embedding.weight"]
    (folder / "model.safetensors").unlink()
    for number in range(pieces):
        one = "pytorch_model.bin" if pieces == 1 else f"pytorch_model-{number + 1}-of-{pieces}.bin"
        part = {name: weights[name] for name in sorted(weights)[number::pieces]}
        torch.save(part, folder / one, _use_new_zipfile_serialization=not legacy)
    return folder


def names(folder):
    return sorted(file.name for file in folder.iterdir())


def load_tensors(file):
    from safetensors.torch import load_file

    return dict(load_file(file))


def cached_repository(cache, repository, revision, commit=COMMIT, **options):
    """A repository in the Hub's own cache, as ``snapshot_download`` leaves it."""
    base = cache / f"models--{repository.replace('/', '--')}"
    reference = base / "refs" / revision
    reference.parent.mkdir(parents=True, exist_ok=True)
    reference.write_text(commit)
    (base / "snapshots").mkdir(exist_ok=True)
    return pickled_encoder(base / "snapshots" / commit, **options)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The Hub's cache, without a network; labelgrove's cache is beside it."""
    monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("LABELGROVE_CACHE", str(tmp_path / "own"))
    return tmp_path / "hub"


def vector_of(name, **settings):
    params = EncoderParams(encoder=str(name), max_tokens=16, **settings)
    with torch.no_grad():
        return load_encoder(params).eval()(IDS, None)[0]


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("pieces", [1, 3])
def test_a_folder_with_pickled_weights_is_converted_once_if_the_user_says_so(
    tmp_path, pieces, legacy
):
    expected = vector_of(make_encoder(tmp_path / "same", "xlnet"))
    folder = pickled_encoder(tmp_path / "a", pieces=pieces, legacy=legacy)
    before = names(folder)
    pytest.raises(ConfigError, find_encoder, str(folder)).match(r"encoder\.convert_weights=true")
    assert names(folder) == before
    with pytest.warns(
        LabelgroveWarning, match=r"converts pytorch_model.* to .*safetensors"
    ) as told:
        assert torch.equal(vector_of(folder, convert_weights=True), expected)
    assert len(told) == 1
    assert names(folder) == sorted([*before, "model.safetensors"])
    assert torch.equal(vector_of(folder), expected)  # no word, and no setting, any more


def test_a_cascade_converts_what_it_looks_into_first(tmp_path):
    settings = deepcopy(tiny_training())
    settings["training"] |= {"max_steps": 1}
    # With nothing left to derive, the method itself is the first to look.
    settings = create("cascadexml", settings).fit(*planted(30)).trained_config()
    folder = pickled_encoder(tmp_path / "a")
    settings["encoder"] |= {"encoder": str(folder), "pooling": "mean", "convert_weights": True}
    with pytest.warns(LabelgroveWarning, match="converts"):
        create("cascadexml", settings).fit(*planted(30))


class _Evil:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return open, (str(self.target), "w")


@pytest.mark.parametrize("damage", ["code", "cut", "shape"])
def test_what_is_not_plain_weights_is_refused_and_leaves_nothing(tmp_path, damage):
    folder = pickled_encoder(tmp_path / "a")
    file = min(folder.glob("*.bin"))
    reason = "cannot be read as weights"
    if damage == "code":
        with file.open("wb") as target:
            pickle.dump({"x": _Evil(tmp_path / "ran")}, target, protocol=2)
        reason = "more than tensors"
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:1000])
    else:
        torch.save({"state_dict": {"x": torch.ones(1)}}, file)
        reason = "no table of named tensors"
    before = names(folder)
    with pytest.warns(LabelgroveWarning), pytest.raises(ConfigError, match=reason):
        find_encoder(str(folder), convert_weights=True)
    assert names(folder) == before
    assert not (tmp_path / "ran").exists()


def test_a_torch_that_could_be_tricked_converts_nothing(tmp_path, monkeypatch):
    folder = pickled_encoder(tmp_path / "a")
    monkeypatch.setattr(torch, "__version__", "2.5.1+cpu")
    with pytest.warns(LabelgroveWarning), pytest.raises(ConfigError, match=r"torch 2\.6 or newer"):
        find_encoder(str(folder), convert_weights=True)
    assert "model.safetensors" not in names(folder)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_an_error_about_it(tmp_path):
    folder = pickled_encoder(tmp_path / "a")
    folder.chmod(0o500)
    try:
        with (
            pytest.warns(LabelgroveWarning),
            pytest.raises(StorageError, match="cannot be written"),
        ):
            find_encoder(str(folder), convert_weights=True)
    finally:
        folder.chmod(0o700)


def test_a_repository_is_converted_in_the_cache_of_the_hub(cache):
    snapshot = cached_repository(cache, "xlnet-large-cased", "main")
    before = names(snapshot)
    with pytest.raises(ConfigError, match=r"convert_weights=true.*NAME@REVISION"):
        find_encoder("xlnet-large-cased")
    with pytest.warns(LabelgroveWarning, match="this happens once"):
        folder = find_encoder("xlnet-large-cased", convert_weights=True)
    assert folder == snapshot
    assert names(snapshot) == sorted([*before, "model.safetensors"])
    assert find_encoder("xlnet-large-cased") == folder and is_local("xlnet-large-cased")
    assert vector_of("xlnet-large-cased").shape == (1, 16)


def test_a_revision_is_named_after_the_hub_id(cache):
    """The main branch has a pickle, a pull request has safetensors."""
    cached_repository(cache, "org/name", "main")
    better = cached_repository(cache, "org/name", "refs/pr/7", commit="f" * 40)
    make_encoder(better.with_name("made"), "xlnet", initializer_range=0.7)
    (better.with_name("made") / "model.safetensors").rename(better / "model.safetensors")
    name = "org/name@refs/pr/7"
    assert find_encoder(name) == better
    assert find_encoder(f"org/name@{'f' * 40}") == better
    assert is_local(name) and not is_local("org/name") and not is_local("org/name@other")
    pytest.raises(ConfigError, find_encoder, "org/name@other").match("'org/name@other' was not")
    for wrong in ("org/name@", "@main", "a/b/c@main", "./folder@main", "org/@main"):
        pytest.raises(ConfigError, find_encoder, wrong)


def test_a_folder_with_an_at_sign_is_a_folder(tmp_path):
    folder = make_encoder(tmp_path / "me@work" / "tiny@2", "bert")
    assert find_encoder(str(folder)) == folder


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lightxml", "auto"])
def test_a_revision_works_in_plans_models_and_auto(cache, tmp_path, method, monkeypatch):
    monkeypatch.setattr("labelgrove.methods.auto.method._has_gpu", lambda device: True)
    cached_repository(cache, "org/name", "v2")
    settings = {
        "encoder": {"encoder": "org/name@v2", "max_tokens": 8, "convert_weights": True},
        "device": "cpu",
    }
    corpus = Corpus.from_lists(TEXTS * 30, [["a"], ["b"], ["a", "b"], ["c"]] * 30)
    if method == "auto":
        with pytest.warns(LabelgroveWarning, match="converts"):
            derived = create(method, settings).resolve_defaults(corpus).derived_
        assert derived["encoder.encoder"][0] == "org/name@v2"
        return
    settings["training"] = {"max_steps": 2, "batch_size": 8}
    with pytest.warns(LabelgroveWarning, match="converts"):
        assert plan_training(create(method, settings), corpus).stages["network"].high > 0
    del settings["encoder"]["convert_weights"]  # it is done
    model = create(method, settings).fit(corpus)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.encoder.encoder == "org/name@v2"
    assert again.predict(TEXTS, k=2).scores.tobytes() == model.predict(TEXTS, k=2).scores.tobytes()
