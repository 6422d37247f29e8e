"""labelgrove explain: why a model gives a text its labels."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelgrove.cli import common, options
from labelgrove.errors import DataError

if TYPE_CHECKING:
    from rich.text import Text

    from labelgrove.explaining.types import Explanation, Step

SHOWN_TEXT = 1500  # characters of the text on the terminal
BAR = 12
STEP_WORDS = 4  # of a node on the way


def explain(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder.")],
    text: Annotated[
        str | None, typer.Option("--text", help="The text; without it, standard input is read.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", help="Id or name, repeatable; default: the k best labels."),
    ] = None,
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Best labels to explain.")] = 3,
    top: Annotated[int, typer.Option("--top", min=1, help="Words per list.")] = 8,
    train: Annotated[
        Path | None,
        typer.Option("--train", help="Training corpus, to name the documents most like the text."),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            "--gradient-steps", min=1, help="Neural methods: more are slower and more exact."
        ),
    ] = None,
    dense: options.Dense = None,
    device: options.Device = "auto",
    as_json: options.Json = False,
    input_format: options.Format = None,
    text_field: options.TextField = "text",
    labels_field: options.LabelsField = "labels",
    id_field: options.IdField = "id",
    read: options.Read = None,
) -> None:
    """Show why a model gives a text its labels: words, the way through the label tree, documents.

    Prints the words that speak for and against each label, and for every node on the way to it how
    its margin adds up. With --json one object: "text" and "explanations", as Python's to_dict has
    them; places in the text count characters.

    Example: labelgrove explain model --text "red running shoes" --k 2 --train train.jsonl
    """
    from labelgrove.explaining.explain import explain, explain_best
    from labelgrove.explaining.types import GRADIENT_STEPS
    from labelgrove.methods.base import load

    common.check_device(device)
    loaded = load(model)
    common.use_device(loaded, device)
    document = sys.stdin.read().strip() if text is None else text
    if not document:
        raise DataError("there is no text to explain: give --text, or a text on standard input")
    given: dict[str, Any] = {"top": top, "gradient_steps": steps or GRADIENT_STEPS}
    if dense is not None:
        rows = common.read_dense(dense)
        if len(rows) != 1:
            raise DataError(f"has {len(rows):,} rows, but there is one text", file=dense)
        given["dense"] = rows
    if train is not None:
        how = common.read_options(
            input_format,
            text_field=text_field,
            labels_field=labels_field,
            id_field=id_field,
            read=read,
        )
        given["corpus"] = common.read_corpus(
            train, index=loaded.index_, options=how, console=common.stderr_console()
        )
    if label:
        found = [explain(loaded, document, name, **given) for name in label]
    else:
        found = explain_best(loaded, document, k, **given)
    if as_json:
        common.print_json({"text": document, "explanations": [each.to_dict() for each in found]})
        return
    console = common.stdout_console()
    for each in found:
        for line in explanation_lines(each, document):
            console.print(line)


def explanation_lines(found: Explanation, text: str, indent: str = "") -> Iterator[Text]:
    """An explanation as people read it, line by line."""
    from rich.text import Text

    def line(*parts: Any) -> Text:
        return Text.assemble(indent, *parts)

    identity = "" if found.id == found.name else f" ({found.id})"
    score = "not found" if found.score is None else f"{found.score:.4f}"
    chance = "" if found.calibrated is None else f"probability {found.calibrated:.4f}, "
    facts = f"  {chance}{found.score_kind} {score}, {found.method}"
    yield line((f"{found.name}{identity}", "bold"), facts)
    if not indent:
        yield highlighted(found, text)
    largest = max((abs(reason.contribution) for reason in found.reasons), default=1.0)
    for reason in found.reasons:
        bar = "█" * max(1, round(BAR * abs(reason.contribution) / largest))
        times = f" (x{len(reason.spans)})" if len(reason.spans) > 1 else ""
        yield line(
            f"  {reason.contribution:+8.3f} ",
            (f"{bar:<{BAR}}", _colour(reason.contribution)),
            f" {reason.text}{times}",
        )
    for path in found.paths:
        weight = "" if path.weight == 1.0 else f", {path.weight:.0%} of the score"
        yield line(f"  {path.name}: {path.score:.4f}{weight}")
        for step in path.steps:
            yield line("    ", step_line(step))
    for near in found.neighbours:
        name = f"document {near.document}" if near.id is None else near.id
        shared = f" by {', '.join(near.terms)}" if near.terms else ""
        yield line(f"  like {name} ({near.similarity:.2f}{shared}): ", (near.excerpt, "dim"))
    for note in found.notes:
        yield line(f"  note: {note}")
    for number, member in enumerate(found.members, 1):
        yield line(f"  member {number}")
        yield from explanation_lines(member, text, indent + "    ")
    if not indent:
        yield Text("")


def step_line(step: Step) -> str:
    """A node of the path: what it is about, its probability, and how its margin adds up.

    >>> from labelgrove.explaining.types import Reason, Step
    >>> step_line(Step(1, 4, 8, 0.5, 0.75, bias=0.1, reasons=(Reason("red", 0.4),)))
    'level 1, node 4 of 8: 0.7500 from margin 0.500 = red +0.400, bias +0.100'
    """
    about = f" ({step.labels} labels: {', '.join(step.examples)})" if step.labels > 1 else ""
    others = (
        ("other words", step.rest),
        ("vector", step.vector),
        ("not attributed", step.unattributed),
        ("bias", step.bias),
    )
    parts = [f"{reason.text} {reason.contribution:+.3f}" for reason in step.reasons[:STEP_WORDS]]
    hidden = sum(reason.contribution for reason in step.reasons[STEP_WORDS:])
    parts += [
        f"{name} {value + (hidden if name == 'other words' else 0.0):+.3f}"
        for name, value in others
        if value or (hidden and name == "other words")
    ]
    chance = "" if step.probability is None else f" {step.probability:.4f} from"
    only = "" if step.counts else " (only leads here)"
    sums = ", ".join(parts) or "0"
    return (
        f"level {step.level}, node {step.node} of {step.nodes:,}{about}{only}:{chance} "
        f"margin {step.margin:.3f} = {sums}"
    )


def highlighted(found: Explanation, text: str) -> Text:
    """The text with the words in colour that speak for or against the label."""
    from rich.text import Text

    shown = text[:SHOWN_TEXT] + ("…" if len(text) > SHOWN_TEXT else "")
    coloured = Text(shown, style="dim")
    for piece in found.highlights():
        strong = "bold " if abs(piece.strength) >= 0.5 else ""
        coloured.stylize(f"not dim {strong}{_colour(piece.strength)}", piece.start, piece.end)
    return Text.assemble("  ", coloured)


def _colour(strength: float) -> str:
    return "green" if strength > 0 else "red"
