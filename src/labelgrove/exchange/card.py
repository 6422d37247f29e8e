"""A model's card: README.md with what others need to know before they use a model.

It is made of what the model folder holds: settings, sizes, held-out measurements. It names no
machine and quotes no training text. Its text is the template card.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from labelgrove.data.records import FieldNames
from labelgrove.disk.model_folder import StoredModel, load_model, model_size
from labelgrove.errors import ConfigError, MissingExtraError
from labelgrove.exchange.hub_files import plain_name
from labelgrove.methods.held_out import held_out_metrics

TEMPLATE = Path(__file__).with_name("card.md")
METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "R@10")
_ABOUT = {
    "lightxml": "LightXML: an encoder fine-tuned with dynamic negative sampling",
    "cascadexml": "CascadeXML: an encoder whose layers read all resolutions of a label tree",
    "xtransformer": "X-Transformer: a neural matcher of label clusters and linear rankers",
    "xrtransformer": "XR-Transformer: an encoder fine-tuned from coarse to fine, linear rankers",
    "linear-vectors": "linear classifiers over a label tree, on text vectors",
    "linear": "linear classifiers over a label tree, on tf-idf features",
    "neighbours": "a memory of training documents; the nearest by tf-idf vote for labels",
    "matcher": "a matcher of label names, whose matches a small learnt model weighs",
    "ensemble": "an ensemble of several methods",
}


def model_card(
    folder: str | Path,
    *,
    name: str | None = None,
    licence: str | None = None,
    language: str | Sequence[str] | None = None,
    description: str | None = None,
    measured: Mapping[str, float] | None = None,
    measured_on: str = "test documents",
    examples: Sequence[str] = (),
) -> str:
    """The card of a model folder, in Markdown with front matter for the Hugging Face Hub.

    ``name`` is what readers load it by (``owner/name``). ``measured`` are results of your own,
    fractions of one by metric, on the documents that ``measured_on`` names. ``examples`` are texts
    to try, which the Hub and the page of ``labelgrove serve`` offer. Needs the extra hub.

    >>> import tempfile; from labelgrove import Linear
    >>> folder = Path(tempfile.mkdtemp()) / "model"
    >>> Linear().fit(["red", "blue"], [["a"], ["b"]]).save(folder)
    >>> print(model_card(folder, licence="mit")[:41])
    ---
    library_name: labelgrove
    license: mit
    """
    try:
        import jinja2  # noqa: F401 - the template's language
        from huggingface_hub import ModelCard, ModelCardData
    except ImportError as error:
        raise MissingExtraError("hub", "the model card") from error

    stored = load_model(folder, verify="none")
    tags = ["multi-label-classification", "extreme-classification", stored.method]
    if "runtime" in stored.metadata:
        tags.append(stored.metadata["runtime"])
    languages = [language] if isinstance(language, str) else list(language or ())
    card = ModelCard.from_template(
        ModelCardData(
            library_name="labelgrove",
            pipeline_tag="text-classification",
            license=None if licence is None else _identifier(licence, "licence"),
            language=[_identifier(entry, "language") for entry in languages] or None,
            tags=tags,
            **{"widget": [{"text": text} for text in examples]} if examples else {},
        ),
        template_path=str(TEMPLATE),
        title=_one_line(name or Path(folder).name),
        description=_one_line(description or ""),
        facts=_facts(stored, model_size(folder)),
        results=list(_results(stored, measured or {}, _one_line(measured_on))),
        extras=_extras(stored),
        source=repr(name or "FOLDER"),
        tokens=stored.params["encoder"]["max_tokens"] if _reads_by_encoder(stored) else None,
        calibrated="calibration" in stored.parts,
    )
    return f"{card.content.rstrip()}\n"


def _facts(stored: StoredModel, size: int) -> dict[str, str]:
    from labelgrove.core.memory import format_size

    facts = {"method": _ABOUT.get(stored.method, stored.method)}
    if "runtime" in stored.metadata:
        precision = stored.metadata["precision"]
        facts["runs on"] = f"onnxruntime, {precision}; needs neither torch nor transformers"
    if _reads_by_encoder(stored):
        facts["encoder"] = plain_name(stored.params["encoder"]["encoder"])
    if given := stored.parts["training"].config.get("given", 0):
        facts["features"] = f"a matrix of {given:,} columns, which predictions need"
    if "fields" in stored.parts["training"].config:
        names = FieldNames.from_dict(stored.parts["training"].config["fields"])
        facts["documents have"] = _one_line(f"the texts {names}").replace("|", "\\|")
    calibrated = "calibration" in stored.parts
    return facts | {
        "labels": f"{len(stored.parts['labels'].arrays['ids.offsets']) - 1:,}",
        "training documents": f"{stored.parts['training'].config['documents']:,}",
        "size on disk": format_size(size),
        "scores": "calibrated probabilities" if calibrated else "of the method, not calibrated",
        "labelgrove": str(stored.manifest.get("versions", {}).get("labelgrove", "unknown")),
    }


def _results(
    stored: StoredModel, measured: Mapping[str, float], measured_on: str
) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Tables: a sentence above it, the names of its columns, its rows."""
    report = held_out_report(stored)
    if ours := report.get(stored.method):
        chosen = "members' weights were" if stored.method == "ensemble" else "checkpoint was"
        sentence = (
            f"On documents that were held out of training. The {chosen} chosen by them, so new "
            "documents may do slightly worse."
        )
        columns = {"this model": ours, "linear on tf-idf": report.get("linear", {})}
        yield sentence, *_table(columns)
    if dev := stored.metadata.get("dev_metrics"):
        yield "On the dev documents that training was given:", *_table({"this model": dev})
    if measured:
        yield f"On {measured_on}:", *_table({"this model": measured})


def held_out_report(stored: StoredModel) -> dict[str, dict[str, float]]:
    """What training measured on held-out documents, by method; empty where it did not."""
    for part in ("network", "encoder", "ensemble"):
        if part in stored.parts:
            report = stored.parts[part].config.get("report")
            if isinstance(report, dict) and stored.method in report:
                return held_out_metrics(report)
    return {}


def _table(columns: Mapping[str, Mapping[str, float]]) -> tuple[list[str], list[list[str]]]:
    filled = {name: values for name, values in columns.items() if values}
    metrics = {metric for values in filled.values() for metric in values}
    ordered = [m for m in METRICS if m in metrics] + sorted(metrics - set(METRICS))
    rows = [
        [m, *(f"{100 * values[m]:.2f}" if m in values else "" for values in filled.values())]
        for m in ordered
    ]
    return list(filled), rows


def _extras(stored: StoredModel) -> str:
    if "runtime" in stored.metadata:
        return "hub,onnx"
    models = (stored.params, *stored.params.get("members", ()))
    return "hub,torch" if any("encoder" in params for params in models) else "hub"


def _reads_by_encoder(stored: StoredModel) -> bool:
    """False where word vectors were learnt: the settings of an encoder are there, but unused."""
    vectors: Mapping[str, Any] = stored.params.get("vectors", {})
    return "encoder" in stored.params and vectors.get("kind") != "word2vec"


def _identifier(value: str, field: str) -> str:
    if not value or not all(c.isalnum() or c in "-._+" for c in value):
        raise ConfigError(f"{field}: must be an identifier such as apache-2.0 or en, got {value!r}")
    return value


def _one_line(text: str) -> str:
    return " ".join(text.split())
