"""Sums of explanations: strongest reasons, shortened steps, words over all paths."""

from __future__ import annotations

import numpy as np

from labelgrove import LabelIndex
from labelgrove.methods.explaining.explanation import (
    Explanation,
    Neighbour,
    Path,
    Reason,
    Span,
    Step,
    added_up,
    shortened,
    strongest,
)
from labelgrove.methods.explaining.rankers import most_frequent, weighted


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


def test_examples_are_the_most_frequent_labels() -> None:
    name = most_frequent(LabelIndex(["a", "b"]), np.array([1, 5]))
    assert name(np.array([0, 1], np.int32)) == ("b", "a")


def test_an_explanation_is_displayed_in_a_few_lines() -> None:
    reasons = (Reason("red <b>", 0.5), Reason("hat", -0.25))
    member = Explanation("c1", "shoes", "linear", 0.9, "product", reasons, calibrated=0.5)
    assert repr(member).splitlines() == [
        "shoes (c1): probability 0.5000, product 0.9000, linear",
        "  +0.500 red <b>",
        "  -0.250 hat",
    ]
    near = Neighbour(3, None, 0.75, "a red\nshoe")
    both = Explanation(
        "c1", "c1", "ensemble", None, "product", members=(member,), neighbours=(near,), notes=("x",)
    )
    assert repr(both).splitlines()[:2] == [
        "c1: product not found, ensemble",
        "  member 1: shoes (c1): probability 0.5000, product 0.9000, linear",
    ]
    assert "like document 3 (0.75): a red shoe" in repr(both) and "note: x" in repr(both)


def test_a_long_explanation_is_displayed_shortly() -> None:
    reasons = tuple(Reason("word" * 1000, 1.0) for _ in range(1000))
    notes = ("note " * 1000,) * 100
    one = Explanation("c1", "x" * 9000, "linear", 0.9, "product", reasons, notes=notes)
    many = Explanation("c1", "c1", "ensemble", 0.9, "product", members=(one,) * 100)
    assert len(repr(many)) < 100_000
    assert "member 8:" in repr(many) and "member 9:" not in repr(many)
