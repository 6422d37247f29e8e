"""labelgrove distil: a small model learns from the scores of a large one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from labelgrove.cli import common, options
from labelgrove.cli.evaluate import evaluate_model
from labelgrove.cli.summary import metric_lines
from labelgrove.cli.train import training_run


def distil(
    teacher: Annotated[Path, Argument(metavar="TEACHER", help="Model folder to learn from.")],
    corpus: options.TrainCorpus,
    *,
    out: Annotated[Path, Option("--out", "--output", help="Model folder to write.")],
    settings: options.Settings,
    unlabelled: Annotated[
        list[Path] | None, Option(help="More texts; labels in them are not used. Repeatable.")
    ] = None,
    dev: Annotated[Path | None, Option(help="Held-out corpus to measure both models on.")] = None,
    share: Annotated[
        float | None, Option(help="Weight of true labels on training documents, from 0 to 1.")
    ] = None,
    least: Annotated[
        float | None, Option(help="Leave out labels with smaller targets than this.")
    ] = None,
    labels: options.Labels = None,
    resume: Annotated[bool, Option("--resume", help="Continue an interrupted run.")] = False,
    run_folder: Annotated[
        Path | None, Option("--run", help="Folder that keeps finished stages for other runs.")
    ] = None,
    force: options.Force = False,
    machine: options.Machine,
    reading: options.Reading,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Train a small model on what a large one, such as an ensemble, says of documents.

    The student is --method linear (the default) or cascadexml. It learns from the documents of
    TRAIN with their true labels, and from what the teacher says of --unlabelled texts: give as many
    of these as you have. With a --share below 1, the teacher's scores also change the labels of
    TRAIN, on which they are too sure.

    Example: labelgrove distil model train.jsonl --unlabelled more.txt --out small --dev dev.jsonl
    """
    from labelgrove.core.callbacks import RichProgress
    from labelgrove.core.processes import is_first_process, wait_for_all
    from labelgrove.disk.model_folder import model_size
    from labelgrove.distilling.run import distil, soft_learner
    from labelgrove.formats.files import existing
    from labelgrove.methods import create

    quiet = quiet or not is_first_process()
    console = common.stderr_console(quiet=quiet)
    method, tables = settings.tables(machine.threads, default="linear")
    student = create(method, tables)
    common.use_device(student, machine.device)
    soft_learner(student)  # refuses before the work
    common.check_model_folder(out, force=force)
    for path in (corpus, *(unlabelled or ())):
        existing(path)
    teacher = existing(common.local_model(teacher))
    loaded = common.load_model(teacher, machine.device)
    how = reading.options()
    flags = {"share": share, "least": least}
    given = {name: value for name, value in flags.items() if value is not None}
    where = machine.device if student.encoders() else None
    with training_run(out, run_folder, resume=resume, force=force, device=where) as run:
        data = common.read_for(
            loaded, corpus, how, labels=labels, index=loaded.index_, console=console
        )
        texts = None
        if unlabelled:
            own = [common.with_fields_of(loaded, path, how) for path in unlabelled]
            texts = common.read_texts(unlabelled, own, console)
        with RichProgress() as progress:
            model = distil(
                loaded,
                student,
                data,
                unlabelled=texts,
                callbacks=[] if quiet else [progress],
                run=run,
                **given,
            )
        wait_for_all(where)
        if not is_first_process():
            return
        measured: dict[str, Any] = {}
        if dev is not None:
            held_out = common.read_for(
                loaded, dev, reading.options("dev"), index=loaded.index_, console=console
            )
            for name, judged in (("teacher", loaded), ("student", model)):
                measured[name] = evaluate_model(judged, held_out).to_json()
        model.save(out, overwrite=force)
    sizes = {"teacher": model_size(teacher), "student": model_size(out)}
    facts = {"model": str(out), "method": model.method, "documents": len(data)}
    facts |= {"unlabelled": 0 if texts is None else len(texts), "model_bytes": sizes}
    if as_json:
        common.print_json({**facts, "dev": measured})
        return
    if measured:
        console.print(f"metrics in percent on the {measured['student']['n']:,} documents of --dev:")
        for line in metric_lines(measured):
            console.print(f"  {line}")
    console.print(f"model: {out}")
    console.print(f"next:\n  {common.command_name()} evaluate {out} TEST.jsonl")
