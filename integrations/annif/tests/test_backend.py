"""The backend with the real, unmodified Annif: training, suggestions, evaluation, errors."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import labelgrove
from conftest import SUBJECTS, Workbench, documents, uri, write_tsv

CATS = "A kitten with whiskers will purr and lift its paw"
TEA = "Fill the kettle and brew a leaf in a cup"


def suggestions(output: str) -> dict[str, float]:
    """URIs and scores, as annif suggest prints them, in its order."""
    lines = [line.split("\t") for line in output.splitlines() if line.startswith("<http")]
    return {line[0].strip("<>"): float(line[-1]) for line in lines}


def test_the_annif_command_finds_the_backend_by_itself(bench: Workbench) -> None:
    annif = Path(sys.executable).with_name("annif")
    for arguments in (["train", "linear", "train.tsv"], ["suggest", "linear", "--limit", "2"]):
        done = subprocess.run(
            [annif, *arguments],
            input=CATS,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
    assert next(iter(suggestions(done.stdout))) == uri("cats")
    assert len(suggestions(done.stdout)) == 2


def test_settings_reach_the_method(bench: Workbench) -> None:
    bench.run("train", "linear", "train.tsv", "-b", "labelgrove.tree.max_leaf_size=3", "-j", "1")
    manifest = json.loads((bench.model("linear") / "manifest.json").read_text())
    params = manifest["params"]
    assert params["ranker"]["C"] == 2
    assert list(params["tfidf"]["ngram_range"]) == [1, 2]
    assert params["tree"]["max_leaf_size"] == 3
    assert (params["random_state"], params["n_jobs"]) == (7, 1)
    assert (params["n_trees"], params["label_texts"]) == (3, "names")


def test_eval_gives_the_same_numbers_in_one_and_in_two_processes(bench: Workbench) -> None:
    bench.run("train", "linear", "train.tsv")
    for jobs in ("1", "2"):
        bench.run("eval", "linear", "test.tsv", "--jobs", jobs, "--metrics-file", f"{jobs}.json")
    first, second = (json.loads(Path(f"{jobs}.json").read_text()) for jobs in ("1", "2"))
    assert first == pytest.approx(second)
    assert first["NDCG"] > 0.9
    assert first["Documents_evaluated"] == 60
    assert "True" in bench.run("show-project", "linear")


def test_limit_and_threshold(bench: Workbench) -> None:
    bench.run("train", "linear", "train.tsv")
    everything = suggestions(bench.run("suggest", "linear", "--limit", "100", text=TEA))
    assert next(iter(everything)) == uri("tea")
    assert all(0 <= score <= 1 for score in everything.values())
    few = bench.run("suggest", "linear", "-b", "labelgrove.limit=1", text=TEA)
    assert list(suggestions(few)) == [uri("tea")]
    best = everything[uri("tea")]
    strict = bench.run("suggest", "linear", "--threshold", str(best - 0.001), text=TEA)
    assert list(suggestions(strict)) == [uri("tea")]
    wrong = bench.run("suggest", "linear", "-b", "labelgrove.limit=few", text=TEA, fails=True)
    assert "limit: must be a whole number" in wrong


def test_excluded_subjects_are_replaced_by_others(bench: Workbench) -> None:
    bench.run("train", "linear", "train.tsv")
    bench.run("train", "without-tea", "train.tsv")
    found = suggestions(bench.run("suggest", "without-tea", "--limit", "3", text=TEA))
    assert uri("tea") not in found
    assert len(found) == 3
    # Trained with tea, asked without: a project whose vocabulary changed after training.
    config = Path("projects.cfg").read_text()
    Path("projects.cfg").write_text(
        config.replace("vocab=things\n", "vocab=things(exclude=http://example.org/tea)\n", 1)
    )
    found = suggestions(
        bench.run("suggest", "linear", "-b", "labelgrove.limit=3", "--limit", "3", text=TEA)
    )
    assert uri("tea") not in found
    assert len(found) == 3


def test_a_vocabulary_in_another_order_keeps_its_meaning(bench: Workbench) -> None:
    bench.run("train", "linear", "train.tsv")
    before = suggestions(bench.run("suggest", "linear", text=CATS))
    turned = [f"<{uri(name)}>\t{name}\n" for name in reversed(SUBJECTS)]
    Path("turned.tsv").write_text(f"<{uri('new')}>\tnew\n" + "".join(turned))
    bench.run("load-vocab", "things", "turned.tsv", "--language", "en", "--force")
    assert suggestions(bench.run("suggest", "linear", text=CATS)) == before


def test_a_skos_vocabulary_and_a_folder_of_texts(bench: Workbench) -> None:
    prefix = "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
    concepts = [f'<{uri(n)}> a skos:Concept ; skos:prefLabel "{n}"@en .\n' for n in SUBJECTS]
    Path("things.ttl").write_text(prefix + "".join(concepts))
    bench.run("load-vocab", "things", "things.ttl", "--force")
    folder = Path("texts")
    folder.mkdir()
    for number, (text, names) in enumerate(documents(200, seed=4)):
        (folder / f"{number}.txt").write_text(text)
        lines = [f"<{uri(name)}>\t{name}\n" for name in names]
        (folder / f"{number}.tsv").write_text("".join(lines))
    bench.run("train", "linear", "texts")
    assert next(iter(suggestions(bench.run("suggest", "linear", text=CATS)))) == uri("cats")


def test_an_analyzer_is_used_at_training_and_afterwards(bench: Workbench) -> None:
    bench.run("train", "stemmed", "train.tsv")
    model = labelgrove.load(bench.model("stemmed"))
    terms = set(model.vectorizer_.terms())
    assert "whisker" in terms
    assert "whiskers" not in terms
    assert model.calibration_ is not None
    assert next(iter(suggestions(bench.run("suggest", "stemmed", text="WHISKER, purrs")))) == uri(
        "cats"
    )


def test_what_auto_chose_reads_texts_as_it_learnt_them(bench: Workbench) -> None:
    auto = ("-b", "labelgrove.method=auto", "-b", "labelgrove.budget=1s")  # linear is kept
    bench.run("train", "stemmed", "train.tsv", *auto)
    model = labelgrove.load(bench.model("stemmed"))
    assert model.tried_ and model.method == "linear"
    scores = list(suggestions(bench.run("suggest", "stemmed", text=CATS)).values())
    assert scores[:2] == pytest.approx(model.predict([CATS], k=2).scores[0], abs=1e-4)


def test_without_a_method_or_an_analyzer_auto_chooses(bench: Workbench) -> None:
    bench.run("train", "without-tea", "train.tsv")
    tried = [trial["name"] for trial in labelgrove.load(bench.model("without-tea")).tried_]
    assert tried[:3] == ["linear", "cascadexml", "linear with 3 trees"]
    assert next(iter(suggestions(bench.run("suggest", "without-tea", text=CATS)))) == uri("cats")


def test_cached_training_reuses_what_was_kept(bench: Workbench) -> None:
    assert "keep_training_data" in bench.run("train", "stemmed", "--cached", fails=True)
    bench.run("train", "stemmed", "train.tsv")
    Path("train.tsv").unlink()
    first = suggestions(bench.run("suggest", "stemmed", text=TEA))
    bench.run("train", "stemmed", "--cached", "-b", "labelgrove.ranker.C=0.01")
    assert suggestions(bench.run("suggest", "stemmed", text=TEA)) != first
    bench.run("train", "stemmed", "--cached")
    assert "cats" in labelgrove.load(bench.model("stemmed")).index_.names
    assert suggestions(bench.run("suggest", "stemmed", text=TEA)) == first


def test_calibrating_a_trained_project(bench: Workbench) -> None:
    bench.run("train", "linear", "train.tsv")
    raw = suggestions(bench.run("suggest", "linear", text=CATS))
    write_tsv(Path("dev.tsv"), documents(150, seed=3))
    assert "expected calibration error" in bench.run("labelgrove", "calibrate", "linear", "dev.tsv")
    probabilities = suggestions(bench.run("suggest", "linear", text=CATS))
    assert next(iter(probabilities)) == next(iter(raw)) == uri("cats")
    assert probabilities != raw
    assert "pav" in bench.run("labelgrove", "calibrate", "ensemble", "dev.tsv", fails=True)


def test_annifs_ensembles_take_it_as_a_source(bench: Workbench) -> None:
    bench.run("train", "linear", "train.tsv")
    bench.run("train", "stemmed", "train.tsv")
    found = suggestions(bench.run("suggest", "ensemble", "--limit", "1", text=CATS))
    assert list(found) == [uri("cats")]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train", "misspelt", "train.tsv"], "ranker.D: unknown key"),
        (
            ["train", "linear", "train.tsv", "-b", "labelgrove.method=linea"],
            "did you mean 'linear'",
        ),
        (["train", "linear", "train.tsv", "-b", "labelgrove.calibrate=2"], "calibrate: must be"),
        (["train", "linear", "train.tsv", "-b", "labelgrove.config=no.toml"], "no.toml"),
        (["train", "linear", "empty.tsv"], "no document with a text and subjects"),
        (["suggest", "linear"], "not trained"),
    ],
)
def test_errors_are_annifs(bench: Workbench, arguments: list[str], says: str) -> None:
    Path("empty.tsv").write_text(f"words\t<{uri('unknown')}>\n")
    assert says in bench.run(*arguments, text=CATS, fails=True)
    assert not bench.model("linear").exists()


def test_a_failed_training_leaves_the_old_model(bench: Workbench) -> None:
    bench.run("train", "linear", "train.tsv")
    before = suggestions(bench.run("suggest", "linear", text=CATS))
    bench.run("train", "linear", "train.tsv", "-b", "labelgrove.ranker.C=-1", fails=True)
    assert suggestions(bench.run("suggest", "linear", text=CATS)) == before


def test_a_damaged_model_is_told(bench: Workbench) -> None:
    bench.run("train", "linear", "train.tsv")
    weights = max(bench.model("linear").glob("*.safetensors"), key=lambda file: file.stat().st_size)
    weights.write_bytes(weights.read_bytes()[:-10])
    said = bench.run("suggest", "linear", text=CATS, fails=True)
    assert re.search(r"Couldn't initialize project 'linear'.*safetensors", said)


def test_documents_without_words_or_subjects(bench: Workbench) -> None:
    with Path("train.tsv").open("a") as file:
        file.write(f"\t<{uri('cats')}>\nno subject here\t<{uri('unknown')}>\n")
    bench.run("train", "linear", "train.tsv")
    assert isinstance(suggestions(bench.run("suggest", "linear", text="")), dict)


def test_projects_toml_with_tables_and_a_config_file(bench: Workbench) -> None:
    Path("projects.cfg").unlink()
    Path("method.toml").write_text('method = "parabel"\n[ranker]\nC = 3.0\neps = 0.2\n')
    Path("projects.toml").write_text(
        '[wood]\nname = "Wood"\nlanguage = "en"\nvocab = "things"\nbackend = "labelgrove"\n'
        'config = "method.toml"\nn_trees = 2\nranker = {C = 4.0}\n"tfidf.sublinear_tf" = false\n'
    )
    bench.run("train", "wood", "train.tsv")
    params = json.loads((bench.model("wood") / "manifest.json").read_text())["params"]
    assert (params["ranker"]["C"], params["ranker"]["eps"]) == (4.0, 0.2)
    assert (params["n_trees"], params["tree"]["branching"]) == (2, 2)
    assert params["tfidf"]["sublinear_tf"] is False


def test_an_ensemble_inside_one_project(bench: Workbench) -> None:
    members = '[[members]]\nmethod = "linear"\n[[members]]\nmethod = "ova"\n'
    for rule, fails in (("rank", True), ("softmax", False)):
        Path("both.toml").write_text(f'method = "ensemble"\nrule = "{rule}"\n{members}')
        said = bench.run(
            "train", "without-tea", "train.tsv", "-b", "labelgrove.config=both.toml", fails=fails
        )
        assert ("has no scores that Annif can use" in said) == fails
    found = suggestions(bench.run("suggest", "without-tea", "--limit", "1", text=CATS))
    assert list(found) == [uri("cats")]


def test_learning_from_more_documents(bench: Workbench) -> None:
    bench.run("train", "linear", "train.tsv")
    write_tsv(Path("more.tsv"), documents(50, seed=5))
    with Path("things.tsv").open("a") as file:
        file.write(f"<{uri('bees')}>\tbees\n")
    bench.run("load-vocab", "things", "things.tsv", "--language", "en")
    with Path("more.tsv").open("a") as file:
        file.write(f"honey hive buzz swarm\t<{uri('bees')}>\n" * 5)
    for project in ("linear", "stemmed"):  # without and with the documents of before
        bench.run("train", project, "train.tsv")
        bench.run("learn", project, "more.tsv")
        for text, name in ((CATS, "cats"), ("A hive full of honey", "bees")):
            assert next(iter(suggestions(bench.run("suggest", project, text=text)))) == uri(name)
        model = labelgrove.load(bench.model(project))
        assert model.index_.names[model.index_.column(uri("bees"))] == "bees"
    bench.run("train", "stemmed", "--cached")
    assert "bees" in labelgrove.load(bench.model("stemmed")).index_.names


def test_documents_of_an_earlier_training_are_not_taken_for_those_of_the_last(
    bench: Workbench,
) -> None:
    bench.run("train", "stemmed", "train.tsv")
    assert list(bench.model("stemmed").parent.rglob("corpus.jsonl"))
    write_tsv(Path("few.tsv"), documents(60, seed=6))
    bench.run("train", "stemmed", "few.tsv", "-b", "labelgrove.keep_training_data=no")
    said = bench.run("train", "stemmed", "--cached", fails=True)
    assert "there is no saved training data" in said


def test_annifs_service_answers(bench: Workbench) -> None:
    from annif_labelgrove import create_app

    bench.run("train", "linear", "train.tsv")
    with create_app("annif.default_config.ProductionConfig").test_client() as client:
        answer = client.post("/v1/projects/linear/suggest", data={"text": CATS, "limit": 1})
    assert answer.status_code == 200, answer.text
    assert answer.json()["results"][0]["uri"] == uri("cats")
