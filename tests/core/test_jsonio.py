"""JSON of model and run folders."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelgrove.core import jsonio
from labelgrove.errors import ConfigError, ModelFormatError

Values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(Values, st.sampled_from([None, 1]))
def test_plain_values_survive(value, indent):
    assert jsonio.parse(jsonio.dump(value, indent=indent), file="x") == value


def test_numpy_scalars_and_tuples_become_plain():
    value = jsonio.plain({"a": (np.float32(0.5), np.bool_(True), np.str_("x"), np.array(3))})
    assert value == {"a": [0.5, True, "x", 3]}
    assert [type(item) for item in value["a"]] == [float, bool, str, int]


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": [1, {2}]}, r"config.a\[1\]: a set"),
        ({"a": np.zeros(3)}, r"config.a: a ndarray"),
        ({"a": {3: 4}}, r"config.a: the key 3"),
        ({"a": b"x"}, r"config.a: a bytes"),
    ],
)
def test_what_json_cannot_hold_is_located(value, where):
    pytest.raises(ConfigError, jsonio.dump, value, where="config").match(where)


@given(st.binary(max_size=30) | st.text('{}[]",:0123e\\u', max_size=20).map(str.encode))
def test_any_bytes_parse_or_are_refused(content):
    try:
        jsonio.parse(content, file="some.json")
    except ModelFormatError as error:
        assert "some.json: not valid JSON" in str(error)


def test_appended_lines_survive_a_torn_one(tmp_path):
    file = tmp_path / "log.jsonl"
    jsonio.append_line(file, {"a": 1})
    with file.open("a") as opened:
        opened.write('{"b"')
    jsonio.append_line(file, {"c": "two\nlines"})
    jsonio.append_line(file, {"d": 4})
    assert file.read_text() == '{"a": 1}\n{"b"\n{"c": "two\\nlines"}\n{"d": 4}\n'
