"""An encoder run by onnxruntime: texts to pooled states, without torch and transformers."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from labelgrove.core.arrays import Float32, Int64
from labelgrove.core.jsonio import JsonObject
from labelgrove.core.resources import thread_count
from labelgrove.data.corpus import Strings
from labelgrove.errors import MissingExtraError, ModelFormatError
from labelgrove.nn.encoders.tokens import Tokens, tokenize

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

GRAPH, WEIGHTS, TOKENIZER = "encoder.onnx", "encoder.onnx.data", "tokenizer.json"
MOST = 1 << 20  # tokens, layers and numbers of a state
BATCH_TOKENS = 2048  # including padding; more does not make a CPU faster


class OnnxEncoder:
    """The graph and the tokenizer of an exported folder, opened when first used.

    ``settings`` are ``width``, ``layers``, ``max_tokens``, ``pad_id``, ``pad_left`` and, but not in
    older folders, ``markup``, ``lowercase`` and ``fields``.
    """

    def __init__(self, folder: Path, settings: JsonObject) -> None:
        for name in ("max_tokens", "width", "layers", "pad_id"):
            value = settings[name]
            if type(value) is not int or not (name != "pad_id") <= value <= MOST:
                raise ModelFormatError(f"{folder}: the encoder cannot have {name}={value!r}")
        self.folder = folder
        self.settings = dict(settings)
        self.max_tokens: int = settings["max_tokens"]
        self.markup: str = settings.get("markup", "keep")
        self.lowercase: bool = settings.get("lowercase", False)
        self.fields: tuple[str, ...] = tuple(settings.get("fields", ()))
        self.width: int = settings["width"]
        self.layers: int = settings["layers"]
        self._lock = threading.Lock()
        self._session: InferenceSession | None = None
        self._threads = 0

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The ``tokenizers.Tokenizer`` of the folder."""
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingExtraError("onnx", "an exported model") from error
        file = self.folder / TOKENIZER
        try:
            return Tokenizer.from_str(file.read_text(encoding="utf-8"))
        except Exception as error:  # the library raises plain Exception
            raise ModelFormatError(f"{file}: cannot be read ({error})") from error

    def tokens(self, texts: Strings) -> Tokens:
        """Token ids of texts, as in training."""
        return tokenize(texts, self, self.max_tokens)

    def session(self) -> InferenceSession:
        """onnxruntime's session for the caller's threads; it keeps the last one."""
        count = thread_count() or os.cpu_count() or 1
        with self._lock:
            if self._session is None or self._threads != count:
                self._session, self._threads = open_session(self.folder / GRAPH, count), count
            return self._session

    def states(
        self, tokens: Tokens, *, documents: int | None = None
    ) -> Iterator[tuple[Int64, Float32]]:
        """Rows and their states (documents x layers x width), in batches of similar length.

        A batch has at most ``documents``.
        """
        session: InferenceSession = self.session() if len(tokens) else None
        for rows in batches(tokens, BATCH_TOKENS, documents or len(tokens)):
            longest = int(tokens.lengths[rows].max())
            ids = np.full((len(rows), longest), self.settings["pad_id"], np.int64)
            mask = np.zeros(ids.shape, np.int64)
            for line, row in enumerate(rows):
                count = tokens.lengths[row]
                place = slice(longest - count, None) if self.settings["pad_left"] else slice(count)
                ids[line, place] = tokens.row(row)
                mask[line, place] = 1
            yield rows, self._run(session, {"ids": ids, "mask": mask})

    def _run(self, session: InferenceSession, inputs: dict[str, Int64]) -> Float32:
        try:
            states: Float32 = session.run(None, inputs)[0]
        except Exception as error:  # onnxruntime has a class of its own for every kind of failure
            raise ModelFormatError(f"{self.folder / GRAPH}: cannot be run ({error})") from error
        return states

    def vectors(self, texts: Strings) -> Float32:
        """The states of all layers, side by side, for each document."""
        tokens = self.tokens(texts)
        vectors = np.empty((len(tokens), self.layers * self.width), np.float32)
        for rows, states in self.states(tokens):
            vectors[rows] = states.reshape(len(rows), -1)
        return vectors


def batches(tokens: Tokens, most: int, documents: int) -> Iterator[Int64]:
    """All documents by length, in batches of at most ``most`` tokens, with padding."""
    order = np.argsort(tokens.lengths, kind="stable")
    start = 0
    while start < len(order):
        end, last = start + 1, min(start + documents, len(order))
        while end < last and (end + 1 - start) * tokens.lengths[order[end]] <= most:
            end += 1
        yield order[start:end]
        start = end


def open_session(file: Path, threads: int) -> InferenceSession:
    """onnxruntime's session of a graph, on the CPU."""
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("onnx", "an exported model") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a class of its own for every kind of failure
        raise ModelFormatError(
            f"{file}: onnxruntime {onnxruntime.__version__} cannot open it ({error}); try a newer "
            "one: pip install --upgrade onnxruntime"
        ) from error
