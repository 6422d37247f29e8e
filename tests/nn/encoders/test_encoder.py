"""Encoders of every family: pooling, layers, gradients, freezing, storing."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from labelgrove.core.part import Part  # noqa: E402
from labelgrove.errors import ConfigError, LabelgroveWarning, ModelFormatError  # noqa: E402
from labelgrove.nn.batches import Batches  # noqa: E402
from labelgrove.nn.encoders.encoder import Encoder, EncoderParams, load_encoder  # noqa: E402
from labelgrove.nn.encoders.packed_bert import _pooled  # noqa: E402
from labelgrove.nn.encoders.tokens import tokenize  # noqa: E402
from labelgrove.nn.network import embed  # noqa: E402
from support.tiny_encoders import FAMILIES, LAYERS, TEXTS, WIDTH, make_encoder  # noqa: E402


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    base = tmp_path_factory.mktemp("encoders")
    return {family: make_encoder(base / family, family) for family in FAMILIES}


@pytest.fixture
def load(folders):
    def load(family, **settings):
        params = {"encoder": str(folders[family]), "max_tokens": 32} | settings
        return load_encoder(EncoderParams(**params))

    return load


def states_of_single_texts(encoder, layer):
    """Every text's unpooled states, each text alone: nothing is padded, nothing can leak."""
    rows = []
    for text in TEXTS:
        ids = torch.tensor([encoder.tokenizer.encode(text).ids])
        more = {}
        if encoder.model.config.model_type == "xlnet":
            more["token_type_ids"] = torch.tensor([encoder.tokenizer.encode(text).type_ids])
        with torch.no_grad():
            out = encoder.model(input_ids=ids, output_hidden_states=True, **more)
        states = out.last_hidden_state if layer == encoder.depth else out.hidden_states[layer]
        rows.append(states[0].numpy())
    return rows


@pytest.mark.parametrize("family", FAMILIES)
def test_padded_batches_give_each_text_the_vector_it_has_alone(family, load):
    pick = {
        "first": lambda states: states[0],
        "last": lambda states: states[-1],
        "mean": lambda states: states.mean(axis=0),
    }
    for pooling, one in pick.items():
        encoder = load(family, pooling=pooling).eval()
        assert (encoder.width, encoder.depth) == (WIDTH, LAYERS)
        tokens = tokenize(TEXTS, encoder, 32)
        (batch,) = Batches(tokens, 4, pad_id=encoder.pad_id, pad_left=encoder.pad_left).epoch(0)
        assert batch.attention is not None
        layers = (0, 1, -2, -1)
        with torch.no_grad():
            pooled = encoder(batch.ids, batch.mask, layers)
        for layer, vectors in zip((0, 1, LAYERS - 1, LAYERS), pooled, strict=True):
            expected = np.stack([one(s) for s in states_of_single_texts(encoder, layer)])
            np.testing.assert_allclose(vectors.numpy(), expected[batch.rows], atol=2e-5)
            assert layer == 0 or np.ptp(expected, axis=0).max() > 1e-3  # else any row would do


@pytest.mark.parametrize("family", FAMILIES)
def test_special_tokens_padding_and_automatic_pooling(family, load):
    encoder = load(family)
    marks = [encoder.tokenizer.id_to_token(i) for i in tokenize(["red"], encoder, 32).row(0)]
    if family == "xlnet":
        assert marks[-2:] == ["<sep>", "<cls>"]
        assert (encoder.pooling, encoder.pad_left) == ("last", True)
    else:
        ends = {("[CLS]", "[SEP]"), ("<s>", "</s>"), ("<|begin_of_text|>", "<|end_of_text|>")}
        assert (marks[0], marks[-1]) in ends
        pooling = "mean" if family == "eurobert" else "first"
        assert (encoder.pooling, encoder.pad_left) == (pooling, False)
    pads = ("[PAD]", "<pad>", "<|end_of_text|>")
    assert encoder.tokenizer.id_to_token(encoder.pad_id) in pads


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_that_trains_gets_a_gradient(family, load):
    encoder = load(family)
    tokens = tokenize(TEXTS, encoder, 32)
    (batch,) = Batches(tokens, 4, pad_id=encoder.pad_id, pad_left=encoder.pad_left).epoch(0)
    (states,) = encoder(batch.ids, batch.mask, (-1,))
    states.sum().backward()
    idle = [n for n, p in encoder.named_parameters() if p.requires_grad and p.grad is None]
    assert idle == []


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_of_a_layer_do_not_reach_the_layers_above(family, load):
    encoder = load(family)
    layers = next(m for m in encoder.modules() if isinstance(m, torch.nn.ModuleList))
    ids = torch.tensor([tokenize(["red shoes"], encoder, 32).row(0).tolist()])
    (states,) = encoder(ids, None, (2,))
    (states**2).sum().backward()
    reached = [any(p.grad is not None for p in layer.parameters()) for layer in layers]
    assert reached == [True, True, False]


def test_unpadded_batches_need_no_mask_and_states_are_float32(load):
    ids = torch.tensor([[2, 5, 6, 3], [2, 6, 6, 3]])
    for pooling in ("first", "last", "mean"):
        encoder = load("bert", pooling=pooling).eval()
        (plain,), (masked,) = encoder(ids, None), encoder(ids, torch.ones_like(ids))
        torch.testing.assert_close(plain, masked)
    for pooling in ("first", "mean", "pooler"):
        encoder = load("bert", pooling=pooling)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            (state,) = encoder(torch.tensor([[2, 5, 3]]), None)
        assert state.dtype == torch.float32


def test_the_pooler_is_used_when_asked_for_and_else_taken_out(load):
    encoder = load("bert", pooling="pooler").eval()
    ids = torch.tensor([[2, 5, 3]])
    first, last = encoder(ids, None, (1, -1))
    raw = encoder.model(input_ids=ids, output_hidden_states=True)
    assert torch.equal(last, raw.pooler_output)
    assert torch.equal(first, raw.hidden_states[1][:, 0])
    assert not any("pooler" in name for name, _ in load("bert").named_parameters())


@pytest.mark.parametrize(
    ("family", "instead"), [("distilbert", "first"), ("xlnet", "last"), ("modernbert", "first")]
)
def test_a_family_without_a_pooler_takes_the_token_that_it_sums_up_in(family, instead, load):
    with pytest.warns(LabelgroveWarning, match=f"no trained pooler; .* is '{instead}' instead"):
        encoder = load(family, pooling="pooler").eval()
    assert (encoder.pooling, encoder.params.pooling) == (instead, instead)
    ids = torch.tensor([[5, 6, 7]])
    torch.testing.assert_close(encoder(ids, None), load(family, pooling=instead).eval()(ids, None))


def test_a_pooler_without_trained_weights_is_not_used(tmp_path):
    import transformers

    folder = make_encoder(tmp_path / "a", "bert")
    transformers.AutoModel.from_pretrained(folder, add_pooling_layer=False).save_pretrained(folder)
    assert load_encoder(EncoderParams(encoder=str(folder), max_tokens=8)).pooling == "first"
    with pytest.warns(LabelgroveWarning, match="no trained pooler"):
        params = EncoderParams(encoder=str(folder), max_tokens=8, pooling="pooler")
        encoder = load_encoder(params)
    assert encoder.pooling == "first"
    assert not any("pooler" in name for name, _ in encoder.named_parameters())
    with pytest.raises(ConfigError, match="no pooler; choose first, mean or last"):
        part = encoder.state()
        settings = part.config["params"] | {"pooling": "pooler"}
        Encoder(
            encoder.model, encoder.tokenizer, EncoderParams(**settings), pad_id=0, pad_left=False
        )


@pytest.mark.parametrize(
    ("family", "settings", "word"),
    [
        ("bert", {"max_tokens": 35}, "at most 34 tokens"),
        ("roberta", {"max_tokens": 33}, "at most 32 tokens"),  # counts after <pad>
        ("xlnet", {"attention": "sdpa"}, "cannot be loaded"),
        ("xlnet", {"gradient_checkpointing": True}, "xlnet"),
    ],
    ids=str,
)
def test_settings_that_a_family_cannot_follow_are_refused(load, family, settings, word):
    pytest.raises(ConfigError, load, family, **settings).match(word)


def test_texts_as_long_as_there_are_positions_and_layers_that_exist(load):
    encoder = load("bert", max_tokens=34)
    assert encoder.max_tokens == 34
    pytest.raises(ConfigError, encoder, torch.tensor([[2, 3]]), None, (4,)).match("layers 1 to 3")
    assert load("xlnet", max_tokens=4096).max_tokens == 4096


def test_a_text_without_training_texts_is_read_up_to_128_tokens(tmp_path):
    folder = make_encoder(tmp_path / "long", "bert", max_position_embeddings=200)
    assert load_encoder(EncoderParams(encoder=str(folder))).max_tokens == 128


def test_a_packed_document_without_tokens_has_a_mean():
    states = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert _pooled(states, torch.tensor([0, 2, 2]), "mean").tolist() == [[2.0, 3.0], [0.0, 0.0]]


@pytest.mark.parametrize("family", FAMILIES)
def test_dropout_is_replaced_everywhere(family, load):
    ids = torch.tensor([[5, 6, 7, 8]])
    without = load(family, dropout=0.0).train()
    assert torch.equal(without(ids, None)[0], without(ids, None)[0])
    much = load(family, dropout=0.5).train()
    assert not torch.equal(much(ids, None)[0], much(ids, None)[0])


@pytest.mark.parametrize(
    "family", [f for f in FAMILIES if f in ("bert", "deberta-v2", "eurobert", "modernbert")]
)
def test_gradient_checkpointing_gives_the_same_gradients(load, family):
    gradients = []
    for checkpointing in (False, True):
        encoder = load(family, gradient_checkpointing=checkpointing, dropout=0.0)
        encoder.train()
        first, last = encoder(torch.tensor([[2, 5, 6, 3]]), None, (1, -1))
        (first + last).pow(2).sum().backward()
        gradients.append([p.grad for p in encoder.parameters() if p.requires_grad])
    assert gradients[0]
    for plain, again in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, again)


def test_a_damaged_part_is_refused(load):
    part = load("bert").state()
    name = next(name for name in part.arrays if name.startswith("weights/"))
    short = {n: a for n, a in part.arrays.items() if n != name}
    with pytest.raises(ModelFormatError, match=name.removeprefix("weights/")):
        Encoder.from_state(Part(part.config, short))
    bent = part.arrays | {name: part.arrays[name][:1]}
    with pytest.raises(ModelFormatError, match="size mismatch"):
        Encoder.from_state(Part(part.config, bent))
    with pytest.raises(ModelFormatError, match="cannot be read"):
        Encoder.from_state(Part(part.config | {"model": {"model_type": "no such"}}, part.arrays))


def test_stored_settings_cannot_name_code(load):
    part = load("bert").state()
    named = {"attn_implementation": "someone/kernel", "_attn_implementation": "someone/kernel"}
    named |= {"auto_map": {"AutoModel": "evil.Model"}, "experts_implementation": "someone/kernel"}
    settings = part.config["model"] | named
    for training in (True, False):
        state = Part(part.config | {"model": settings}, part.arrays)
        stored = vars(Encoder.from_state(state, training).model.config)
        assert stored.get("_attn_implementation", "sdpa") in ("sdpa", "eager")
        assert "auto_map" not in stored


def test_a_folder_with_python_files_does_not_run_them(tmp_path):
    folder = make_encoder(tmp_path / "a", "bert")
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "evil"}
    config["auto_map"] = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(ConfigError, match=r"does not know the family 'evil'.*never runs.*another"):
        load_encoder(EncoderParams(encoder=str(folder), max_tokens=8))
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif("eurobert" not in FAMILIES, reason="needs a newer transformers")
def test_a_family_that_came_as_code_is_read_without_it(tmp_path, load):
    """EuroBERT's repository has Python files, from before transformers had the family."""
    folder = make_encoder(tmp_path / "a", "eurobert")
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    encoder = load_encoder(EncoderParams(encoder=str(folder), max_tokens=32)).eval()
    ids = torch.tensor([[5, 6, 7]])
    torch.testing.assert_close(encoder(ids, None), load("eurobert").eval()(ids, None))
    assert not (tmp_path / "ran").exists()
    config["model_type"] = "not-there-yet"
    del config["auto_map"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="'not-there-yet'; install a transformers that has it"):
        load_encoder(EncoderParams(encoder=str(folder), max_tokens=8))
    for broken in ("{", "[]"):
        (folder / "config.json").write_text(broken)
        with pytest.raises(ConfigError, match=r"config\.json"):
            load_encoder(EncoderParams(encoder=str(folder), max_tokens=8))


def test_float16_files_are_loaded_as_float32(tmp_path):
    folder = make_encoder(tmp_path / "half", "bert", half=True)
    encoder = load_encoder(EncoderParams(encoder=str(folder), max_tokens=8))
    assert {p.dtype for p in encoder.parameters()} == {torch.float32}


def test_files_without_all_weights_are_refused(tmp_path):
    folder = make_encoder(tmp_path / "a", "bert")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": LAYERS + 1}))
    with pytest.raises(ConfigError, match=r"no weights for .*partly random"):
        load_encoder(EncoderParams(encoder=str(folder), max_tokens=8))


def test_a_tokenizer_of_another_encoder_is_refused(tmp_path):
    words = [f"word{number}" for number in range(200)]
    folder = make_encoder(tmp_path / "encoder", "bert", words=words, vocab_size=100)
    with pytest.raises(ConfigError, match=r"206 word pieces.*rows for 100 only"):
        load_encoder(EncoderParams(encoder=str(folder)))


def test_loading_leaves_the_random_numbers_alone(load):
    before = torch.random.get_rng_state()
    Encoder.from_state(load("bert").state())
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_single_text_is_tokenised_without_preparing_anew(load, monkeypatch):
    encoder = load("bert")
    first = tokenize(["red shoes"], encoder, 8)
    monkeypatch.setattr("labelgrove.nn.encoders.tokens._prepare", None)
    assert np.array_equal(tokenize(["red shoes"], encoder, 8).ids, first.ids)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same_vectors(load):
    encoder = load("bert")
    tokens = tokenize(TEXTS * 50, encoder, 32)
    expected = embed(encoder, tokens)
    for precision, difference in (("fp32", 1e-3), ("auto", 0.05)):
        ours = embed(encoder.cuda(), tokens, precision=precision)
        np.testing.assert_allclose(ours, expected, atol=difference)


def test_embeddings_are_in_document_order_and_normalised(load, monkeypatch):
    monkeypatch.setattr("labelgrove.nn.network.PREDICTION_TOKENS", {"cpu": 16})
    encoder = load("xlnet").train()
    texts = TEXTS * 3
    tokens = tokenize(texts, encoder, 32)
    seen = []
    vectors = embed(encoder, tokens, progress=lambda done, total: seen.append(done / total))
    assert encoder.training
    assert seen[-1] == 1.0
    assert len(seen) > 3
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    alone = [embed(encoder, tokenize([t], encoder, 32))[0] for t in texts]
    np.testing.assert_allclose(vectors, np.stack(alone), atol=1e-5)
    assert embed(encoder, tokenize([], encoder, 32)).shape == (0, WIDTH)
