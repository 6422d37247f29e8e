"""labelgrove explain: why a model gives a text its labels."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from labelgrove.cli import common, options
from labelgrove.errors import DataError

if TYPE_CHECKING:
    from rich.text import Text

    from labelgrove.methods.explaining.explanation import Explanation, Step

SHOWN_TEXT = 1500  # characters of the text on the terminal
BAR = 12
STEP_WORDS = 4  # shown per node on the path


def explain(
    model: options.Model,
    *,
    text: Annotated[str | None, Option(help="The text. Default: read standard input.")] = None,
    label: Annotated[
        list[str] | None, Option(help="Id or name. Repeatable. Default: the k best labels.")
    ] = None,
    k: Annotated[int, Option("--k", "-k", min=1, help="Number of best labels to explain.")] = 3,
    top: Annotated[int, Option(min=1, help="Number of words per list.")] = 8,
    train: Annotated[
        Path | None, Option(help="Training corpus, to show its documents most like a text.")
    ] = None,
    inputs: Annotated[options.Inputs, options.Without("threads"), options.Without("skip_bad")],
) -> None:
    """Show why a model gives a text its labels.

    Prints the words that count for and against each label, and, for a linear model, the path to it
    through the label tree: for every node, how its margin adds up. --json prints one object with
    "text" and "explanations", as to_dict does in Python. Positions in the text count characters.

    Example: labelgrove explain model --text "red running shoes" --k 2 --train train.jsonl
    """
    from labelgrove.data.features import as_features
    from labelgrove.data.formats.matrices import read_dense, read_matrix
    from labelgrove.data.inputs import Documents
    from labelgrove.data.records import words_of
    from labelgrove.methods.explaining.explain import explain, explain_best

    loaded = common.load_model(model, inputs.device, features=inputs.features)
    document = sys.stdin.read().strip() if text is None else text
    if not document:
        raise DataError("there is no text to explain; give --text, or a text on standard input")
    given: dict[str, Any] = {"top": top}
    if inputs.dense is not None:
        given["dense"] = read_dense(inputs.dense)
        if (rows := len(given["dense"])) != 1:
            raise DataError(f"has {rows:,} rows, but there is only one text", file=inputs.dense)
    if train is not None:
        how = replace(inputs.options(), features=False)  # its texts are shown
        how = common.with_fields_of(loaded, train, how)
        given["corpus"] = common.read_corpus(train, how, index=loaded.index_)
    typed = common.given_document(document, loaded)
    document, read = words_of(typed), Documents([typed])
    if inputs.features is not None:
        matrix = read_matrix(inputs.features, n_features=loaded.facts_.given or None)
        read = Documents([typed], as_features(matrix))
    if label:
        explanations = [explain(loaded, read, name, **given) for name in label]
    else:
        explanations = explain_best(loaded, read, k, **given)
    if inputs.as_json:
        plain = [explanation.to_dict() for explanation in explanations]
        common.print_json({"text": document, "explanations": plain})
        return
    console = common.stdout_console()
    for explanation in explanations:
        for line in explanation_lines(explanation, document):
            console.print(line)


def explanation_lines(explanation: Explanation, text: str, indent: str = "") -> Iterator[Text]:
    """An explanation for people, line by line."""
    from rich.text import Text

    def line(*parts: str | tuple[str, str]) -> Text:
        return Text.assemble(indent, *parts)

    identity = "" if explanation.id == explanation.name else f" ({explanation.id})"
    score = "not found" if explanation.score is None else f"{explanation.score:.4f}"
    chance = "" if explanation.calibrated is None else f"probability {explanation.calibrated:.4f}, "
    facts = f"  {chance}{explanation.score_kind} {score}, {explanation.method}"
    yield line((f"{explanation.name}{identity}", "bold"), facts)
    if not indent:
        yield highlighted(explanation, text)
    largest = max((abs(reason.contribution) for reason in explanation.reasons), default=1.0)
    for reason in explanation.reasons:
        bar = "█" * max(1, round(BAR * abs(reason.contribution) / largest))
        times = f" (x{len(reason.spans)})" if len(reason.spans) > 1 else ""
        yield line(
            f"  {reason.contribution:+8.3f} ",
            (f"{bar:<{BAR}}", _colour(reason.contribution)),
            f" {reason.text}{times}",
        )
    for path in explanation.paths:
        weight = "" if path.weight == 1.0 else f", {path.weight:.0%} of the score"
        yield line(f"  {path.name}: {path.score:.4f}{weight}")
        for step in path.steps:
            yield line("    ", step_line(step))
    for near in explanation.neighbours:
        name = f"document {near.document}" if near.id is None else near.id
        shared = f" by {', '.join(near.terms)}" if near.terms else ""
        yield line(f"  like {name} ({near.similarity:.2f}{shared}): ", (near.excerpt, "dim"))
    for note in explanation.notes:
        yield line(f"  note: {note}")
    for number, member in enumerate(explanation.members, 1):
        yield line(f"  member {number}")
        yield from explanation_lines(member, text, indent + "    ")
    if not indent:
        yield Text("")


def step_line(step: Step) -> str:
    """A node of the path: its labels, its probability, and how its margin adds up."""
    about = f" ({step.labels} labels: {', '.join(step.examples)})" if step.labels > 1 else ""
    parts = [(reason.text, reason.contribution) for reason in step.reasons[:STEP_WORDS]]
    hidden = sum(reason.contribution for reason in step.reasons[STEP_WORDS:])
    others = [("other words", step.rest + hidden), ("vector", step.vector)]
    others += [("not attributed", step.unattributed), ("bias", step.bias)]
    parts += [(name, value) for name, value in others if value]
    sums = ", ".join(f"{name} {value:+.3f}" for name, value in parts) or "0"
    chance = "" if step.probability is None else f" {step.probability:.4f} from"
    only = "" if step.counts else " (not part of the score)"
    return (
        f"level {step.level}, node {step.node} of {step.nodes:,}{about}{only}:{chance} "
        f"margin {step.margin:.3f} = {sums}"
    )


def highlighted(explanation: Explanation, text: str) -> Text:
    """The text, with the words that count for or against the label in colour."""
    from rich.text import Text

    shown = text[:SHOWN_TEXT] + ("…" if len(text) > SHOWN_TEXT else "")
    coloured = Text(shown, style="dim")
    for piece in explanation.highlights():
        strong = "bold " if abs(piece.strength) >= 0.5 else ""
        coloured.stylize(f"not dim {strong}{_colour(piece.strength)}", piece.start, piece.end)
    return Text.assemble("  ", coloured)


def _colour(strength: float) -> str:
    return "green" if strength > 0 else "red"
