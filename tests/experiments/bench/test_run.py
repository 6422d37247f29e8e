"""Benches of quick linear methods on a small corpus."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import labelgrove
from labelgrove.errors import ConfigError, MissingExtraError
from labelgrove.experiments.bench import config as config_module
from labelgrove.experiments.bench.config import (
    METRICS,
    Bench,
    BenchRow,
    add_gains,
    bench_table,
    create_row,
)
from labelgrove.experiments.bench.run import BenchFolder, encoders_of
from labelgrove.methods import method_class
from support.run_logs import computed

pytestmark = pytest.mark.slow
PARABEL: dict[str, Any] = {
    "method": "parabel",
    "published": {"P@1": 80.0, "P@3": 60.0, "source": "a paper"},
}
LINEAR: dict[str, Any] = {"method": "linear", "published": {"P@1": 84.0}}


@pytest.fixture(scope="module")
def finished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    folder = tmp_path_factory.mktemp("bench")
    bench = Bench.from_config(
        {
            "intervals": 20,
            "methods": [
                PARABEL,
                LINEAR,
                {"name": "C 0.5", "method": "linear", "ranker": {"C": 0.5}},
                {"name": "both", "of": ["parabel", "linear"], "rule": "rank"},
                {"name": "theirs", "published": {"P@1": 88.0}},
            ],
        }
    )
    return folder, BenchFolder(bench, data, folder).run()


def test_rows_are_trained_and_measured(finished: Any) -> None:
    folder, records = finished
    assert [record["row"] for record in records] == ["parabel", "linear", "C 0.5", "both", "theirs"]
    for record in records[:4]:
        assert list(record["metrics"]) == list(METRICS)
        assert record["metrics"]["P@1"] > 90
        low, high = record["intervals"]["P@3"]
        assert low <= record["metrics"]["P@3"] <= high
        assert 0 < record["latency_ms"]["p50"] <= record["latency_ms"]["p99"]
        assert record["machine"]["cores"] > 0
        assert record["model_bytes"] > 0 and record["peak_memory_bytes"] > 0
    assert records[0]["gain"] == {"P@1": 0.0, "P@3": 0.0, "P@5": 0.0}
    assert records[1]["published_gain"] == {"P@1": 5.0}
    assert "metrics" not in records[4]
    assert [record["source"] for record in records[:2]] == ["a paper", ""]
    alone = [record["stages"] for record in records[:2]]
    assert records[3]["stages"] == alone[0] | alone[1]  # the same tf-idf, counted once
    assert len(labelgrove.load(folder / "models" / "both").members_) == 2
    stored = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    assert stored == records
    assert labelgrove.load(folder / "models" / "c-0-5").ranker.C == 0.5


def test_stages_of_other_rows_are_reused_and_their_time_is_counted(finished: Any) -> None:
    folder, records = finished
    assert computed(folder / "cache").count("tfidf") == 1
    linear, other = records[1]["stages"], records[2]["stages"]
    kinds = sorted(name.split()[0] for name in linear.keys() & other.keys())
    assert kinds == ["tfidf", "tree"]
    assert all(linear[name] == other[name] > 0 for name in linear.keys() & other.keys())
    assert records[2]["train_seconds"] == pytest.approx(sum(other.values()))


def test_a_repeated_bench_takes_what_is_there(data: Path, finished: Any) -> None:
    folder, records = finished
    messages: list[str] = []
    tables = [PARABEL, LINEAR, {"name": "C 0.5", "method": "linear", "ranker": {"C": 0.25}}]
    bench = Bench.from_config({"intervals": 20, "methods": tables})
    again = BenchFolder(bench, data, folder).run(only=["linear"], say=messages.append)
    assert messages == ["parabel: measured before", "linear: measured before"]
    assert again[:2] == records[:2]
    assert "metrics" not in again[2]  # other settings, and not asked for
    assert "C 0.5: not measured" in bench_table(again)
    assert bench.chosen(["para*"]) == {"parabel"}
    with pytest.raises(ConfigError, match="--only nothing: no such row"):
        Bench.from_config({"methods": tables}, only=["nothing"])


def test_only_an_ensemble_trains_its_members_too(data: Path, tmp_path: Path) -> None:
    tables = [PARABEL, LINEAR, {"method": "ova"}, {"name": "both", "of": ["parabel", "linear"]}]
    bench = Bench.from_config({"intervals": 0, "methods": tables})
    records = BenchFolder(bench, data, tmp_path / "one").run(only=["both"])
    assert ["metrics" in record for record in records] == [True, True, False, True]
    # Trained in another folder, a row counts as finished where its files are copied to.
    for name in ("rows", "models"):
        shutil.copytree(tmp_path / "one" / name, tmp_path / "two" / name)
    messages: list[str] = []
    BenchFolder(bench, data, tmp_path / "two").run(only=["both"], say=messages.append)
    assert messages == [f"{name}: measured before" for name in ("parabel", "linear", "both")]


def test_a_changed_file_beside_the_corpus_is_measured_again(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(data, folder)
    table = folder / "labels.tsv"
    table.write_text("red\trot\n")
    bench = Bench.from_config({"intervals": 0, "methods": [{"method": "linear"}]})
    messages: list[str] = []
    for _ in range(2):
        BenchFolder(bench, folder, tmp_path / "bench").run(say=messages.append)
    table.write_text("red\trouge\n")
    with (tmp_path / "bench" / "cache" / "log.jsonl").open("a") as log:
        log.write('{"kind": "stage_')  # by a run that was killed
    BenchFolder(bench, folder, tmp_path / "bench").run(say=messages.append)
    training, before = "linear: training and measuring", "linear: measured before"
    assert messages == [training, before, training]


def test_filtered_pairs_do_not_count(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    rows = [f"{n % 4} {n % 4}:1" for n in range(40)]
    (data / "train.txt").write_text("\n".join(["40 4 4", *rows]) + "\n")
    (data / "test.txt").write_text("\n".join(["4 4 4", *rows[:4]]) + "\n")
    file, scores = data / "filter_labels_test.txt", []
    for shared, pairs in (({}, ""), ({"filter": file.name}, "0 0\n"), ({"filter": file.name}, "")):
        file.write_text(pairs)  # a changed file is noticed
        bench = Bench.from_config({"intervals": 0, "methods": [{"method": "linear"}]} | shared)
        (record,) = BenchFolder(bench, data, tmp_path / "bench").run()
        scores.append(record["metrics"]["P@1"])
    assert scores == [100, 75, 100]


def test_a_row_is_known_by_all_its_encoders(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from support.tiny_encoders import make_encoder

    texts, labels = (str(make_encoder(tmp_path / name, "bert")) for name in ("texts", "labels"))
    settings = {"method": "xtransformer", "encoder": {"encoder": texts}}
    assert [content.params.encoder for content in encoders_of(BenchRow("x", settings))] == [texts]
    settings["indexing"] = {"vectors": "text-emb", "text_encoder": labels}
    encoders = [content.params.encoder for content in encoders_of(BenchRow("x", settings))]
    assert encoders == [texts, labels]


def test_a_row_that_fails_is_reported_and_does_not_stop_others(data: Path, tmp_path: Path) -> None:
    tables = [{"name": "bad", "method": "linear", "n_trees": 0}, {"method": "ova"}]
    tables.append({"name": "both", "of": ["bad", "ova"]})
    bench = Bench.from_config({"intervals": 0, "methods": tables, "baseline": "ova"})
    records = BenchFolder(bench, data, tmp_path).run()
    assert records[0]["error"].startswith("labelgrove train ended with 1: n_trees")
    assert records[1]["metrics"]["P@1"] > 90
    assert records[1]["intervals"] == {}
    assert "n_trees" in records[2]["error"]  # its member
    assert "bad: failed" in bench_table(records)


ONE = {"name": "e", "of": ["linear"]}
MARGINS = {"name": "m", "method": "linear", "search": {"last_level": "noop"}}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "at least one"),
        ({"methods": [{}]}, "number 1"),
        ({"methods": [{"name": "x"}]}, "x: needs a method"),
        ({"methods": [{"method": "linear"}, {"method": "linear"}]}, "'linear'"),
        ({"methods": [{"method": "linear", "ranker": {"D": 1}}]}, "ranker.D"),
        ({"methods": [{"method": "linear", "published": {"P@2": 1}}]}, "P@2"),
        ({"methods": [{"method": "linear", "published": {"P@1": "a"}}]}, "must be a number"),
        ({"methods": [{"name": "e", "of": ["linear"]}]}, "'linear'"),
        ({"methods": [{"name": "e", "of": "linear"}]}, "of must be a list"),
        ({"methods": [{"method": "linear"}], "interval": 3}, "did you mean intervals"),
        ({"methods": [{"method": "linear"}], "baseline": "linaer"}, "linaer"),
        ({"methods": [{"method": "linear"}, ONE | {"rule": "best"}]}, "e: rule"),
        ({"methods": [{"method": "linear"}, ONE | {"weights": [1, 2]}]}, "e: weights"),
        ({"methods": [{"method": "linear"}, MARGINS, ONE | {"of": ["linear", "m"]}]}, "e: rule: 2"),
        ({"methods": [{"name": "x", "base": "nothing"}]}, "'nothing'"),
    ],
)
def test_wrong_configs_are_refused_before_training(config: dict[str, Any], message: str) -> None:
    pytest.raises(ConfigError, Bench.from_config, config).match(message)


def test_rows_start_from_others_from_files_and_from_flags(tmp_path: Path) -> None:
    (tmp_path / "l.toml").write_text('method = "linear"\nn_trees = 2\n[ranker]\nC = 3.0\n')
    tables = [
        {"name": "file", "config": "l.toml", "ranker": {"eps": 0.2}},
        {"name": "other", "base": "file", "ranker": {"eps": 0.4}, "n_trees": 1},
        {"name": "ensemble", "method": "ensemble", "members": [{"method": "linear"}]},
        {"name": "joined", "of": ["file", "other"], "rule": "rank"},
        {"name": "theirs", "published": {"P@1": 1.0}},
    ]
    flags = ["ranker.max_iterations=7"]
    rows = Bench.from_config({"methods": tables}, settings=flags, folder=tmp_path).rows
    first, second = (row.settings for row in rows[:2])
    assert first == {
        "method": "linear",
        "n_trees": 2,
        "ranker": {"C": 3.0, "eps": 0.2, "max_iterations": 7},
    }
    assert second == first | {"n_trees": 1, "ranker": first["ranker"] | {"eps": 0.4}}
    assert create_row(rows[2]).members[0].ranker.max_iterations == 7
    assert rows[3].settings == {"rule": "rank", "method": "ensemble"}
    assert rows[4].settings is None
    for flag, message in [("rankr.C=1", "did you mean ranker"), ("ranker.CC=1", "mean ranker.C")]:
        with pytest.raises(ConfigError, match=message):
            Bench.from_config({"methods": tables}, settings=[flag], folder=tmp_path)


def test_flags_reach_the_rows_whose_groups_have_them() -> None:
    pytest.importorskip("torch")
    tables = [{"method": "linear"}, {"method": "lightxml"}, {"method": "xrtransformer"}]
    flags = ["training.max_steps=20", "heads.steps=[1, 2]"]
    rows = Bench.from_config({"methods": tables}, settings=flags).rows
    assert [(row.settings or {}).get("heads") for row in rows] == [None, None, {"steps": [1, 2]}]
    assert [(row.settings or {}).get("training") for row in rows[1:]] == [{"max_steps": 20}] * 2


def test_rows_that_are_not_asked_for_need_nothing(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No encoder, no extra, and not even settings that are right."""
    pytest.importorskip("torch")
    import labelgrove.nn.encoders.files as files

    tables: list[dict[str, Any]] = [
        {"method": "ova"},
        {"name": "network", "method": "lightxml", "encoder": "somebody/large"},
        {"name": "bad", "method": "linear", "ranker": {"D": 1}},
    ]
    config = {"intervals": 0, "baseline": "ova", "methods": tables}
    with pytest.raises(ConfigError, match=r"bad: ranker\.D"):
        Bench.from_config(config)
    asked: list[str] = []
    monkeypatch.setattr(files, "find_encoder", lambda name, **_: asked.append(name))
    bench = Bench.from_config(config, only=["ova"], settings=["training.max_steps=2"])
    records = BenchFolder(bench, data, tmp_path).run(only=["ova"])
    assert ["metrics" in record for record in records] == [True, False, False] and not asked

    def without_torch(name: str) -> Any:
        if name == "lightxml":
            raise MissingExtraError("torch", f"the method {name}")
        return method_class(name)

    monkeypatch.setattr(config_module, "method_class", without_torch)
    Bench.from_config(config, only=["ova"], settings=["n_jobs=1"])
    with pytest.raises(MissingExtraError, match="lightxml"):
        Bench.from_config(config, only=["network"], settings=["n_jobs=1"])


@pytest.mark.parametrize(
    ("config", "message"),
    [({"train": "none.jsonl"}, "no such file"), ({"test": "none.jsonl"}, "no such file")],
)
def test_files_that_do_not_fit_are_refused(
    data: Path, tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    bench = Bench.from_config({"methods": [{"method": "linear"}], **config})
    pytest.raises(ConfigError, BenchFolder, bench, data, tmp_path).match(message)


def test_a_folder_needs_one_file_of_each_kind(data: Path, tmp_path: Path) -> None:
    bench = Bench.from_config({"methods": [{"method": "linear"}]})
    for name, message in [("train.txt", "no file test"), ("train.jsonl", "several files train")]:
        (tmp_path / name).touch()
        pytest.raises(ConfigError, BenchFolder, bench, tmp_path, tmp_path / "run").match(message)


def test_the_table_has_what_was_published_below() -> None:
    records: list[dict[str, Any]] = [
        {"row": "parabel", "published": {"P@1": 50.0}},
        {"row": "new", "published": {"P@1": 55.0, "P@5": 20.0, "hours": 0.5}},
    ]
    add_gains(records, "parabel")
    lines = bench_table(records).splitlines()
    assert lines[2].startswith("| parabel, published | 50.00 |")
    assert "+10.0/-/- % |       1800 |" in lines[3]
    assert len({len(line) for line in lines}) == 1
    records[1]["source"] = "a paper"
    assert "| new, published (a paper) | 55.00 |" in bench_table(records)


def test_the_command_prints_a_table_and_json(
    data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from labelgrove.cli import app

    config = tmp_path / "bench.toml"
    config.write_text('intervals = 0\nbaseline = "ova"\n[[methods]]\nmethod = "ova"\n')
    flags = ["bench", "--config", str(config), "--data", str(data)]
    app([*flags, "--threads", "1"], standalone_mode=False)
    assert "| ova " in capfd.readouterr().out
    app([*flags, "--json"], standalone_mode=False)
    assert json.loads(capfd.readouterr().out)["metrics"]["P@1"] > 90
    assert (tmp_path / "bench.bench" / "rows" / "ova.json").exists()
