"""predict: masks, and what it reads of tables, says of them and writes beside."""

import csv
import json

import pytest


def labels(done):
    (row,) = [json.loads(line) for line in done.stdout.splitlines()]
    return list(row["labels"])


def test_allow_deny_files_and_scores(run, model, tmp_path):
    text = "red shoe\n"
    few = ["--allow", "c:blue", "--allow", "hats"]
    assert set(labels(run("predict", model, "-", *few, stdin=text))) == {"blue things", "hats"}
    listed = tmp_path / "listed.tsv"
    listed.write_text("c:red\tred things\n\nk:shoe\tshoes\n")
    rest = labels(run("predict", model, "-", "--deny", f"@{listed}", "--k", 9, stdin=text))
    assert len(rest) == 7 and not {"red things", "shoes"} & set(rest)
    given = ["--allow", f"@{listed}", "--allow", "lamps", "--k", 9]
    assert set(labels(run("predict", model, "-", *given, stdin=text))) == {
        "red things",
        "shoes",
        "lamps",
    }
    every = json.loads(run("predict", model, "-", "--k", 9, stdin=text).stdout)["scores"]
    some = json.loads(run("predict", model, "-", "--k", 9, "--threshold", 0.5, stdin=text).stdout)
    assert len(every) == 9 and some["scores"] == [score for score in every if score >= 0.5]
    unknown = '{"text": "xyzzy"}\n'
    assert labels(run("predict", model, "-", "--threshold", 1, stdin=unknown)) == []


def test_a_thesaurus_gives_groups(run, folder, model, tmp_path):
    broader = tmp_path / "broader.tsv"
    broader.write_text("".join(f"c:{c}\tcolours\n" for c in ("red", "blue", "green", "black")))
    flags = ["--label-tree", broader, "--allow", "colours", "--k", 9]
    found = labels(run("predict", model, "-", *flags, stdin="red shoe\n"))
    assert found[0] == "red things" and len(found) == 4
    trained = tmp_path / "model"
    run("train", folder / "train.jsonl", "--out", trained, "--label-tree", broader)
    again = run("predict", trained, "-", "--deny", "colours", "--k", 9, stdin="red shoe\n")
    assert labels(again)[0] == "shoes" and len(labels(again)) == 5


ROWS = [
    ["sku", "text", "name", "price"],
    ["A1", "we sell this red shoe", "Red, and large", "12.5"],
    ["A2", "xyzzy qwerty", "", "3"],
    ["A3", "we sell this blue hat", "Blau", "9"],
]


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "goods.csv"
    with file.open("w", encoding="utf-8", newline="") as lines:
        csv.writer(lines).writerows(ROWS)
    return file


def test_a_table_keeps_the_columns_of_its_input(run, model, table, tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("openpyxl")
    frame = pandas.read_csv(table).fillna("")
    frame.to_parquet(tmp_path / "goods.parquet")
    frame.to_excel(tmp_path / "goods.xlsx", index=False)
    frame.to_csv(tmp_path / "goods.tsv", sep="\t", index=False)
    reads = {"csv": pandas.read_csv, "parquet": pandas.read_parquet}
    for source, ending in (("csv", "csv"), ("tsv", "csv"), ("parquet", "parquet"), ("xlsx", "csv")):
        out = tmp_path / f"{source}.{ending}"
        run("predict", model, tmp_path / f"goods.{source}", "--out", out, "-k", 2, "--batch", 2)
        written = reads[ending](out).fillna("")
        columns = ["document", "rank", "id", "name", "score", "sku", "text", "input_name", "price"]
        assert written.columns.to_list() == columns
        assert written["sku"].to_list() == ["A1", "A1", "A2", "A2", "A3", "A3"]
        assert written["input_name"].to_list()[::2] == ["Red, and large", "", "Blau"]
        assert written["price"].astype(float).to_list()[::2] == [12.5, 3, 9]


def test_texts_without_a_telling_word_are_marked_and_counted(run, model, table):
    done = run("predict", model, table, "-k", 2)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row.get("unknown", False) for row in rows] == [False, True, False]
    silent = json.loads(run("predict", model, "-", "-k", 2, stdin="\n").stdout)
    assert rows[1] == silent
    assert "no word tells the model anything in 1 of 3 texts" in done.stderr
    # Of few labels, the text of a known word may get those of an empty one.
    done = run("predict", model, table, "--allow", "k:lamp")
    assert "unknown" not in done.stdout and "no word" not in done.stderr
