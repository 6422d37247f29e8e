"""What is published of a model: its card, and its files without local paths.

The card, README.md, is made of what the model folder holds: settings, sizes, held-out measurements.
It names no machine and quotes no training text. Its text is the template card.md. The settings of
a model may name an encoder by a folder on the machine that trained it; only the last part of such a
path is published.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from labelgrove.core import jsonio
from labelgrove.core.memory import format_size
from labelgrove.core.params import to_toml
from labelgrove.data.records import FieldNames
from labelgrove.disk.bundle import (
    MANIFEST,
    UNCHECKED,
    check_files,
    manifest_checksum,
    read_manifest,
)
from labelgrove.disk.model_folder import StoredModel, load_model, model_size
from labelgrove.errors import ConfigError, ModelFormatError, needing
from labelgrove.methods import METHODS
from labelgrove.methods.fitted import held_out_metrics

TEMPLATE = Path(__file__).with_name("card.md")
CONFIG = "config.toml"
PATH_KEYS = ("encoder", "text_encoder")
METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "R@10")


def model_card(
    folder: str | Path,
    *,
    name: str | None = None,
    licence: str | None = None,
    language: str | Sequence[str] | None = None,
    description: str | None = None,
    measured: Mapping[str, float] | None = None,
    measured_on: str = "test documents",
) -> str:
    """The card of a model folder, in Markdown with front matter for the Hugging Face Hub.

    ``name`` is what readers load it by (``owner/name``). ``measured`` are results of your own,
    fractions of one by metric, on the documents that ``measured_on`` names. Needs the extra hub.

    >>> import tempfile; from labelgrove import Linear
    >>> folder = Path(tempfile.mkdtemp()) / "model"
    >>> Linear().fit(["red", "blue"], [["a"], ["b"]]).save(folder)
    >>> print(model_card(folder, licence="mit")[:41])
    ---
    library_name: labelgrove
    license: mit
    """
    with needing("hub", "the model card"):
        import jinja2  # noqa: F401 - the template's language
        from huggingface_hub import ModelCard, ModelCardData

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
        ),
        template_path=str(TEMPLATE),
        title=_one_line(name or Path(folder).name),
        description=_one_line(description or ""),
        facts=_facts(stored, model_size(folder)),
        results=list(_results(stored, measured or {}, _one_line(measured_on))),
        extras=_extras(stored),
        source=repr(name or "FOLDER"),
        tokens=stored.params["encoder"]["max_tokens"] if "encoder" in stored.params else None,
        calibrated="calibration" in stored.parts,
    )
    return f"{card.content.rstrip()}\n"


def _facts(stored: StoredModel, size: int) -> dict[str, str]:
    known = METHODS.get(stored.method)
    facts = {"method": stored.method if known is None else f"{stored.method}: {known.summary}"}
    if "runtime" in stored.metadata:
        precision = stored.metadata["precision"]
        facts["runs on"] = f"onnxruntime, {precision}; needs neither torch nor transformers"
    if "encoder" in stored.params:
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


def _identifier(value: str, field: str) -> str:
    if not value or not all(c.isalnum() or c in "-._+" for c in value):
        raise ConfigError(f"{field}: must be an identifier such as apache-2.0 or en, got {value!r}")
    return value


def _one_line(text: str) -> str:
    return " ".join(text.split())


def published_files(folder: str | Path) -> dict[str, bytes | Path]:
    """The files to publish, as paths or new content; all are checked, and links are refused."""
    folder = Path(folder)
    manifest = read_manifest(folder, kind="model")
    for name in (UNCHECKED, MANIFEST, *manifest["files"]):
        if (folder / name).is_symlink():
            raise ModelFormatError(f"{folder / name}: is a link; only plain files are published")
    check_files(folder, manifest, "full")
    files: dict[str, bytes | Path] = {name: folder / name for name in manifest["files"]}
    for name in manifest["files"]:
        if name.endswith(f"/{MANIFEST}"):  # a member of an ensemble
            inside = name.removesuffix(MANIFEST)
            member = published_files(folder / inside)
            files |= {f"{inside}{part}": content for part, content in member.items()}
    for part in manifest["parts"]:
        settings = jsonio.parse((folder / f"{part}.json").read_bytes(), file=folder / part)
        if settings != without_paths(settings):
            files[f"{part}.json"] = jsonio.dump(without_paths(settings))
    params = without_paths(manifest["params"])
    if params != manifest["params"]:
        manifest["params"] = params
        files[CONFIG] = to_toml({"method": manifest["method"]} | params).encode()
    for name, content in files.items():
        if isinstance(content, bytes):
            digest = hashlib.sha256(content).hexdigest()
            manifest["files"][name] = {"size": len(content), "sha256": digest}
    manifest["checksum"] = manifest_checksum(manifest)
    return files | {MANIFEST: jsonio.dump(manifest)}


def without_paths(value: Any) -> Any:
    """Settings in which encoders' paths are cut to their last part."""
    if isinstance(value, list):
        return [without_paths(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    return {
        key: plain_name(entry)
        if key in PATH_KEYS and isinstance(entry, str)
        else without_paths(entry)
        for key, entry in value.items()
    }


def plain_name(encoder: str) -> str:
    """The encoder's name; of a folder only its last part."""
    repository = encoder.partition("@")[0]  # a revision may have slashes
    for kind in (PurePosixPath, PureWindowsPath):
        path = kind(repository)
        # An id on the Hub has at most one slash and begins with neither dots nor a tilde.
        if path.is_absolute() or encoder.startswith(("~", ".")) or len(path.parts) > 2:
            return kind(encoder).name
    return encoder
