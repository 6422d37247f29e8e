"""Text vectors for neighbours: the last states of an encoder, standardised, of unit length.

The states that an encoder gives to different texts are similar, so all cosines would be near 1.
The training documents give the mean and the spread that are taken out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from labelgrove.core.aliases import Progress
from labelgrove.core.arrays import Array, Float32
from labelgrove.core.part import Part
from labelgrove.data.corpus import Corpus, Strings
from labelgrove.disk.stages import Stages
from labelgrove.methods import neural
from labelgrove.methods.fitted import ExportedParts
from labelgrove.methods.preparation import check_fields, tokens_stage
from labelgrove.methods.xrtransformer.vectors import Standard, network_of, standardise
from labelgrove.nn.encoders.encoder import Encoder, load_encoder
from labelgrove.nn.encoders.files import EncoderContent, EncoderParams
from labelgrove.nn.encoders.tokens import Tokens, tokenize
from labelgrove.nn.network import unit_vectors


class LastState(nn.Module):
    """The head of a network that only gives the encoder's last state."""

    def text(self, states: list[Tensor]) -> Tensor:
        """What is compared."""
        return states[-1]


@dataclass(frozen=True)
class TextReader:
    """Reads texts as unit vectors."""

    encoder: Encoder
    standard: Standard

    def vectors(self, texts: Strings, max_tokens: int | None = None) -> Float32:
        """A row for each text."""
        length = min(max_tokens or self.encoder.max_tokens, self.encoder.max_tokens)
        tokens = tokenize(texts, self.encoder, length)
        rows = np.zeros((len(tokens), self.encoder.width), np.float32)
        self.fill(rows, tokens)
        return rows

    def fill(self, rows: Array, tokens: Tokens, progress: Progress | None = None) -> None:
        """Fills ``rows``; in half precision there is never a second copy of them."""
        network = network_of(self.encoder, LastState(), self.standard).train(self.encoder.training)
        neural.make_runner(network, "auto").fill(rows, tokens, unit_vectors, progress)

    def exported_parts(self, parts: dict[str, Part]) -> ExportedParts:
        mean, scale = np.asarray(self.standard.mean), np.asarray(self.standard.scale)
        return ExportedParts(self.encoder, (-1,), parts, mean, scale)

    def parts(self) -> dict[str, Part]:
        return {"encoder": self.encoder.state(), "standard": self.standard.state()}

    @classmethod
    def from_parts(cls, parts: Mapping[str, Part]) -> TextReader:
        """From the model folder."""
        encoder = Encoder.from_state(parts["encoder"]).eval()
        standard = Standard.from_state(parts["standard"])
        for values in (standard.mean, standard.scale):
            if values.shape != (1, encoder.width):
                raise ValueError(f"states of {encoder.width} cannot be scaled by {values.shape}")
        return cls(encoder, standard)


def read_training(
    stages: Stages, corpus: Corpus, params: EncoderParams
) -> tuple[TextReader, npt.NDArray[np.float16]]:
    """What reads texts, and the unit vectors of the training documents."""
    check_fields(params, corpus)
    encoder = load_encoder(params).eval()
    part = stages(
        "neighbour-vectors",
        training_vectors,
        encoder=stages.derive(lambda: encoder, content=EncoderContent(params)),
        tokens=tokens_stage(stages, "tokens", corpus.texts, encoder),
    ).value
    return TextReader(encoder, Standard.from_state(part)), part.arrays["vectors"]


def training_vectors(encoder: Encoder, tokens: Tokens, *, progress: Progress | None = None) -> Part:
    """Unit vectors of the training documents, and how their states were standardised."""
    standard = standardise(encoder, tokens, "auto")
    rows = np.zeros((len(tokens), encoder.width), np.float16)
    TextReader(encoder, standard).fill(rows, tokens, progress)
    return Part({}, standard.state().arrays | {"vectors": rows})
