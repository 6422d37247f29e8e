"""labelgrove calibrate: probabilities and thresholds for a model, from held-out documents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from labelgrove.cli import common, options
from labelgrove.errors import ConfigError


def calibrate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder.")],
    data: Annotated[
        Path, typer.Option("--data", help="Corpus with labels that the model was not trained on.")
    ],
    kind: Annotated[
        str, typer.Option("--kind", help="Curve: isotonic, beta, or auto (whichever fits better).")
    ] = "auto",
    by: Annotated[
        str,
        typer.Option(
            "--by", help="One curve for all (none), or one per rank, level or frequency of labels."
        ),
    ] = "none",
    k: Annotated[
        int, typer.Option("--k", "-k", min=1, help="Best labels of each document to learn from.")
    ] = 20,
    precision: Annotated[
        float | None,
        typer.Option("--precision", help="Threshold for this precision; default: for the best F1."),
    ] = None,
    per_label: Annotated[
        bool, typer.Option("--per-label", help="Labels with enough documents get own thresholds.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Another model folder to write; default: MODEL.")
    ] = None,
    dense: options.Dense = None,
    threads: options.Threads = None,
    device: options.Device = "auto",
    skip_bad: options.SkipBad = False,
    input_format: options.Format = None,
    text_field: options.TextField = "text",
    labels_field: options.LabelsField = "labels",
    id_field: options.IdField = "id",
    read: options.Read = None,
    as_json: options.Json = False,
) -> None:
    """Turn a model's scores into probabilities.

    Afterwards predict and the Python API give probabilities (predict --raw: the scores as before),
    and predict --threshold auto gives the labels that reach the chosen threshold.

    Example: labelgrove calibrate model --data dev.jsonl --precision 0.9
    """
    from labelgrove.calibrating.calibration import calibrate as learn
    from labelgrove.methods.base import load

    console = common.stderr_console()
    common.check_device(device)
    if out is not None and out.exists():
        raise ConfigError(f"{out} exists; choose another --out")
    loaded = load(model)
    common.use_device(loaded, device)
    common.check_dense(loaded, dense)
    how = common.read_options(
        input_format, text_field, labels_field, id_field, skip_bad, read, part="dev"
    )
    corpus = common.read_corpus(
        data, index=loaded.index_, dense=dense, options=how, console=console
    )
    chosen: Any = {"kind": kind, "by": by, "target": "f1" if precision is None else precision}
    found = learn(loaded, corpus, k=k, per_label=per_label, threads=threads or 0, **chosen)
    loaded.save(out or model, overwrite=out is None)
    report = found.report or {}
    if as_json:
        common.print_json(
            {
                "model": str(out or model),
                "kind": found.kind,
                "by": found.by,
                "score_kind": found.score_kind,
                "threshold": found.threshold,
                **report,
            }
        )
        return
    reached = report["at_threshold"]
    console.print(
        f"{found.kind} curve from {report['documents']:,} documents: expected calibration error "
        f"{100 * report['before']['ece']:.2f} % before, {100 * report['after']['ece']:.2f} % after"
    )
    console.print(
        f"threshold {found.threshold:.4f}: precision {100 * reached['precision']:.1f} %, recall "
        f"{100 * reached['recall']:.1f} %, F1 {100 * reached['f1']:.1f} %, "
        f"{reached['labels_per_document']:.2f} labels per document"
    )
    if precision is not None and reached["precision"] < precision:
        console.print(
            f"note: a precision of {100 * precision:g} % was not reached on these documents"
        )
    console.print(f"model: {out or model}", markup=False)
