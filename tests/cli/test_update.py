"""labelgrove update: a grown model in a new folder; labelgrove data feedback."""

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
    assert any("no word that tf-idf knows" in note for note in result["notes"])
    assert sum("max_added" in reason for reason in result["reasons"]) == 1


LINES = [
    {
        "time": f"2026-0{1 + n % 3}-10T12:00:00+00:00",
        "text": f"we sell this purple shoe, item {n}",
        "labels": ["k:shoe", "c:purple"],
        "suggestions": [{"id": "k:shoe", "score": 0.9}, {"id": "c:red", "score": 0.4}],
        "names": {"k:shoe": "shoes", "c:purple": "purple things"},
    }
    for n in range(12)
]


def test_people_and_programs_read_the_statistics(run, tmp_path):
    file = write_jsonl(tmp_path / "said.jsonl", [*LINES, "cut off"])
    done = run("data", "feedback", file, "--by", "month")
    assert [line.split()[:2] for line in done.stdout.splitlines()[1:5]] == [
        ["2026-01", "4"],
        ["2026-02", "4"],
        ["2026-03", "4"],
        ["all", "12"],
    ]
    assert "purple things  c:purple  (kept 0)" in done.stdout
    assert "1 lines could not be read" in done.stderr
    facts = json.loads(run("data", "feedback", file, "--json", "--top", 1).stdout)
    assert (facts["texts"], facts["documents"], facts["bad_lines"]) == (12, 12, 1)
    assert (facts["first"], facts["kept"], facts["found"]) == (1.0, 0.5, 0.5)
    assert facts["added"] == [
        {"id": "c:purple", "name": "purple things", "kept": 0, "added": 12, "rejected": 0}
    ]
    assert facts["rejected"][0]["id"] == "c:red"


def test_labels_cannot_rewrite_the_terminal(run, tmp_path):
    names = {"c:purple": "\x1b[2J\x1b]0;owned\x07purple\r\x9b1m", "k:shoe": "[bold]shoes"}
    file = write_jsonl(tmp_path / "said.jsonl", [LINES[0] | {"names": names}])
    done = run("data", "feedback", file)
    assert "\\x1b[2J\\x1b]0;owned\\x07purple\\x0d\\x9b1m  c:purple" in done.stdout
    odd = tmp_path / "\x1b[31m.jsonl"
    done = run("data", "feedback", odd, check=False)
    assert "\\x1b[31m.jsonl" in done.stderr and "\x1b[31m.jsonl" not in done.stderr


def test_a_model_learns_from_feedback(run, folder, model, tmp_path):
    file = write_jsonl(tmp_path / "said.jsonl", LINES)
    flags = ["--feedback", file, "--train", folder / "train.jsonl", "--out", tmp_path / "taught"]
    result = json.loads(run("update", model, *flags, "--json").stdout)
    assert result["added"] == ["c:purple"] and result["documents"] == 12
    assert set(result["retrained"]) == {"k:shoe", "c:red"}  # the second because it was rejected
    taught = labelgrove.load(tmp_path / "taught")
    assert taught.index_.names[-1] == "purple things"
    assert "c:purple" in taught.predict(["a purple shoe"], k=2).ids()[0]
