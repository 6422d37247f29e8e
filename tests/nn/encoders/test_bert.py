"""Encoders without transformers, from files or stored: the same bits as with it, in every pass."""

import json
import shutil
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from labelgrove.core.part import Part  # noqa: E402
from labelgrove.errors import ModelFormatError  # noqa: E402
from labelgrove.nn.encoders import encoder as encoder_module  # noqa: E402
from labelgrove.nn.encoders.bert import FAMILIES, Bert, plain_tokenizer  # noqa: E402
from labelgrove.nn.encoders.encoder import Encoder, EncoderParams, load_encoder  # noqa: E402
from labelgrove.nn.encoders.tokens import tokenize  # noqa: E402
from labelgrove.nn.training.devices import choose_precision  # noqa: E402
from support.tiny_encoders import make_encoder  # noqa: E402

SIZES = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
SIZES |= {"intermediate_size": 32, "max_position_embeddings": 40}


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_passes_give_the_bits_of_transformers(family, left):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **SIZES)
    theirs = transformers.AutoModel.from_config(config).eval()
    theirs.pooler = None
    for weight in theirs.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    ours = Bert(json.loads(config.to_json_string(use_diff=False))).eval()
    ours.load_state_dict(theirs.state_dict(), assign=True)
    ids, mask = torch.randint(5, 50, (3, 12)), torch.ones(3, 12, dtype=torch.long)
    ids[1, 8:], mask[1, 8:] = config.pad_token_id, 0
    if left:
        ids, mask = ids.flip(1), mask.flip(1)
    for given in (mask, None, torch.ones_like(mask)):
        with torch.no_grad():
            expected = theirs(ids, given, output_hidden_states=True)
            found = ours(ids, given)
        real = (torch.ones_like(mask) if given is None else given).bool()
        assert torch.equal(found.last_hidden_state[real], expected.last_hidden_state[real])
        for one, other in zip(found.hidden_states, expected.hidden_states, strict=True):
            assert torch.equal(one[real], other[real])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_encoder(tmp_path_factory.mktemp("bert") / "encoder", "bert")


def stored(folder, **settings):
    return load_encoder(EncoderParams(encoder=str(folder), **settings)).state()


@pytest.mark.parametrize(
    ("settings", "own"),
    [
        ({"pooling": "mean"}, True),
        ({"pooling": "pooler"}, False),
        ({"attention": "eager"}, False),
        ({"gradient_checkpointing": True}, False),
    ],
)
def test_encoders_that_predict_plainly_need_no_transformers(folder, settings, own):
    part = stored(folder, **settings)
    assert isinstance(Encoder.from_state(part).model, Bert) == own
    assert (
        isinstance(load_encoder(EncoderParams(encoder=str(folder), **settings)).model, Bert) == own
    )


def test_what_is_loaded_is_stored_as_it_was_and_draws_no_random_numbers(folder):
    part = stored(folder, dropout=0.25)
    state = torch.random.get_rng_state()
    encoder = Encoder.from_state(part)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not encoder.training
    assert {part.p for part in encoder.modules() if isinstance(part, torch.nn.Dropout)} == {0.25}
    kept = [
        (state.config, {name: array.tobytes() for name, array in state.arrays.items()})
        for state in (part, encoder.state())
    ]
    assert kept[0] == kept[1]


def test_settings_that_lack_a_size_or_fit_no_weight_are_refused(folder):
    part = stored(folder)
    model = part.config["model"]
    wrong = ({"hidden_size": 8}, {"hidden_size": "8"}, {"num_attention_heads": 0})
    for damaged in ({k: model[k] for k in model if k != "vocab_size"}, *(model | w for w in wrong)):
        with pytest.raises(ModelFormatError, match="stored encoder is damaged"):
            Encoder.from_state(Part(part.config | {"model": damaged}, part.arrays))


def test_training_and_predicting_import_neither_transformers_nor_the_compiler(folder, tmp_path):
    from support.small_models import planted, tiny_training

    texts, labels = planted(60)
    settings = tiny_training() | {"encoder": {"encoder": str(folder)}}
    code = f"""
import sys, labelgrove
labelgrove.LightXML(**{settings!r}).fit({texts!r}, {labels!r}).save({str(tmp_path / "model")!r})
labelgrove.load({str(tmp_path / "model")!r}).predict({texts[:1]!r}, k=1)
print(sorted({{'transformers', 'sympy'}} & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]", run.stdout


def test_files_are_read_as_transformers_reads_them(folder, monkeypatch):
    params = EncoderParams(encoder=str(folder), max_tokens=8, dropout=0.3)
    ours = load_encoder(params)
    monkeypatch.setattr(Bert, "fits", staticmethod(lambda *_: False))
    monkeypatch.setattr(encoder_module, "plain_tokenizer", lambda folder: None)
    theirs = load_encoder(params)
    assert isinstance(ours.model, Bert) and not isinstance(theirs.model, Bert)
    assert ours.training and ours.pad_id == theirs.pad_id and ours.pad_left == theirs.pad_left
    for name, weight in theirs.model.state_dict().items():
        assert torch.equal(ours.model.state_dict()[name], weight)
    rates = [m.p for m in ours.modules() if isinstance(m, torch.nn.Dropout)]
    assert set(rates) == {0.3}
    texts = ["red Shoes, blue", "", "shoe " * 9]
    found, expected = (tokenize(texts, encoder, 8) for encoder in (ours, theirs))
    assert found.ids.tolist() == expected.ids.tolist()


def test_other_files_are_left_to_transformers(folder, tmp_path):
    def changed(name, **values):
        shutil.copytree(folder, tmp_path / "copy", dirs_exist_ok=True)
        file = tmp_path / "copy" / name
        file.write_text(json.dumps(json.loads(file.read_text()) | values))
        return tmp_path / "copy"

    about = {"added_tokens_decoder": {"5": {"content": "<x>"}}}
    for values in ({"tokenizer_class": "Other"}, {"do_lower_case": 3}, {"pad_token": "?"}, about):
        assert plain_tokenizer(changed("tokenizer_config.json", **values)) is None
    params = EncoderParams(encoder=str(folder))
    assert Bert.read(folder, params) is not None
    for values in ({"hidden_size": 8}, {"hidden_act": "relu"}, {"num_attention_heads": 0}):
        assert Bert.read(changed("config.json", **values), params) is None


def test_a_cpu_reads_with_weights_in_half_precision_that_follow_the_training(folder):
    encoder = load_encoder(EncoderParams(encoder=str(folder), max_tokens=8)).eval()
    ids = torch.tensor([[2, 5, 6, 3]])

    def read(half):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=half):
            return encoder(ids, None)[0]

    for _ in range(2):
        exact, near = read(False), read(True)
        assert near.dtype == torch.float32 and not torch.equal(exact, near)
        torch.testing.assert_close(near, exact, rtol=0.1, atol=0.1)
        encoder.train()
        with torch.no_grad():
            encoder.model.embeddings.word_embeddings.weight.mul_(-1)
        encoder.eval()


def test_matrix_units_of_a_cpu_read_in_half_precision_and_learn_in_full(monkeypatch):
    device = torch.device("cpu")
    for units, expected in ((True, "bf16"), (False, "fp32")):
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda found=units: found)
        assert choose_precision("auto", device, reads=True) == expected
        assert choose_precision("auto", device) == "fp32"
        assert choose_precision("fp32", device, reads=True) == "fp32"
