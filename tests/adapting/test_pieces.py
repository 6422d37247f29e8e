"""New word pieces: those that save tokens, after the old ones, spelled with the old ones."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from labelgrove.adapting.pieces import (
    FEWEST_USES,
    NewPieces,
    Speller,
    find_pieces,
    is_word_piece,
    token_counts,
    with_pieces,
)
from labelgrove.errors import ConfigError
from reference import adapting as reference
from support.tiny_encoders import make_tokenizer

MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [chr(c) for c in range(ord("a"), ord("z") + 1)]
WORDS = ["haus", "hausbau", "schule", "hochschule", "the", "of"]


def tokenizer_of(pieces: list[str]) -> Tokenizer:
    vocabulary = {piece: n for n, piece in enumerate(dict.fromkeys([*MARKS, *pieces]))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.add_special_tokens(MARKS)
    return tokenizer


@pytest.fixture(scope="module")
def english() -> Tokenizer:
    return tokenizer_of([*LETTERS, *(f"##{letter}" for letter in LETTERS), "the", "of", "##s"])


@pytest.fixture(scope="module")
def texts() -> list[str]:
    source = random.Random(0)
    return [" ".join(source.choices(WORDS, k=20)) for _ in range(100)]


@settings(max_examples=150, deadline=None)
@given(
    pieces=st.lists(st.from_regex(r"(##)?[abc]{1,4}", fullmatch=True), max_size=12),
    word=st.from_regex(r"[abc]{1,10}", fullmatch=True),
    inside=st.booleans(),
)
def test_pieces_are_spelled_with_the_old_ones(pieces: list[str], word: str, inside: bool) -> None:
    tokenizer = tokenizer_of(pieces)
    vocabulary, speller = tokenizer.get_vocab(), Speller.of(tokenizer)
    name = f"##{word}" if inside else word
    assert speller.parts(name) == reference.spelling(name, vocabulary, 1)
    if not inside:
        assert speller.parts(name) == tokenizer.encode(word, add_special_tokens=False).ids


def test_new_pieces_save_tokens(english: Tokenizer, texts: list[str]) -> None:
    pieces = find_pieces(texts, english, 50, 1e-5)
    assert {"haus", "schule", "hochschule", "hausbau"} >= set(pieces.names) - {"##bau"}
    assert {"haus", "schule", "hochschule"} <= set(pieces.names)
    old = english.get_vocab()
    assert not set(pieces.names) & set(old)
    for name, parts in zip(pieces.names, pieces.parts, strict=True):
        assert "".join(english.id_to_token(n).removeprefix("##") for n in parts) == name
    new = with_pieces(english, pieces.names)
    before, after = token_counts(texts, english), token_counts(texts, new)
    assert before.sum() == sum(len(word) for t in texts for word in t.split()) - sum(
        t.split().count(word) * (len(word) - 1) for t in texts for word in ("the", "of")
    )
    assert after.sum() == sum(len(text.split()) for text in texts)  # a token per word


def test_numbers_of_old_tokens_stay(english: Tokenizer) -> None:
    new = with_pieces(english, ["haus", "##bau"])
    old = english.get_vocab()
    assert new.get_vocab() == old | {"haus": len(old), "##bau": len(old) + 1}
    assert new.encode("Haus the hausbau").tokens == [
        "[CLS]",
        "haus",
        "the",
        "haus",
        "##bau",
        "[SEP]",
    ]
    assert new.encode("of a").ids == english.encode("of a").ids
    assert "haus" not in english.get_vocab()  # the caller's tokenizer does not change


def test_a_tokenizer_with_a_length_counts_whole_texts(english: Tokenizer, texts: list[str]) -> None:
    fixed = with_pieces(english, [])
    fixed.enable_truncation(8)
    fixed.enable_padding(length=8)
    assert (token_counts(texts, fixed) == token_counts(texts, english)).all()
    assert (token_counts(["a"], fixed) == token_counts(["a"], english)).all()
    assert find_pieces(texts, fixed, 50, 1e-5) == find_pieces(texts, english, 50, 1e-5)


def test_the_best_pieces_come_first_and_no_more_than_asked_for(
    english: Tokenizer, texts: list[str]
) -> None:
    pieces = find_pieces(texts, english, 2, 1e-5)
    assert len(pieces) == 2
    counts = token_counts(texts, with_pieces(english, pieces.names))[-2:]
    gains = [n * (len(parts) - 1) for n, parts in zip(counts, pieces.parts, strict=True)]
    assert gains[0] >= gains[1] > 0
    assert pieces.names[0] == "hochschule"  # all are equally frequent, and it is the longest


def test_pieces_that_save_little_are_left_out(english: Tokenizer, texts: list[str]) -> None:
    total = token_counts(texts, english).sum()
    rare = [*texts, *["seltsam"] * (FEWEST_USES - 1)]
    assert "seltsam" not in find_pieces(rare, english, 50, 0.0).names
    enough = [*texts, *["seltsam"] * FEWEST_USES]
    assert "seltsam" in find_pieces(enough, english, 50, 0.0).names
    assert "seltsam" not in find_pieces(enough, english, 50, 7 * FEWEST_USES / total).names
    assert find_pieces(texts[:1], english, 50, 0.0) == NewPieces([], [])


def test_unknown_words_become_pieces(english: Tokenizer) -> None:
    texts = ["the дом of the"] * 30
    pieces = find_pieces(texts, english, 50, 0.0)
    assert "дом" in pieces.names
    assert pieces.parts[pieces.names.index("дом")] == [1]


def test_pieces_follow_the_normaliser(english: Tokenizer) -> None:
    pieces = find_pieces(["Universität"] * 30, english, 50, 0.0)
    assert pieces.names == ["universitat"]


def test_many_new_pieces_make_a_round_number(english: Tokenizer) -> None:
    source = random.Random(1)
    words = ["".join(source.choices(LETTERS, k=6)) for _ in range(150)]
    pieces = find_pieces([" ".join(words)] * 30, english, 1000, 0.0)
    assert len(pieces) > 140
    assert (len(english.get_vocab()) + len(pieces)) % 8 == 0


def test_other_tokenizers_get_no_pieces() -> None:
    tokenizer = make_tokenizer("roberta")
    assert not is_word_piece(tokenizer) and is_word_piece(make_tokenizer("bert"))
    with pytest.raises(ConfigError, match="set pieces to 0"):
        find_pieces(["a"], tokenizer, 10, 0.0)


def test_pieces_on_disk(english: Tokenizer) -> None:
    pieces = NewPieces(["haus", "##bau"], [[5, 6], [7]])
    part = pieces.state()
    assert NewPieces.from_state(part) == pieces
    json.dumps(part.config)
