"""The arguments of ``predict``: what no label can satisfy is refused."""

from __future__ import annotations

import pytest

from labelgrove import Linear, SearchParams, calibrate
from labelgrove.datasets import shop_corpus
from labelgrove.errors import ConfigError


def test_a_threshold_above_every_score_is_refused() -> None:
    corpus = shop_corpus(200, labels=30)
    model = Linear().fit(corpus)
    with pytest.raises(ConfigError, match=r"min_score: no label can reach 1\.5.*product"):
        model.predict(corpus, min_score=1.5)
    calibrate(model, shop_corpus(100, labels=30, part="test"))
    with pytest.raises(ConfigError, match=r"min_score: no label can reach 2.*probability"):
        model.predict(corpus, min_score=2)
    assert model.predict(corpus, min_score=1.0).counts.sum() >= 0


def test_margins_have_no_upper_end() -> None:
    corpus = shop_corpus(200, labels=30)
    model = Linear(search=SearchParams(post_processor="noop")).fit(corpus)
    assert model.predict(corpus, min_score=1.5).score_kind == "margin"
