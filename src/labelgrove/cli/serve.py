"""labelgrove serve: a model over HTTP."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from labelgrove.cli import common, options
from labelgrove.errors import ConfigError, MissingExtraError


def serve(
    model: options.HubModel,
    *,
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 8000,
    workers: Annotated[int, Option(min=1, help="Number of processes.")] = 1,
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
        Path | None, Option(help="HTML report for /report. Default: MODEL/report.html.")
    ] = None,
    train: options.Neighbours = None,
    settings: options.Set = None,
    machine: options.Machine,
) -> None:
    """Serve a model over HTTP: POST /v1/predict, other routes (docs/service.md), and a web page.

    If you save a new model into the folder, the service loads it without a restart. --set changes
    a limit. Ctrl-C finishes open requests, then stops.

    Example: labelgrove serve model --port 8000 --workers 2 --set max_k=20
    """
    from labelgrove.core.params import merge_settings
    from labelgrove.serve.settings import ServeParams

    common.check_device(machine.device)
    model = common.local_model(model)
    params = ServeParams.from_dict(merge_settings({}, settings or [])).checked()
    token = _token(token_file)
    try:
        from labelgrove.serve.run import serve as run
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "httptools", "pydantic", "starlette"):
            raise
        raise MissingExtraError("serve", "labelgrove serve") from error

    def announce(served: Any, address: str) -> None:
        # A console of rich would take longer to import than the model to load.
        typer.echo(
            f"{model}: {served.method}, {len(served.model.index_):,} labels, id {served.id}; "
            f"{workers} worker{'s' if workers > 1 else ''}, "
            f"{'token required' if token else 'no token required'}\n"
            f"serving at {address} (stop with Ctrl-C)",
            err=True,
        )

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    run(
        model,
        params=params,
        host=host,
        port=port,
        workers=workers,
        threads=machine.threads,
        device=machine.device,
        token=token,
        hosts=host_header or [],
        report=report,
        train=train,
        announce=announce,
    )


def _token(file: Path | None) -> str | None:
    token = os.environ.get("LABELGROVE_TOKEN")
    if file is not None:
        token = file.read_text(encoding="utf-8").strip()
    if token is not None and (not token or not token.isascii() or not token.isprintable()):
        raise ConfigError(
            f"{file or 'LABELGROVE_TOKEN'}: a token must be one line of printable ASCII characters"
        )
    return token
