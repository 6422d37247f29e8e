"""labelgrove calibrate: probabilities instead of scores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from labelgrove.cli import common, options
from labelgrove.errors import ConfigError


def calibrate(
    model: options.Model,
    corpus: options.Labelled,
    *,
    target: Annotated[
        str,
        Option(
            help="What sets of labels are best at: micro-F1, macro-F1, document-F1, or a precision "
            "to reach, such as 0.9."
        ),
    ] = "micro-F1",
    by: Annotated[
        str, Option(help="One curve for all (none), or one per rank or frequency of labels.")
    ] = "none",
    k: Annotated[int, Option("--k", "-k", min=1, help="Labels per document to learn from.")] = 20,
    out: Annotated[Path | None, Option(help="New model folder to write. Default: MODEL.")] = None,
    inputs: options.Inputs,
) -> None:
    """Turn a model's scores into probabilities, with documents that it was not trained on.

    After this, predict and the Python API return probabilities; predict --raw returns the original
    scores. predict --threshold auto returns sets of labels: those that reach the best threshold
    over all pairs of documents and labels (micro-F1), that of labels with about as many training
    documents (macro-F1), or as many labels as are best for each document (document-F1).

    Example: labelgrove calibrate model dev.jsonl --target document-F1
    """
    from labelgrove.evaluation.calibrate import calibrate as learn

    if out is not None and out.exists():
        raise ConfigError(f"{out} already exists; choose another --out")
    precision = None
    if not target.endswith("F1"):
        precision = common.number(target, "--target", ", micro-F1, macro-F1 or document-F1")
    loaded = inputs.load(model)
    documents = inputs.corpus(loaded, corpus, "dev", index=loaded.index_)
    given: dict[str, Any] = {"by": by, "target": target if precision is None else precision}
    calibration = learn(loaded, documents, k=k, threads=inputs.threads or 0, **given)
    loaded.save(out or model, overwrite=out is None)
    figures = calibration.report or {}
    if inputs.as_json:
        names = ("kind", "by", "score_kind", "threshold")
        facts = {name: getattr(calibration, name) for name in names}
        common.print_json({"model": str(out or model), **facts, **figures})
        return
    console, at = common.stderr_console(), figures["at_threshold"]
    sets = f"threshold {calibration.threshold:.4f}"
    if calibration.by_document:
        sets = "sets by document"
    elif calibration.label_thresholds is not None:
        sets = "thresholds by label"
    console.print(
        f"{calibration.kind} curve from {figures['documents']:,} documents: expected calibration "
        f"error {100 * figures['before']['ece']:.2f} % before, "
        f"{100 * figures['after']['ece']:.2f} % after\n"
        f"{sets}: precision {100 * at['precision']:.1f} %, recall {100 * at['recall']:.1f} %, "
        f"micro-F1 {100 * at['f1']:.1f} %, macro-F1 {100 * at['macro_f1']:.1f} %, document-F1 "
        f"{100 * at['document_f1']:.1f} %, {at['labels_per_document']:.2f} labels per document"
    )
    if precision is not None and at["precision"] < precision:
        console.print(f"note: no threshold reaches {100 * precision:g} % precision on this corpus")
    console.print(f"model: {out or model}")
