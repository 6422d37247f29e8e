import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from labelgrove.errors import ConfigError, DataError
from labelgrove.labels.features import pifa
from labelgrove.labels.masks import LabelMask
from labelgrove.labels.tree import LabelTree, TreeParams, build_tree
from labelgrove.ranking.beam import POST_PROCESSORS, BeamSearch, SearchParams
from labelgrove.ranking.ranker import Ranker, train_ranker
from labelgrove.ranking.weights import ChunkedWeights
from reference import beam as reference
from support.limits import check_settings

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def trained():
    rng = np.random.default_rng(0)
    y = sparse.csr_array(rng.random((300, 37)) < 0.06)
    x = sparse.csr_array(y @ (rng.random((37, 50)) < 0.15) + (rng.random((300, 50)) < 0.05))
    x = sparse.csr_array(x.toarray().astype(np.float32) * (np.arange(300) >= 3)[:, None])
    tree = build_tree(pifa(x, y), TreeParams(branching=3, max_leaf_size=5), seed=1)
    return x, train_ranker(x, y, tree)


def assert_same(found, expected, row):
    columns, scores, counts = (part[row] for part in found)
    assert counts == len(expected)
    np.testing.assert_allclose(scores[:counts], [s for s, _ in expected], rtol=2e-4, atol=1e-7)
    # Rounding may swap neighbours; away from near-ties the order must be the same.
    for column, (score, wanted) in zip(columns[:counts], expected, strict=True):
        near = [c for s, c in expected if abs(s - score) <= 1e-3 * max(1e-3, abs(score))]
        assert column == wanted or column in near


@given(
    beam=st.one_of(st.integers(1, 40), st.lists(st.integers(1, 6), min_size=1, max_size=3)),
    k=st.integers(1, 45),
    post_processor=st.sampled_from(POST_PROCESSORS),
    last_level=st.sampled_from(["same", "noop"]),
    row=st.integers(0, 299),
    allowed=st.one_of(st.none(), st.sets(st.integers(0, 36), min_size=1)),
)
@settings(max_examples=100, deadline=None)
def test_agrees_with_the_literal_version(
    trained, beam, k, post_processor, last_level, row, allowed
):
    x, ranker = trained
    params = SearchParams(beam=beam, post_processor=post_processor, last_level=last_level)
    found = ranker.search(
        x[[row]], k=k, params=params, allow=None if allowed is None else sorted(allowed)
    )
    expected = reference.search(
        ranker,
        x[[row]].toarray()[0],
        k=k,
        beam=beam,
        post_processor=post_processor,
        last_level=last_level,
        allowed=allowed,
    )
    assert_same(found, expected, 0)


@given(
    allow=st.one_of(st.none(), st.sets(st.integers(0, 36), min_size=1)),
    deny=st.one_of(st.none(), st.sets(st.integers(0, 36))),
    k=st.integers(1, 40),
    post_processor=st.sampled_from(POST_PROCESSORS),
)
@settings(max_examples=60, deadline=None)
def test_masks_leave_what_exact_search_finds_among_the_allowed(
    trained, allow, deny, k, post_processor
):
    x, ranker = trained
    allowed = (set(range(37)) if allow is None else allow) - (deny or set())
    masks = {
        "allow": None if allow is None else sorted(allow),
        "deny": None if deny is None else sorted(deny),
    }
    exact = SearchParams(exact=True, post_processor=post_processor)
    if not allowed:
        with pytest.raises(DataError, match="no label is left"):
            ranker.search(x[:20], k=k, params=exact, **masks)
        return
    columns, scores, counts = ranker.search(x[:20], k=k, params=exact, **masks)
    everything = ranker.search(x[:20], k=37, params=exact)
    assert (counts == min(k, len(allowed))).all()
    for row in range(20):
        score_of = dict(zip(everything[0][row].tolist(), everything[1][row], strict=True))
        # Scores may round to equal products; which of those labels is cut off is not looked at.
        assert scores[row].tolist() == sorted((score_of[c] for c in allowed), reverse=True)[:k]
        assert scores[row].tolist() == [score_of[c] for c in columns[row]]
    narrow = SearchParams(beam=1, post_processor=post_processor)
    columns, _, counts = ranker.search(x[:20], k=k, params=narrow, **masks)
    assert (counts == min(k, len(allowed))).all()  # the beam widens where masks leave too few
    assert set(columns.ravel().tolist()) <= allowed


@pytest.mark.parametrize("post_processor", POST_PROCESSORS)
@pytest.mark.parametrize("last_level", ["same", "noop"])
def test_scores_of_given_labels_are_those_that_search_finds(trained, post_processor, last_level):
    x, ranker = trained
    params = SearchParams(post_processor=post_processor, last_level=last_level, exact=True)
    columns, scores, _ = ranker.search(x, k=37, params=params)
    expected = np.empty_like(scores)
    np.put_along_axis(expected, columns, scores, axis=1)
    wanted = [30, 2, 2, 17]
    assert np.array_equal(ranker.score(x, wanted, params=params), expected[:, wanted])
    pattern = sparse.random_array((300, 37), density=0.2, rng=np.random.default_rng(3)).tocsr()
    rows = np.repeat(np.arange(300), np.diff(pattern.indptr))
    for threads in (1, 3):
        found = ranker.score(x, pattern, params=params, threads=threads)
        assert np.array_equal(found.data, expected[rows, found.indices])
    assert ranker.score(x, [], params=params).shape == (300, 0)


def test_a_mask_can_be_made_once(trained):
    x, ranker = trained
    mask = LabelMask.from_columns(None, ranker.tree.labels, deny=[3, 4])
    again = ranker.search(x, k=4, allow=mask)
    for one, other in zip(again, ranker.search(x, k=4, deny=[3, 4]), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ({"allow": []}, "no label is left"),
        ({"allow": [37]}, r"allow: .* outside 0\.\.36"),
        ({"deny": [-1]}, r"deny: .* outside"),
        ({"deny": ["a"]}, "deny: must be a list of label columns"),
        ({"allow": [[1]]}, "allow: must be a list"),
    ],
)
def test_bad_masks(trained, masks, message):
    x, ranker = trained
    with pytest.raises(DataError, match=message):
        ranker.search(x, k=1, **masks)


def test_bad_labels_to_score(trained):
    x, ranker = trained
    with pytest.raises(DataError, match="columns: a label column lies outside"):
        ranker.score(x, [40])
    with pytest.raises(DataError, match="not 300 documents x 37 labels"):
        ranker.score(x, sparse.csr_array((300, 36)))


def test_bad_beams(trained):
    x, ranker = trained
    with pytest.raises(ConfigError, match="9 numbers but the tree has 3 levels"):
        ranker.search(x, k=1, params=SearchParams(beam=[1] * 9))
    with pytest.raises(ConfigError, match="at least one number"):
        ranker.search(x, k=1, params=SearchParams(beam=[]))
    with pytest.raises(ConfigError, match=r"search\.beam"):
        ranker.search(x, k=1, params=SearchParams(beam=[3, 0]))


@pytest.mark.parametrize("params", [SearchParams(), SearchParams(beam=2), SearchParams(exact=True)])
def test_a_documents_result_depends_on_neither_company_nor_threads(trained, params):
    x, ranker = trained
    together = ranker.search(x, k=6, params=params, threads=1)
    threaded = ranker.search(x, k=6, params=params, threads=3)
    alone = [ranker.search(x[[row]], k=6, params=params) for row in range(60)]
    for part in range(3):
        assert np.array_equal(together[part], threaded[part])
        assert np.array_equal(together[part][:60], np.concatenate([one[part] for one in alone]))


def test_exact_search_equals_a_beam_that_holds_everything(trained):
    x, ranker = trained
    exact = ranker.search(x, k=37, params=SearchParams(exact=True))
    wide = ranker.search(x, k=37, params=SearchParams(beam=1000))
    assert all(np.array_equal(a, b) for a, b in zip(exact, wide, strict=True))


@pytest.mark.parametrize("k", [1, 7, 37, 100])
def test_k_labels_come_back_whatever_the_beam(trained, k):
    x, ranker = trained
    columns, scores, counts = ranker.search(x[:20], k=k, params=SearchParams(beam=1))
    assert (counts == min(k, 37)).all()
    for row in columns:
        assert len(set(row.tolist())) == len(row)
    assert (np.diff(scores, axis=1) <= 0).all()


def test_documents_without_features_get_labels_too(trained):
    _, ranker = trained
    columns, _, counts = ranker.search(sparse.csr_array((2, 50)), k=4)
    assert counts.tolist() == [4, 4]
    assert np.array_equal(columns[0], columns[1])


def test_no_documents(trained):
    _, ranker = trained
    columns, _, counts = ranker.search(sparse.csr_array((0, 50)), k=4)
    assert columns.shape == (0, 4) and counts.shape == (0,)


def test_equal_scores_come_in_column_order():
    tree = LabelTree([[0, 0], [0, 0, 1, 1]], [3, 1, 2, 0])
    empty = np.zeros(0)
    levels = [
        ChunkedWeights(
            np.zeros(parents + 1, np.int64),
            np.zeros(parents + 1, np.int64),
            empty.astype(np.int32),
            np.zeros(parents, np.uint32),
            empty.astype(np.uint16),
            empty.astype(np.float32),
            np.zeros(nodes, np.float32),
        )
        for parents, nodes in ((1, 2), (2, 4))
    ]
    ranker = Ranker(tree, levels, features=1, bias=1.0)
    assert ranker.search([[1.0]], k=3, params=SearchParams(exact=True))[0].tolist() == [[0, 1, 2]]


def test_bad_arguments(trained):
    x, ranker = trained
    with pytest.raises(ConfigError, match="k: must be at least 1"):
        ranker.search(x, k=0)
    with pytest.raises(ConfigError, match=r"search\.beam"):
        ranker.search(x, k=1, params=SearchParams(beam=0))
    with pytest.raises(DataError, match="3 features but the model knows 50"):
        ranker.search(np.eye(3), k=1)


@pytest.mark.parametrize("name", ["features", "row_start", "bias", "values", "chunk_rows"])
def test_arrays_that_do_not_fit_are_refused(trained, name):
    _, ranker = trained
    arrays = ranker.levels[1].arrays()
    damaged = ChunkedWeights(**(arrays | {name: arrays[name][:-1]}))
    levels = [ranker.levels[0], damaged, *ranker.levels[2:]]
    with pytest.raises(DataError, match="level 1"):
        BeamSearch(ranker.tree, levels, features=50, bias=1.0)


@pytest.mark.parametrize(
    ("name", "message"), [("children", "does not have"), ("row_start", "rise from 0")]
)
def test_values_that_would_lead_the_kernel_astray_are_refused(trained, name, message):
    _, ranker = trained
    damaged = ranker.levels[1].arrays()
    damaged[name] = damaged[name].copy()
    damaged[name][1] = 255
    levels = [ranker.levels[0], ChunkedWeights(**damaged), *ranker.levels[2:]]
    with pytest.raises(DataError, match=message):
        BeamSearch(ranker.tree, levels, features=50, bias=1.0)


def test_features_outside_the_model_are_refused(trained):
    _, ranker = trained
    with pytest.raises(DataError, match=r"outside 0\.\.9"):
        BeamSearch(ranker.tree, ranker.levels, features=10, bias=1.0)


def test_defaults_and_limits():
    check_settings(SearchParams, {"beam": ("auto", 1, 0)})
    check_settings(SearchParams, {"beam": ("auto", 2**31 - 1, 2**31)})
    assert not SearchParams().exact


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({}, "product"),
        ({"post_processor": "sigmoid"}, "product"),
        ({"post_processor": "noop"}, "margin"),
        ({"post_processor": "log-sigmoid"}, "margin"),
        ({"last_level": "noop"}, "margin"),
    ],
)
def test_the_kind_of_scores_follows_the_settings(settings, kind):
    assert SearchParams(**settings).score_kind == kind
