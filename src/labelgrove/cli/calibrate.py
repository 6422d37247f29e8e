"""labelgrove calibrate: probabilities and thresholds for a model, from held-out documents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from labelgrove.cli import common, options
from labelgrove.errors import ConfigError


def calibrate(
    model: options.Model,
    *,
    data: Annotated[Path, Option(help="Corpus with labels that the model was not trained on.")],
    kind: Annotated[str, Option(help="Curve: isotonic, beta, or auto (the better fit).")] = "auto",
    by: Annotated[
        str, Option(help="One curve for all (none), or one per rank, level or frequency of labels.")
    ] = "none",
    k: Annotated[int, Option("--k", "-k", min=1, help="Labels per document to learn from.")] = 20,
    precision: Annotated[float | None, Option(help="Precision to reach. Default: best F1.")] = None,
    per_label: Annotated[
        bool, Option("--per-label", help="Give labels with enough documents their own thresholds.")
    ] = False,
    out: Annotated[Path | None, Option(help="New model folder to write. Default: MODEL.")] = None,
    dense: options.Dense = None,
    machine: options.Machine,
    reading: options.Reading,
    as_json: options.Json = False,
) -> None:
    """Turn a model's scores into probabilities.

    After this, predict and the Python API return probabilities; predict --raw returns the original
    scores. predict --threshold auto returns the labels that reach the chosen threshold.

    Example: labelgrove calibrate model --data dev.jsonl --precision 0.9
    """
    from labelgrove.calibration import calibrate as learn

    if out is not None and out.exists():
        raise ConfigError(f"{out} already exists; choose another --out")
    loaded = common.load_model(model, machine.device, dense)
    corpus = common.read_corpus(data, reading.options("dev"), index=loaded.index_, dense=dense)
    curve: Any = {"kind": kind, "by": by, "target": "f1" if precision is None else precision}
    calibration = learn(
        loaded, corpus, k=k, per_label=per_label, threads=machine.threads or 0, **curve
    )
    loaded.save(out or model, overwrite=out is None)
    report = calibration.report or {}
    if as_json:
        facts = {
            "model": str(out or model),
            "kind": calibration.kind,
            "by": calibration.by,
            "score_kind": calibration.score_kind,
            "threshold": calibration.threshold,
        }
        common.print_json(facts | report)
        return
    console, at = common.stderr_console(), report["at_threshold"]
    console.print(
        f"{calibration.kind} curve from {report['documents']:,} documents: expected calibration "
        f"error {100 * report['before']['ece']:.2f} % before, "
        f"{100 * report['after']['ece']:.2f} % after\n"
        f"threshold {calibration.threshold:.4f}: precision {100 * at['precision']:.1f} %, recall "
        f"{100 * at['recall']:.1f} %, F1 {100 * at['f1']:.1f} %, "
        f"{at['labels_per_document']:.2f} labels per document"
    )
    if precision is not None and at["precision"] < precision:
        console.print(f"note: no threshold reaches {100 * precision:g} % precision on this corpus")
    console.print(f"model: {out or model}")
