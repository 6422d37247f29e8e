"""Names for values that are checked where they are read: what users bring, and settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:  # the names of all methods are imported without NumPy
    import numpy.typing as npt

# At the door. Texts, records, a data frame, features, or a Corpus with labels.
DocumentInput: TypeAlias = Any
LabelInput: TypeAlias = Any  # a list of labels per document, or a documents x labels matrix
TextInput: TypeAlias = Any  # one document: a text, a mapping of fields, or a row of features
DenseInput: TypeAlias = "npt.ArrayLike | None"  # a row of numbers per document

# Settings, reports and parts of a model folder, as TOML and JSON have them.
Table: TypeAlias = dict[str, Any]
TableView: TypeAlias = Mapping[str, Any]
DerivedSettings: TypeAlias = Mapping[str, tuple[Any, str]]  # values, each with its reason

Progress: TypeAlias = Callable[[float, float], None]  # is told how much is done, and of how much
