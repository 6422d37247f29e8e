"""Documents without labels: texts, features that came with them, or both, row by row."""

from __future__ import annotations

from dataclasses import dataclass

from labelgrove.data.corpus import Strings
from labelgrove.data.features import Features, as_features
from labelgrove.errors import DataError


@dataclass(frozen=True, eq=False)
class Documents:
    """Texts and the features that came with them, wherever a model is given documents.

    ``features`` are Features, a sparse matrix or a dense array, with a row for each text.

    >>> Documents(["red shoes", "a hat"], [[1.0, 0.0], [0.0, 1.0]])
    Documents(2 texts, 0 sparse + 2 dense)
    """

    texts: Strings | None = None
    features: Features | None = None

    def __post_init__(self) -> None:
        if self.texts is None and self.features is None:
            raise DataError("documents need texts or features")
        if self.features is None:
            return
        features = as_features(self.features)
        object.__setattr__(self, "features", features)
        if self.texts is not None and len(self.texts) != len(features):
            raise DataError(f"{len(self.texts)} texts but {len(features)} feature rows")

    def __len__(self) -> int:
        return len(self.features if self.texts is None else self.texts)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        texts, features = self.texts, self.features
        blocks = [] if texts is None else [f"{len(texts)} texts"]
        if features is not None:
            blocks.append(f"{features.terms} sparse + {features.width} dense")
        return f"Documents({', '.join(blocks)})"

    @property
    def inputs(self) -> Features | Strings:
        """The texts, or else the features."""
        return self.features if self.texts is None else self.texts  # type: ignore[return-value]

    @property
    def plain(self) -> Documents | Features | Strings:
        """The texts or the features alone, if there are no others; else these documents."""
        return self if self.texts is not None and self.features is not None else self.inputs

    def take(self, rows: slice) -> Documents:
        """The documents of a slice."""
        return Documents(
            None if self.texts is None else self.texts[rows],
            None if self.features is None else self.features.take(rows),
        )
