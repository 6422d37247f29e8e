"""labelgrove serve: a model behind HTTP."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from labelgrove.cli import common, options
from labelgrove.errors import ConfigError, MissingExtraError


def serve(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Model folder, or hub:owner/name.")
    ],
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")
    ] = 8000,
    workers: Annotated[
        int, typer.Option("--workers", min=1, help="Processes; they share the model's files.")
    ] = 1,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="File with a token to ask for; or LABELGROVE_TOKEN."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="HTML report to show at /report; or MODEL/report.html."),
    ] = None,
    train: Annotated[
        Path | None,
        typer.Option("--train", help="Training corpus; explanations name its similar documents."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="One limit, e.g. max_k=20; repeatable.")
    ] = None,
    threads: options.Threads = None,
    device: options.Device = "auto",
) -> None:
    """Answer POST /v1/predict and the other routes that docs/service.md describes; / is a page.

    A new model that is saved into the folder is taken up while running. Ctrl-C answers what is
    open, then stops.

    Example: labelgrove serve model --port 8000 --workers 2 --set max_k=20
    """
    from labelgrove.core.params import merge_settings
    from labelgrove.serve.settings import ServeParams

    common.check_device(device)
    model = common.local_model(model)
    params = ServeParams.from_dict(merge_settings({}, settings or [])).checked()
    token = _token(token_file)
    try:
        from labelgrove.serve.run import serve as run
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "pydantic", "starlette"):
            raise
        raise MissingExtraError("serve", "labelgrove serve") from error
    console = common.stderr_console()

    def announce(served: Any, address: str) -> None:
        console.print(
            f"{model}: {served.method}, {len(served.model.index_):,} labels, id {served.id}; "
            f"{workers} worker{'s' if workers > 1 else ''}, "
            f"{'with a token' if token else 'no token asked for'}\n"
            f"serving at {address} (Ctrl-C stops)",
            markup=False,
        )

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    run(
        model,
        params=params,
        host=host,
        port=port,
        workers=workers,
        threads=threads,
        device=device,
        token=token,
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
            f"{file or 'LABELGROVE_TOKEN'}: a token is one line of printable ASCII characters"
        )
    return token
