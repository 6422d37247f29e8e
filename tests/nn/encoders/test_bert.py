"""Stored encoders without transformers: the same bits as with it, in every pass."""

import json
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from labelgrove.core.part import Part  # noqa: E402
from labelgrove.errors import ModelFormatError  # noqa: E402
from labelgrove.nn.encoders.bert import Bert  # noqa: E402
from labelgrove.nn.encoders.encoder import Encoder, EncoderParams, load_encoder  # noqa: E402
from labelgrove.nn.encoders.packed_bert import FAMILIES  # noqa: E402
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
    assert not isinstance(Encoder.from_state(part, training=True).model, Bert)


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


def test_a_trained_model_predicts_without_importing_transformers(folder, tmp_path):
    from labelgrove import LightXML
    from support.small_models import planted, tiny_training

    texts, labels = planted(60)
    settings = tiny_training() | {"encoder": {"encoder": str(folder)}}
    LightXML(**settings).fit(texts, labels).save(tmp_path / "model")
    code = (
        "import sys, labelgrove\n"
        f"found = labelgrove.load({str(tmp_path / 'model')!r}).predict([{texts[0]!r}], k=1)\n"
        "print(found.names(), sorted({'transformers', 'sympy'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip().endswith("[]"), run.stdout
