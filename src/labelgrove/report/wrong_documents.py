"""The section that shows documents: the only place where texts of the data enter a report."""

from __future__ import annotations

from collections.abc import Iterable

from labelgrove.report.findings import WrongDocument
from labelgrove.report.markup import details, escape, foreign, paragraph, percent, shortened
from labelgrove.report.measuring import Report

TEXT_LENGTH = 300
MOST_LABELS = 12
SHOWN_AT_ONCE = 5


def wrong_documents(report: Report) -> str:
    """The most wrong documents with their texts' beginnings, predicted and missed labels."""
    if not report.wrong:
        return paragraph(f"None: the {report.at} best labels of every document are right.")
    said = (
        f"Documents with the lowest nDCG@{report.at}, among equals those whose wrong labels scored "
        f"highest. Shown are the beginnings of the texts and the {report.at} best labels."
    )
    first, rest = report.wrong[:SHOWN_AT_ONCE], report.wrong[SHOWN_AT_ONCE:]
    shown = paragraph(said) + _list(report, first)
    return shown + details(f"{len(rest):,} more", _list(report, rest)) if rest else shown


def _list(report: Report, documents: Iterable[WrongDocument]) -> str:
    items = "".join(_document(report, document) for document in documents)
    return f"<ol class='documents'>{items}</ol>"


def _document(report: Report, document: WrongDocument) -> str:
    corpus, row = report.corpus, document.row
    title = f"Document {row + 1:,}"
    if corpus.ids is not None and corpus.ids[row] is not None:
        title = shortened(str(corpus.ids[row]), 80) or title
    text = "(no text: the data hold features)"
    if corpus.texts is not None:
        text = shortened(corpus.texts[row], TEXT_LENGTH) or "(an empty text)"
    judged = report.judged[0]
    names = judged.predictions.index.names
    count = min(int(judged.predictions.counts[row]), report.at)
    predicted = [
        _label(
            names[judged.predictions.columns[row, place]],
            "right" if judged.hits[row, place] else "wrong",
            f" {judged.predictions.scores[row, place]:.3f}",
        )
        for place in range(count)
    ]
    missed = [_label(names[column], "missed") for column in document.missed[:MOST_LABELS]]
    more = len(document.missed) - len(missed)
    unknown = int(judged.unknown[row])
    if more > 0:
        missed.append(f"<li>and {more:,} more</li>")
    if unknown:
        missed.append(f"<li>and {unknown:,} that training never saw</li>")
    return (
        f"<li><h3>{foreign(title)} <span class='note'>nDCG@{report.at} "
        f"{percent(document.ndcg)} %</span></h3><p>{foreign(text)}</p>"
        f"{_labels('Predicted', predicted)}{_labels('Missed', missed)}</li>"
    )


def _labels(heading: str, items: Iterable[str]) -> str:
    inside = "".join(items) or "<li>nothing</li>"
    return f"<p class='note'>{heading}:</p><ul class='labels'>{inside}</ul>"


def _label(name: str, verdict: str, score: str = "") -> str:
    """A label with its verdict as a word, so that neither colour nor a sign has to carry it."""
    sign, kind = {"right": ("✓", "right"), "wrong": ("✗", "off"), "missed": ("", "off")}[verdict]
    mark = f"{sign} " if sign else ""
    said = "" if verdict == "missed" else f" <span class='note'>{verdict}{escape(score)}</span>"
    return f"<li class='{kind}'>{mark}{foreign(shortened(name, 80))}{said}</li>"
