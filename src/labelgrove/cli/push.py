"""labelgrove push: a model folder to the Hugging Face Hub, with a card."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from typer import Argument, Option

from labelgrove.cli import common, options


def push(
    model: options.Model,
    repository: Annotated[str, Argument(metavar="REPO", help="Repository: owner/name.")],
    *,
    licence: Annotated[
        str | None, Option("--licence", "--license", help="Licence, e.g. apache-2.0.")
    ] = None,
    language: Annotated[list[str] | None, Option(help="Language code. Repeatable.")] = None,
    description: Annotated[str | None, Option(help="A sentence for the model card.")] = None,
    public: Annotated[
        bool, Option("--public", help="Make a new repository public. Default: private.")
    ] = False,
    revision: Annotated[
        str | None, Option(help="Branch to push to. Created if it does not exist.")
    ] = None,
    message: Annotated[str, Option(help="Commit message.")] = "Upload a labelgrove model",
    card: Annotated[bool, Option("--card", help="Print the card and upload nothing.")] = False,
    as_json: options.Json = False,
) -> None:
    """Upload a model folder with a model card, as one commit.

    The token comes from huggingface-cli login or HF_TOKEN. If the folder has a README.md, it
    replaces the generated card. Local paths in the settings are left out.

    Example: labelgrove push model me/my-tags --licence apache-2.0 --language en
    """
    from labelgrove.hub import push as send
    from labelgrove.model_card import model_card

    facts: dict[str, Any] = {"licence": licence, "language": language, "description": description}
    if card:
        sys.stdout.write(model_card(model, name=repository, **facts))
        return
    commit = send(
        model, repository, private=not public, revision=revision, message=message, **facts
    )
    if as_json:
        common.print_json({"repository": repository, "commit": commit})
        return
    common.stderr_console().print(f"hub:{repository} is now at commit {commit}")
