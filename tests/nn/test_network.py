"""The network around encoder and heads: which states the heads read."""

import numpy as np
import pytest
from scipy import sparse

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from labelgrove.labels.masks import LabelMask  # noqa: E402
from labelgrove.methods.lightxml.net import LightXmlNet, LightXmlParams  # noqa: E402
from labelgrove.nn.batches import Batches, PackedBatches  # noqa: E402
from labelgrove.nn.encoders.encoder import EncoderParams, load_encoder  # noqa: E402
from labelgrove.nn.encoders.tokens import tokenize  # noqa: E402
from labelgrove.nn.network import (  # noqa: E402
    Network,
    Runner,
    labels_of,
    network_from_part,
    network_part,
)
from support.tiny_encoders import WIDTH, make_encoder  # noqa: E402


@pytest.fixture
def network(tmp_path):
    make_encoder(tmp_path / "tiny", "bert")
    encoder = load_encoder(EncoderParams(encoder=str(tmp_path / "tiny"), max_tokens=16))
    heads = LightXmlNet(WIDTH, 3, params=LightXmlParams(layers=2))
    return Network(encoder, heads, (2, 3))


def words(network, count):
    random = np.random.default_rng(0)
    texts = [" ".join(random.choice(["red", "blue", "shoe"], 6)) for _ in range(count)]
    return tokenize(texts, network.encoder, 16)


def states_of(network, tokens):
    results = []
    runner = Runner(network, precision="fp32")
    runner.each(tokens, lambda _, states: results.append(torch.stack(states, 1)))
    return torch.cat(results)


def test_packed_texts_get_the_same_labels_as_padded_ones(network):
    tokens = words(network, 40)
    results = [
        Runner(network, precision="fp32", packed=packed).read(tokens, 3, vectors=True)
        for packed in (False, True)
    ]
    for packed, kind in ((False, Batches), (True, PackedBatches), (None, Batches)):
        runner = Runner(network, precision="fp32", packed=packed)
        assert isinstance(runner._batches(tokens), kind)  # on a CPU, padded texts are faster
    np.testing.assert_array_equal(results[0][0], results[1][0])
    for padded, packed in zip(results[0][1:], results[1][1:], strict=True):
        np.testing.assert_allclose(padded, packed, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_heads_predict_in_float32_where_the_encoder_runs_in_half_precision(network):
    tokens = words(network, 40)
    runner = Runner(network, precision="bf16", packed=False)
    states = []
    runner.each(tokens, lambda batch, read: states.append((batch.rows, torch.cat(read, 1))))
    exact = torch.zeros(40, 3)
    for rows, read in states:
        assert read.dtype == torch.float32
        exact[rows] = network.heads.full(read).sigmoid()
    columns, scores, _ = runner.read(tokens, 3)
    ours = torch.zeros(40, 3).scatter(1, torch.from_numpy(columns).long(), torch.tensor(scores))
    torch.testing.assert_close(ours, exact, rtol=0, atol=1e-6)
    # The encoder itself did run in half precision.
    assert not torch.allclose(
        states_of(network, tokens).flatten(1), torch.cat([s for _, s in states])
    )
    # Training is as it was: products in half precision there.
    with torch.autocast("cpu", torch.bfloat16):
        assert network.heads.full(states[0][1]).dtype == torch.bfloat16


def test_standardised_states_have_mean_0_and_spread_1(network):
    tokens = words(network, 300)
    before = states_of(network, tokens)
    assert before.mean(0).abs().max() > 0.5
    Runner(network, precision="fp32").standardise(tokens)
    after = states_of(network, tokens)
    torch.testing.assert_close(after.mean(0), torch.zeros(2, WIDTH), rtol=0, atol=1e-4)
    spread = after.std(0)
    assert (spread < 1.001).all() and (spread > 0.99).float().mean() > 0.8


def test_what_hardly_varies_is_not_blown_up(network):
    states = torch.randn(50, WIDTH) * 0.001
    states[:, 0] = torch.randn(50)
    network.standardise([states, states])
    assert network.scale[0, 0] > 0.5 and network.scale[:, 1:].max() <= 50


def test_labels_follow_their_documents():
    labels = sparse.csr_array([[0, 1, 0], [0.5, 0, 0.25], [0, 0, 0]])
    some = labels_of(labels, np.array([1, 2, 0, 1]))
    assert some.indptr.tolist() == [0, 2, 2, 3, 5]
    assert some.indices.tolist() == [0, 2, 1, 0, 2]


def test_labels_are_ranked_within_a_mask_and_their_recall_is_counted(network):
    tokens = words(network, 7)
    runner = Runner(network, precision="fp32", batch_tokens=20)
    columns, scores, vectors = runner.read(tokens, 3)
    assert (np.sort(columns, 1) == np.arange(3)).all() and (np.diff(scores, axis=1) <= 0).all()
    assert vectors.shape == (7, 0)
    some, some_scores, _ = runner.read(tokens, 3, mask=LabelMask.from_columns([0, 2], 3))
    for row, ranking in zip(some, columns, strict=True):
        assert row.tolist() == [column for column in ranking if column != 1]
    np.testing.assert_allclose(some_scores.ravel(), scores[columns != 1], rtol=1e-5)
    assert runner.shortlist_recall(tokens, sparse.csr_array(np.ones((7, 3)))) == [1.0]
    assert runner.shortlist_recall(tokens.take(np.arange(0)), sparse.csr_array((0, 3))) == []
    assert network.training


def test_one_document_is_no_sample(network):
    Runner(network, precision="fp32").standardise(words(network, 1))
    assert (network.mean == 0).all() and (network.scale == 1).all()


def test_bfloat16_weights_of_a_head_are_stored_as_such(network):
    params = LightXmlParams(layers=2, full=True)
    heads = LightXmlNet(WIDTH, 3, params=params)
    heads.full.weight = heads.full.weight.bfloat16()  # as on a GPU
    part = network_part(Network(network.encoder, heads, (2, 3)), {})
    assert part.arrays["bf16:heads/full.weight"].itemsize == 2
    loaded = network_from_part(part, lambda *_: (LightXmlNet(WIDTH, 3, params=params), (2, 3)))
    assert loaded.heads.full.weight.dtype == torch.float32
    assert torch.equal(loaded.heads.full.weight, heads.full.weight.float())
