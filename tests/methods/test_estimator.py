"""What the base class of all methods adds to the interface of models."""

from __future__ import annotations

from labelgrove import Ensemble, Linear, calibrate, records

TEXTS = ["red shoes", "blue hat", "red hat", "brown shoes"] * 10
LABELS = [["shoes"], ["hats"], ["hats", "red"], ["shoes"]] * 10


def test_a_model_is_displayed_with_what_it_knows_of_itself() -> None:
    model = Linear(random_state=3)
    assert model._repr_html_().startswith("<div><p><b>Linear(random_state=3)</b>")
    assert "not yet" in model._repr_html_()
    html = model.fit(TEXTS, LABELS)._repr_html_()
    assert "<th>labels</th><td>3</td>" in html and "40 documents" in html
    assert "<th>calibrated</th><td>no</td>" in html
    calibrate(model, TEXTS, LABELS)
    model.dev_metrics_ = {"P@1": 0.5}
    html = model._repr_html_()
    assert "yes, threshold 0." in html and "<th>P@1</th><td>50.00%</td>" in html


def test_fields_and_long_settings_are_escaped_and_short() -> None:
    rows = [{"title": text, "<creator>": "Ada"} for text in TEXTS]
    model = Linear().fit(records(rows, text=["title"], fields=["<creator>"]), LABELS)
    assert "&lt;creator&gt;" in model._repr_html_()
    many = Ensemble([Linear(random_state=seed) for seed in range(1, 1000)])
    assert len(many._repr_html_()) < 1000
