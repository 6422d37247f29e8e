"""A model's card: README.md with what others need to know before they use a model.

It is made of what the model folder holds: settings, sizes, held-out measurements. It names no
machine and quotes no training text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from labelgrove.disk.model_folder import StoredModel, load_model, model_size
from labelgrove.errors import ConfigError
from labelgrove.methods.held_out import held_out_metrics
from labelgrove.publishing.files import plain_name

METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "R@10")
_ABOUT = {
    "lightxml": "LightXML: an encoder fine-tuned with dynamic negative sampling",
    "cascadexml": "CascadeXML: an encoder whose layers read all resolutions of a label tree",
    "xtransformer": "X-Transformer: a neural matcher of label clusters and linear rankers",
    "xrtransformer": "XR-Transformer: an encoder fine-tuned from coarse to fine, linear rankers",
    "linear-vectors": "linear classifiers over a label tree, on text vectors",
    "linear": "linear classifiers over a label tree, on tf-idf features",
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
) -> str:
    """The card of a model folder, in Markdown with front matter for the Hugging Face Hub.

    ``name`` is what readers load it by (``owner/name``). ``measured`` are results of your own,
    fractions of one by metric, on the documents that ``measured_on`` names.

    >>> import tempfile; from labelgrove import Linear
    >>> folder = Path(tempfile.mkdtemp()) / "model"
    >>> Linear().fit(["red", "blue"], [["a"], ["b"]]).save(folder)
    >>> print(model_card(folder, licence="mit")[:62])
    ---
    library_name: labelgrove
    pipeline_tag: text-classification
    """
    stored = load_model(folder, verify="none")
    shown = name or Path(folder).name
    sections = [
        _front_matter(stored, licence, language),
        f"# {_one_line(shown)}",
        _one_line(description) if description else "",
        _summary(stored, model_size(folder)),
        _results(stored, measured, _one_line(measured_on)),
        _use(stored, name),
        _limits(stored),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _front_matter(
    stored: StoredModel, licence: str | None, language: str | Sequence[str] | None
) -> str:
    tags = ["multi-label-classification", "extreme-classification", stored.method]
    if "runtime" in stored.metadata:
        tags.append(stored.metadata["runtime"])
    lines = ["library_name: labelgrove", "pipeline_tag: text-classification"]
    if licence is not None:
        lines.append(f"license: {_word(licence, 'licence')}")
    if language is not None:
        names = [language] if isinstance(language, str) else list(language)
        lines += ["language:", *(f"- {_word(entry, 'language')}" for entry in names)]
    return "\n".join(["---", *lines, "tags:", *(f"- {tag}" for tag in tags), "---"])


def _summary(stored: StoredModel, size: int) -> str:
    from labelgrove.core.memory import format_size

    labels = len(stored.parts["labels"].arrays["ids.offsets"]) - 1
    rows = [
        ("method", _ABOUT.get(stored.method, stored.method)),
        *(
            [("encoder", plain_name(stored.params["encoder"]["encoder"]))]
            if _reads_by_encoder(stored.params)
            else []
        ),
        ("labels", f"{labels:,}"),
        ("training documents", f"{stored.parts['training'].config['documents']:,}"),
        ("size on disk", format_size(size)),
        (
            "scores",
            "calibrated probabilities"
            if "calibration" in stored.parts
            else "as the method gives them, not calibrated",
        ),
        ("labelgrove", str(stored.manifest.get("versions", {}).get("labelgrove", "unknown"))),
    ]
    if "runtime" in stored.metadata:
        runs = f"onnxruntime, {stored.metadata['precision']}; needs neither torch nor transformers"
        rows.insert(1, ("runs on", runs))
    head = "It gives a text the k labels of a fixed set that fit best."
    return "\n".join([head, "", "| | |", "|---|---|", *(f"| {k} | {v} |" for k, v in rows)])


def _results(stored: StoredModel, measured: Mapping[str, float] | None, measured_on: str) -> str:
    lines = ["## Results"]
    report = held_out_report(stored)
    ours, linear = report.get(stored.method, {}), report.get("linear", {})
    if ours:
        chosen = "members' weights were" if stored.method == "ensemble" else "checkpoint was"
        lines += [
            "",
            f"On documents that were held out of training; the {chosen} chosen by them, so new "
            "documents may do slightly worse.",
        ]
        lines += ["", *_table({"this model": ours, "linear on tf-idf": linear})]
    if dev := stored.metadata.get("dev_metrics"):
        lines += ["", "On the dev documents that training was given:", ""]
        lines += _table({"this model": dev})
    if measured:
        lines += ["", f"On {measured_on}:", "", *_table({"this model": measured})]
    if len(lines) == 1:
        lines += ["", "No measurement is stored with this model."]
    return "\n".join(lines)


def held_out_report(stored: StoredModel) -> dict[str, dict[str, float]]:
    """What training measured on held-out documents, by method; empty where it did not."""
    for part in ("network", "encoder", "ensemble"):
        if part in stored.parts:
            report = stored.parts[part].config.get("report")
            if isinstance(report, dict) and stored.method in report:
                return held_out_metrics(report)
    return {}


def _table(columns: Mapping[str, Mapping[str, float]]) -> list[str]:
    filled = {name: values for name, values in columns.items() if values}
    known = [metric for metric in METRICS if any(metric in v for v in filled.values())]
    others = {metric for values in filled.values() for metric in values} - set(known)
    rows = [
        f"| {metric} | "
        + " | ".join(f"{100 * v[metric]:.2f}" if metric in v else "" for v in filled.values())
        + " |"
        for metric in [*known, *sorted(others)]
    ]
    rule = "|---" + "|---:" * len(filled) + "|"
    return [f"| percent | {' | '.join(filled)} |", rule, *rows]


def _use(stored: StoredModel, name: str | None) -> str:
    extra = "hub"
    if "runtime" in stored.metadata:
        extra += ",onnx"
    elif any("encoder" in params for params in (stored.params, *stored.params.get("members", ()))):
        extra += ",torch"
    return "\n".join(
        [
            "## Use",
            "",
            "```sh",
            f"pip install 'labelgrove[{extra}]'",
            "```",
            "",
            "```python",
            "import labelgrove",
            "",
            f"model = labelgrove.from_pretrained({name or 'FOLDER'!r})",
            'for label in model.predict(["a text"], k=5)[0]:',
            "    print(label.name, label.score)",
            "```",
            "",
            "Files are arrays and JSON with checksums; loading runs no code from them.",
        ]
    )


def _limits(stored: StoredModel) -> str:
    lines = [
        "## Limitations",
        "",
        "- It knows the labels it was trained with and no others, and always finds k of them.",
        "- Labels with few training documents are found less often than the average says.",
        "- Texts unlike the training documents (another language, genre or time) get worse labels.",
        "- It repeats what its training labels got wrong or left out.",
    ]
    if _reads_by_encoder(stored.params):
        tokens = stored.params["encoder"]["max_tokens"]
        lines.insert(4, f"- The encoder reads the first {tokens} tokens of a text.")
    if "calibration" not in stored.parts:
        lines.append("- Scores order labels; they are not calibrated to be read as probabilities.")
    return "\n".join(lines)


def _reads_by_encoder(params: Mapping[str, Any]) -> bool:
    """Not so where word vectors were learnt: the settings of an encoder are there, but idle."""
    return "encoder" in params and params.get("vectors", {}).get("kind") != "word2vec"


def _word(value: str, field: str) -> str:
    """One word for the front matter; anything else would need quoting, or break out of it."""
    if not value or not all(c.isalnum() or c in "-._+" for c in value):
        raise ConfigError(f"{field}: must be an identifier such as apache-2.0 or en, got {value!r}")
    return value


def _one_line(text: str) -> str:
    return " ".join(text.split())
