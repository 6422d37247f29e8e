"""Word vectors: near words come out near, gradients are those of the loss, bits repeat."""

import numpy as np
import pytest

from labelgrove.errors import DataError
from labelgrove.text import word2vec
from labelgrove.text.word2vec import Word2vec, Word2vecParams, _pairs, _update, _VectorRows
from support.limits import check_settings

SMALL = Word2vecParams(width=12, epochs=10, min_df=1)


def two_worlds(n=400):
    """Texts of animals or of drinks, with words of one world only."""
    random = np.random.default_rng(0)
    worlds = [["cat", "dog", "fur", "paw"], ["tea", "milk", "cup", "sip"]]
    return [" ".join(random.choice(worlds[i % 2], 6)) for i in range(n)]


def test_words_of_one_world_lie_together():
    model = Word2vec.fit(two_worlds(), SMALL)
    names = ["cat", "dog", "fur", "paw", "tea", "milk", "cup", "sip"]
    vectors = model.transform(names)
    assert vectors.shape == (8, model.width) and model.width == 12
    near = vectors @ vectors.T
    inside = [near[i, j] for i in range(8) for j in range(8) if i != j and i // 4 == j // 4]
    across = [near[i, j] for i in range(8) for j in range(8) if i // 4 != j // 4]
    assert min(inside) > max(across)


def test_documents_are_weighted_means_of_their_words():
    model = Word2vec.fit(two_worlds(), SMALL)
    row = model.vectorizer.transform(["cat cat tea"]).toarray()[0] @ model.vectors
    assert np.allclose(model.transform(["cat cat tea"])[0], row / np.linalg.norm(row), atol=1e-6)
    assert not model.transform(["unheard of"]).any()


def test_same_seed_same_bits_and_a_stored_model_is_the_same():
    first, second = (Word2vec.fit(two_worlds(60), SMALL, seed=3) for _ in range(2))
    assert first.vectors.tobytes() == second.vectors.tobytes()
    other = Word2vec.fit(two_worlds(60), SMALL, seed=4)
    assert first.vectors.tobytes() != other.vectors.tobytes()
    again = Word2vec.from_state(first.state())
    assert np.array_equal(again.transform(["cat tea"]), first.transform(["cat tea"]))


def test_learning_ends_after_so_many_pairs(monkeypatch):
    steps = []
    pairs = word2vec._pairs
    monkeypatch.setattr(word2vec, "_pairs", lambda *given: steps.append(given) or pairs(*given))
    Word2vec.fit(two_worlds(60), Word2vecParams(width=4, epochs=50, min_df=1, max_pairs=1))
    assert len(steps) == 1
    pytest.raises(DataError, Word2vec.fit, ["", "!"], SMALL)


def test_pairs_stay_inside_a_text_and_a_window():
    words = np.arange(12, dtype=np.int32)
    text = np.repeat([0, 1, 2], 4)
    found = set()
    for seed in range(30):
        for centre, context in _pairs(words, text, 2, np.random.default_rng(seed)):
            found |= set(zip(centre.tolist(), context.tolist(), strict=True))
    expected = {
        (a, b) for a in range(12) for b in range(12) if a // 4 == b // 4 and 0 < abs(a - b) <= 2
    }
    assert found == expected


class Recorded(_VectorRows):
    """Adds up gradients instead of following them."""

    def __init__(self, values):
        super().__init__(values, 1.0)
        self.gradient = np.zeros(values.shape)

    def descend(self, rows, gradients):
        np.add.at(self.gradient, rows, gradients)


def test_a_step_follows_the_gradient_of_the_loss():
    random = np.random.default_rng(0)
    u, v = random.normal(size=(2, 6, 4))
    centre, context = np.array([0, 1, 1], np.int32), np.array([2, 3, 5], np.int32)
    negatives = np.array([3, 4])

    def loss(u, v):
        total = 0.0
        for a, b in zip(centre, context, strict=True):
            total += np.logaddexp(0, -u[a] @ v[b])
            for n in negatives:
                if n != b:
                    total += 2.0 / len(negatives) * np.logaddexp(0, u[a] @ v[n])
        return total

    words, contexts = Recorded(u), Recorded(v)
    _update(words, contexts, centre, context, negatives, 2.0)
    for table, rows in ((u, words), (v, contexts)):
        for place in np.ndindex(table.shape):
            before = table[place]
            table[place] = before + 1e-5
            up = loss(u, v)
            table[place] = before - 1e-5
            slope = (up - loss(u, v)) / 2e-5
            table[place] = before
            assert rows.gradient[place] == pytest.approx(slope, abs=1e-4)


def test_frequent_words_are_skipped_more_often(monkeypatch):
    read = []
    monkeypatch.setattr(word2vec, "_pairs", lambda words, *_: read.extend(words) or iter(()))
    texts = [f"the the the word{n % 50}" for n in range(2000)]
    model = Word2vec.fit(texts, Word2vecParams(epochs=1, subsample=0.005, min_df=1))
    the = sum(model.vectorizer.terms()[n] == "the" for n in read)
    assert len(read) - the == 2000  # a share of 0.005 each, which is not too much
    assert the / 6000 == pytest.approx((0.005 / 0.75) ** 0.5 + 0.005 / 0.75, rel=0.15)


def test_defaults_and_limits():
    table = {
        "width": (100, 1, 0),
        "window": (5, 1, 0),
        "negatives": (5.0, 1e-9, 0.0),
        "epochs": (5, 1, 0),
        "max_pairs": (20_000_000, 1, 0),
        "subsample": (1e-3, 1e-9, 0.0),
        "lr": (0.2, 1e-9, 0.0),
        "min_df": ("auto", 1, 0),
        "max_words": (200_000, 1, 0),
    }
    check_settings(Word2vecParams, table)
