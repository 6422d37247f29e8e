"""The documents that ``train`` and ``tune`` learn from and measure on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from typer import Option

from labelgrove.cli import common, options
from labelgrove.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rich.console import Console

    from labelgrove.core.scratch import Scratch
    from labelgrove.data.blocks import ShardedCorpus
    from labelgrove.data.corpus import Corpus, LabelIndex
    from labelgrove.data.formats import ReadOptions

T = TypeVar("T", "Corpus", "ShardedCorpus")


@dataclass(frozen=True, kw_only=True)
class TrainingData(options.CorpusOptions):
    """A training corpus, how to read it, held-out documents, features and label names."""

    corpus: options.TrainCorpus
    dev: Annotated[Path | None, Option(help="Held-out corpus to measure on.")] = None
    features: Annotated[
        list[Path] | None,
        Option(
            help="Sparse matrix with a row per document (.npz, or a repository or svmlight file). "
            "Give a second one for --dev."
        ),
    ] = None
    dense: Annotated[
        list[Path] | None,
        Option(help="NumPy file (.npy) with one vector per document. Give a second one for --dev."),
    ] = None
    labels: options.Labels = None
    all_labels: Annotated[
        bool,
        Option(
            "--all-labels",
            help="Also the labels of the label table that no document has. Methods that learn "
            "names can predict them.",
        ),
    ] = False

    def files(self) -> list[list[Path | None]]:
        """The matrices and the vectors of the training documents and of those in --dev."""
        corpora = {"TRAIN": True, "--dev": self.dev is not None}
        given = {"--features": self.features, "--dense": self.dense}
        return [one_each(flag, files, corpora) for flag, files in given.items()]

    def check(self) -> None:
        """Raises an error, before the work, if the flags do not fit each other."""
        self.files()
        if self.labels is not None and self.labels.suffix == ".npz":
            raise ConfigError(
                f"--labels {self.labels}: is a matrix, and --labels takes a table of label names; "
                "give the folder of X.trn.npz and Y.trn.npz: labelgrove train FOLDER"
            )

    def corpora(
        self, console: Console, scratch: Scratch | None = None
    ) -> tuple[Corpus, Corpus | None]:
        """The training corpus, with its texts in ``scratch``, and the held-out corpus."""
        from labelgrove.data.formats import ReadReport
        from labelgrove.data.records import empty_fields

        how, report = self.options(), ReadReport()
        features, dense = self.files()
        given: dict[str, Any] = {"labels": self.labels, "all_labels": self.all_labels}
        given |= {"console": console, "report": report, "scratch": scratch}
        first = how if features[0] is None else replace(how, features=features[0])
        corpus = common.read_corpus(self.corpus, first, **given)
        corpus = common.with_dense(corpus, dense[0], self.corpus)
        if report.unused_names and not self.all_labels:
            console.print(
                f"labels: {report.unused_names:,} labels of the label table have no document and "
                "are left out; --all-labels lets a method learn them by their names"
            )
        if corpus.labels.nnz == 0:
            field = f"no document has a label in the field {self.labels_field!r}"
            raise DataError(f"{field}; name the right one with --labels-field", file=self.corpus)
        for name in empty_fields(corpus.texts) if how.fields and corpus.texts else ():
            field = f"no document has a value in the field {name!r}"
            raise DataError(f"{field}; correct --field, or leave it out", file=self.corpus)
        if how.n_features is None and corpus.features is not None:
            how = replace(how, n_features=corpus.features.terms or None)
        if features[1] is not None:
            how = replace(how, features=features[1])
        return corpus, self._held_out(how, corpus.index, console, dense[1])

    def shards(self, read: Callable[..., T], console: Console) -> tuple[T, Corpus | None]:
        """The training corpus in shards, which ``read`` reads, and the held-out corpus."""
        from labelgrove.data.formats import ReadReport

        how, report = self.options(), ReadReport()
        read = partial(read, labels=self.labels, all_labels=self.all_labels)
        corpus = read(self.corpus, options=how, report=report)
        console.print(f"{self.corpus}: {report}")
        return corpus, self._held_out(how, corpus.index, console)

    def _held_out(
        self, how: ReadOptions, index: LabelIndex, console: Console, dense: Path | None = None
    ) -> Corpus | None:
        if self.dev is None:
            return None
        corpus = common.read_corpus(self.dev, how, index=index, console=console)
        return common.with_dense(corpus, dense, self.dev)


def one_each(flag: str, files: list[Path] | None, corpora: Mapping[str, bool]) -> list[Path | None]:
    """The file of each corpus, in order; None for corpora that are not given."""
    given = [name for name, is_given in corpora.items() if is_given]
    if not files:
        return [None] * len(corpora)
    if len(files) != len(given):
        raise ConfigError(
            f"{flag}: give a file for each of {', '.join(given) or 'no corpus'}, in this order; "
            f"{len(files)} given"
        )
    left = iter(files)
    return [next(left) if is_given else None for is_given in corpora.values()]
