"""labelgrove update: a grown model in a new folder."""

import json

import labelgrove
from support.json_lines import write_jsonl

NEW = [
    {"text": f"we sell this {colour} sofa, item {n}", "labels": [f"c:{colour}", "k:sofa"]}
    for n, colour in enumerate(["red", "blue", "green", "black"] * 3)
]


def test_documents_and_labels_go_into_a_new_folder(run, folder, model, tmp_path):
    data = write_jsonl(tmp_path / "new.jsonl", NEW)
    table = tmp_path / "new_labels.tsv"
    table.write_text("k:sofa\tsofas\nk:chair\tchairs\nk:item\titems\tblue item\n")
    before = sorted((p.name, p.stat().st_mtime_ns) for p in model.rglob("*"))
    flags = [data, "--labels", table, "--out", tmp_path / "grown"]
    done = run("update", model, *flags, "--train", folder / "train.jsonl", "--json")
    result = json.loads(done.stdout)
    assert result["added"] == ["k:sofa", "k:item"]
    assert set(result["retrained"]) == {"c:red", "c:blue", "c:green", "c:black"}
    assert result["labels"] == 11 and result["documents"] == 12
    assert result["rebuild_due"] is True and "max_added" in result["reasons"][0]
    assert sorted((p.name, p.stat().st_mtime_ns) for p in model.rglob("*")) == before
    grown = labelgrove.load(tmp_path / "grown")
    assert list(grown.index_.names[-2:]) == ["sofas", "items"]
    answer = run("predict", tmp_path / "grown", "-", "-k", 2, stdin="this black sofa\n")
    assert "c:black" in answer.stdout


def test_what_people_read(run, model, tmp_path):
    data = write_jsonl(tmp_path / "new.jsonl", NEW)
    done = run("update", model, data, "--out", tmp_path / "grown", "--set", "retrain=new")
    assert "12 documents: 1 label added, 0 retrained" in done.stderr
    assert "train the model from scratch soon" not in done.stderr  # a ninth more labels
    again = run(
        "update",
        tmp_path / "grown",
        data,
        "--out",
        tmp_path / "again",
        "--set",
        "max_added=0.05",
    )
    assert (
        "train the model from scratch soon" in again.stderr
        and "note: 0 of the 112 training documents" in again.stderr
    )


def test_one_form_is_for_both_files(run, folder, model, tmp_path):
    data = tmp_path / "new.tsv"
    data.write_text("Titel\tlabels\na red sofa\tc:red|k:sofa\n", encoding="utf-8")
    flags = [data, "--text-field", "Titel", "--out", tmp_path / "grown"]
    done = run("update", model, *flags, "--train", folder / "train.jsonl", check=False)
    assert done.returncode == 1
    assert "train.jsonl" in done.stderr
    assert "give all of them as corpus (--train)" in run("update", model, *flags).stderr


def test_notes_on_labels_of_the_table_are_told_beside_those_on_documents(run, model, tmp_path):
    data = write_jsonl(tmp_path / "new.jsonl", NEW)
    table = tmp_path / "new_labels.tsv"
    table.write_text("k:unheard\tzzyzx\n")
    flags = [data, "--labels", table, "--set", "max_added=0.05"]
    done = run("update", model, *flags, "--out", tmp_path / "grown", "--json")
    result = json.loads(done.stdout)
    assert any("were given" in note for note in result["notes"])
    assert any("no term that tf-idf knows" in note for note in result["notes"])
    assert sum("max_added" in reason for reason in result["reasons"]) == 1
