"""Tokenising: equal to the tokenizer itself, whatever the text, the chunk and the cut."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tokenizers")
pytest.importorskip("torch")
pytest.importorskip("transformers")

from tokenizers import Tokenizer, models, pre_tokenizers, processors

from labelgrove import records
from labelgrove.core.strings import StringTable
from labelgrove.errors import ConfigError, DataError, ModelFormatError
from labelgrove.nn.encoders import tokens as module
from labelgrove.nn.encoders.tokens import Tokens, tokenize
from support.threads import on_threads
from support.tiny_encoders import FAMILIES, make_tokenizer

TOKENIZERS = {family: make_tokenizer(family) for family in FAMILIES}
WORDS = st.sampled_from(
    ["red", "blue", "shoes", "é\u0301", "x" * 40, "東京", "\n", "[SEP]", " ", ""]
)
TEXTS = st.lists(st.lists(WORDS, max_size=60).map(" ".join), max_size=8)


def by_hand(tokenizer, text, max_tokens):
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.enable_truncation(max_tokens)
    return list(copy.encode(text).ids)


@settings(max_examples=40)
@given(family=st.sampled_from(FAMILIES), texts=TEXTS, max_tokens=st.integers(3, 20))
def test_long_texts_give_the_tokens_of_the_whole_text(family, texts, max_tokens):
    tokenizer = TOKENIZERS[family]
    tokens = tokenize(texts, tokenizer, max_tokens)
    assert len(tokens) == len(texts)
    for i, text in enumerate(texts):
        assert tokens.row(i).tolist() == by_hand(tokenizer, text, max_tokens)


def test_long_texts_are_cut_before_the_tokenizer_sees_them():
    tokenizer = TOKENIZERS["bert"]
    shorten = module._shortener(tokenizer, 8)
    text = "red shoes " * 1000
    seen = [len(shorten(text)), len(shorten("red")), len(shorten("x" * 1000))]
    assert seen[0] < 70
    assert seen[1:] == [3, 1000]


def test_texts_whose_words_are_not_apart_are_never_cut():
    whole = Tokenizer(models.BPE({"a": 0, " ": 1, "a ": 2}, [("a", " ")]))
    text = "a " * 100
    assert tokenize([text], whole, 5).row(0).tolist() == by_hand(whole, text, 5)
    assert module._shortener(whole, 5)(text) == text


def test_chunks_and_any_sequence_of_texts(monkeypatch):
    monkeypatch.setattr(module, "_TEXTS_PER_CHUNK", 2)
    texts = ["red", "blue shoes", "", "red red red", "blue"]
    tokenizer = TOKENIZERS["bert"]
    whole = tokenize(texts, tokenizer, 8)
    assert whole.row(2).tolist() == [2, 3]
    assert (whole.ids.dtype, whole.offsets.dtype) == (np.int32, np.int64)
    for given_texts in (iter(texts), StringTable.from_strings(texts), tuple(texts)):
        again = on_threads(1, tokenize, given_texts, tokenizer, 8)
        assert np.array_equal(again.ids, whole.ids)
        assert np.array_equal(again.offsets, whole.offsets)


def test_the_callers_tokenizer_and_environment_are_left_alone(monkeypatch):
    import os

    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    monkeypatch.delenv("RAYON_NUM_THREADS", raising=False)
    tokenizer = make_tokenizer("bert")
    on_threads(2, tokenize, ["red " * 50], tokenizer, 4)
    assert tokenizer.truncation is None
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"
    assert "RAYON_NUM_THREADS" not in os.environ


def test_no_document_is_without_tokens():
    plain = Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    assert tokenize(["", "a"], plain, 4).lengths.tolist() == [1, 1]
    tokens = tokenize(["red \ud800 shoes", "blue"], TOKENIZERS["bert"], 8)
    assert tokens.row(0).tolist() == by_hand(TOKENIZERS["bert"], "red ? shoes", 8)
    assert tokens.row(1).tolist() == by_hand(TOKENIZERS["bert"], "blue", 8)


def test_wrong_input_is_named():
    with pytest.raises(DataError, match="text 1 is None, not a string"):
        tokenize(["a", None], TOKENIZERS["bert"], 8)
    pytest.raises(DataError, tokenize, "red", TOKENIZERS["bert"], 8).match("texts is one str")
    with pytest.raises(ConfigError, match="2 leaves no room for text beside the encoder's 2"):
        tokenize(["red"], TOKENIZERS["bert"], 2)
    pytest.raises(ConfigError, tokenize, ["red"], {}, 8).match("a dict is not a fast tokenizer")
    for ids, offsets in (([1], [0, 2]), ([1, 2], [1, 2]), ([1, 2], [0, 2, 1]), ([], [])):
        with pytest.raises(DataError, match="offsets"):
            Tokens(np.array(ids, np.int32), np.array(offsets, np.int64))


def test_some_documents_in_any_order():
    tokens = Tokens(np.array([5, 7, 9, 4], np.int32), np.array([0, 2, 3, 4]))
    some = tokens.take(np.array([2, 0, 2]))
    assert [some.row(i).tolist() for i in range(len(some))] == [[4], [5, 7], [4]]
    assert len(tokens.take(np.array([], int))) == 0
    assert (tokens.lengths.tolist(), tokens.longest) == ([2, 1, 1], 2)


def test_token_numbers_beyond_the_type_or_with_huge_gaps_are_refused():
    far = Tokenizer(models.WordLevel({"red": 0, "blue": 2**31}, unk_token="red"))
    pytest.raises(ModelFormatError, tokenize, ["red"], far, 8).match("only 2 tokens but numbers")
    plain = Tokenizer(models.WordLevel({"red": 0}, unk_token="red"))
    plain.post_processor = processors.TemplateProcessing(
        single="[X] $0", pair="[X] $A $B", special_tokens=[("[X]", 2**31)]
    )
    pytest.raises(ModelFormatError, tokenize, ["red"], plain, 8).match("above 2\\^31")


class Reader:
    """As much of an encoder as tokenising needs."""

    def __init__(self, tokenizer, markup="keep", lowercase=False):
        self.tokenizer, self.markup, self.lowercase = tokenizer, markup, lowercase


def test_markup_of_raw_texts():
    """``markup="sep"``: CascadeXML's replacements."""
    plain = Tokenizer.from_str(TOKENIZERS["bert"].to_str())
    plain.add_special_tokens(["[SEP]"])  # as BERT's own does
    text = "red_shoes /SEP/ blue__shoes"
    for markup, expected in (("keep", text), ("sep", "red shoes [SEP] blue  shoes")):
        reader = Reader(plain, markup)
        assert tokenize([text], reader, 20).row(0).tolist() == by_hand(plain, expected, 20)


@pytest.mark.parametrize("markup", ["keep", "sep"])
def test_lower_case(markup):
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "red": 1, "[SEP]": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    text = "\u0130X Red /SEP/ RED"  # the small form of its first letter has two characters
    reader = Reader(tokenizer, markup, lowercase=True)
    separator = 2 if markup == "sep" else 0
    assert tokenize([text], reader, 8).row(0).tolist() == [0, 1, separator, 1]


def test_accents_are_spelled_in_one_way():
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "caf\u00e9": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    text = "x cafe\u0301 y"
    assert tokenize([text], tokenizer, 8).row(0).tolist() == [0, 1, 0]


@pytest.mark.parametrize(("family", "mark"), [("bert", "[SEP]"), ("roberta", "</s>")])
def test_documents_with_fields_are_read_with_separators(family, mark):
    tokenizer = Tokenizer.from_str(TOKENIZERS[family].to_str())
    plain = records([{"a": "red", "b": "blue"}], text=["a", "b"])
    if family == "roberta":  # the other one knows its mark
        assert tokenize(plain, tokenizer, 16).row(0).tolist() == by_hand(tokenizer, "red\nblue", 16)
    tokenizer.add_special_tokens([mark])
    rows = [{"a": "red", "b": "blue", "by": ["shoe", "red"]}, {"a": "red"}, {"b": "red"}]
    documents = [*records(rows, text=["a", "b"], fields="by"), "red"]

    class Reader:
        """What an Encoder and an exported one have of it."""

        def __init__(self, *fields):
            self.tokenizer, self.fields = tokenizer, fields

    for reader, first in [
        (tokenizer, f"red{mark}blue"),
        (Reader(), f"red{mark}blue"),
        (Reader("by", "no"), f"red{mark}shoe, red{mark}blue"),
    ]:
        tokens = tokenize(documents, reader, 16)
        assert tokens.row(0).tolist() == by_hand(tokenizer, first, 16)
        assert all(tokens.row(n).tolist() == by_hand(tokenizer, "red", 16) for n in (1, 2, 3))
    assert tokenizer.token_to_id(mark) in tokenize(documents[:1], tokenizer, 16).row(0)[1:-1]
