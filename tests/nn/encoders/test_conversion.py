"""Encoders by revision, and pickled weights that are read if the user says so."""

import pickle

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
hub = pytest.importorskip("huggingface_hub")

from labelgrove import Corpus  # noqa: E402
from labelgrove.disk.hashing import content_hash  # noqa: E402
from labelgrove.errors import ConfigError  # noqa: E402
from labelgrove.exchange.loading import load  # noqa: E402
from labelgrove.experiments.planning.plan import plan_training  # noqa: E402
from labelgrove.methods import create  # noqa: E402
from labelgrove.nn.encoders.encoder import EncoderParams, load_encoder  # noqa: E402
from labelgrove.nn.encoders.files import (  # noqa: E402
    EncoderContent,
    find_encoder,
    is_local,
    parameter_count,
)
from support.tiny_encoders import TEXTS, make_encoder  # noqa: E402

IDS = torch.tensor([[5, 6, 7]])
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def pickled_encoder(folder, *, legacy=False):
    """A tiny XLNet whose weights are pickles, as its authors' repository has them."""
    make_encoder(folder, "xlnet")
    weights = {f"transformer.{n}": w for n, w in load_tensors(folder / "model.safetensors").items()}
    # A language model's output layer shares the memory of its embeddings.
    weights["lm_loss.weight"] = weights["transformer.word_embedding.weight"]
    (folder / "model.safetensors").unlink()
    file = folder / "pytorch_model.bin"
    torch.save(weights, file, _use_new_zipfile_serialization=not legacy)
    return folder


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
def test_pickled_weights_are_read_if_the_user_says_so(tmp_path, legacy):
    expected = vector_of(make_encoder(tmp_path / "same", "xlnet"))
    folder = pickled_encoder(tmp_path / "a", legacy=legacy)
    pytest.raises(ConfigError, vector_of, folder).match(r"encoder\.convert_weights=true")
    assert torch.equal(vector_of(folder, convert_weights=True), expected)
    assert parameter_count(folder) > 1000
    keys = []
    for _ in range(2):
        params = EncoderParams(encoder=str(folder), convert_weights=True)
        keys.append(content_hash(EncoderContent(params)))
        (folder / "pytorch_model.bin").write_bytes(b"other weights")
    assert keys[0] != keys[1]


class _Evil:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return open, (str(self.target), "w")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [("code", "more than tensors"), ("cut", "cannot be loaded"), ("shape", "partly random")],
)
def test_what_is_not_plain_weights_is_refused(tmp_path, damage, reason):
    folder = pickled_encoder(tmp_path / "a")
    file = folder / "pytorch_model.bin"
    if damage == "code":
        file.write_bytes(pickle.dumps({"x": _Evil(tmp_path / "ran")}, protocol=2))
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:1000])
    else:
        torch.save({"state_dict": {"x": torch.ones(1)}}, file)
    pytest.raises(ConfigError, vector_of, folder, convert_weights=True).match(reason)
    assert not (tmp_path / "ran").exists()


def test_a_torch_that_could_be_tricked_reads_no_pickle(tmp_path, monkeypatch):
    folder = pickled_encoder(tmp_path / "a")
    monkeypatch.setattr(torch, "__version__", "2.5.1+cpu")
    with pytest.raises(ConfigError, match=r"torch 2\.6 or newer"):
        vector_of(folder, convert_weights=True)


def test_pickled_weights_of_a_repository(cache):
    snapshot = cached_repository(cache, "xlnet-large-cased", "main")
    with pytest.raises(ConfigError, match=r"convert_weights=true.*NAME@REVISION"):
        find_encoder("xlnet-large-cased")
    assert find_encoder("xlnet-large-cased", convert_weights=True) == snapshot
    assert vector_of("xlnet-large-cased", convert_weights=True).shape == (1, 16)


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
        derived = create(method, settings).resolve_defaults(corpus).derived_
        assert derived["encoder.encoder"][0] == "org/name@v2"
        return
    settings["training"] = {"max_steps": 2, "batch_size": 8}
    assert plan_training(create(method, settings), corpus).stages["network"].high > 0
    model = create(method, settings).fit(corpus)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.encoder.encoder == "org/name@v2"
    assert again.predict(TEXTS, k=2).scores.tobytes() == model.predict(TEXTS, k=2).scores.tobytes()
