"""Model folders: what every model writes besides its method's parts, and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from labelgrove.core.aliases import Table, TableView
from labelgrove.core.callbacks import StageTiming
from labelgrove.core.params import to_toml
from labelgrove.data.corpus import LabelIndex
from labelgrove.data.facts import TrainingFacts
from labelgrove.disk.model_folder import StoredModel, save_model
from labelgrove.errors import ConfigError, ModelFormatError
from labelgrove.labels.tree import LabelTree
from labelgrove.methods.fitted import Fitted
from labelgrove.methods.settings import GONE

# Values of settings that have gone, and what stands for them now.
REPLACED = {
    "heads.bootstrap=inherit": "none",
    "heads.loss=zlpr": "bce",
    "ranker.negatives=given": "tfn+man",
    "ranker.relevance=last-level": "none",
    "ranker.relevance_norm=l2": "l1",
    "ranker.relevance_norm=max": "l1",
    "refined.label_features=pifa,text": "pifa+text",
    "refined.label_features=pii": "pifa",
    "training.average=ema": "swa",
    "tree.label_features=pifa,text": "pifa+text",
    "tree.label_features=pii": "pifa",
}
# Values without which a model would predict something else.
REFUSED = ("heads.score=path", "ranker.storage=int8")


def write_folder(
    model: Fitted, path: str | Path, write_more: Callable[[Path], None], *, overwrite: bool
) -> None:
    """Writes a model folder; ``write_more`` may add other files than parts."""
    parts = {"labels": model.index_.revealed().state(), "training": model.facts_.state()}
    if model.calibration_ is not None:
        parts["calibration"] = model.calibration_.state()
    timings = {name: asdict(timing) for name, timing in model.timings_.items()}
    metadata: Table = {"timings": timings}
    if model.dev_metrics_:
        metadata["dev_metrics"] = model.dev_metrics_
    if model.derived_:
        metadata["derived"] = {name: list(pair) for name, pair in model.derived_.items()}
    if model.tried_:
        metadata["tried"] = list(model.tried_)
    config = model.trained_config()

    def write(folder: Path) -> None:
        text = to_toml({"method": model.method} | config)
        (folder / "config.toml").write_text(text, encoding="utf-8")
        write_more(folder)

    save_model(
        path,
        method=model.method,
        params=config,
        metadata=metadata,
        created=model.created_,
        parts=parts | model.parts(),
        extra=write,
        overwrite=overwrite,
    )


def restore_common(model: Fitted, stored: StoredModel) -> None:
    """Sets what :func:`write_folder` wrote besides the settings and the method's parts."""
    parts, metadata = stored.parts, stored.metadata
    model.index_ = LabelIndex.from_state(parts["labels"])
    model.facts_ = TrainingFacts.from_state(parts["training"])
    model.facts_.check_fits(len(model.index_))
    if "calibration" in parts:
        from labelgrove.evaluation.calibration import Calibration

        model.calibration_ = Calibration.from_state(parts["calibration"])
    model.created_ = stored.manifest.get("created")
    model.dev_metrics_ = metadata.get("dev_metrics")
    derived = metadata.get("derived", {})
    model.derived_ = {name: (value, reason) for name, (value, reason) in derived.items()}
    model.tried_ = metadata.get("tried", ())
    timings = metadata.get("timings", {})
    model.timings_ = {name: StageTiming(**timing) for name, timing in timings.items()}


def check_trees(trees: Mapping[str, LabelTree], index: LabelIndex, path: Path) -> None:
    """Raises unless all trees of a stored model are over its labels."""
    for name, tree in trees.items():
        if tree.labels != len(index):
            raise ModelFormatError(
                f"{path}: the {name} has {tree.labels:,} labels, but the part 'labels' "
                f"{len(index):,}; copy the folder again from where it was made"
            )


def stored_settings(stored: StoredModel, method: str) -> TableView:
    """The settings of a model folder as they are called now; refuses folders of other methods."""
    if stored.method != method:
        raise ConfigError(
            f"{stored.path} holds a {stored.method!r} model; load it with labelgrove.load(path)"
        )
    if "runtime" in stored.metadata:
        raise ConfigError(
            f"{stored.path} holds an exported model; load it with labelgrove.load(path)"
        )
    if stored.manifest["format_version"] == 1:
        return from_version_1(method, stored.params)
    return without_gone(stored.params)


def without_gone(params: TableView) -> Table:
    """The settings without those that have gone and did not change predictions."""
    vectors = params.get("vectors")
    if isinstance(vectors, Mapping) and vectors.get("kind") == "word2vec":
        raise ModelFormatError(
            "the model reads vectors of word2vec, which have gone from labelgrove; train linear on "
            "vectors of your own (dense=)"
        )
    gone = "return_held_out", "word2vec", "engine"
    current = {name: value for name, value in params.items() if name not in gone}
    if current.get("label_texts") == "auto":
        current["label_texts"] = None
    for table, values in current.items():
        if isinstance(values, Mapping):
            refused = [
                f"{table}.{k}={v}" for k, v in values.items() if f"{table}.{k}={v}" in REFUSED
            ]
            if refused:
                raise ModelFormatError(
                    f"the model has {refused[0]}, which has gone from labelgrove; train it again"
                )
            current[table] = {
                key: REPLACED.get(f"{table}.{key}={value}", value)
                for key, value in values.items()
                if f"{table}.{key}" not in GONE
            }
    if "members" in current:
        current["members"] = [without_gone(member) for member in current["members"]]
    return current


def from_version_1(method: str, params: TableView) -> Table:
    """Settings of format version 1; those that have gone did not change predictions."""
    current = without_gone(params)
    for table, name in (("heads", "full_chunk"), ("training", "table_steps")):
        if isinstance(current.get(table), Mapping):
            current[table] = {k: v for k, v in current[table].items() if k != name}
    # Mined documents counted in full before there was a weight.
    if method in ("linear", "linear-vectors", "xrtransformer"):
        current["ranker"] = {"mined_weight": 1.0, **current["ranker"]}
    if method == "linear":  # rows of given features were used as they are
        current = {"sparse_norm": "none", **current}
    if method == "ensemble":
        current["members"] = [
            {"method": own["method"]} | from_version_1(own["method"], own)
            for own in current["members"]
        ]
    return current
