"""labelgrove data feedback, and update --feedback."""

import json

import labelgrove
from support.json_lines import write_jsonl

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
