"""labelgrove adapt: more pretraining of a text encoder on the user's own texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from labelgrove.cli import common, options
from labelgrove.cli.train import training_run


def adapt(
    encoder: Annotated[
        str, Argument(metavar="ENCODER", help="Folder, installed package or Hub id.")
    ],
    corpora: Annotated[
        list[Path], Argument(metavar="CORPUS...", help="Texts in any format; labels are not used.")
    ],
    *,
    out: Annotated[Path, Option(help="Folder to write the encoder to.")],
    settings: options.Set = None,
    seed: options.Seed = None,
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
    """Adapt a text encoder to your texts, before you train with it.

    Adds word pieces for the words and languages of the texts, and continues the encoder's
    pretraining on them. Texts without labels count as much as others: give several files. The
    result is a folder for --set encoder.encoder=FOLDER. Needs a GPU for more than some thousand
    texts. --set takes pieces, epochs, objective, lr and others.

    Example: labelgrove adapt thenlper/gte-small train.jsonl more.txt --out encoder

    Example: labelgrove adapt ./gte-small train.jsonl --out encoder --set pieces=4000 --set epochs=3
    """
    from labelgrove.adapting.folder import check_folder
    from labelgrove.adapting.params import AdaptParams
    from labelgrove.adapting.run import adapt
    from labelgrove.core.callbacks import RichProgress
    from labelgrove.core.params import merge_settings
    from labelgrove.formats.files import existing
    from labelgrove.nn.encoders.files import find_encoder

    console = common.stderr_console(quiet=quiet)
    tables = merge_settings({}, settings or [])
    AdaptParams.from_dict(tables)
    common.check_device(machine.device)
    common.refuse_existing([out], force=force)
    check_folder(out, overwrite=force)
    find_encoder(encoder)
    how = reading.options()
    for path in corpora:
        if str(path) != "-":
            existing(path)
    with training_run(out, run_folder, resume=resume, force=force, device=machine.device) as run:
        texts = common.read_texts(corpora, [how] * len(corpora), console)
        with RichProgress() as progress:
            adapted = adapt(
                encoder,
                texts,
                out,
                seed=seed or 0,
                device=machine.device,
                threads=machine.threads,
                overwrite=force,
                callbacks=[] if quiet else [progress],
                run=run,
                **tables,
            )
    if as_json:
        common.print_json(adapted.to_json())
        return
    for line in adapted.lines():
        console.print(line)
    console.print(f"encoder: {out}")
    console.print(
        f"next:\n  {common.command_name()} train TRAIN.jsonl --method cascadexml "
        f"--set encoder.encoder={out} --out model"
    )
