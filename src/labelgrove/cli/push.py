"""labelgrove push: a model folder to the Hugging Face Hub, with a card."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from labelgrove.cli import common, options


def push(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder.")],
    repository: Annotated[str, typer.Argument(metavar="REPO", help="Repository: owner/name.")],
    licence: Annotated[
        str | None, typer.Option("--licence", "--license", help="Licence, e.g. apache-2.0.")
    ] = None,
    language: Annotated[
        list[str] | None, typer.Option("--language", help="Language code; repeatable.")
    ] = None,
    description: Annotated[
        str | None, typer.Option("--description", help="A sentence for the card.")
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="A repository that is made is for everybody.")
    ] = False,
    revision: Annotated[
        str | None, typer.Option("--revision", help="Branch; made if it is not there.")
    ] = None,
    message: Annotated[
        str, typer.Option("--message", help="What the commit says.")
    ] = "Upload a labelgrove model",
    card: Annotated[bool, typer.Option("--card", help="Print the card and send nothing.")] = False,
    as_json: options.Json = False,
) -> None:
    """Upload a model folder, with a model card, as one commit.

    The token is what huggingface-cli login stored, or HF_TOKEN. A README.md in the folder is used
    in place of the generated card. Local paths in the settings are left out.

    Example: labelgrove push model me/my-tags --licence apache-2.0 --language en
    """
    from labelgrove.publishing.card import model_card
    from labelgrove.publishing.hub import push as send

    told: dict[str, Any] = {
        "licence": licence,
        "language": language,
        "description": description,
    }
    if card:
        sys.stdout.write(model_card(model, name=repository, **told))
        return
    commit = send(model, repository, private=not public, revision=revision, message=message, **told)
    if as_json:
        common.print_json({"repository": repository, "commit": commit})
        return
    common.stderr_console().print(f"hub:{repository} is now at {commit}", markup=False)
