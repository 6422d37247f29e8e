"""Sums of explanations: strongest reasons, shortened steps, words over all paths."""

from __future__ import annotations

import numpy as np

from labelgrove import LabelIndex
from labelgrove.explaining.rankers import most_frequent, probability, weighted
from labelgrove.model.explanation import (
    Explanation,
    Path,
    Reason,
    Span,
    Step,
    added_up,
    shortened,
    strongest,
)


def test_the_strongest_reasons_come_first_whatever_their_sign() -> None:
    reasons = [Reason("a", 0.1), Reason("b", -0.5), Reason("c", 0.2), Reason("d", 0.0)]
    assert [reason.text for reason in strongest(reasons, 2)] == ["b", "c"]
    assert len(strongest(reasons, None)) == 3


def test_a_shortened_step_keeps_its_total() -> None:
    step = Step(1, 0, 2, 0.75, reasons=(Reason("a", 0.25), Reason("b", 0.5)))
    short = shortened(step, 1)
    assert short.rest == 0.25 and short.total == step.total
    assert shortened(step, 2).rest == 0.0
    parts = {"rest": 1.0, "bias": 2.0, "vector": 4.0, "unattributed": 8.0}
    assert Step(1, 0, 2, 0.0, **parts, reasons=(Reason("a", 16.0),)).total == 31.0


def test_words_add_up_with_the_weights_of_steps_and_paths() -> None:
    step = Step(1, 0, 2, 0.5, weight=0.5, reasons=(Reason("a", 0.5),))
    assert added_up([Path("tree", 1.0, 0.9, (step, step))])[0].contribution == 0.5
    assert added_up([Path("tree", 0.5, 0.9, (step,))])[0].contribution == 0.125


def test_highlights_are_pieces_between_the_ends_of_spans() -> None:
    spans = {"a": (Span(0, 4), Span(20, 24)), "b": (Span(2, 8),), "c": (Span(10, 12),)}
    reasons = [Reason("a", 0.5, spans=spans["a"]), Reason("b", -0.25, spans=spans["b"])]
    why = Explanation(
        "x", "x", "linear", 0.9, "product", (*reasons, Reason("c", 0.1, spans=spans["c"]))
    )
    pieces = [(0, 2, 1.0), (2, 4, 0.5), (4, 8, -0.5), (10, 12, 0.2), (20, 24, 1.0)]
    assert [tuple(piece) for piece in why.highlights()] == pieces
    both = Explanation("x", "x", "ensemble", 0.9, "product", members=(why, why))
    assert both.highlights() == why.highlights()
    assert both.to_dict()["members"][0]["highlights"] == [list(piece) for piece in pieces]


def test_steps_that_every_text_reaches_have_no_weight() -> None:
    steps = [Step(1, 0, 2, 3.0, bias=2.0), Step(2, 0, 9, 1.0, bias=0.0)]
    assert [step.weight for step in weighted(steps, "l3-hinge")] == [0.0, 1.0]


def test_probabilities_of_margins() -> None:
    assert probability(1.5, "l4-hinge") == 1.0
    assert probability(0.0, "sigmoid") == 0.5
    assert probability(2.0, "noop") is None


def test_examples_are_the_most_frequent_labels() -> None:
    name = most_frequent(LabelIndex(["a", "b"]), np.array([1, 5]))
    assert name(np.array([0, 1], np.int32)) == ("b", "a")
