"""Models trained on a Ray cluster have the bits of those trained on one machine."""

import os

import pytest

from labelgrove import read_corpus
from labelgrove.data.formats.shards import read_shards
from support.sharding import PARTS, SETTINGS, assert_same_bits, made, write_shards

pytestmark = pytest.mark.slow
EVERYTHING = os.environ.get("LABELGROVE_TEST_RAY") == "all"  # as `make test-ray` sets it
FEW = ["linear", "mined"]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("corpora"))


@pytest.mark.parametrize("name", [*SETTINGS, *PARTS] if EVERYTHING else FEW)
def test_shards_give_the_same_bits(name, engine, corpora):
    whole, shards = corpora
    expected = made(name).fit(read_corpus(whole))
    assert_same_bits(expected, made(name).fit(read_shards(engine, shards)))


def test_a_corpus_in_memory_gives_the_same_bits(engine, corpora):
    corpus = read_corpus(corpora[0])
    assert_same_bits(made("two trees").fit(corpus), made("two trees").fit(corpus, engine=engine))
