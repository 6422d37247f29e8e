"""Tf-idf: equal to scikit-learn for its options, to literal references for our own."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from labelgrove import Documents
from labelgrove.core.part import Part
from labelgrove.core.strings import StringTable
from labelgrove.errors import ConfigError, DataError, ModelFormatError
from labelgrove.text.tfidf import TermReader, Tfidf, TfidfParams
from reference import tfidf as reference

pytestmark = pytest.mark.kernel

# Characters with something special about them: sigmas and what decides their form, letters that
# grow or shrink when folded, combining marks, all kinds of space, NUL, surrogates, other scripts.
TRICKY = (
    "ΣσςΑα'.:^`\u0345\u02b0\u00ad İıßẞÅåÅÉéﬁŉǅﷺⅧ①²½ªK\u0301\u0327\u0307\u200d\0_-09aAbBzZ  "
    "\t\n\x0b\x0c\r\x1c\x1f\x85\xa0\u1680\u2003\u3000\ufeff\ud800\udfff中文字한글ᄒ😀👩🏽पाṩאب\U00010400"
)
WORDS = st.sampled_from(
    ["the", "The", "cat", "CAT", "ΟΔΥΣΣΕΥΣ", "straße", "İstanbul", "x", "é", "日本語"]
)
CHARS = st.sampled_from(TRICKY) | st.characters() | st.characters(categories=["Cs"])
TEXT = st.text(CHARS, max_size=25) | st.lists(WORDS, max_size=12).map(" ".join)
TEXTS = st.lists(TEXT, min_size=1, max_size=8)

OPTIONS = st.fixed_dictionaries(
    {
        "analyzer": st.sampled_from(["word", "char", "char_wb"]),
        "ngram_range": st.sampled_from([(1, 1), (1, 2), (2, 3), (3, 5)]),
        "lowercase": st.booleans(),
        "strip_accents": st.booleans(),
        "min_df": st.sampled_from([1, 2, 0.2, 0.5]),
        "max_df": st.sampled_from([1.0, 0.7, 3]),
        "max_features": st.sampled_from([None, 1, 5, 20]),
        "sublinear_tf": st.booleans(),
        "binary": st.booleans(),
        "smooth_idf": st.booleans(),
        "norm": st.sampled_from(["l2", "l1", "none"]),
        "idf": st.sampled_from(["sklearn", "none"]),
    }
)


def sklearn_twin(options):
    from sklearn.feature_extraction.text import TfidfVectorizer

    translated = {
        **options,
        "strip_accents": "unicode" if options["strip_accents"] else None,
        "norm": None if options["norm"] == "none" else options["norm"],
        "use_idf": options["idf"] == "sklearn",
    }
    del translated["idf"]
    return TfidfVectorizer(**translated)


@settings(max_examples=300)
@given(TEXTS, TEXTS, OPTIONS)
def test_equals_scikit_learn(texts, others, options):
    theirs = sklearn_twin(options)
    ours = Tfidf(TfidfParams(**options), n_jobs=1)
    try:
        expected = theirs.fit_transform(texts)
    except ValueError:  # nothing left, or max_df below min_df
        pytest.raises((DataError, ConfigError), ours.fit, texts)
        return
    fitted = ours.fit_transform(texts)
    assert ours.terms() == theirs.get_feature_names_out().tolist()
    np.testing.assert_allclose(fitted.toarray(), expected.toarray(), rtol=1e-6, atol=1e-6)
    rows = ours.transform(others)
    np.testing.assert_allclose(
        rows.toarray(), theirs.transform(others).toarray(), rtol=1e-6, atol=1e-6
    )
    np.testing.assert_array_equal(ours.transform(texts).toarray(), fitted.toarray())


@pytest.mark.slow
@pytest.mark.parametrize(("lowercase", "strip"), [(False, False), (True, False), (True, True)])
def test_every_character_is_what_python_says(lowercase, strip):
    """All assigned characters: how they fold, and whether they are word or space."""
    code_points = [*range(0x33400), *range(0xE0000, 0xE0400), *range(0x10FC00, 0x110000)]
    blocks = ["".join(map(chr, code_points[i : i + 512])) for i in range(0, len(code_points), 512)]
    settings = {"lowercase": lowercase, "strip_accents": strip, "nfc": False, "analyzer": "word"}
    params = TfidfParams(**settings, min_token_length=1, min_df=1)
    spaced = [" ".join(block) for block in blocks]
    words = {w for text in spaced for w in re.findall(r"\w+", fold(text, lowercase, strip))}
    assert Tfidf(params).fit(spaced).vocabulary.blob.tobytes() == packed(words)
    chars = {c for text in blocks for c in re.sub(r"\s\s+", " ", fold(text, lowercase, strip))}
    params.analyzer = "char"
    assert Tfidf(params).fit(blocks).vocabulary.blob.tobytes() == packed(chars)


def packed(terms):
    return "".join(sorted(terms)).encode("utf-8", "surrogatepass")


def fold(text, lowercase, strip):
    from sklearn.feature_extraction.text import strip_accents_unicode

    text = text.lower() if lowercase else text
    return str(strip_accents_unicode(text)) if strip else text


@settings(max_examples=300)
@given(st.text(st.sampled_from("ΣΣΣΣabAB Α.'\u0345\u02b0\u00ad\u0301😀é\ud800-"), max_size=12))
def test_final_sigma_as_str_lower(text):
    params = TfidfParams(analyzer="space", min_df=1, nfc=False)
    tokens = reference.space_tokens(text.lower())
    if tokens:
        assert Tfidf(params, n_jobs=1).fit([text]).terms() == sorted(set(tokens))


@given(
    TEXTS,
    st.sampled_from([(1, 1), (1, 2), (2, 3)]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["l1", "l2", "none"]),
    st.sampled_from([None, 3]),
)
def test_pecos_formula_and_splitting(
    texts, ngram_range, smooth, add_one, sublinear, norm, max_tokens
):
    documents = [
        reference.ngrams(reference.space_tokens(text, max_tokens), *ngram_range) for text in texts
    ]
    ours = Tfidf(
        TfidfParams(
            analyzer="space",
            lowercase=False,
            ngram_range=ngram_range,
            max_tokens=max_tokens,
            min_df=1,
            idf="pecos",
            smooth_idf=smooth,
            add_one_idf=add_one,
            sublinear_tf=sublinear,
            norm=norm,
        ),
        n_jobs=1,
    )
    if not any(documents):
        pytest.raises(DataError, ours.fit, texts).match("without a single term")
        return
    vocabulary, expected = reference.pecos_tfidf(
        documents, smooth_idf=smooth, add_one_idf=add_one, sublinear_tf=sublinear, norm=norm
    )
    rows = ours.fit_transform(texts)
    assert ours.terms() == vocabulary
    np.testing.assert_allclose(rows.toarray(), expected, rtol=1e-6, atol=1e-6)
    assert np.count_nonzero(rows.data) == rows.nnz  # terms of weight 0 leave no entry


def many_texts(count):
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(300)] + ["Straße", "ÉTÉ", "ΟΔΟΣ", "a-word-longer-than-16-bytes"]
    words += ["日本語の本"]
    return [" ".join(rng.choice(words, size=rng.integers(0, 40))) for _ in range(count)]


@pytest.mark.parametrize("analyzer", ["word", "char_wb", "mixed"])
def test_same_bits_for_any_number_of_threads(analyzer):
    texts = many_texts(700)
    params = TfidfParams(analyzer=analyzer, ngram_range=(1, 3))
    results = []
    for n_jobs in (1, 2, 5):
        tfidf = Tfidf(params, n_jobs=n_jobs)
        fitted = tfidf.fit_transform(texts)
        again = Tfidf(params, n_jobs=n_jobs).fit(texts).transform(texts)
        for rows in (fitted, again):
            state = tfidf.state().arrays
            arrays = [rows.indptr, rows.indices, rows.data, *(state[k] for k in sorted(state))]
            results.append([array.tobytes() for array in arrays])
    assert all(result == results[0] for result in results)


def test_tables_iterables_and_many_batches_give_the_same_rows(tmp_path):
    texts = [*many_texts(50), "", "lone \ud800surrogate", "nul\0byte"]
    tfidf = Tfidf(TfidfParams(min_df=1)).fit(texts)
    expected = tfidf.transform(texts).toarray()
    table = StringTable.from_strings(texts)
    np.save(tmp_path / "blob.npy", table.blob)
    mapped = StringTable(np.load(tmp_path / "blob.npy", mmap_mode="r"), table.offsets)
    for same in (table, mapped, tuple(texts), iter(texts), np.array(texts, dtype=object)):
        assert np.array_equal(tfidf.transform(same).toarray(), expected)
    assert Tfidf(TfidfParams(min_df=1)).fit(mapped).terms() == tfidf.terms()

    texts = many_texts(5000)
    tfidf = Tfidf().fit(texts)
    rows = tfidf.transform(texts)
    assert rows.shape == (5000, tfidf.n_features)
    assert np.array_equal(rows[[4999]].toarray(), tfidf.transform([texts[4999]]).toarray())
    assert np.array_equal(tfidf.transform(StringTable.from_strings(texts)).data, rows.data)


@given(st.binary(max_size=40), st.sampled_from(["word", "char", "char_wb", "space", "mixed"]))
def test_bytes_that_are_not_utf8_become_replacement_characters(raw, analyzer):
    params = TfidfParams(analyzer=analyzer, min_token_length=1, ngram_range=(1, 2), min_df=1)
    table = StringTable(np.frombuffer(raw + b" end", np.uint8), np.array([0, len(raw) + 4]))
    for term in Tfidf(params, n_jobs=1).fit(table).terms():
        assert term


def test_rows_are_sorted_float32_and_read_the_beginning_only():
    rows = Tfidf().fit(["b a_word a-word"]).transform(["", "zebra", "word a_word"])
    assert rows.dtype == np.float32
    assert rows.indices.dtype == np.int32
    assert np.diff(rows.indptr).tolist() == [0, 0, 2]
    assert rows.indices.tolist() == [0, 1]
    assert Tfidf().fit(["some text"]).transform([]).shape == (0, 2)

    words = Tfidf(TfidfParams(max_tokens=2)).fit(["a one b two three"])
    assert words.terms() == ["one", "two"]
    chars = Tfidf(TfidfParams(analyzer="char", max_tokens=3)).fit(["a  bcd"])
    assert chars.terms() == [" ", "a", "b"]
    inside = TfidfParams(analyzer="char_wb", max_tokens=4, ngram_range=(3, 3))
    assert Tfidf(inside).fit(["ab  cde"]).terms() == [" ab", " c ", "ab "]


def test_min_df_depends_on_the_number_of_texts_and_must_leave_something():
    assert Tfidf().fit(["only one text"]).terms() == ["one", "only", "text"]
    assert "rare" in Tfidf().fit(["word"] * 998 + ["rare"]).terms()
    assert Tfidf().fit(["word"] * 999 + ["rare"]).terms() == ["word"]
    all_different = Tfidf().fit([f"id{i}" for i in range(1000)])
    assert all_different.n_features == 1000
    with pytest.raises(DataError, match=r"none of 2 terms in 2 texts .* lower min_df"):
        Tfidf(TfidfParams(min_df=2)).fit(["one", "two"])
    with pytest.raises(ConfigError, match="max_df=1 allows fewer texts than min_df=2"):
        Tfidf(TfidfParams(min_df=2, max_df=1)).fit(["one", "two"])
    pytest.raises(DataError, Tfidf().fit, ["", "x"]).match("2 texts without a single term")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["fine", None], "text 1 is NoneType"),
        ([b"bytes"], "text 0 is bytes"),
        (["a"] * 5000 + [float("nan")], "text 5000 is float"),
        ("a bare string", "give a list of strings"),
        (7, "must be a list of strings"),
    ],
)
@pytest.mark.parametrize("analyzer", [None, str.split])
def test_texts_that_are_not_strings(texts, message, analyzer):
    pytest.raises(DataError, Tfidf(analyzer=analyzer).fit, texts).match(message)
    with pytest.raises(DataError, match=message):
        Tfidf(analyzer=analyzer).fit(["some text"]).transform(texts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ngram_range": (2, 1)}, "ngram_range: .* runs backwards"),
        ({"ngram_range": (0, 1)}, "ngram_range: must be at least 1"),
        ({"analyzer": "wrod"}, "analyzer: must be one of auto, word, space"),
        ({"min_df": 2.0}, "min_df: 2.0 is a share .* for a count write 2"),
        ({"min_df": "often"}, "min_df"),
        ({"norm": None}, "norm: must be one of"),
    ],
)
def test_wrong_options_are_refused_at_fit(options, message):
    pytest.raises(ConfigError, Tfidf(TfidfParams(**options)).fit, ["some text"]).match(message)


def test_damaged_state():
    part = Tfidf().fit(["some text"]).state()
    without_idf = {name: array for name, array in part.arrays.items() if name != "idf"}
    hashed = {"params": part.config["params"] | {"n_buckets": 8}}
    with pytest.raises(ModelFormatError, match=r"hashed terms \(n_buckets\)"):
        Tfidf.from_state(Part(part.config | hashed, part.arrays))
    with pytest.raises(ModelFormatError, match="'idf' is missing"):
        Tfidf.from_state(Part(part.config, without_idf))
    with pytest.raises(ModelFormatError, match="one idf weight per term"):
        Tfidf.from_state(Part(part.config, {**part.arrays, "idf": np.ones(1, np.float32)}))
    twice = {"vocabulary.blob": np.frombuffer(b"aa", np.uint8), "vocabulary.offsets": np.arange(3)}
    with pytest.raises(ModelFormatError, match="repeated term"):
        Tfidf.from_state(Part(part.config, {**part.arrays, **twice}))
    with pytest.raises(ModelFormatError, match="offsets"):
        Tfidf.from_state(Part(part.config, {**part.arrays, "vocabulary.offsets": np.arange(3)}))


def test_own_analyzer_makes_tokens_and_ngrams():
    tfidf = Tfidf(TfidfParams(ngram_range=(1, 2)), analyzer=lambda text: text.split("|"))
    assert tfidf.fit(["New York||B", ""]).terms() == ["B", "New York", "New York B"]
    pytest.raises(ConfigError, Tfidf.from_state, tfidf.state()).match("pass the same function as")
    loaded = Tfidf.from_state(tfidf.state(), analyzer=lambda text: text.split("|"))
    assert loaded.transform(["B|C"]).indices.tolist() == [0]


DECOMPOSED, COMPOSED = "Bu\u0308cher", "B\u00fccher"


@pytest.mark.parametrize("analyzer", [None, str.split])
@pytest.mark.parametrize("kind", [list, StringTable.from_strings])
def test_accents_are_spelled_in_one_way(kind, analyzer):
    tfidf = Tfidf(analyzer=analyzer).fit(kind([DECOMPOSED, COMPOSED, "x" * 9]))
    assert len(tfidf.terms()) == 2
    for text in (DECOMPOSED, COMPOSED):
        assert tfidf.transform(kind([text])).indices.tolist() == [0]


def test_a_model_from_before_keeps_the_spelling_of_its_terms():
    part = Tfidf(TfidfParams(nfc=False, analyzer="space")).fit([DECOMPOSED, "tea"]).state()
    del part.config["params"]["nfc"]
    old = Tfidf.from_state(part)
    assert old.transform([DECOMPOSED]).nnz == 1
    assert old.transform([COMPOSED]).nnz == 0
    assert Tfidf.from_state(old.state()).transform([DECOMPOSED]).nnz == 1


READ = ["red shoes", "a red hat", "blue"]
GIVEN = sparse.csr_array(np.array([[3.0, 4.0], [0.0, 2.0], [0.0, 0.0]], np.float32))
TFIDF = Tfidf().fit(READ)
DOCUMENTS = Documents(READ, GIVEN)


def lengths(rows):
    return np.linalg.norm(rows.toarray(), axis=1)


def test_rows_have_unit_length_with_and_without_a_matrix():
    rows = TermReader(TFIDF).rows(DOCUMENTS)
    assert (rows != TFIDF.transform(READ)).nnz == 0
    rows = TermReader(None, 2).rows(DOCUMENTS).toarray()
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0, 1], [0, 0]], atol=1e-6)

    rows = TermReader(TFIDF, 2).rows(DOCUMENTS)
    own, given = rows[:, : TFIDF.n_features], rows[:, TFIDF.n_features :]
    assert rows.shape == (3, TFIDF.n_features + 2)
    np.testing.assert_allclose(lengths(rows), 1, atol=1e-6)
    np.testing.assert_allclose(lengths(given), [0.5**0.5, 0.5**0.5, 0], atol=1e-6)
    np.testing.assert_allclose(lengths(own), [0.5**0.5, 0.5**0.5, 1], atol=1e-6)

    rows = TermReader(TFIDF, 2).of_texts(["red"])
    assert rows.shape == (1, TFIDF.n_features + 2) and rows[:, TFIDF.n_features :].nnz == 0
    assert TermReader(None, 2).of_texts(["red", "hat"]).shape == (2, 2)
    assert TermReader().rows(Documents(READ)).shape == (3, 0)


@pytest.mark.parametrize("tfidf", [None, TFIDF])
def test_a_missing_or_another_matrix_is_refused(tfidf):
    reader = TermReader(tfidf, 2)
    pytest.raises(DataError, reader.rows, Documents(READ)).match("2 columns.*have none; give it")
    pytest.raises(DataError, reader.rows, Documents(READ, GIVEN[:, :1])).match(r"2 columns.*has 1")
    pytest.raises(DataError, reader.rows, Documents(READ, GIVEN * np.float32("nan"))).match("NaN")
