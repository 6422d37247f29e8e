"""Parameter groups: validation, TOML, flags, and scikit-learn's tools."""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV

from labelgrove.core.params import Params, merge_settings, param, parse_setting, read_toml, to_toml
from labelgrove.errors import ConfigError


@dataclass
class RankerParams(Params):
    C: float = param(1.0, gt=0, help="inverse regularisation")
    loss: Literal["hinge", "logistic"] = param("hinge", help="loss")
    max_iter: int = param(20, ge=1, le=1000, help="sweeps")
    bias: bool = param(True, help="whether to add a bias")
    beams: list[int] = param([10, 20], ge=1, help="beam per level")
    weights: tuple[float, ...] = param((1.0,), ge=0, help="weights")
    window: tuple[int, float] = param((1, 0.5), help="a pair")
    seed: int | None = param(None, ge=0, help="seed")
    branching: int | Literal["auto"] = param("auto", ge=2, help="children")
    note: str = param("", help="anything")


@dataclass
class TreeParams(Params):
    depth: int = param(2, ge=1, help="levels")


class Dummy(BaseEstimator):
    """Scores best when ranker.C is 2 and tree.depth is 3, whatever the data."""

    def __init__(self, ranker=None, tree=None, random_state=0):
        self.ranker = ranker
        self.tree = tree
        self.random_state = random_state

    def fit(self, texts, labels):
        self.ranker.validate("ranker")
        self.tree.validate("tree")
        self.score_ = -abs(self.ranker.C - 2) - abs(self.tree.depth - 3)
        return self

    def score(self, texts, labels):
        return float(self.score_)


def dummy():
    return Dummy(RankerParams(), TreeParams())


def test_clone_copies_groups_deeply():
    model = Dummy(RankerParams(C=3, beams=[5]), TreeParams())
    copy = clone(model)
    assert copy.ranker == model.ranker
    assert copy.ranker is not model.ranker
    copy.set_params(ranker__C=9.0, tree__depth=1)
    copy.ranker.beams.append(6)
    assert (model.ranker.C, model.ranker.beams, model.tree.depth) == (3, [5], 2)


def test_grid_search_over_nested_parameters():
    grid = {"ranker__C": [0.5, 2, 8], "tree__depth": np.arange(1, 5)}
    search = GridSearchCV(dummy(), grid, cv=2, error_score="raise")
    search.fit(["a", "b", "c", "d"], [["x"], ["y"], ["x", "y"], []])
    assert (search.best_params_["ranker__C"], search.best_params_["tree__depth"]) == (2, 3)
    assert search.best_estimator_.ranker.C == 2.0


def test_random_search_brings_numpy_numbers():
    values = {"ranker__C": np.logspace(-1, 1, 3, dtype=np.float32), "ranker__bias": [np.True_]}
    search = RandomizedSearchCV(dummy(), values, n_iter=3, cv=2, error_score="raise")
    search.fit(["a", "b"], [["x"], ["y"]])
    assert type(search.best_estimator_.ranker.C) is float
    assert search.best_estimator_.ranker.bias is True


def test_set_params_sets_all_or_nothing():
    pytest.raises(ConfigError, dummy().set_params, ranker__max_itre=3).match("max_itre: unknown")
    group = RankerParams()
    pytest.raises(ConfigError, group.set_params, C=5.0, nonsense=1).match("unknown key")
    assert group.C == 1.0
    assert group.set_params(C=5.0, bias=False) is group
    assert (group.C, group.bias) == (5.0, False)


def test_constructing_checks_nothing_keeps_identity_and_shares_no_default():
    beams = ["wrong"]
    group = RankerParams(C="wrong", beams=beams)
    assert group.C == "wrong"
    assert group.beams is beams
    RankerParams().beams.append(3)
    assert RankerParams().beams == [10, 20]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"C": 0}, r"ranker.C: must be greater than 0, got 0.0"),
        ({"C": "1"}, r"ranker.C: must be a number, got '1'"),
        ({"C": True}, r"ranker.C: must be a number, got True"),
        ({"C": float("nan")}, r"ranker.C: must be a number, got nan"),
        ({"C": 10**400}, r"ranker.C: must be a number below"),
        ({"C": None}, r"ranker.C: must be a number, got None"),
        ({"max_iter": 0}, r"ranker.max_iter: must be at least 1, got 0"),
        ({"max_iter": 1001}, r"ranker.max_iter: must be at most 1000"),
        ({"max_iter": 3.0}, r"ranker.max_iter: must be a whole number, got 3.0"),
        ({"max_iter": True}, r"ranker.max_iter: must be a whole number"),
        ({"bias": 1}, r"ranker.bias: must be true or false, got 1"),
        ({"loss": "l2"}, r"ranker.loss: must be one of 'hinge', 'logistic', got 'l2'"),
        ({"loss": ["hinge"]}, r"ranker.loss: must be one of"),
        ({"beams": 3}, r"ranker.beams: must be a list, got 3"),
        ({"beams": "12"}, r"ranker.beams: must be a list"),
        ({"beams": [1, "a"]}, r"ranker.beams\[1\]: must be a whole number, got 'a'"),
        ({"beams": [1, 0]}, r"ranker.beams: must be at least 1, got 0"),
        ({"window": [1]}, r"ranker.window: must have 2 entries"),
        ({"window": [0.5, 1]}, r"ranker.window\[0\]: must be a whole number"),
        ({"seed": "some"}, r"ranker.seed: must be a whole number, got 'some'"),
        ({"seed": -1}, r"ranker.seed: must be at least 0"),
        ({"branching": 1}, r"ranker.branching: must be at least 2"),
        (
            {"branching": "some"},
            r"ranker.branching: must be a whole number or must be one of 'auto', got 'some'",
        ),
        ({"note": 5}, r"ranker.note: must be a string, got 5"),
        ({"c": 1}, r"ranker.c: unknown key; did you mean ranker.C\?"),
        ({"Loss": "hinge"}, r"ranker.Loss: unknown key; did you mean ranker.loss\?"),
        ({"zzzzzz": 1}, r"ranker.zzzzzz: unknown key; valid keys: C, loss, "),
    ],
)
def test_wrong_values_are_named_by_path(values, message):
    pytest.raises(ConfigError, RankerParams.from_dict, values, "ranker").match(message)


@pytest.mark.parametrize("values", [3, None, ["C"], "C"])
def test_what_is_not_a_table_is_refused(values):
    with pytest.raises(ConfigError, match="ranker: must be a table of keys"):
        RankerParams.from_dict(values, "ranker")


def test_values_become_what_was_declared():
    group = RankerParams.from_dict(
        {"C": 2, "weights": [1, 2], "window": [3, 1], "seed": "none", "beams": (4,), "note": "none"}
    )
    assert (group.C, type(group.C)) == (2.0, float)
    assert group.weights == (1.0, 2.0)
    assert (group.window, type(group.window[1])) == ((3, 1.0), float)
    assert group.seed is None
    assert group.beams == [4]
    assert group.note == "none"


def test_literals_are_compared_with_their_type():
    @dataclass
    class Levels(Params):
        level: Literal[1, 2] = param(1, help="level")

    Levels.__annotations__["level"] = Literal[1, 2]
    assert Levels(level=2).validate().level == 2
    for wrong in (True, 1.0):
        pytest.raises(ConfigError, Levels(level=wrong).validate).match("level: must be one of 1, 2")


Text = st.text(st.characters(exclude_categories=["Cs"]))
Scalar = st.booleans() | st.integers() | st.floats(allow_nan=False) | Text
Value = Scalar | st.lists(Scalar | st.lists(Scalar, max_size=2), max_size=3)
Table = st.dictionaries(Text, Value, max_size=4)


@given(st.dictionaries(Text, Value | Table, max_size=5))
def test_toml_round_trip(config):
    assert tomllib.loads(to_toml(config)) == config


@given(
    st.builds(
        RankerParams,
        C=st.floats(1e-300, 1e300),
        loss=st.sampled_from(["hinge", "logistic"]),
        max_iter=st.integers(1, 1000),
        bias=st.booleans(),
        beams=st.lists(st.integers(1, 99)),
        weights=st.lists(st.floats(0, 9)).map(tuple),
        window=st.tuples(st.integers(), st.floats(allow_nan=False)),
        seed=st.none() | st.integers(0),
        branching=st.just("auto") | st.integers(2),
        note=Text,
    )
)
def test_groups_survive_a_config_file(group):
    config = tomllib.loads(to_toml({"method": "x", "ranker": dataclasses.asdict(group)}))
    assert RankerParams.from_dict(config["ranker"], "ranker") == group


def test_numpy_numbers_and_lists_of_tables_go_into_toml():
    config = {"a": np.float64(1.5), "b": np.int64(3), "c": [np.float32(0.5)], "d": np.True_}
    assert tomllib.loads(to_toml(config)) == {"a": 1.5, "b": 3, "c": [0.5], "d": True}
    inner = [{"k": 1, "t": {"u": 2}}, {}]
    config = {"a": 1, "members": [{"method": "x", "ranker": {"C": 2.0}}, {"members": inner}]}
    assert tomllib.loads(to_toml(config)) == config


@pytest.mark.parametrize("value", [object(), [{"a": object()}, 2], "\ud800", b"x"])
def test_what_toml_cannot_hold_is_refused(value):
    pytest.raises(ConfigError, to_toml, {"table": {"key": value}}).match("to TOML")


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("ranker.C=2", ("ranker.C", 2)),
        ("ranker.C = 2.5", ("ranker.C", 2.5)),
        ("ranker.bias=false", ("ranker.bias", False)),
        ("ranker.beams=[1, 2]", ("ranker.beams", [1, 2])),
        ("ranker.loss=hinge", ("ranker.loss", "hinge")),
        ('ranker.note="2"', ("ranker.note", "2")),
        ("ranker.note=a=b", ("ranker.note", "a=b")),
        ("ranker.note=", ("ranker.note", "")),
        ("ranker.note=2024-01-31", ("ranker.note", "2024-01-31")),
        ("ranker.note=12:30:00", ("ranker.note", "12:30:00")),
        ("ranker.note=1\nranker.C=5", ("ranker.note", "1\nranker.C=5")),
        ("ranker.note=" + "9" * 5000, ("ranker.note", "9" * 5000)),
        ("random_state=7", ("random_state", 7)),
        ("a=" + "[" * 100_000, ("a", "[" * 100_000)),
    ],
)
def test_flags(flag, expected):
    key, value = parse_setting(flag)
    assert (key, value) == expected
    assert type(value) is type(expected[1])


@pytest.mark.parametrize("flag", ["ranker.C", "=3", " =3", ".C=3", "ranker.=3", "ranker..C=3"])
def test_flags_without_key_or_value_are_refused(flag):
    pytest.raises(ConfigError, merge_settings, {}, [flag]).match(r"must look like table.key=value")


def test_flags_lie_over_the_file_and_leave_it_alone():
    config = {"method": "x", "ranker": {"C": 1.0, "bias": True}}
    merged = merge_settings(config, ["ranker.C=2", "tree.depth=3", "method=y", "ranker.C=4"])
    assert merged == {"method": "y", "ranker": {"C": 4, "bias": True}, "tree": {"depth": 3}}
    assert config == {"method": "x", "ranker": {"C": 1.0, "bias": True}}
    with pytest.raises(ConfigError, match="method is a value, not a table"):
        merge_settings(config, ["method.deep=1"])
    pytest.raises(ConfigError, merge_settings, config, ["ranker.a.b=1"]).match("one level deep")


@pytest.mark.parametrize(
    "content", [b"a = ", b"a = 1\na = 2", b"\xff", b"a = " + b"9" * 5000, b"a = " + b"[" * 100_000]
)
def test_bad_files_are_refused_by_name(tmp_path, content):
    file = tmp_path / "config.toml"
    file.write_bytes(content)
    pytest.raises(ConfigError, read_toml, file).match(r"config.toml: not valid TOML")


def test_keys_of_many_parts_are_refused_before_they_take_time(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text(f"a = 1\n{'.'.join(['b'] * 500_000)} = 1\n")
    pytest.raises(ConfigError, read_toml, file).match(r"config.toml: .* more than 1,000 dots")
    file.write_text(f"a.b = '{'.' * 999}'")
    assert read_toml(file) == {"a": {"b": "." * 999}}


def test_missing_files_are_refused_by_name(tmp_path):
    pytest.raises(ConfigError, read_toml, tmp_path / "nothing.toml").match("nothing.toml: cannot")
    pytest.raises(ConfigError, read_toml, tmp_path).match("cannot read config file")


def test_changes_are_named_by_their_path():
    params = RankerParams(C=2.0)
    assert params.changed(["C", "bias"], "ranker") == ["ranker.C"]
    assert params.changed(["bias"]) == []
    assert RankerParams(max_iter=1000).validate().max_iter == 1000  # the bound is allowed
