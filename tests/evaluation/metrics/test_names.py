import pytest

from labelgrove.errors import ConfigError
from labelgrove.evaluation.metrics.names import FAMILIES, Metric, parse_metric


@pytest.mark.parametrize("family", FAMILIES)
def test_every_name_is_read_in_any_case_and_written_one_way(family):
    assert parse_metric(f" {family.upper()}@10 ") == Metric(family, k=10)
    assert str(parse_metric(f"{family.lower()}@10")) == f"{family}@10"


def test_aliases_and_thresholds():
    assert parse_metric("Precision@3") == Metric("P", k=3)
    assert parse_metric("recall@3") == Metric("R", k=3)
    assert parse_metric("R-precision@3") == Metric("RP", k=3)
    assert parse_metric("macro-f1@T=.5") == Metric("macro-F1", threshold=0.5)
    assert str(parse_metric("micro-P@t=1")) == "micro-P@t=1"
    assert str(parse_metric("F1@t=-2")) == "F1@t=-2"
    assert parse_metric("micro-f1@SET").of_set and not parse_metric("F1@t=0").of_set
    assert str(parse_metric("micro-f1@Set")) == "micro-F1@set"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ndgc@5", "did you mean nDCG@5"),
        ("marco-F1", "did you mean macro-F1@5"),
        ("precison@3", "did you mean P@3"),
        ("zzz@1", "choose one of P, R"),
        ("", "choose one of P, R"),
        ("P", "as in P@5"),
        ("P@", "as in P@5"),
        ("P@0", "as in P@5"),
        ("P@-1", "as in P@5"),
        ("P@1.5", "as in P@5"),
        ("P@²", "as in P@5"),
        ("nDCG@t=0.5", "only F1, micro-P.* can have a threshold"),
        ("P@set", "only F1, micro-P.* can have a threshold or a set"),
        ("F1@t=high", "must be a number, got 'high'"),
        ("F1@t=nan", "must be a number"),
        ("F1@t=inf", "must be a number"),
    ],
)
def test_bad_names_say_what_would_be_right(name, message):
    pytest.raises(ConfigError, parse_metric, name).match(message)
