"""The base class of every method: the model interface, and the verbs that other rooms provide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from labelgrove.core.notebook import table
from labelgrove.model.interface import Model

if TYPE_CHECKING:  # prediction does without the other rooms, so the verbs import them
    from labelgrove.updating.report import Growth


class Estimator(Model):
    """A method: a keyword-only dataclass with ``fit``, over what :class:`Model` answers."""

    def score(self, X: Any, y: Any) -> float:
        """P@1, so that scikit-learn's searches have a default to maximise.

        >>> from labelgrove import Linear
        >>> Linear().fit(["red shoes", "blue hat"], [["a"], ["b"]]).score(["hat"], [["b"]])
        1.0
        """
        from labelgrove.metrics import scorer

        return float(scorer("P@1")(self, X, y))

    def add_labels(self, names: Sequence[str], **options: Any) -> Growth:
        """Adds labels at the end of the index; the scores of all other labels stay as they are.

        A label without documents gets weights from its own text: one of ``texts`` per name, or the
        name itself. ``documents`` may have a list of texts for each label. You may also give
        ``ids``, ``corpus`` (the old documents, see :meth:`update`), ``params`` (GrowthParams) and
        ``callbacks``. Encoders stay as they are. In an ensemble every member takes part, or none.
        LightXML and CascadeXML refuse, because they learn all labels at once.

        >>> from labelgrove import Linear
        >>> model = Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]])
        >>> model.add_labels(["red"]).added
        ('red',)
        >>> model.predict(["something red"], k=1).names()
        [['red']]
        """
        from labelgrove.updating import update as updating

        return updating.add_labels(self, names, **options)

    def update(self, X: Any, y: Any = None, **options: Any) -> Growth:
        """Learns from new documents, with labels that may be new, without a full training.

        ``X``, ``y``, ``dense`` and ``index`` are as for ``fit``. New labels are added. They and the
        labels that occur in the documents are trained; other labels stay as they are. With the old
        documents (``corpus``: a Corpus, or a pair of texts and labels) this is the training of
        ``fit``; without them, old labels change only as far as the new documents demand.
        ``params`` are GrowthParams. The report says whether a full training is due.
        :meth:`add_labels` says which methods refuse.

        >>> from labelgrove import Linear
        >>> model = Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]])
        >>> model.update(["green coat", "a green hat"], [["coats"], ["hats"]])
        Growth(added=('coats',), retrained=('hats',), documents=2, ...)
        """
        from labelgrove.updating import update as updating

        return updating.update(self, X, y, **options)

    def push(self, repo_id: str, **options: Any) -> str:
        """Uploads the model to the Hugging Face Hub; ``labelgrove.push`` lists the options."""
        from labelgrove.publishing import hub

        return hub.push(self, repo_id, **options)

    def _repr_html_(self) -> str:
        """For notebooks: the constructor call, and what a fitted model knows of itself."""
        if not self.fitted:
            return table(repr(self), [["fitted", "not yet"]])
        facts, labels = self.facts_, f"{len(self.index_):,}"
        rows = [["labels", labels], ["trained on", f"{facts.documents:,} documents"]]
        if facts.fields is not None:
            rows.append(["fields", str(facts.fields)])
        if self.created_ is not None:
            rows.append(["trained at", self.created_])
        calibration = self.calibration_
        chosen = "no" if calibration is None else f"yes, threshold {calibration.threshold:.3f}"
        rows.append(["calibrated", chosen])
        rows += [[name, f"{value:.2%}"] for name, value in (self.dev_metrics_ or {}).items()]
        return table(repr(self), rows)
