"""Adapting as a whole: a folder that every method takes, whatever happened on the way."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import labelgrove  # noqa: E402
from labelgrove.adapting.run import adapt  # noqa: E402
from labelgrove.core.callbacks import Event  # noqa: E402
from labelgrove.data.corpus import Corpus  # noqa: E402
from labelgrove.data.features import Features  # noqa: E402
from labelgrove.disk.run_folder import RunFolder  # noqa: E402
from labelgrove.errors import ConfigError, DataError, LabelgroveWarning  # noqa: E402
from labelgrove.methods.lightxml.method import LightXML  # noqa: E402
from labelgrove.nn.encoders.encoder import EncoderParams, load_encoder  # noqa: E402
from labelgrove.nn.encoders.tokens import tokenize  # noqa: E402
from labelgrove.nn.training.updates import Updates  # noqa: E402
from support.tiny_encoders import make_encoder  # noqa: E402

LETTERS = [chr(c) for c in range(ord("a"), ord("z") + 1)]
WORDS = [*LETTERS, *(f"##{letter}" for letter in LETTERS if letter != "s")]
QUICK: dict[str, Any] = {"max_tokens": 32, "epochs": 3, "lr": 0.01, "head_lr": 0.01}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("encoders") / "bert", "bert", words=WORDS)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """A word is followed by the same word again and again, so it can be guessed."""
    source = random.Random(0)
    words = ["haus", "schule", "wald", "fluss"]
    return [f"{' '.join([source.choice(words)] * source.randint(5, 25))} {n}" for n in range(200)]


def events_of(kind: str, events: list[Event]) -> list[dict[str, Any]]:
    return [event.values for event in events if event.kind == kind]


@pytest.mark.parametrize("objective", ["mlm", "mlm+contrast"])
def test_an_encoder_learns_the_texts(
    encoder: Path, texts: list[str], tmp_path: Path, objective: str
) -> None:
    events: list[Event] = []
    out = tmp_path / "out"
    adapted = adapt(encoder, texts, out, objective=objective, callbacks=[events.append], **QUICK)
    losses = dict(adapted.losses)
    assert list(losses) == [0.0, 1.0, 2.0, 3.0]
    assert losses[3.0] < losses[0.0] - 1
    assert (adapted.texts, adapted.held_out) == (196, 4)
    assert adapted.new_pieces >= 4
    before, after = adapted.tokens_per_word
    assert after < before / 2
    about = json.loads((out / "adapted.json").read_text())
    assert about["settings"]["objective"] == objective and about["tokens"] == adapted.tokens
    assert f"{adapted.new_pieces} new word pieces" in (out / "README.md").read_text()
    plan = events_of("message", events)[0]["text"]
    assert "196 texts" in plan and "3 epochs" in plan and "updates" in plan


def test_the_folder_is_one_of_transformers(encoder: Path, texts: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    adapted = adapt(encoder, texts, out, **QUICK)
    theirs = transformers.AutoTokenizer.from_pretrained(out)
    model = transformers.AutoModel.from_pretrained(out)
    before = load_encoder(EncoderParams(str(encoder)))
    old = before.tokenizer.get_vocab_size()
    assert len(theirs) == model.config.vocab_size == old + adapted.new_pieces
    ours = load_encoder(EncoderParams(str(out)))
    sentence = "das haus im wald, 12"
    assert theirs(sentence)["input_ids"] == tokenize([sentence], ours, 32).row(0).tolist()
    assert "wald" in theirs.tokenize(sentence)
    assert max(tokenize([sentence], ours, 32).row(0)) >= old
    assert theirs.mask_token_id == 4
    # The lower layers have learnt, too.
    weights = "embeddings.position_embeddings.weight"
    assert not ours.model.state_dict()[weights].equal(before.model.state_dict()[weights])


def test_a_method_trains_with_the_folder(encoder: Path, texts: list[str], tmp_path: Path) -> None:
    adapt(encoder, texts, tmp_path / "out", **QUICK)
    labels = [[text.split()[0]] for text in texts]
    model = LightXML(
        encoder=EncoderParams(encoder=str(tmp_path / "out"), max_tokens=16),
        baseline=False,
        device="cpu",
    )
    model.training.set_params(epochs=4, batch_size=16, lr=0.01)
    model.fit(texts, labels)
    right = [
        row[0] == text.split()[0]
        for row, text in zip(model.predict(texts, k=1).names(), texts, strict=True)
    ]
    assert np.mean(right) > 0.9
    model.save(tmp_path / "model")
    shutil.rmtree(tmp_path / "out")
    again = labelgrove.load(tmp_path / "model")
    assert again.predict(texts[:5], k=1).names() == model.predict(texts[:5], k=1).names()


@pytest.mark.parametrize("objective", ["mlm", "mlm+contrast"])
def test_a_stopped_run_goes_on_with_the_same_bits(
    encoder: Path,
    texts: list[str],
    tmp_path: Path,
    objective: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    how = QUICK | {"objective": objective, "checkpoint_minutes": 0, "batch_tokens": 512}
    whole = adapt(encoder, texts, tmp_path / "whole", **how)
    assert whole.updates > 15
    make = Updates.make
    for last in (2, whole.updates // 2):  # in the first epoch, and later

        def stopping(self: Updates, step: int, *rest: Any, last: int = last) -> None:
            if step == last:
                raise KeyboardInterrupt
            make(self, step, *rest)

        monkeypatch.setattr(Updates, "make", stopping)
        with RunFolder(tmp_path / "run") as run, pytest.raises(KeyboardInterrupt):
            adapt(encoder, texts, tmp_path / "out", run=run, **how)
        assert not (tmp_path / "out").exists()
    monkeypatch.setattr(Updates, "make", make)
    messages: list[Event] = []
    with RunFolder(tmp_path / "run") as run:
        adapt(encoder, texts, tmp_path / "out", callbacks=[messages.append], run=run, **how)
    assert any("continues after" in v["text"] for v in events_of("message", messages))
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    # A finished run is not computed again.
    events: list[Event] = []
    with RunFolder(tmp_path / "run") as run:
        adapt(encoder, texts, tmp_path / "more", callbacks=[events.append], run=run, **how)
    assert not [event for event in events if event.stage == "training"]
    name = "model.safetensors"
    assert (tmp_path / "more" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_the_seed_decides(encoder: Path, texts: list[str], tmp_path: Path) -> None:
    weights = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        adapt(encoder, texts, tmp_path / name, seed=seed, **QUICK | {"epochs": 1})
        weights.append((tmp_path / name / "model.safetensors").read_bytes())
    assert weights[0] == weights[1] != weights[2]


@pytest.mark.parametrize("family", ["roberta", "distilbert", "mpnet", "deberta-v2", "electra"])
def test_other_families(family: str, texts: list[str], tmp_path: Path) -> None:
    more = {"embedding_size": 8} if family == "electra" else {}
    encoder = make_encoder(tmp_path / "e", family, words=[*WORDS, "red"], **more)
    events: list[Event] = []
    how = QUICK | {"max_tokens": 24, "epochs": 1}
    adapted = adapt(encoder, texts, tmp_path / "out", callbacks=[events.append], **how)
    said = " ".join(values["text"] for values in events_of("message", events))
    is_word_piece = family not in ("roberta", "deberta-v2")
    assert ("not WordPiece" in said) != is_word_piece
    assert (adapted.new_pieces > 0) == is_word_piece
    assert adapted.losses[-1][1] < adapted.losses[0][1]
    loaded = load_encoder(EncoderParams(str(tmp_path / "out"), max_tokens=24))
    ids = torch.from_numpy(tokenize(["haus wald"], loaded, 24).row(0).astype(np.int64))[None]
    assert loaded(ids, None)[0].isfinite().all()


def test_no_pieces_if_not_asked_for(encoder: Path, texts: list[str], tmp_path: Path) -> None:
    adapted = adapt(encoder, texts, tmp_path / "out", pieces=0, **QUICK | {"epochs": 1})
    assert adapted.new_pieces == 0
    assert adapted.tokens_per_word[0] == adapted.tokens_per_word[1]


def test_texts_that_need_no_pieces(encoder: Path, tmp_path: Path) -> None:
    events: list[Event] = []
    texts = [f"a b c {chr(97 + n % 26)} {chr(97 + n // 26)}" for n in range(100)]
    adapt(encoder, texts, tmp_path / "out", callbacks=[events.append], **QUICK | {"epochs": 1})
    assert "no new word pieces" in events_of("message", events)[0]["text"]


def test_the_pooling_stays(encoder: Path, texts: list[str], tmp_path: Path) -> None:
    copy = tmp_path / "e"
    shutil.copytree(encoder, copy)
    (copy / "1_Pooling").mkdir()
    (copy / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    adapt(copy, texts, tmp_path / "out", **QUICK | {"epochs": 1})
    assert load_encoder(EncoderParams(str(tmp_path / "out"))).pooling == "first"


def test_a_corpus_and_repeated_texts(encoder: Path, texts: list[str], tmp_path: Path) -> None:
    corpus = Corpus.from_lists([*texts, *texts, " ", ""], [["x"]] * (2 * len(texts) + 2))
    adapted = adapt(encoder, corpus, tmp_path / "out", held_out=0, **QUICK | {"epochs": 1})
    assert (adapted.texts, adapted.held_out, adapted.losses) == (200, 0, [])


def test_a_worse_encoder_is_reported(encoder: Path, texts: list[str], tmp_path: Path) -> None:
    with pytest.warns(LabelgroveWarning, match="worse than before"):
        adapt(encoder, texts, tmp_path / "out", **QUICK | {"lr": 30.0, "epochs": 1, "warmup": 0})


def test_what_is_refused(encoder: Path, texts: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"

    def refused(error: type[Exception], match: str, *given: Any, **settings: Any) -> None:
        with pytest.raises(error, match=match):
            adapt(*(given or (encoder, texts, out)), **settings)
        assert not (tmp_path / "out").exists()

    refused(DataError, "needs at least 10", encoder, ["a text"] * 20, out)
    refused(DataError, "0 different texts", encoder, [], out)
    refused(DataError, "one str", encoder, "a text", out)
    refused(DataError, "text 1 is 3", encoder, ["a", 3], out)
    refused(DataError, "features but no texts", encoder, _features(), out)
    refused(ConfigError, "no such folder", "./nowhere", texts, out)
    refused(ConfigError, "pieces", pieces=-1)
    refused(ConfigError, "did you mean epochs", epoch=1)
    refused(ConfigError, "one of 'mlm'", objective="contrast")
    padded = make_encoder(tmp_path / "padded", "distilbert", words=WORDS)
    refused(ConfigError, "no pass over packed", padded, texts, out, objective="mlm+contrast")
    xlnet = make_encoder(tmp_path / "xlnet", "xlnet")
    refused(ConfigError, "mask token|XLNet", xlnet, texts, out)
    bare = tmp_path / "bare"
    shutil.copytree(encoder, bare)
    for file in bare.glob("tokenizer*"):
        file.unlink()
    refused(ConfigError, "tokenizer", bare, texts, out)


def test_folders_that_exist(encoder: Path, texts: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("precious")
    for overwrite in (False, True):
        with pytest.raises(ConfigError, match=r"exists already|not a folder that adapt wrote"):
            adapt(encoder, texts, out, overwrite=overwrite, **QUICK)
    assert (out / "thesis.txt").read_text() == "precious"
    adapt(encoder, texts, tmp_path / "a", **QUICK | {"epochs": 1})
    adapted = adapt(encoder, texts, tmp_path / "a", overwrite=True, **QUICK | {"epochs": 2})
    assert json.loads((tmp_path / "a" / "adapted.json").read_text())["updates"] == adapted.updates


def _features() -> Corpus:
    corpus = Corpus.from_lists(["a"] * 12, [["x"]] * 12)
    return replace(corpus, texts=None, features=Features(sparse.eye_array(12, format="csr")))
