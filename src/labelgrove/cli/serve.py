"""labelgrove serve: a model over HTTP."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from labelgrove.cli import common, options
from labelgrove.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from labelgrove.serve.models import Models


def serve(
    models: Annotated[
        list[str],
        Argument(
            metavar="MODEL...",
            help="Model folder, hub:owner/name, a folder of models, or NAME=MODEL.",
        ),
    ],
    *,
    default: Annotated[
        str | None, Option(metavar="NAME", help="Model that answers at /v1. Default: the first.")
    ] = None,
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 8000,
    workers: Annotated[
        int, Option(min=1, help="Number of processes.", rich_help_panel="Machine")
    ] = 1,
    token_file: Annotated[
        Path | None, Option(help="File with a required token. Or set LABELGROVE_TOKEN.")
    ] = None,
    host_header: Annotated[
        list[str] | None,
        Option(
            metavar="NAME",
            help="Answer to this name in the Host header; * for any. Default: on loopback its "
            "own names, elsewhere any.",
        ),
    ] = None,
    report: Annotated[
        list[str] | None,
        Option(metavar="[NAME=]FILE", help="HTML report for /report. Default: MODEL/report.html."),
    ] = None,
    train: Annotated[
        list[str] | None,
        Option(
            metavar="[NAME=]FILE", help="Training corpus, to show its documents most like a text."
        ),
    ] = None,
    feedback: Annotated[
        Path | None,
        Option(
            metavar="FOLDER",
            help="Keep what people send to /v1/feedback, in FOLDER/NAME.jsonl. Default: do not.",
        ),
    ] = None,
    settings: options.Set = None,
    machine: options.Machine,
) -> None:
    """Serve models over HTTP: POST /v1/predict, other routes (docs/service.md), and a web page.

    Several models in one service answer at /v1/models/NAME/predict. If you save a new model into a
    folder, the service loads it without a restart. --set changes a limit. Ctrl-C finishes open
    requests, then stops.

    Example: labelgrove serve model --port 8000 --workers 2 --set max_k=20

    Example: labelgrove serve en=models/english fi=models/finnish --default fi --feedback said
    """
    from labelgrove.core.params import merge_settings
    from labelgrove.serve.settings import ServeParams, files_by_model, listed, named_models

    common.check_device(machine.device)
    named = named_models(models)
    if default is not None and default not in named:
        raise ConfigError(f"--default {default}: there is no such model, only {listed(named)}")
    params = ServeParams.from_dict(merge_settings({}, settings or [])).checked()
    reports = files_by_model(report or [], named, "--report")
    corpora = files_by_model(train or [], named, "--train")
    token = os.environ.get("LABELGROVE_TOKEN")
    if token_file is not None:
        token = token_file.read_text(encoding="utf-8").strip()
    if token is not None and (not token or not token.isascii() or not token.isprintable()):
        raise ConfigError(
            f"{token_file or 'LABELGROVE_TOKEN'}: a token must be one line of printable ASCII "
            "characters"
        )
    try:
        from labelgrove.serve import run
        from labelgrove.serve.models import Source
        from labelgrove.serve.request_limits import allowed_hosts, is_loopback
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "httptools", "pydantic", "starlette"):
            raise
        raise MissingExtraError("serve", "labelgrove serve") from error

    def announce(served: Models, url: str) -> None:
        # A console of rich would take longer to import than the model to load.
        several = len(named) > 1
        for model in served:
            current = model.folder.current
            typer.echo(
                f"{f'{model.name}: ' if several else ''}{named[model.name]}: {current.method}, "
                f"{current.summary()['labels']:,} labels, id {current.id}"
                f"{' (default)' if several and model is served.default else ''}",
                err=True,
            )
        if token is None and not is_loopback(host):
            typer.secho(
                f"note: everybody who can reach {host} can ask this service"
                f"{'' if feedback is None else ' and write feedback'}; --token-file sets a token",
                fg="yellow",
                err=True,
            )
        typer.echo(
            f"{workers} worker{'s' if workers > 1 else ''}, "
            f"{'token required' if token else 'no token required'}"
            f"{'' if feedback is None else f', feedback goes to {feedback}'}\n"
            f"serving at {url} (stop with Ctrl-C)",
            err=True,
        )

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    sources = [
        Source(
            name,
            common.local_model(Path(model)),
            report=reports.get(name),
            train=corpora.get(name),
            feedback=None if feedback is None else feedback / f"{name}.jsonl",
        )
        for name, model in named.items()
    ]
    hosts, limits = allowed_hosts(host, host_header or ()), params.get_params()
    how = run.ServiceSetup(sources, default, limits, machine.device, machine.threads or 0, hosts)
    run.serve(how, host=host, port=port, workers=workers, token=token, announce=announce)
