import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import f1_score, ndcg_score

from labelgrove.data.corpus import Corpus, LabelIndex
from labelgrove.errors import ConfigError, DataError
from labelgrove.evaluation.metrics import (
    DEFAULT_METRICS,
    Evaluation,
    Propensity,
    by_frequency,
    compare_all,
    evaluate,
)
from labelgrove.evaluation.predictions import Predictions
from reference import metrics as reference

LABELS = 7
INDEX = LabelIndex([f"l{i}" for i in range(LABELS)])


@st.composite
def cases(draw):
    """(ranked, true, unknown, frequency): short rows, empty truths and unseen labels included."""
    n = draw(st.integers(1, 6))
    permutations = st.permutations(range(LABELS))
    ranked = [draw(permutations)[: draw(st.integers(0, 5))] for _ in range(n)]
    true = [draw(st.sets(st.integers(0, LABELS - 1), max_size=4)) for _ in range(n)]
    unknown = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    counts = st.sampled_from([0, 1, 4, 10, 11, 100, 101, 500])
    frequency = draw(st.lists(counts, min_size=LABELS, max_size=LABELS))
    return ranked, true, unknown, frequency


def predictions_of(ranked):
    width = max((len(row) for row in ranked), default=0)
    columns = np.full((len(ranked), width), -1, np.int32)
    scores = np.full((len(ranked), width), -np.inf, np.float32)
    for i, row in enumerate(ranked):
        columns[i, : len(row)] = row
        scores[i, : len(row)] = np.linspace(1, 0.5, len(row))
    return Predictions(columns, scores, np.array([len(r) for r in ranked], np.int32), INDEX)


def truth_of(true):
    dense = np.zeros((len(true), LABELS), np.float32)
    for i, labels in enumerate(true):
        dense[i, list(labels)] = 1
    return sparse.csr_array(dense)


@given(cases(), st.integers(1, 6), st.sampled_from([(0.55, 1.5), (0.5, 0.4), (0.6, 2.6)]))
@settings(max_examples=150)
def test_all_metrics_equal_their_formulas(case, k, constants):
    ranked, true, unknown, frequency = case
    args = (ranked, true, unknown, k)
    scored = (*args, frequency, 1000, *constants)
    expected = {
        "P": reference.precision(*args),
        "R": reference.recall(*args),
        "RP": reference.r_precision(*args),
        "nDCG": reference.ndcg(*args),
        "F1": reference.f1(*args),
        "PSP": reference.psp(*scored, discounted=False),
        "PSnDCG": reference.psp(*scored, discounted=True),
    }
    expected |= zip(["micro-P", "micro-R", "micro-F1"], reference.micro(*args), strict=True)
    families = ["macro-P", "macro-R", "macro-F1", "coverage"]
    expected |= zip(families, reference.macro(*args), strict=True)
    for name, (share, recall) in reference.by_bin(*args, frequency).items():
        expected |= {f"{name}-P": share, f"{name}-R": recall}
    ev = evaluate(
        predictions_of(ranked),
        truth_of(true),
        unknown=unknown,
        metrics=[f"{family}@{k}" for family in expected],
        train_frequencies=frequency,
        n_train=1000,
        propensity=Propensity(*constants),
    )
    assert ev.values == pytest.approx(
        {f"{f}@{k}": math.nan if v is None else v for f, v in expected.items()}, nan_ok=True
    )
    bins = ("head", "torso", "tail", "unseen")
    assert sum(ev[f"{name}-P@{k}"] for name in bins) == pytest.approx(ev[f"P@{k}"])


@pytest.mark.parametrize("k", [1, 3, 10, 40])
def test_ndcg_and_f1_equal_scikit_learn(k):
    rng = np.random.default_rng(k)
    scores = rng.random((50, 40)).astype(np.float32)
    true = rng.random((50, 40)) < 0.1
    true[:3] = False
    p = Predictions.from_scores(scores, k=40, index=LabelIndex([str(i) for i in range(40)]))
    names = [f"nDCG@{k}", f"micro-F1@{k}", f"macro-F1@{k}", "micro-F1@t=0.7", "macro-F1@t=0.7"]
    ev = evaluate(p, true.astype(np.float32), metrics=names)
    assert ev[f"nDCG@{k}"] == pytest.approx(ndcg_score(true, scores, k=k))
    occurring = np.flatnonzero(true.any(axis=0))
    at_k = np.argsort(np.argsort(-scores, axis=1), axis=1) < k
    for cutoff, predicted in ((k, at_k), ("t=0.7", scores >= np.float32(0.7))):
        micro = f1_score(true, predicted, average="micro", zero_division=0)
        macro = f1_score(true, predicted, average="macro", labels=occurring, zero_division=0)
        assert ev[f"micro-F1@{cutoff}"] == pytest.approx(micro)
        assert ev[f"macro-F1@{cutoff}"] == pytest.approx(macro)


SMALL = predictions_of([[0, 1], [2, 3]])
SMALL_TRUTH = truth_of([{0}, {2, 4}])


def test_default_metrics_follow_the_arguments():
    counts = {"train_frequencies": np.ones(LABELS), "n_train": 10}
    ev = evaluate(SMALL, SMALL_TRUTH, **counts)
    assert list(ev) == [name for name in DEFAULT_METRICS if name != "R@10"]
    ten = LabelIndex([str(i) for i in range(10)])
    p = Predictions.from_scores(np.arange(10.0)[None], k=10, index=ten)
    without = evaluate(p, np.ones((1, 10)))
    assert list(without) == [name for name in DEFAULT_METRICS if not name.startswith("PS")]
    assert without.notes == ("PSP is left out, because it needs train_frequencies and n_train",)


def test_notes_say_what_was_counted_in_an_unexpected_way():
    ev = evaluate(
        SMALL,
        truth_of([{0, 1, 2}, set()]),
        unknown=[3, 0],
        metrics=["P@1", "P@5"],
        train_frequencies=[5, 0, 1, 1, 1, 1, 1],
    )
    assert ev.notes == (
        "4 true label occurrences are of labels that were unseen in training; they count as misses "
        "unless predicted",
        "1 documents without labels count as zero",
        "at most 2 labels were predicted; ranks up to 5 count as misses",
    )

    ev = evaluate(SMALL, SMALL_TRUTH, metrics=["P@2"], train_frequencies=[1] * LABELS)
    assert ev.notes == ()


def test_intervals_are_there_when_asked_for():
    assert evaluate(SMALL, SMALL_TRUTH, metrics=["P@1"]).intervals == {}
    assert evaluate(SMALL, SMALL_TRUTH, metrics=["P@1"], intervals=1).intervals.keys() == {"P@1"}


def test_values_of_the_truth_do_not_matter_but_stored_zeros_are_no_labels():
    plain = evaluate(SMALL, SMALL_TRUTH, metrics=["R@2"])
    weighted = sparse.csr_array(SMALL_TRUTH * 0.25)
    assert evaluate(SMALL, weighted, metrics=["R@2"]).values == plain.values
    stored = sparse.csr_array(
        (np.float32([1, 0, -1, 1, 1]), [0, 5, 6, 2, 4], [0, 3, 5]), shape=SMALL_TRUTH.shape
    )
    assert evaluate(SMALL, stored, metrics=["R@2"]).values == plain.values
    assert stored.nnz == 5  # the caller's matrix is as it was


def test_label_lists_and_a_corpus_count_their_unknown_labels():
    lists = [["l0"], ["l2", "l4", "new"]]
    expected = evaluate(SMALL, SMALL_TRUTH, unknown=[0, 1], metrics=["R@2"])
    assert expected["R@2"] == pytest.approx((1 + 1 / 3) / 2)
    assert evaluate(SMALL, lists, metrics=["R@2"]) == expected
    assert evaluate(SMALL, tuple(lists), metrics=["R@2"]) == expected
    assert evaluate(SMALL, Corpus.from_lists(["x", "y"], lists), metrics=["R@2"]) == expected
    assert evaluate(SMALL, SMALL_TRUTH.toarray().tolist(), metrics=["P@1"])["P@1"] == 1
    with pytest.raises(DataError, match="document 0"):
        evaluate(SMALL, [["l0", None], []], metrics=["R@2"])

    ev = evaluate(SMALL, truth_of([{0}, set()]), metrics=["F1@t=0.9", "F1@t=2", "R@1", "RP@1"])
    assert ev.values == {"F1@t=0.9": 0.5, "F1@t=2": 0.0, "R@1": 0.5, "RP@1": 0.5}


def test_presets_and_constants_are_part_of_the_result():
    ev = evaluate(
        SMALL,
        SMALL_TRUTH,
        metrics=["PSP@1"],
        train_frequencies=np.ones(LABELS),
        n_train=10,
        propensity="wikipedia",
    )
    assert ev.propensity == Propensity(0.5, 0.4)
    assert "propensity A = 0.5, B = 0.4" in ev.table()
    assert ev.to_dict()["propensity"] == {"A": 0.5, "B": 0.4}


def test_table_and_dict():
    nan = math.nan
    ev = Evaluation({"P@1": 0.5, "P@10": 0.125, "tail-R@1": nan}, n=1234, notes=("mind the gap",))
    assert ev.table().splitlines() == [
        "           @1    @10",
        "P       50.00  12.50",
        "tail-R      -",
        "1,234 documents; percent",
        "note: mind the gap",
    ]
    assert ev.to_dict()["values"] == {"P@1": 0.5, "P@10": 0.125, "tail-R@1": None}
    assert len(ev) == 3
    assert "p@10" in ev
    assert "nonsense" not in ev
    with pytest.raises(KeyError, match="R@5 was not measured"):
        ev["R@5"]

    values = {"P@10": 0.1, "micro-F1@t=0.5": 1.0, "micro-F1@t=0.25": 0.03, "P@3": math.nan}
    assert Evaluation(values, n=1).table().splitlines() == [
        "             @3    @10  @t=0.5  @t=0.25",
        "P             -  10.00",
        "micro-F1                100.00     3.00",
        "1 documents; percent",
    ]
    assert Evaluation({"P@3": math.nan}, n=1).table().splitlines()[1] == "P        -"

    values = {"P@1": 0.5, "P@3": 0.25}
    ev = Evaluation(values, n=2, intervals={"P@1": (0.25, 0.75)}, notes=("a <b>",))
    assert repr(ev) == ev.table()
    assert "50.00 [25.00, 75.00]" in repr(ev) and repr(ev).endswith("note: a <b>")
    assert repr(Evaluation({}, n=0)).endswith("0 documents; percent")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"metrics": ["nDGC@5"]}, ConfigError, "did you mean nDCG@5"),
        ({"metrics": "P@5"}, ConfigError, "list of names"),
        ({"metrics": []}, ConfigError, "empty"),
        ({"metrics": ["PSP@1"]}, ConfigError, "PSP@1 needs train_frequencies"),
        ({"metrics": ["tail-R@1"]}, ConfigError, "tail-R@1 needs train_frequencies"),
        (
            {"metrics": ["PSP@1"], "train_frequencies": [1] * LABELS},
            ConfigError,
            "PSP@1 needs n_train",
        ),
        ({"train_frequencies": [1]}, DataError, "train_frequencies has shape"),
        ({"train_frequencies": [-1] * LABELS}, DataError, "not negative"),
        ({"train_frequencies": [1] * (LABELS - 1) + [-1]}, DataError, "not negative"),
        ({"train_frequencies": [math.inf] + [1] * (LABELS - 1)}, DataError, "finite"),
        ({"unknown": [1]}, DataError, "unknown must be 2 counts"),
        ({"unknown": [1, -1]}, DataError, "none negative"),
        ({"propensity": "news"}, ConfigError, "one of wikipedia, amazon, default, got 'news'"),
        ({"filter_pairs": [(5, 0)]}, DataError, "pair 0"),
        ({"intervals": 0}, ConfigError, "at least 1 resample"),
        ({"intervals": 5, "level": 1.0}, ConfigError, "level must be between 0 and 1"),
        ({"intervals": 5, "level": 0}, ConfigError, "level must be between 0 and 1"),
    ],
)
def test_wrong_arguments_are_refused(arguments, error, message):
    pytest.raises(error, evaluate, SMALL, SMALL_TRUTH, **arguments).match(message)


def test_data_that_does_not_fit_is_refused():
    pytest.raises(DataError, evaluate, SMALL, SMALL_TRUTH[:1]).match("truth is 1 documents x 7")
    pytest.raises(DataError, evaluate, predictions_of([]), truth_of([])).match("no documents")
    with pytest.raises(DataError, match="document 1 have label 'l2' twice"):
        evaluate(predictions_of([[0, 1], [2, 2]]), SMALL_TRUTH)
    with pytest.raises(DataError, match="document 0 have label 'l0' twice"):
        evaluate(predictions_of([[0, 3, 0], [2, 4, 5]]), SMALL_TRUTH)
    pytest.raises(DataError, evaluate, {}, [["a"]]).match(r"must be Predictions.* got dict")

    assert Propensity() == Propensity.preset("Default") == Propensity(0.55, 1.5)
    assert Propensity.preset("wikipedia") == Propensity(0.5, 0.4)
    assert Propensity.preset("Amazon") == Propensity(0.6, 2.6)
    assert Propensity(a=0).a == 0
    for wrong in ({"a": -0.1}, {"a": math.inf}, {"b": 0}, {"b": -0.5}, {"b": math.inf}):
        pytest.raises(ConfigError, Propensity, **wrong).match("A must be >= 0 and B > 0")
    pytest.raises(ConfigError, Propensity().inverse, [1], n_train=0).match("n_train")
    for few in (1, 2):
        assert Propensity().inverse([0, 9], n_train=few).tolist() == [1.0, 1.0]
    # 1 + (ln N - 1) (B + 1)^A (N_l + B)^-A
    expected = [1 + (math.log(50) - 1) * 2.5**0.55 * (n + 1.5) ** -0.55 for n in (0, 9)]
    assert Propensity().inverse([0, 9], n_train=50).tolist() == pytest.approx(expected)


def test_costs_have_a_mean_of_one_over_all_positives():
    counts = np.array([0, 1, 7, 60])
    for propensity in (Propensity(), Propensity.preset("amazon"), Propensity(a=0)):
        costs = propensity.costs(counts, n_train=80)
        assert counts @ costs / counts.sum() == pytest.approx(1.0)
        ratio = costs / propensity.inverse(counts, n_train=80)
        assert ratio.tolist() == pytest.approx([ratio[0]] * 4)
    assert Propensity(a=0).costs(counts, n_train=80).astype(np.float32).tolist() == [1.0] * 4
    assert Propensity().costs([0, 0], n_train=2).tolist() == [1.0, 1.0]


EIGHT = LabelIndex(map(str, range(8)))
NAMES = ["P@1", "P@3", "nDCG@3", "R@3", "micro-P@3", "PSP@3"]
TRAINING = {"train_frequencies": np.arange(8), "n_train": 40}


def runs(n, *helps, seed=0):
    rng = np.random.default_rng(seed)
    truth = (rng.random((n, 8)) < 0.3).astype(float)
    made = [
        Predictions.from_scores(rng.random((n, 8)) + help * truth, k=4, index=EIGHT)
        for help in helps
    ]
    return truth, made


def test_values_and_intervals_are_those_of_evaluate_and_of_differences():
    truth, made = runs(60, 0.1, 0.3, 0.6)
    found = compare_all(made, truth, metrics=NAMES, intervals=40, **TRAINING)
    for run, evaluation in zip(made, found.evaluations, strict=True):
        alone = evaluate(run, truth, metrics=NAMES, intervals=40, **TRAINING)
        assert evaluation.values == alone.values
        for name in NAMES:
            np.testing.assert_allclose(evaluation.intervals[name], alone.intervals[name])
    assert list(found.pairs) == list(combinations(range(3), 2))
    rng = np.random.default_rng(0)
    draws = [rng.integers(0, 60, size=60) for _ in range(40)]
    drawn = [
        [evaluate(run.of_rows(d), truth[d], metrics=["R@3"])["R@3"] for d in draws] for run in made
    ]
    for (i, j), pair in found.pairs.items():
        assert (pair.first, pair.second) == (found.evaluations[j], found.evaluations[i])
        for name in NAMES:
            assert pair.differences[name] == pair.second[name] - pair.first[name]
        expected = np.quantile(np.subtract(drawn[i], drawn[j]), [0.025, 0.975])
        np.testing.assert_allclose(pair.intervals["R@3"], expected)


def test_pairing_sees_a_small_but_steady_gain():
    # The better run is right wherever the other is, and on 15 of 300 more documents. Pairing leaves
    # only those to vary; two separate intervals would overlap by far.
    truth, right = np.eye(8)[np.zeros(300, int)], np.arange(300) % 2 == 0
    hits = right | (np.arange(300) % 20 == 1), right
    answers = [np.outer(np.where(hit, 1.0, -1.0), np.eye(8)[0]) for hit in hits]
    made = [Predictions.from_scores(scores, k=1, index=EIGHT) for scores in answers]
    found = compare_all(made, truth, metrics=["P@1"], intervals=500)
    pair = found.pairs[0, 1]
    low, high = pair.intervals["P@1"]
    assert pair.differences["P@1"] == pytest.approx(0.05)
    assert 0.02 < low < 0.05 < high < 0.08
    assert pair.first.intervals["P@1"].high > pair.second.intervals["P@1"].low


def test_what_is_equal_or_cannot_be_compared():
    truth, made = runs(30, 0.5)
    pair = compare_all([*made, *made], truth, metrics=NAMES[:4], intervals=5).pairs[0, 1]
    assert set(pair.differences.values()) == {0.0}

    truth, made = runs(10, 0.5, 0.5)
    with pytest.raises(ConfigError, match="an average over labels"):
        compare_all(made, truth, metrics=["macro-F1@3"])
    pytest.raises(ConfigError, compare_all, [], truth, metrics=["P@1"]).match("at least one run")


# document   predicted        true          further labels without a column
#        0   a b c            a c           0
#        1   b d a            d             1
#        2   e                (none)        0
FIVE = LabelIndex("abcde")
SCORES = sparse.csr_array(
    [[0.9, 0.6, 0.3, 0.0, 0.0], [0.2, 0.8, 0.0, 0.5, 0.0], [0.0, 0.0, 0.0, 0.0, 0.7]]
)
PREDICTIONS = Predictions.from_csr(SCORES, k=3, index=FIVE)
TRUTH = sparse.csr_array([[1, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0]])
UNKNOWN = [0, 1, 0]
L3 = 1 / math.log2(3)  # discount of the second place


def test_bins_by_hand():
    # a is head, b torso, c and d tail, e unseen; hits: a and c in document 0, d in document 1
    rows = {
        row.name: row
        for row in by_frequency(
            PREDICTIONS, TRUTH, unknown=UNKNOWN, train_frequencies=[101, 100, 10, 1, 0], k=3
        )
    }
    assert [(r.labels, r.occurrences, r.hits) for r in rows.values()] == [
        (1, 1, 1),
        (1, 0, 0),
        (2, 2, 2),
        (1, 1, 0),  # the occurrence is document 1's unknown label
    ]
    assert rows["tail"].precision_share == pytest.approx(2 / 9)
    assert rows["tail"].recall == 1.0
    assert rows["unseen"].recall == 0.0
    assert math.isnan(rows["torso"].recall)


def test_filter_pairs_move_the_next_label_up_and_keep_the_truth():
    # Without (0, a) document 0 predicts b c: c moves to place 2, and a stays a label to find.
    ev = evaluate(
        PREDICTIONS, TRUTH, metrics=["P@1", "R@2", "nDCG@2"], filter_pairs=[(0, 0), (2, 1)]
    )
    assert ev["P@1"] == 0
    assert ev["R@2"] == pytest.approx((1 / 2 + 1 / 1 + 0) / 3)
    assert ev["nDCG@2"] == pytest.approx((L3 / (1 + L3) + L3 / 1 + 0) / 3)
    assert "the filter removed 1 predicted labels" in ev.notes
