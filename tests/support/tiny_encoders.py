"""Encoder folders of every family, made quickly: random weights and a vocabulary of a few words.

Their tokenizers are of the family's own class, with its special tokens in its own order.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

# Models this small gain nothing from threads, and lose much where other processes want the cores.
torch.set_num_threads(1)

LAYERS, WIDTH = 3, 16
TEXTS = ["red", "red shoes blue", "blue blue red shoes shoes", "shoes red"]

_CLASSES = {
    "bert": "BertTokenizer",
    "deberta-v2": "DebertaV2Tokenizer",  # DeBERTa v3, too
    "distilbert": "DistilBertTokenizer",
    "electra": "ElectraTokenizer",
    "eurobert": "PreTrainedTokenizerFast",
    "modernbert": "PreTrainedTokenizerFast",
    "mpnet": "MPNetTokenizer",
    "roberta": "RobertaTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "xlnet": "XLNetTokenizer",
}
# Families that the installed transformers knows (ModernBERT and EuroBERT came after 4.45).
FAMILIES = sorted(f for f in _CLASSES if f in transformers.CONFIG_MAPPING)
# What the published encoders of a family set, where the family's defaults are others.
_PUBLISHED: dict[str, dict[str, Any]] = {
    "deberta-v2": {
        "relative_attention": True,
        "position_buckets": 8,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "type_vocab_size": 0,
    },
}
_BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# EuroBERT pads with the token that ends a text.
_EURO = ["<|begin_of_text|>", "<|end_of_text|>", "<|mask|>"]


def make_encoder(
    folder: Path,
    family: str,
    *,
    half: bool = False,
    words: Sequence[str] = ("red", "blue", "shoe"),
    **settings: Any,
) -> Path:
    """Writes a tiny encoder in Hugging Face form; ``settings`` go into its config."""
    folder.mkdir(parents=True)
    tokenizer = make_tokenizer(family, words)
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {"tokenizer_class": _CLASSES[family]}
    if family == "modernbert":
        for name in ("pad", "cls", "sep", "mask", "unk"):
            about[f"{name}_token"] = f"[{name.upper()}]"
    if family == "eurobert":
        about |= {"bos_token": _EURO[0], "eos_token": _EURO[1], "pad_token": _EURO[1]}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    config = transformers.AutoConfig.for_model(family)
    names = config.to_dict()
    sizes = {
        ("hidden_size", "d_model", "dim", "embedding_size"): WIDTH,
        ("num_hidden_layers", "n_layer", "n_layers"): LAYERS,
        ("num_attention_heads", "n_head", "n_heads"): 2,
        ("num_key_value_heads",): 1,
        ("intermediate_size", "d_inner", "hidden_dim"): 24,
        ("max_position_embeddings",): 34,
        # Large enough that layers differ visibly.
        ("initializer_range",): 0.3,
    }
    chosen = {name: v for group, v in sizes.items() for name in group if name in names}
    chosen |= _PUBLISHED.get(family, {})
    marks = {name: tokenizer.token_to_id(mark) for name, mark in _marks(family).items()}
    chosen |= {"vocab_size": tokenizer.get_vocab_size(), **marks} | settings
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.AutoModel.from_config(
            transformers.AutoConfig.for_model(family, **chosen)
        )
    (model.half() if half else model).save_pretrained(folder)
    return folder


def make_tokenizer(family: str, words: Sequence[str] = ("red", "blue", "shoe")) -> Tokenizer:
    if family in ("roberta", "eurobert"):
        marks = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        if family == "eurobert":
            marks = _EURO
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        vocabulary = {piece: n for n, piece in enumerate(marks + letters)}
        tokenizer = Tokenizer(models.BPE(vocabulary, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        begin, end = (marks[0], marks[1 if family == "eurobert" else 2])
        tokenizer.post_processor = processors.RobertaProcessing(
            (end, vocabulary[end]), (begin, vocabulary[begin])
        )
    elif family in ("xlnet", "xlm-roberta", "deberta-v2"):
        own = ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>"]
        marks = own if family == "xlnet" else ["<s>", "<pad>", "</s>", "<unk>"]
        if family == "deberta-v2":
            marks = _BERT
        pieces = [(mark, 0.0) for mark in marks] + [("▁", -3.0), ("s", -3.0)]
        pieces += [(f"▁{word}", -2.0) for word in words]
        unknown = next(n for n, mark in enumerate(marks) if mark.lower()[1:-1] == "unk")
        tokenizer = Tokenizer(models.Unigram(pieces, unk_id=unknown))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
        )
        templates = {"xlnet": "$A:0 <sep>:0 <cls>:2", "deberta-v2": "[CLS] $A [SEP]"}
        template = templates.get(family, "<s> $A </s>")
        used = [(mark, n) for n, mark in enumerate(marks) if mark in template]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=used
        )
    else:
        marks = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"] if family == "mpnet" else _BERT
        vocabulary = {piece: n for n, piece in enumerate([*marks, *words, "##s"])}
        tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.add_special_tokens(marks)  # as published files do
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        begin, end = ("<s>", "</s>") if family == "mpnet" else ("[CLS]", "[SEP]")
        tokenizer.post_processor = processors.BertProcessing(
            (end, vocabulary[end]), (begin, vocabulary[begin])
        )
    return tokenizer


def _marks(family: str) -> dict[str, str]:
    if family == "xlnet":
        return {"pad_token_id": "<pad>", "bos_token_id": "<s>", "eos_token_id": "</s>"}
    if family in ("mpnet", "roberta", "xlm-roberta"):
        return {"pad_token_id": "<pad>", "bos_token_id": "<s>", "eos_token_id": "</s>"}
    if family == "eurobert":
        return {"pad_token_id": _EURO[1], "bos_token_id": _EURO[0], "eos_token_id": _EURO[1]}
    marks = {"pad_token_id": "[PAD]"}
    if family == "modernbert":
        marks |= {"bos_token_id": "[CLS]", "eos_token_id": "[SEP]"}
        marks |= {"cls_token_id": "[CLS]", "sep_token_id": "[SEP]"}
    return marks
