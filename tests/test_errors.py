"""One exception tree that other libraries and other processes understand."""

import pickle

import pytest
import sklearn.exceptions

from labelgrove import errors


@pytest.mark.parametrize(
    ("name", "also"),
    [
        ("ConfigError", ValueError),
        ("DataError", ValueError),
        ("ModelFormatError", Exception),
        ("ResourceError", Exception),
        ("MissingExtraError", ImportError),
        ("MissingPackageError", ImportError),
        ("NotFittedError", sklearn.exceptions.NotFittedError),
    ],
)
def test_every_error_is_ours_and_a_familiar_one(name, also):
    kind = getattr(errors, name)
    assert issubclass(kind, errors.LabelgroveError)
    assert issubclass(kind, also)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (errors.DataError("bad"), "bad"),
        (errors.DataError("bad", file="a.jsonl"), "a.jsonl: bad"),
        (errors.DataError("bad", file="a.jsonl", line=3), "a.jsonl, line 3: bad"),
        (errors.DataError("bad", line=3), "line 3: bad"),
        (errors.MissingExtraError("torch", "training"), "training needs the extra `torch`"),
        (errors.MissingPackageError("polars", "to_frame"), "pip install polars"),
        (errors.ConfigError("x: wrong"), "x: wrong"),
        (errors.NotFittedError("call fit"), "call fit"),
    ],
)
def test_errors_say_it_and_travel_between_processes(error, text):
    with pytest.raises(type(error), match=text):
        raise error
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_other_names_do_not_exist():
    with pytest.raises(AttributeError, match="NotThere"):
        _ = errors.NotThere
    assert errors.NotFittedError is errors.NotFittedError
