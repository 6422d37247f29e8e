"""The folder of an adapted encoder: Hugging Face files, and a page that says how it was made."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from labelgrove.core.versions import VERSION
from labelgrove.disk.atomic import occupied, write_folder
from labelgrove.errors import ConfigError
from labelgrove.nn.encoders.encoder import Encoder, quiet

ABOUT = "adapted.json"


@dataclass(frozen=True)
class Adapted:
    """How an encoder was adapted; ``losses`` are those of hidden tokens in held-out texts.

    A loss stands beside the epochs after which it was measured. ``tokens_per_word`` was measured
    with the old and with the new vocabulary.
    """

    folder: str
    encoder: str
    texts: int
    held_out: int
    tokens: int
    new_pieces: int
    tokens_per_word: tuple[float, float]
    losses: list[tuple[float, float]]
    updates: int
    seconds: float
    tokens_per_second: float
    settings: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """All of it, for programs."""
        return asdict(self)

    def lines(self) -> list[str]:
        """All of it, for people."""
        before, after = self.tokens_per_word
        lines = [
            f"{self.encoder}, adapted to {self.texts:,} texts of {self.tokens:,} tokens",
            f"{self.new_pieces:,} new word pieces: {after:.2f} tokens per word, "
            f"before {before:.2f}",
        ]
        if self.losses:
            steps = ", ".join(f"{loss:.3f} (epoch {epoch:g})" for epoch, loss in self.losses)
            lines.append(f"loss of hidden tokens in {self.held_out:,} held-out texts: {steps}")
        lines.append(
            f"{self.updates:,} updates in {self.seconds:,.0f} s, "
            f"{self.tokens_per_second:,.0f} tokens per second"
        )
        return lines


def check_folder(out: Path, *, overwrite: bool) -> None:
    """Raises an error, before the work, if an encoder cannot be written there."""
    if not occupied(out):
        return
    if not overwrite:
        raise ConfigError(f"{out}: exists already; choose another folder or pass overwrite=True")
    if not (out / ABOUT).is_file():
        raise ConfigError(
            f"{out}: is not replaced, because it is not a folder that adapt wrote (it has no "
            f"{ABOUT}); choose another one"
        )


def write_encoder(
    out: Path,
    encoder: Encoder,
    tokenizer: Any,
    source: Path,
    about: Adapted,
    *,
    overwrite: bool = False,
) -> None:
    """Writes a folder that any method and transformers can read.

    ``tokenizer`` is the one of transformers that the encoder in ``source`` has; its settings stay,
    and its vocabulary becomes that of ``encoder``.
    """

    def write(folder: Path) -> None:
        with quiet():
            encoder.model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        for file in folder.glob("vocab.txt"):
            file.unlink()  # without the new pieces
        (folder / "tokenizer.json").write_text(encoder.tokenizer.to_str(), encoding="utf-8")
        pooling = source / "1_Pooling" / "config.json"
        if pooling.is_file():
            (folder / "1_Pooling").mkdir()
            shutil.copyfile(pooling, folder / "1_Pooling" / "config.json")
        content = {"labelgrove": VERSION, **about.to_json()}
        content.pop("folder")
        (folder / ABOUT).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        (folder / "README.md").write_text(_page(about), encoding="utf-8")

    check_folder(out, overwrite=overwrite)
    write_folder(out, write, replace=overwrite)


def _page(about: Adapted) -> str:
    facts = "\n".join(f"- {line}" for line in about.lines())
    settings = "\n".join(f"    {name} = {value}" for name, value in about.settings.items())
    return f"""# A text encoder, adapted to a corpus

`labelgrove adapt` (version {VERSION}) continued the pretraining of an encoder on texts of its
user. The licence of the original encoder applies to it; the texts can have one of their own.

{facts}

Use it wherever labelgrove takes an encoder: `--set encoder.encoder=FOLDER`. transformers loads it
with `AutoModel` and `AutoTokenizer`. {ABOUT} has these facts for programs. The settings were:

{settings}
"""
