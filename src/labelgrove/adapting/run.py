"""``labelgrove.adapt``: texts and an encoder in, an encoder that knows their language out."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labelgrove.adapting.folder import Adapted, check_folder, write_encoder
from labelgrove.adapting.masking import MaskedBatches, Masking
from labelgrove.adapting.objective import (
    MaskedModel,
    grow_table,
    grown_head,
    loss_of,
    own_head,
)
from labelgrove.adapting.params import AdaptParams
from labelgrove.adapting.pieces import (
    NewPieces,
    find_pieces,
    is_word_piece,
    next_number,
    token_counts,
    with_pieces,
)
from labelgrove.core.callbacks import Callback, Reporter
from labelgrove.core.params import fixed
from labelgrove.core.part import Part
from labelgrove.data.corpus import Corpus
from labelgrove.data.frames import without_frame
from labelgrove.disk.run_folder import RunFolder
from labelgrove.disk.stages import Made, Stages
from labelgrove.errors import ConfigError, DataError, warn
from labelgrove.methods.preparation import tokens_stage
from labelgrove.nn.batches.padded import prefetched
from labelgrove.nn.encoders.encoder import Encoder, load_encoder, load_tokenizer
from labelgrove.nn.encoders.files import (
    EncoderContent,
    EncoderParams,
    longest_text,
    trained_pooling,
)
from labelgrove.nn.encoders.tokens import Tokens
from labelgrove.nn.training.devices import autocast, choose_device, choose_precision
from labelgrove.nn.training.loop import LoopParams, train

FEWEST_TEXTS, MOST_HELD_OUT = 10, 1000
TOKENS_TO_SEE, MOST_EPOCHS = 200_000_000, 10
TOKENS_PER_UPDATE, FEWEST_TOKENS, UPDATES_PER_EPOCH = 32_768, 2048, 50
RATE, RATE_WIDTH = 2e-4, 384
WORTH_COMPILING = 300  # updates; compiling takes half a minute
_HELD_OUT = 1 << 32  # added to the seed of what is hidden in held-out texts


def adapt(
    encoder: str | os.PathLike[str],
    texts: Any,
    out: str | os.PathLike[str],
    *,
    seed: int = 0,
    device: str = "auto",
    threads: int | None = None,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    run: RunFolder | None = None,
    **settings: Any,
) -> Adapted:
    """Continues the pretraining of ``encoder`` on ``texts`` and writes it to the folder ``out``.

    ``texts`` are strings or a corpus, whose labels are not used. ``settings`` are fields of
    ``AdaptParams``, such as ``pieces=4000`` or ``epochs=3``. With a ``run`` folder, a call that was
    stopped continues after its last checkpoint.
    """
    params = AdaptParams.from_dict(settings)
    check_folder(Path(out), overwrite=overwrite)
    name = os.fspath(encoder)
    reading = _reading(name, params)
    tokenizer = load_tokenizer(reading)
    _check_encoder(reading, tokenizer)
    reporter = Reporter(callbacks)
    stages = Stages(reporter, run)
    learnt, held_out = _split(_different(texts), params.held_out, seed)
    pieces = _pieces_stage(stages, learnt, tokenizer.backend_tokenizer, params, name)
    reader, head = _enlarged(reading, tokenizer.backend_tokenizer, pieces.value)
    tokens = tokens_stage(stages, "tokens", learnt, reader, threads=threads)
    held_out_tokens = tokens_stage(stages, "held-out-tokens", held_out, reader, threads=threads)
    where = choose_device(device)
    final = _resolved(params, tokens.value, reader, where)
    sample = held_out or learnt[:MOST_HELD_OUT]
    per_word = (
        _tokens_per_word(sample, tokenizer.backend_tokenizer),
        _tokens_per_word(sample, reader.tokenizer),
    )
    reporter.message(_plan(tokens.value, len(pieces.value), per_word, final))
    trained = stages(
        "adapt",
        train_encoder,
        tokens=tokens,
        held_out=held_out_tokens,
        encoder=stages.derive(
            lambda: (reader, head), content=EncoderContent(reading), pieces=pieces
        ),
        special=_special(tokenizer),
        mask_id=int(tokenizer.mask_token_id),
        params=final,
        seed=seed,
        device=device,
        reporter=reporter,
    ).value
    story = trained.config["story"]
    losses = [(float(epoch), float(loss)) for epoch, loss in story["losses"]]
    if losses and losses[-1][1] > losses[0][1]:
        warn(
            f"the encoder guesses hidden tokens of held-out texts worse than before (loss "
            f"{losses[-1][1]:.3f}, before {losses[0][1]:.3f}); lower lr, or give more texts"
        )
    about = Adapted(
        folder=os.fspath(out),
        encoder=Path(name).name if Path(name).is_dir() else name,
        texts=len(learnt),
        held_out=len(held_out),
        tokens=int(tokens.value.lengths.sum()),
        new_pieces=len(pieces.value),
        tokens_per_word=per_word,
        losses=losses,
        updates=story["updates"],
        seconds=story["seconds"],
        tokens_per_second=story["tokens_per_second"],
        settings={"seed": seed, **final.identity()},
    )
    source = reading.folder()
    write_encoder(
        Path(out), Encoder.from_state(trained), tokenizer, source, about, overwrite=overwrite
    )
    return about


def train_encoder(
    tokens: Tokens,
    held_out: Tokens,
    encoder: tuple[Encoder, dict[str, Any] | None],
    special: list[int],
    mask_id: int,
    params: AdaptParams,
    seed: int,
    *,
    device: str,
    reporter: Reporter,
    checkpoints: Path | None = None,
) -> Part:
    """Trains an encoder on hidden tokens; gives its state, and how the training went."""
    where = choose_device(device)
    reader, head = encoder
    model = MaskedModel(reader, head)
    vocabulary = next_number(reader.tokenizer)
    masking = Masking(params.mask_share, mask_id, np.array(special), vocabulary, seed)
    contrast = params.contrast_weight if params.objective == "mlm+contrast" else 0.0
    batches = MaskedBatches(tokens, reader, masking, params.batch_tokens, views=contrast > 0)
    losses: list[float] = []
    score: Callable[[], float] | None = None
    if len(held_out):
        hidden = replace(masking, seed=seed + _HELD_OUT)
        judges = MaskedBatches(held_out, reader, hidden, params.batch_tokens)
        precision = choose_precision(params.precision, where)

        def measured() -> float:
            loss = held_out_loss(model, judges, where, precision)
            reporter.message(f"loss of hidden tokens in held-out texts: {loss:.4f}")
            return loss

        model.to(where).eval()
        losses.append(measured())
        score = lambda: -measured()  # noqa: E731
    result = train(
        model,
        batches,
        partial(loss_of, contrast=contrast, temperature=params.temperature),
        _loop(params),
        evaluate=score,
        folder=checkpoints,
        reporter=Reporter(reporter.callbacks),  # its seconds are counted as the stage's already
        device=where,
        seed=seed,
        prefetch=prefetched,
        stage="training",
    )
    scores = [
        (round(record["step"] / len(batches), 2), -record["score"])
        for record in result.history
        if "score" in record
    ]
    story = {
        "losses": [(0.0, loss) for loss in losses] + scores,
        "updates": result.steps,
        "seconds": result.seconds,
        "tokens_per_second": result.tokens_per_second,
    }
    part = reader.state()
    return Part({**part.config, "story": story}, part.arrays)


def held_out_loss(
    model: MaskedModel, batches: MaskedBatches, device: torch.device, precision: str
) -> float:
    """The mean loss of the hidden tokens of all batches; the model is in evaluation mode."""
    total, count = 0.0, 0
    with torch.inference_mode(), autocast(precision, device):
        for batch in prefetched(batches.epoch(0), device):
            total += float(model.guess_loss(model.states(batch), batch))
            count += len(batch.targets)
    return total / max(1, count)


def _reading(name: str, params: AdaptParams) -> EncoderParams:
    reading = EncoderParams(encoder=name)
    folder = reading.folder()
    most = longest_text(folder) or params.max_tokens
    pooling = trained_pooling(folder) or "mean"
    return replace(reading, max_tokens=min(params.max_tokens, most), pooling=pooling)


def _check_encoder(reading: EncoderParams, tokenizer: Any) -> None:
    name = reading.encoder
    if len(tokenizer.get_vocab()) <= len(tokenizer.all_special_tokens):
        raise ConfigError(
            f"encoder {name!r}: has no tokenizer (tokenizer.json or its vocabulary is missing); "
            "add the tokenizer's files to the folder"
        )
    if tokenizer.mask_token_id is None:
        raise ConfigError(
            f"encoder {name!r}: its tokenizer has no mask token, so tokens cannot be hidden; "
            "choose an encoder such as BERT, RoBERTa or XLM-R"
        )


def _different(texts: Any) -> list[str]:
    """The texts that are not empty, each once."""
    if isinstance(texts, Corpus):
        if texts.texts is None:
            raise DataError("the corpus has features but no texts; adapting needs texts")
        texts = texts.texts
    if isinstance(texts, (str, bytes)):
        raise DataError(f"texts is one {type(texts).__name__}; give a list of strings: [text]")
    strings: Iterable[Any] = without_frame(texts, "the texts")
    unique: dict[str, None] = {}
    for number, text in enumerate(strings):
        if not isinstance(text, str):
            raise DataError(f"text {number} is {text!r}, not a string")
        if text.strip():
            unique[text] = None
    if len(unique) < FEWEST_TEXTS:
        raise DataError(
            f"there are {len(unique)} different texts that are not empty; adapting needs at least "
            f"{FEWEST_TEXTS}, and pays from some thousands on"
        )
    return list(unique)


def _split(texts: list[str], share: float, seed: int) -> tuple[list[str], list[str]]:
    """The texts to learn from and those held out, in their order."""
    count = min(MOST_HELD_OUT, math.ceil(share * len(texts)))
    out = np.zeros(len(texts), bool)
    out[np.random.default_rng(seed).permutation(len(texts))[:count]] = True
    learnt = [text for text, is_out in zip(texts, out, strict=True) if not is_out]
    return learnt, [text for text, is_out in zip(texts, out, strict=True) if is_out]


def _pieces_stage(
    stages: Stages, texts: list[str], tokenizer: Any, params: AdaptParams, name: str
) -> Made[NewPieces]:
    if params.pieces == 0:
        return stages.derive(lambda: NewPieces([], []))
    if not is_word_piece(tokenizer):
        stages.reporter.message(
            f"encoder {name!r}: its tokenizer is not WordPiece, so it gets no new pieces; its "
            "pretraining continues with the vocabulary that it has"
        )
        return stages.derive(lambda: NewPieces([], []))
    pieces = stages(
        "pieces",
        find_pieces,
        texts=texts,
        tokenizer=stages.derive(lambda: tokenizer, tokenizer=tokenizer.to_str()),
        most=params.pieces,
        gain=params.piece_gain,
    )
    if not len(pieces.value):
        stages.reporter.message(
            "no new word pieces: none would save enough tokens; the vocabulary suits the texts, or "
            "there are too few of them"
        )
    return pieces


def _enlarged(
    reading: EncoderParams, tokenizer: Any, pieces: NewPieces
) -> tuple[Encoder, dict[str, Any] | None]:
    """The encoder with rows for new pieces, and the layer of its own pretraining, if it has one."""
    reader = load_encoder(reading)
    if reader.model.config.model_type == "xlnet":
        raise ConfigError(
            f"encoder {reading.encoder!r}: XLNet was not pretrained by hiding tokens; choose "
            "another encoder"
        )
    table = reader.model.get_input_embeddings()
    head = own_head(reading.folder(), table.num_embeddings, table.embedding_dim)
    if len(pieces):
        first = next_number(tokenizer)
        grow_table(reader, pieces.parts, first)
        head = None if head is None else grown_head(head, pieces.parts, first)
        reader.tokenizer = with_pieces(tokenizer, pieces.names)
    return reader, head


def _resolved(
    params: AdaptParams, tokens: Tokens, reader: Encoder, device: torch.device
) -> AdaptParams:
    """The settings with values for those that are "auto"."""
    if params.objective == "mlm+contrast" and not reader.packs:
        raise ConfigError(
            f"objective: mlm+contrast needs packed texts, but {reader.packing_obstacle}; use mlm"
        )
    total = int(tokens.lengths.sum())
    often = 2 ** int(math.log2(max(1, total // UPDATES_PER_EPOCH)))
    size = fixed(params.batch_tokens, min(max(often, FEWEST_TOKENS), TOKENS_PER_UPDATE))
    epochs = fixed(params.epochs, float(min(max(round(TOKENS_TO_SEE / total), 1), MOST_EPOCHS)))
    rate = float(f"{RATE * min(1.0, RATE_WIDTH / reader.width):.1e}")
    has_compiler = device.type == "cuda" and importlib.util.find_spec("triton") is not None
    worth = reader.packs and has_compiler and epochs * total / size >= WORTH_COMPILING
    return replace(
        params,
        batch_tokens=max(size, tokens.longest),
        epochs=epochs,
        lr=fixed(params.lr, rate),
        compile=fixed(params.compile, worth),
    )


def _loop(params: AdaptParams) -> LoopParams:
    return LoopParams(
        epochs=params.epochs,
        lr=params.lr,
        head_lr=params.head_lr,
        warmup=params.warmup,
        weight_decay=params.weight_decay,
        beta2=0.98,
        precision=params.precision,
        compile=params.compile,
        checkpoint_minutes=params.checkpoint_minutes,
        log_every=20,
    )


def _special(tokenizer: Any) -> list[int]:
    return sorted(set(map(int, tokenizer.all_special_ids)))


def _tokens_per_word(texts: Sequence[str], tokenizer: Any) -> float:
    words = sum(len(text.split()) for text in texts)
    return float(token_counts(texts, tokenizer).sum()) / max(1, words)


def _plan(tokens: Tokens, pieces: int, per_word: tuple[float, float], params: AdaptParams) -> str:
    total = int(tokens.lengths.sum())
    updates = math.ceil(params.epochs * math.ceil(total / params.batch_tokens))
    return (
        f"{len(tokens):,} texts of {total:,} tokens ({per_word[1]:.2f} per word, before "
        f"{per_word[0]:.2f}; {pieces:,} new pieces); {params.epochs:g} epochs are about "
        f"{updates:,} updates of {params.batch_tokens:,} tokens"
    )
