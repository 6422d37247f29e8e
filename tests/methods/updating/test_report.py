"""Reports of growth, and the parts of a grown model besides its weights."""

from __future__ import annotations

import numpy as np
import pytest

from labelgrove import Corpus, LabelIndex, Tfidf
from labelgrove.data.facts import TrainingFacts
from labelgrove.methods.updating.report import Growth, GrowthParams, rebuild_reasons, unknown_terms
from labelgrove.methods.updating.views import extended_index, grown_facts


def test_reasons_name_the_limit() -> None:
    reasons = rebuild_reasons(GrowthParams(), added=0.5, leaf=9, leaf_size=100, unknown_terms=None)
    assert reasons == ("50.0 % more labels than were trained together (max_added 20.0 %)",)
    at_limits = {"added": 0.2, "leaf": 400, "leaf_size": 100, "unknown_terms": 0.3}
    assert rebuild_reasons(GrowthParams(), **at_limits) == ()  # type: ignore[arg-type]


def test_json_has_lists_and_the_verdict() -> None:
    plain = Growth(added=("a",), documents=2, reasons=("why",)).to_json()
    names = ["added", "retrained", "documents", "unknown_terms", "unreached"]
    assert list(plain) == [*names, "rebuild_due", "reasons", "notes"]
    assert plain["added"] == ["a"] and plain["rebuild_due"] is True and plain["notes"] == []


def test_unknown_terms_are_a_share_of_all() -> None:
    assert unknown_terms(Tfidf().fit(["red shoes"]), ["red hat"]) == pytest.approx(0.5)


def test_index_and_facts_grow_at_the_end() -> None:
    index = extended_index(LabelIndex(["a"]), ["b"], names=["bees"])
    assert index.names == ["a", "bees"] and index.ids == ["a", "b"]
    new = Corpus.from_lists(["x"], [["c"]], index=LabelIndex("abc"))
    facts = grown_facts(TrainingFacts(2, np.array([1, 2]), True), new.index, new)
    assert facts.frequencies.tolist() == [1, 2, 1]
    assert facts.documents == 3 and facts.grown == 1
