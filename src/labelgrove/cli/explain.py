"""labelgrove explain: why a model gives a text its labels."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Annotated, Any

from typer import Option

from labelgrove.cli import common, options
from labelgrove.errors import DataError


@dataclass(frozen=True)
class Shown:
    """Which labels to explain, and how far."""

    label: Annotated[
        list[str] | None, Option(help="Id or name. Repeatable. Default: the k best labels.")
    ] = None
    k: Annotated[int, Option("--k", "-k", min=1, help="Number of best labels to explain.")] = 3
    top: Annotated[int, Option(min=1, help="Number of words per list.")] = 8


def explain(
    model: options.Model,
    *,
    text: Annotated[str | None, Option(help="The text. Default: read standard input.")] = None,
    shown: Shown,
    train: options.Neighbours = None,
    inputs: Annotated[options.Inputs, options.Without("threads")],
    as_json: options.Json = False,
    reading: Annotated[options.CorpusOptions, options.Without("skip_bad")],
) -> None:
    """Show why a model gives a text its labels.

    Prints the words that count for and against each label, and the path to the label through the
    label tree: for every node, how its margin adds up. --json prints one object with "text" and
    "explanations", as to_dict does in Python. Positions in the text count characters.

    Example: labelgrove explain model --text "red running shoes" --k 2 --train train.jsonl
    """
    from labelgrove.data.features import as_features
    from labelgrove.data.formats.matrices import read_dense, read_matrix
    from labelgrove.data.inputs import Documents
    from labelgrove.data.records import words_of
    from labelgrove.methods.explaining.explain import explain, explain_best
    from labelgrove.methods.explaining.lines import explanation_lines

    loaded = common.load_model(model, inputs.device, features=inputs.features)
    document = sys.stdin.read().strip() if text is None else text
    if not document:
        raise DataError("there is no text to explain; give --text, or a text on standard input")
    given: dict[str, Any] = {"top": shown.top}
    if inputs.dense is not None:
        given["dense"] = read_dense(inputs.dense)
        if (rows := len(given["dense"])) != 1:
            raise DataError(f"has {rows:,} rows, but there is only one text", file=inputs.dense)
    if train is not None:
        how = replace(reading.options(), features=False)  # its texts are shown
        how = common.with_fields_of(loaded, train, how)
        given["corpus"] = common.read_corpus(train, how, index=loaded.index_)
    typed = common.given_document(document, loaded)
    document, read = words_of(typed), Documents([typed])
    if inputs.features is not None:
        matrix = read_matrix(inputs.features, n_features=loaded.facts_.given or None)
        read = Documents([typed], as_features(matrix))
    if shown.label:
        explanations = [explain(loaded, read, name, **given) for name in shown.label]
    else:
        explanations = explain_best(loaded, read, shown.k, **given)
    if as_json:
        plain = [explanation.to_dict() for explanation in explanations]
        common.print_json({"text": document, "explanations": plain})
        return
    console = common.stdout_console()
    for explanation in explanations:
        for line in explanation_lines(explanation, document):
            console.print(line)
