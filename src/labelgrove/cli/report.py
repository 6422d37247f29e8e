"""labelgrove report: an evaluation as one HTML file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from typer import Option

from labelgrove.cli import common, options


@dataclass(frozen=True)
class Page:
    """The file to write, and what it shows."""

    out: Annotated[Path, Option(help="HTML file to write.")]
    force: options.Force = False
    k: Annotated[int, Option("--k", "-k", min=1, help="Largest k of the curves.")] = 10
    top: Annotated[int, Option(min=0, help="Wrong documents to show. 0 shows no texts.")] = 20
    intervals: Annotated[int, Option(min=0, help="Bootstrap samples. 0 draws no intervals.")] = 1000


def report(
    model: options.ModelOrFile,
    data: options.Labelled,
    *,
    page: Page,
    against: Annotated[
        list[Path] | None, Option(help="Compare with this model or file. Repeatable.")
    ] = None,
    label_facts: options.LabelFacts,
    inputs: options.Inputs,
) -> None:
    """Write an evaluation as one HTML file with charts, tables and the most wrong documents.

    Shows metrics for each k, by label and by label frequency, calibration, time and memory. The
    file loads nothing from elsewhere. It contains the beginnings of documents; --top 0 leaves them
    out.

    Example: labelgrove report model test.jsonl --out report.html --against older-model
    """
    from labelgrove.data.formats.files import existing
    from labelgrove.evaluation.metrics import Propensity
    from labelgrove.experiments.report import check_extra, write_report
    from labelgrove.experiments.report.measuring import predicted

    check_extra()
    common.check_device(inputs.device)
    common.refuse_existing([page.out], force=page.force)
    how = inputs.options("test")
    paths = [model, *(against or [])]
    loaded = [
        common.load_model(path, inputs.device) if path.is_dir() else existing(path)
        for path in paths
    ]
    index = training = None
    if isinstance(loaded[0], Path):
        index, training = label_facts.read(how)
    elif not any(isinstance(run, Path) or run.index_ != loaded[0].index_ for run in loaded):
        # Only for runs with the same labels: reading with those of one run loses all others.
        index = loaded[0].index_
    facts = [run.facts_ for run in loaded if not isinstance(run, Path)]
    if facts and all(known.from_text and not known.given for known in facts):
        if not isinstance(loaded[0], Path):
            common.check_features(loaded[0], inputs.features)
        how = replace(how, features=False)
    wide = how.n_features or max((known.given for known in facts), default=0) or None
    how = replace(how, n_features=wide)
    for run in loaded:
        how = how if isinstance(run, Path) else common.with_fields_of(run, data, how)
    if inputs.features is not None:
        how = replace(how, features=inputs.features)
    corpus = common.read_corpus(data, how, labels=label_facts.labels, index=index)
    corpus = common.with_dense(corpus, inputs.dense, data)
    console = common.stderr_console()
    with common.spinner(console, "predicting and measuring"):
        runs = []
        for path, run, name in zip(paths, loaded, _names(paths), strict=True):
            measured = predicted(run, corpus, k=page.k, name=name, threads=inputs.threads)
            runs.append(replace(measured, folder=path if path.is_dir() else None))
        written = write_report(
            runs[0],
            corpus,
            page.out,
            against=runs[1:],
            k=page.k,
            intervals=page.intervals or None,
            worst=page.top,
            data_name=data.name,
            propensity=Propensity(*label_facts.propensity),
            training=training,
        )
    if inputs.as_json:
        common.print_json({"report": str(page.out), **written.to_dict()})
    console.print(f"report: {page.out}")


def _names(paths: list[Path]) -> list[str]:
    """The last parts of the paths if they differ, else the whole paths."""
    short = [path.resolve().name or str(path) for path in paths]
    return short if len(set(short)) == len(short) else [str(path) for path in paths]
