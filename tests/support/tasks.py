"""What the children of support.zygote do. A task returns facts, or raises what users see."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

from labelgrove import cli
from labelgrove.cli.info import info
from labelgrove.errors import LabelgroveError
from support.damage import read_damaged as read_damaged

MODELS = Path(__file__).parent.parent / "fixtures" / "models"
last_error: str | None = None


def command(*arguments: str) -> None:
    """The command line, as the user calls it."""
    global last_error
    real = cli.app

    def app() -> None:
        global last_error
        try:
            real()
        except Exception as error:
            last_error = type(error).__name__
            raise

    cli.app = app  # type: ignore[assignment]
    sys.argv = ["labelgrove", *arguments]
    cli.main()


def import_everything(flavour: str) -> None:
    """Runs each command once, here: most imports are inside functions."""
    for module in ("openpyxl", "pyarrow.parquet"):
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    for command_line in commands(flavour):
        sys.argv = ["labelgrove", *command_line]
        with contextlib.redirect_stderr(io.TextIOWrapper(io.BytesIO())) as stderr:
            try:
                cli.main()
            except SystemExit as end:
                stderr.seek(0)
                assert not end.code, stderr.read()


DOCUMENTS = [
    ("red running shoes", ["shoes", "red", "sport"]),
    ("blue running shoes for men", ["shoes", "blue", "sport"]),
    ("a warm red hat", ["hats", "red", "winter"]),
    ("a blue winter hat", ["hats", "blue", "winter"]),
    ("green gloves for the winter", ["gloves", "green", "winter"]),
    ("red gloves", ["gloves", "red"]),
    ("green sport hat", ["hats", "green", "sport"]),
    ("a green coat", ["coats", "green"]),
]


def write_corpora(folder: Path) -> None:
    """train.jsonl, dev.jsonl, new.jsonl (with a new label) and texts.txt."""
    rows = [
        {"text": f"{text} {n}", "labels": labels} for n in range(5) for text, labels in DOCUMENTS
    ]
    new = [{"text": f"yellow scarf {n}", "labels": ["scarves", "winter"]} for n in range(4)]
    for name, part in (("train", rows[:32]), ("dev", rows[16:]), ("new", new)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    (folder / "texts.txt").write_text("".join(f"{row['text']}\n" for row in rows))


TRAIN = ["train", "train.jsonl", "--dev", "dev.jsonl", "--no-estimate", "--out"]
TUNE = ["tune", "train.jsonl", "--dev", "dev.jsonl", "--trials", "2", "--out", "tuned.toml"]


def unpack_neural(folder: Path) -> None:
    """A tiny trained network, as the folder neural."""
    with zipfile.ZipFile(MODELS / "lightxml.zip") as archive:
        archive.extractall(folder / "neural")


def commands(flavour: str) -> list[list[str]]:
    if flavour == "neural":
        from labelgrove.exchange.export import encoder_graph

        # torch takes many seconds to draw a graph, and writes it with one call.
        encoder_graph.write_graph = lambda encoder, graph, **_: graph.write_bytes(b"graph" * 1000)
        unpack_neural(Path())
        return [["export", "neural", "--out", "warm"]]
    write_corpora(Path())
    return [
        [*TRAIN, "warm"],
        ["update", "warm", "new.jsonl", "--train", "train.jsonl", "--out", "more"],
        ["calibrate", "warm", "dev.jsonl"],
        ["predict", "warm", "texts.txt", "--out", "warm.jsonl.gz"],
        TUNE,
    ]


def use_model(folder: str) -> None:
    """Loads a model folder and asks it, as strangers' models are used."""
    import labelgrove
    from labelgrove.methods.explaining.explain import explain_best

    model = labelgrove.load(folder)
    texts = ["red hat", "", "nothing known", "x " * 50]
    requests: list[dict[str, Any]] = [{}, {"raw": True}, {"threshold": "auto"}]
    for labels in (["red", "hats"], ["no such label"], list(model.index_.ids)[:1]):
        requests += [{"allow": labels}, {"deny": labels}]
    for request in requests:
        with contextlib.suppress(LabelgroveError):
            model.predict(texts, k=3, threads=1, **request).names()
    for text in ("red hat", "winter"):
        with contextlib.suppress(LabelgroveError):
            explain_best(model, text, k=2)
    list(model.index_.names)
    info(Path(folder))


def read_file(path: str, format: str) -> dict[str, Any]:
    """Reads a file or folder as a corpus, in every way that there is."""
    from labelgrove.data.formats import ReadOptions, detect_format, iter_documents, read_corpus

    refused = 0
    for skip_bad in (False, True):
        options = ReadOptions(format=format, skip_bad=skip_bad)
        for read in (read_corpus, _all_documents(iter_documents)):
            try:
                read(path, options=options)
            except LabelgroveError:
                refused += 1
    with contextlib.suppress(LabelgroveError):
        detect_format(path)
    return {"refused": refused > 0}


def _all_documents(iterate: Any) -> Any:
    return lambda path, options: list(iterate(path, options=options))


def read_label_file(path: str) -> dict[str, Any]:
    """Reads label tables, pairs, groups and trees."""
    from labelgrove.data.corpus import LabelIndex
    from labelgrove.data.formats import read_filter_pairs, read_label_table
    from labelgrove.labels.given_trees import read_label_groups, read_label_tree

    refused, index = 0, LabelIndex(["red", "blue", "hats", "shoes"])
    for read in (
        read_label_table,
        read_filter_pairs,
        lambda path: read_label_groups(path, index),
        lambda path: read_label_tree(path, index),
    ):
        try:
            read(path)
        except LabelgroveError:
            refused += 1
    return {"refused": refused == 4}


def read_feedback_file(path: str) -> dict[str, Any]:
    """Reads and counts feedback."""
    from labelgrove.methods.updating import feedback

    answers = feedback.read_feedback(path)
    for period in ("day", "week", "month"):
        feedback.agreement_over_time(answers.entries, period)
    feedback.label_counts(answers)
    return {"refused": not answers.rejected() and not answers.latest()}


def read_annif_file(path: str) -> None:
    """Reads a configuration of Annif with its settings, or a vocabulary."""
    from labelgrove.exchange import annif

    if path.endswith((".cfg", ".toml")):
        project = annif.read_project(f"{path}:a")
        annif.starting_settings(project)
        annif.project_vocabulary(project)
    else:
        annif.Vocabulary(annif.read_vocabulary(path, "en"))


def evaluate_file(path: str, corpus: str) -> None:
    """Measures a predictions file."""
    from labelgrove.data.formats import read_corpus
    from labelgrove.evaluation.metrics import evaluate
    from labelgrove.evaluation.prediction_files import read_predictions

    documents = read_corpus(corpus)
    predictions = read_predictions(path, documents)
    documents = documents.reindex(predictions.index)
    evaluate(predictions, documents.labels, unknown=documents.unknown, metrics=["P@1", "R@5"])


def start_a_thread() -> None:
    """Fails where no thread can start."""
    import threading

    thread = threading.Thread(target=list)
    thread.start()
    thread.join()
