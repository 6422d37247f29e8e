"""Members that workers of an engine train: the same models and errors as in one process."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from labelgrove import Auto, Ensemble, Linear, TfidfParams
from labelgrove.data.shop import shop_corpus
from labelgrove.disk.run_folder import RunFolder
from labelgrove.engines import Engine
from labelgrove.errors import ConfigError
from support.run_logs import computed
from support.sharding import assert_same_bits
from support.small_models import Messages, planted


class Counting(Engine):
    """An engine that notes what it was asked for."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.ended = 0

    def call(self, function: Any, *arguments: Any, gpu: bool = False) -> Any:
        self.called.append(arguments[0].method)
        return super().call(function, *arguments, gpu=gpu)

    def cancel(self, refs: Any) -> None:
        self.ended += len(refs)


def two() -> Ensemble:
    syllables = TfidfParams(analyzer="char_wb", ngram_range=(2, 3))
    return Ensemble([Linear(), Linear(tfidf=syllables), Linear(random_state=1)], rule="learnt")


def test_members_are_those_of_one_process(tmp_path: Path) -> None:
    texts, labels = planted()
    engine, messages = Counting(), Messages()
    with RunFolder(tmp_path / "run") as run:
        model = two().fit(texts, labels, run=run, engine=engine, callbacks=[messages])
    assert_same_bits(two().fit(texts, labels), model)
    assert engine.called == ["linear"] * 3 and engine.ended == 0
    shared = {"tfidf": 2, "tree": 3, "ranker": 3}  # two members share tf-idf
    assert Counter(computed(tmp_path / "run")) == shared
    assert not model.timings_["1 linear: ranker"].reused  # the worker's time, not that of reading
    assert any(message.startswith("held-out P@1/3/5") for message in messages)


def test_an_error_of_a_member_is_that_of_one_process() -> None:
    texts, labels = planted()
    members = [Linear(), Linear(n_trees=0), Linear(random_state=1)]
    with pytest.raises(ConfigError) as one:
        Ensemble(members).fit(texts, labels)
    engine = Counting()
    with pytest.raises(ConfigError) as many:
        Ensemble(members).fit(texts, labels, engine=engine)
    assert str(one.value) == str(many.value)
    assert engine.ended == 1  # the third member is not needed any more


@pytest.mark.slow
def test_auto_tries_and_keeps_the_same() -> None:
    corpus = shop_corpus(400, labels=30)
    settings: dict[str, Any] = {"budget": "1h"}
    engine = Counting()
    one, many = Auto(**settings).fit(corpus), Auto(**settings).fit(corpus, engine=engine)
    assert one.tried_ == many.tried_
    assert_same_bits(one.chosen_, many.chosen_)
    # Trees, names, the matcher, and with a budget a memory and two more linear models.
    first = ["linear", "linear", "matcher", "neighbours", "linear", "linear"]
    assert engine.called[:6] == first
