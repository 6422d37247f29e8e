"""``label_texts`` of neural methods: names of labels as documents, and when "auto" takes them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from labelgrove.core.callbacks import Reporter
from labelgrove.data.corpus import Corpus
from labelgrove.errors import ConfigError
from labelgrove.methods.label_texts import with_label_texts
from support.small_models import new, planted, shortened

CORPUS = Corpus.from_lists(["red shoes", "a hat"], [["shoe"], ["hat"]])
BETTER = {"P@1": 0.6, "P@3": 0.4, "P@5": 0.3}
WORSE = {"P@1": 0.6, "P@3": 0.4, "P@5": 0.2}


def decide(
    setting: Any, corpus: Corpus = CORPUS, validation: Any = CORPUS, named: Any = BETTER
) -> Any:
    said: list[str] = []

    def judge(documents: Corpus, _: Corpus) -> Any:
        return named if len(documents) > len(corpus) else WORSE if named is BETTER else BETTER

    def note(event: Any) -> None:
        said.append(event.values["text"])

    chosen, measures = with_label_texts(corpus, validation, setting, judge, Reporter([note]))
    return chosen, measures, " ".join(said)


def test_auto_takes_names_where_held_out_documents_are_better_for_it() -> None:
    chosen, measures, said = decide("auto")
    assert len(chosen) == 4 and measures is BETTER
    assert "used; linear's held-out mean of P@1/3/5 is 40.00 without, 43.33 with" in said
    chosen, measures, said = decide("auto", named=WORSE)
    assert chosen is CORPUS and measures is BETTER
    assert "not used; linear's" in said


def test_auto_says_why_it_did_not_ask() -> None:
    chosen, measures, said = decide("auto", validation=None)
    assert chosen is CORPUS and not measures and "no documents are held out" in said
    codes = Corpus.from_lists(["red shoes"], [["17"]])
    chosen, _, said = decide("auto", corpus=codes)
    assert chosen is codes and "labels have no words" in said


def test_names_have_no_features() -> None:
    both = Corpus(CORPUS.texts, CORPUS.labels, CORPUS.index, features=np.eye(2, dtype=np.float32))
    pytest.raises(ConfigError, decide, "names", corpus=both).match("beside texts only")


def test_settings_that_ask_nobody() -> None:
    assert decide(None)[:2] == (CORPUS, {})
    assert len(decide("names")[0]) == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    ["lightxml", "cascadexml in three levels", "xrtransformer in three levels", "xtransformer"],
)
def test_every_network_learns_from_names(kind: str) -> None:
    texts, labels = planted(60)
    plain, named = shortened(new(kind), 10), shortened(new(kind), 10)
    named.label_texts = "names"
    for model in (plain, named):
        model.fit(texts, labels)
    assert named.facts_.documents == plain.facts_.documents == 60
    one, other = (model.predict(texts[:20], k=3).scores for model in (plain, named))
    assert one.shape == other.shape and (one != other).any()


def test_other_values_are_refused() -> None:
    model = deepcopy(new("lightxml"))
    model.label_texts = "all"
    with pytest.raises(ConfigError, match="label_texts: must be one of 'names', 'auto'"):
        model.fit(*planted(40))
