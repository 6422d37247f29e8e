"""Whether a network learns what labels are called: the setting ``label_texts`` of neural methods.

Each label's text or name becomes one more training document with that label. Where "auto" decides,
the linear method is trained with and without these documents, because it answers in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from labelgrove.core.callbacks import Reporter
from labelgrove.data.corpus import Corpus
from labelgrove.labels.documents import labels_with_words, with_label_documents

LabelTexts = Literal["names", "auto"] | None
DECIDED_BY = ("P@1", "P@3", "P@5")


def with_label_texts(
    corpus: Corpus,
    held_out: Corpus | None,
    setting: LabelTexts,
    judge: Callable[[Corpus, Corpus], Mapping[str, float]],
    reporter: Reporter,
) -> tuple[Corpus, Mapping[str, float]]:
    """The documents to learn from, with those of labels if the setting or held-out ones say so.

    ``judge`` gives what the linear method reaches on the second corpus, trained on the first. Its
    measures come back for the documents that are chosen, or nothing if it was not asked.
    """
    if setting is None:
        return corpus, {}
    if setting == "names":
        return with_label_documents(corpus), {}
    count = len(labels_with_words(corpus.index))
    if count == 0 or corpus.features is not None:
        why = "labels have no words" if count == 0 else "documents have features besides texts"
        reporter.message(f"label_texts: not used, because {why}")
        return corpus, {}
    if held_out is None:
        reporter.message("label_texts: not used, because no documents are held out to decide by")
        return corpus, {}
    named = with_label_documents(corpus)
    plain, more = judge(corpus, held_out), judge(named, held_out)
    before, after = mean(plain), mean(more)
    figures = f"{100 * before:.2f} without, {100 * after:.2f} with the names of {count:,} labels"
    verdict = "used" if after > before else "not used"
    reporter.message(f"label_texts: {verdict}; linear's held-out mean of P@1/3/5 is {figures}")
    return (named, more) if after > before else (corpus, plain)


def mean(measures: Mapping[str, float]) -> float:
    """The number that decides."""
    return sum(measures[name] for name in DECIDED_BY) / len(DECIDED_BY)
