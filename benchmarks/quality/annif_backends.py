"""Annif's own Omikuji Bonsai backend beside ``backend=labelgrove``, with Annif's commands.

    python -m benchmarks.quality.annif_backends --data PATH --annif VENV/bin/annif [--limit N]
        [--analyzer NAME] [--projects "NAME; NAME"]

VENV has Annif with its extra omikuji, labelgrove and integrations/annif. The script makes a folder
with projects.cfg, the labels as a vocabulary and the train and dev parts as corpora, and runs
``annif train`` and ``annif eval`` for each project with one job. Bonsai has the settings of Annif's
documentation. Seconds are CPU seconds of the whole commands; the figures are Annif's own, for 20
suggestions. Labels that training never saw stay in the vocabulary and count as missed.
"""

from __future__ import annotations

import gzip
import json
import resource
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from benchmarks.common import Part, arguments, read_part, report

PROJECTS = {
    "omikuji bonsai": "backend=omikuji\ncluster_balanced=False\ncluster_k=100\nmax_depth=3",
    "labelgrove": "backend=labelgrove",  # auto, by its own words
    "labelgrove linear": "backend=labelgrove\nmethod=linear",
    "labelgrove linear, no names": "backend=labelgrove\nmethod=linear\nlabel_texts=none",
    "labelgrove linear, 1 tree": "backend=labelgrove\nmethod=linear\nlabel_texts=none\nn_trees=1",
    "labelgrove bonsai": "backend=labelgrove\nmethod=bonsai",
    "labelgrove linear, own words": "backend=labelgrove\nmethod=linear",
}
OWN_WORDS = ("labelgrove", "labelgrove linear, own words")  # without the analyzer
METRICS = ("F1@5", "NDCG", "Precision@1", "Precision@5")
LIMIT = 20


def main() -> None:
    parser = arguments(__doc__ or "", corpus="tibkat")
    parser.add_argument("--annif", default="annif", help="the command, of any environment")
    parser.add_argument("--analyzer", default="simple", help="Annif's analyzer, for all but two")
    parser.add_argument("--language", default="de", help="of the vocabulary")
    parser.add_argument("--projects", help=f"only these of {'; '.join(PROJECTS)}")
    options = parser.parse_args()
    chosen = [name.strip() for name in options.projects.split(";")] if options.projects else None
    train = read_part(options.data, options.corpus, "train", options.limit)
    dev = read_part(options.data, options.corpus, "dev", options.limit)
    table = options.data / options.corpus / "labels.tsv"
    print(f"{options.corpus}: {len(train.texts):,} documents, {len(dev.texts):,} to measure on")
    columns = ("train s", "eval s", "MB", *METRICS)
    print(f"{'':24}" + "".join(f"{column:>13}" for column in columns), flush=True)
    runs = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder / "train.tsv.gz", train)
        write_corpus(folder / "dev.tsv.gz", dev)
        write_vocabulary(folder / "vocabulary.tsv", table, train, dev)
        write_projects(folder / "projects.cfg", options.analyzer, options.language)
        annif = [options.annif]
        load = ["load-vocab", "subjects", "vocabulary.tsv", "--language", options.language]
        cpu_seconds_of([*annif, *load], folder)
        for project in chosen or PROJECTS:
            runs[project] = measured(annif, folder, project)
            numbers = "".join(f"{value:13.4g}" for value in runs[project].values())
            print(f"{project:24}{numbers}", flush=True)
    sizes = {"corpus": options.corpus, "documents": len(train.texts), "measured_on": len(dev.texts)}
    sizes |= {"analyzer": options.analyzer, "sha256": train.sha256}
    report("annif_backends", sizes | {"runs": runs}, save=not options.no_save)


def identity(project: str) -> str:
    return "".join(letter for letter in project if letter.isalnum())


def uri(label: str) -> str:
    return f"urn:label:{quote(label)}"


def write_corpus(file: Path, part: Part) -> None:
    with gzip.open(file, "wt", encoding="utf-8", compresslevel=1) as stream:
        for text, labels in zip(part.texts, part.labels, strict=True):
            uris = " ".join(f"<{uri(label)}>" for label in labels)
            stream.write(f"{' '.join(text.split())}\t{uris}\n")


def write_vocabulary(file: Path, table: Path, *parts: Part) -> None:
    """The labels of the table, and those that only documents have, which are their own names."""
    names = {label: label for part in parts for row in part.labels for label in row}
    if table.exists():
        rows = (line.split("\t") for line in table.read_text(encoding="utf-8").splitlines())
        names |= {row[0]: row[1] for row in rows if row[0] in names}
    lines = (f"<{uri(label)}>\t{name}\n" for label, name in sorted(names.items()))
    file.write_text("".join(lines), encoding="utf-8")


def write_projects(file: Path, analyzer: str, language: str) -> None:
    sections = []
    for name, settings in PROJECTS.items():
        lines = [f"[{identity(name)}]", f"name={name}", f"language={language}", "vocab=subjects"]
        lines += [settings, f"limit={LIMIT}"]
        if name not in OWN_WORDS:
            lines.append(f"analyzer={analyzer}")
        sections.append("\n".join(lines) + "\n")
    file.write_text("\n".join(sections), encoding="utf-8")


def measured(annif: list[str], folder: Path, project: str) -> dict[str, Any]:
    """The cost of a project's training and evaluation, its size on disk, and Annif's metrics."""
    key = identity(project)
    training = cpu_seconds_of([*annif, "train", key, "train.tsv.gz", "--jobs", "1"], folder)
    files = [file for file in (folder / "data/projects" / key).rglob("*") if file.is_file()]
    chosen = [word for metric in METRICS for word in ("--metric", metric)]
    command = [*annif, "eval", key, "dev.tsv.gz", "--jobs", "1", "--limit", str(LIMIT), *chosen]
    evaluation = cpu_seconds_of([*command, "--metrics-file", "metrics.json"], folder)
    found = json.loads((folder / "metrics.json").read_text())
    return {
        "train_cpu_s": round(training, 1),
        "eval_cpu_s": round(evaluation, 1),
        "megabytes": round(sum(file.stat().st_size for file in files) / 1e6, 1),
        **{metric: round(found[metric], 4) for metric in METRICS},
    }


def cpu_seconds_of(command: Iterable[str], folder: Path) -> float:
    """Runs a command; the CPU seconds of its process and of those that it waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*command], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
