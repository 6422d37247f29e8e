"""A matrix that comes with the texts, on the command line: folders, files, what is missing."""

import json

import numpy as np
import pytest
from scipy import sparse

import labelgrove
from labelgrove import Corpus, Features, LabelIndex

WORDS = ["red", "blue", "shoe", "hat", "lamp"]
COLUMNS = 5


def matrix(texts):
    return sparse.csr_array(np.array([[float(w in t) for w in WORDS] for t in texts], np.float32))


def documents(count, start):
    numbers = range(start, start + count)
    texts = [f"a {WORDS[n % 2]} {WORDS[2 + n % 3]}, number {n}" for n in numbers]
    labels = [[float(n % 2 == 0), float(n % 2), *np.eye(3)[n % 3]] for n in numbers]
    return texts, sparse.csr_array(np.array(labels, np.float32))


@pytest.fixture(scope="module")
def pecos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pecos")
    for part, (count, start) in {"trn": (60, 0), "tst": (12, 60)}.items():
        texts, labels = documents(count, start)
        (folder / f"X.{part}.txt").write_text("\n".join(texts) + "\n")
        sparse.save_npz(folder / f"X.{part}.npz", matrix(texts))
        sparse.save_npz(folder / f"Y.{part}.npz", labels)
    (folder / "plain.txt").write_text((folder / "X.tst.txt").read_text())
    return folder


@pytest.fixture(scope="module")
def trained(run, pecos, tmp_path_factory):
    models = {}
    for source in ("auto", "own", "both"):
        models[source] = tmp_path_factory.mktemp("models") / source
        done = run(
            *("train", pecos, "--method", "linear", "--no-estimate", "--out", models[source]),
            *("--set", f"features={source}"),
        )
        stated = "came with the texts is not used" in done.stderr
        assert stated == (source == "own")
        assert ("predictions need the matrix of 5 columns" in done.stderr) == (source != "own")
        assert ("labelgrove serve" in done.stderr) == (source == "own")
        chosen = "setting  features = given: a matrix of 5 columns came with the texts"
        assert (chosen in done.stderr) == (source == "auto")
        assert ("features: given, the matrix" in done.stderr) == (source == "auto")
    return models


@pytest.mark.slow
def test_a_folder_brings_its_matrix_to_every_command(run, pecos, trained, tmp_path):
    test = sparse.load_npz(pecos / "X.tst.npz")
    for source in ("auto", "both"):
        model = trained[source]
        assert json.loads(run("info", model, "--json").stdout)["given_columns"] == COLUMNS
        values = json.loads(run("evaluate", model, pecos, "--json").stdout)
        assert values["P@1"] == 100 and values["n"] == 12
        lines = run("predict", model, pecos, "--k", 2, "--batch", 5).stdout.splitlines()
        named = run(
            *("predict", model, pecos / "plain.txt", "--features", pecos / "X.tst.npz"), *("--k", 2)
        )
        assert named.stdout.splitlines() == lines and len(lines) == 12
        texts = (pecos / "plain.txt").read_text().splitlines()
        expected = labelgrove.load(model).predict(labelgrove.Documents(texts, test), k=2)
        assert [json.loads(line)["labels"] for line in lines] == expected.names()
    for command, *flags in (
        ("report", pecos, "--out", tmp_path / "report.html", "--intervals", 0),
        ("calibrate", pecos, "--read", "part=train", "--out", tmp_path / "calibrated"),
        ("update", pecos, "--train", pecos, "--out", tmp_path / "updated"),
    ):
        run(command, trained["both"], *flags)
    assert labelgrove.load(tmp_path / "updated").facts_.documents == 120


def test_a_model_of_texts_leaves_the_matrix_alone_and_says_so(run, pecos, trained):
    for command in ("predict", "evaluate"):
        done = run(command, trained["own"], pecos)
        assert "X.tst.npz: the matrix of features was not read" in done.stderr
    assert run("predict", trained["own"], "-", stdin="a red hat\n").stdout.startswith('{"labels"')
    done = run(*("predict", trained["own"], pecos, "--features", pecos / "X.tst.npz"), check=False)
    assert done.returncode == 1 and "reads texts alone; leave the flag out" in done.stderr


@pytest.mark.slow
def test_what_is_missing_is_named(run, pecos, trained, tmp_path):
    def refused(*arguments, stdin=None):
        done = run(*arguments, check=False, stdin=stdin)
        assert done.returncode == 1
        return str(done.stderr)

    for source in ("auto", "both"):
        assert "--features FILE" in refused("predict", trained[source], "-", stdin="a red hat\n")
        message = refused(
            *("predict", trained[source], pecos / "plain.txt"), *("--features", pecos / "X.trn.npz")
        )
        assert "has 60 rows, but there are 12 documents" in message
        assert "features=own" in refused("serve", trained[source], "--port", 1)
    pytest.importorskip("jinja2")
    matrix_file = ("--features", pecos / "X.tst.npz", "--out", tmp_path / "report.html")
    assert "reads texts alone" in refused("report", trained["own"], pecos, *matrix_file)
    explain = ("explain", trained["both"], "--text", "a red hat", "--k", 1)
    assert "--features FILE" in refused(*explain)
    sparse.save_npz(tmp_path / "row.npz", matrix(["a red hat"]))
    assert "feature" in run(*explain, "--features", tmp_path / "row.npz").stdout
    table = tmp_path / "new.tsv"
    table.write_text("new\tsomething new\n")
    out = tmp_path / "out"
    assert "give their documents" in refused(
        *("update", trained["both"], "--labels", table, "--out", out)
    )
    train = ("train", "--method", "linear", "--no-estimate", "--out", out)
    sparse.save_npz(tmp_path / "X.npz", matrix(["a"]))
    for arguments, message in (
        ((tmp_path / "X.npz",), "give the folder of X.trn.npz and Y.trn.npz"),
        ((pecos, "--labels", pecos / "Y.trn.npz"), "labelgrove train FOLDER"),
        ((pecos, "--read", "features=false", "--set", "features=given"), "needs a matrix"),
        ((pecos, "--dev", pecos, "--features", pecos / "X.trn.npz"), "--features: give a file"),
    ):
        assert message in refused(*train, *arguments)
    assert not out.exists()


@pytest.mark.slow
def test_svmlight_files_without_a_header_get_the_columns_of_training(run, tmp_path):
    for part, (count, start) in {"train": (30, 0), "test": (4, 0)}.items():
        texts, labels = documents(count, start)
        rows = matrix(texts).toarray()
        rows[:, -1] *= part == "train"  # the last column does not occur in the test part
        (tmp_path / f"{part}_texts.txt").write_text("\n".join(texts) + "\n")
        lines = [
            f"{','.join(map(str, labels[[n]].indices))} "
            + " ".join(f"{column}:1" for column in np.flatnonzero(row))
            for n, row in enumerate(rows)
        ]
        (tmp_path / f"{part}_v1.txt").write_text("\n".join(lines) + "\n")
    run("train", tmp_path, "--method", "linear", "--no-estimate", "--out", tmp_path / "model")
    values = json.loads(run("evaluate", tmp_path / "model", tmp_path, "--json").stdout)
    assert values["n"] == 4 and values["P@1"] == 100
    config = tmp_path / "rows.toml"
    config.write_text(
        'baseline = "own"\nintervals = 0\n[[methods]]\nname = "own"\nmethod = "linear"\n'
        'features = "own"\n[[methods]]\nmethod = "linear"\n'
    )
    table = run("bench", "--config", config, "--data", tmp_path, "--run", tmp_path / "rows").stdout
    assert "| linear | 100.00" in " ".join(table.split())
    pytest.importorskip("jinja2")
    run("report", tmp_path / "model", tmp_path, "--out", tmp_path / "report.html")


def test_features_of_any_corpus_with_dev(run, pecos, tmp_path):
    for part in ("trn", "tst"):
        corpus = labelgrove.read_corpus(pecos / f"X.{part}.txt")
        labelgrove.write_corpus(
            Corpus(corpus.texts, corpus.labels, LabelIndex(corpus.index.ids)),
            tmp_path / f"{part}.jsonl",
        )
    done = run(
        *("train", tmp_path / "trn.jsonl", "--features", pecos / "X.trn.npz"),
        *("--dev", tmp_path / "tst.jsonl", "--features", pecos / "X.tst.npz"),
        *("--method", "linear", "--no-estimate", "--out", tmp_path / "model", "--json"),
    )
    facts = json.loads(done.stdout)
    assert facts["given_columns"] == COLUMNS and facts["dev"]["P@1"] == 100
    assert isinstance(labelgrove.load(tmp_path / "model").read(matrix(["a hat"])), Features)
