"""What all methods share, as functions that each method's file calls; nothing here is overridden.

A method is a scikit-learn estimator (see ``estimator.py``) with ``fit``, ``predict``,
``save`` and ``load``, a class attribute ``groups`` naming its parameter groups, and after fitting
``index_`` (the labels) and ``facts_`` (what is remembered of the training data).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from labelgrove.core.arrays import CSR, as_csr
from labelgrove.core.callbacks import Timing
from labelgrove.core.params import Params, to_toml, unknown_key
from labelgrove.core.strings import StringTable
from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.data.features import Features, as_features
from labelgrove.disk.part import Part
from labelgrove.errors import ConfigError, DataError, NotFittedError, UnsupportedError

FEWEST_HELD_OUT = 5  # documents; a smaller part would choose at random


@dataclass(frozen=True)
class TrainingFacts:
    """What evaluation needs to know of the training data: its size and each label's frequency."""

    documents: int
    frequencies: npt.NDArray[np.int64]
    from_text: bool
    width: int = 0  # columns of the dense block
    grown: int = 0  # labels, the last ones, that came after training

    @classmethod
    def of(cls, corpus: Corpus) -> TrainingFacts:
        """Counts of a training corpus.

        >>> TrainingFacts.of(Corpus.from_lists(["x", "y"], [["a"], ["a", "b"]])).frequencies
        array([2, 1])
        """
        counts = np.bincount(corpus.labels.indices, minlength=len(corpus.index))
        return cls(len(corpus), counts.astype(np.int64), corpus.texts is not None, corpus.width)

    def state(self) -> Part:
        """For the model folder.

        >>> TrainingFacts(2, np.array([1, 2]), True).state().config
        {'documents': 2, 'from_text': True, 'width': 0, 'grown': 0}
        """
        config = {
            "documents": self.documents,
            "from_text": self.from_text,
            "width": self.width,
            "grown": self.grown,
        }
        return Part(config, {"frequencies": self.frequencies})

    @classmethod
    def from_state(cls, part: Part) -> TrainingFacts:
        """From the model folder.

        >>> TrainingFacts.from_state(TrainingFacts(2, np.array([1]), True).state()).documents
        2
        """
        config = part.config
        return cls(
            config["documents"],
            part.arrays["frequencies"],
            config["from_text"],
            config.get("width", 0),
            config.get("grown", 0),
        )


def training_corpus(
    X: Any, y: Any, index: LabelIndex | None = None, *, dense: Any = None
) -> Corpus:
    """What ``fit`` was given as one checked Corpus.

    ``X`` is a Corpus (then ``y`` is None), texts, or features (Features, a sparse matrix, a dense
    array); ``y`` is one list of labels per document or a documents x labels matrix, its columns
    named by ``index`` or numbered. ``dense`` is a block of features besides.

    >>> training_corpus(["x"], [["a"]]).label_lists()
    [['a']]
    """
    if isinstance(X, Corpus):
        if y is not None:
            raise DataError("fit got a Corpus and labels besides; a Corpus carries its own labels")
        corpus = X
    else:
        if y is None:
            raise DataError("fit needs labels: one list of label names per document, or a matrix")
        inputs = checked_inputs(X)
        features = inputs if isinstance(inputs, Features) else None
        texts = None if features is not None else inputs
        matrix, index, unknown = _label_matrix(y, index)
        if matrix.shape[0] != len(inputs):
            raise DataError(f"{len(inputs)} documents but labels for {matrix.shape[0]}")
        corpus = Corpus(texts, matrix, index, features=features, unknown=unknown)
    if dense is not None:
        corpus = corpus.with_dense(dense)
    if len(corpus) == 0:
        raise DataError("cannot fit on no documents")
    if len(corpus.index) == 0 or corpus.labels.nnz == 0:
        raise DataError("cannot fit: no document has a label")
    return corpus


def check_texts_alone(method: str, corpus: Corpus) -> None:
    """Raises UnsupportedError for documents that a method which reads text would not make use of.

    >>> check_texts_alone("lightxml", Corpus.from_lists(["x"], [["a"]]))
    """
    if corpus.texts is None:
        raise UnsupportedError(
            f"{method} reads text, and these documents have features only; train linear on them"
        )
    if corpus.width:
        raise UnsupportedError(
            f"{method} reads text and makes its own vectors; it would ignore the dense block of "
            "these documents. Leave it out, or train linear with it"
        )


def hold_out(corpus: Corpus, share: float, seed: int) -> tuple[Corpus, Corpus | None]:
    """The documents to learn from, and those that only choose, all with labels; None if too few.

    >>> train, held_out = hold_out(Corpus.from_lists(["x"] * 200, [["a"]] * 200), 0.05, 0)
    >>> len(train), len(held_out)
    (190, 10)
    """
    if not 0 <= share < 1:
        raise ConfigError(f"held_out: must be at least 0 and below 1, got {share}")
    count = round(share * len(corpus))
    labelled = np.flatnonzero(np.diff(corpus.labels.indptr))
    if not FEWEST_HELD_OUT <= count < len(labelled):
        return corpus, None
    chosen = np.zeros(len(corpus), bool)
    chosen[np.random.default_rng([seed, 0]).choice(labelled, count, replace=False)] = True
    return corpus.take(~chosen), corpus.take(chosen)


def _label_matrix(y: Any, index: LabelIndex | None) -> tuple[CSR, LabelIndex, Any]:
    if sparse.issparse(y) or (isinstance(y, np.ndarray) and y.ndim == 2):
        matrix = as_csr(y, name="labels").copy()
        matrix.eliminate_zeros()
        if matrix.nnz and matrix.data.min() < 0:
            raise DataError("label weights must be positive")
        names = LabelIndex([str(c) for c in range(matrix.shape[1])]) if index is None else index
        if len(names) != matrix.shape[1]:
            raise DataError(f"labels have {matrix.shape[1]} columns, the index {len(names)} labels")
        return matrix, names, np.zeros(matrix.shape[0], np.int64)
    labels = list(y)
    names = LabelIndex.from_label_lists(labels) if index is None else index
    matrix, unknown = names.encode(labels)
    return matrix, names, unknown


def checked_inputs(X: Any) -> Any:
    """Documents for fit or predict: Features, or a sequence of strings.

    >>> checked_inputs(("a", "b"))
    ('a', 'b')
    """
    if isinstance(X, Corpus):
        return X.inputs
    matrix = sparse.issparse(X) or (isinstance(X, np.ndarray) and X.ndim == 2)
    if matrix or isinstance(X, Features):
        return as_features(X)
    if isinstance(X, str):
        raise DataError("documents are one string; give a list of strings, even for one document")
    if isinstance(X, StringTable):
        return X
    if not isinstance(X, Sequence):
        try:
            X = list(X)
        except TypeError:
            raise DataError(
                f"documents must be a list of strings, got {type(X).__name__}"
            ) from None
    for position, text in enumerate(X):
        if not isinstance(text, str):
            raise DataError(f"document {position} is {type(text).__name__}, not a string")
    return X


def texts_of(model: Any, X: Any) -> Any:
    """The documents for a method that reads their texts and nothing else."""
    texts = checked_inputs(X)
    if isinstance(texts, Features):
        raise DataError(f"{model.method} reads text and cannot predict from features")
    return texts


def check_k(k: int) -> int:
    """A usable number of labels to return.

    >>> check_k(5)
    5
    """
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise ConfigError(f"k must be a whole number of at least 1, got {k!r}")
    return int(k)


def check_fitted(model: Any) -> None:
    """Raises NotFittedError unless ``fit`` or ``load`` has been called."""
    if not hasattr(model, "index_"):
        name = type(model).__name__
        raise NotFittedError(f"this {name} is not fitted yet; call fit or {name}.load first")


def from_config(cls: Any, config: Mapping[str, Any]) -> Any:
    """An estimator from config tables: a table per parameter group, other keys are plain arguments.

    >>> from labelgrove.methods.linear.method import Linear
    >>> from_config(Linear, {"ranker": {"C": 2.0}}).ranker.C
    2.0
    """
    groups: Mapping[str, type[Params]] = cls.groups
    if "members" in inspect.signature(cls).parameters:
        from labelgrove.methods.ensemble.members import with_members

        config = with_members(cls, config)
    plain = [name for name in inspect.signature(cls).parameters if name not in groups]
    arguments: dict[str, Any] = {}
    for key, value in config.items():
        if key in groups:
            if not isinstance(value, Mapping):
                raise ConfigError(f"{key}: is a table of parameters, got {value!r}")
            arguments[key] = groups[key].from_dict(value, key)
        elif key in plain:
            arguments[key] = None if value == "none" else value  # TOML has no null
        else:
            raise ConfigError(unknown_key(key, [*plain, *groups]))
    model = cls(**arguments)
    check_params(model)
    return model


def to_config(model: Any) -> dict[str, Any]:
    """The resolved settings of an estimator as config tables; the inverse of :func:`from_config`.

    >>> from labelgrove.methods.linear.method import Linear
    >>> to_config(Linear())["random_state"]
    0
    """
    config: dict[str, Any] = {}
    for name, value in model.get_params(deep=False).items():
        if isinstance(value, Params):
            value = value.get_params()
        elif name == "members":
            value = [{"method": member.method} | to_config(member) for member in value]
        config[name] = value
    return config


def check_threads(threads: Any) -> int:
    """The threads that ``predict`` was given; 0 and -1 are all cores.

    >>> check_threads(2)
    2
    """
    whole = isinstance(threads, (int, np.integer)) and not isinstance(threads, bool)
    if not whole or threads < -1:
        raise ConfigError(f"threads: must be a whole number, -1 for all cores, got {threads!r}")
    return int(threads)


def check_params(model: Any) -> None:
    """Validates every group and the arguments that all methods have; ``fit`` calls it first."""
    for name, kind in model.groups.items():
        group = getattr(model, name)
        if not isinstance(group, kind):
            raise ConfigError(f"{name}: must be {kind.__name__}, got {type(group).__name__}")
        group.validate(name)
    for name in ("random_state", "n_jobs"):
        value = getattr(model, name)
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        if not (whole or (value is None and name == "n_jobs")):
            raise ConfigError(f"{name}: must be a whole number, got {value!r}")
    if model.n_jobs is not None and (model.n_jobs == 0 or model.n_jobs < -1):
        raise ConfigError(
            f"n_jobs: must be at least 1, or -1 or none for all cores, got {model.n_jobs}"
        )
    if model.random_state < 0:
        raise ConfigError(f"random_state: must be at least 0, got {model.random_state}")
    held_out = getattr(model, "held_out", 0.0)
    if isinstance(held_out, bool) or not isinstance(held_out, (int, float, np.number)):
        raise ConfigError(f"held_out: must be a number, got {held_out!r}")
    for name in ("baseline", "refine"):
        if not isinstance(getattr(model, name, False), (bool, np.bool_)):
            raise ConfigError(f"{name}: must be true or false, got {getattr(model, name)!r}")


def save_estimator(
    model: Any,
    path: str | Path,
    parts: dict[str, Part],
    *,
    files: Callable[[Path], None] | None = None,
    **options: Any,
) -> None:
    """Writes a fitted estimator: its own ``parts`` with the label index and the training facts.

    ``files`` may write more into the folder that it is given.
    """
    from labelgrove.disk.model_folder import save_model

    shared = {"labels": model.index_.state(), "training": model.facts_.state()}
    if getattr(model, "calibration_", None) is not None:
        shared["calibration"] = model.calibration_.state()
    timings: dict[str, Timing] = getattr(model, "timings_", {})
    metadata: dict[str, Any] = {"timings": {name: asdict(t) for name, t in timings.items()}}
    if getattr(model, "dev_metrics_", None):
        metadata["dev_metrics"] = model.dev_metrics_
    config = to_config(model)

    def write_more(folder: Path) -> None:
        text = to_toml({"method": model.method} | config)
        (folder / "config.toml").write_text(text, encoding="utf-8")
        if files is not None:
            files(folder)

    save_model(
        path,
        method=model.method,
        params=config,
        metadata=metadata,
        parts=shared | parts,
        extra=write_more,
        **options,
    )


def load_estimator(cls: Any, path: str | Path, **options: Any) -> tuple[Any, dict[str, Part]]:
    """An estimator with settings, index and facts restored, and the parts for its own ``load``."""
    from labelgrove.disk.model_folder import load_model

    stored = load_model(path, **options)
    if stored.method != cls.method:
        raise ConfigError(
            f"{path} holds a {stored.method!r} model; load it with labelgrove.load(path)"
        )
    if "runtime" in stored.metadata:
        raise ConfigError(f"{path} holds an exported model; load it with labelgrove.load(path)")
    model = from_config(cls, stored.params)
    model.index_ = LabelIndex.from_state(stored.parts["labels"])
    model.facts_ = TrainingFacts.from_state(stored.parts["training"])
    model.calibration_ = None
    if "calibration" in stored.parts:
        from labelgrove.calibrating.calibration import Calibration

        model.calibration_ = Calibration.from_state(stored.parts["calibration"])
    model.dev_metrics_ = stored.metadata.get("dev_metrics")
    kept = stored.metadata.get("timings", {})
    model.timings_ = {name: Timing(**timing) for name, timing in kept.items()}
    return model, stored.parts


def load(path: str | Path, **options: Any) -> Any:
    """Any saved model, whatever its method; ``options`` go to the store (``verify="none"`` ...).

    >>> import tempfile; from labelgrove.methods.linear.method import Linear
    >>> folder = Path(tempfile.mkdtemp()) / "model"
    >>> Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]]).save(folder)
    >>> load(folder).predict(["hat"], k=1).names()
    [['hats']]
    """
    from labelgrove.disk.bundle import read_manifest
    from labelgrove.methods import method_class

    manifest = read_manifest(path, kind="model")
    if "runtime" in manifest.get("metadata", {}):
        from labelgrove.exporting.model import ExportedModel

        return ExportedModel.load(path, **options)
    return method_class(manifest["method"]).load(path, **options)
