"""``annif labelgrove``: commands that Annif does not have.

Importing this module imports the package, which registers the backend.
"""

from __future__ import annotations

import click
from annif import cli_util
from annif.exception import NotSupportedException
from flask.cli import AppGroup

from annif_labelgrove import NAME

labelgrove = AppGroup(NAME, help="Manage projects of the labelgrove backend.")


@labelgrove.command()
@cli_util.project_id
@click.argument("paths", type=click.Path(exists=True), nargs=-1)
@cli_util.docs_limit_option
@cli_util.common_options
def calibrate(project_id: str, paths: tuple[str, ...], docs_limit: int | None) -> None:
    """Turn a trained project's scores into probabilities.

    PATHS are documents that were not used in training.
    """
    project = cli_util.get_project(project_id)
    if project.config.get("backend") != NAME:
        raise NotSupportedException(
            f"its backend is not {NAME}; Annif's pav backend calibrates other projects",
            project_id=project_id,
        )
    documents = cli_util.open_documents(paths, project.subjects, project.vocab_lang, docs_limit)
    project.backend.calibrate(project.transform.transform_corpus(documents))
