"""The base class of every method: the model interface, and the verbs of other modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from labelgrove.core.arrays import CSR
from labelgrove.core.notebook import table
from labelgrove.errors import ConfigError
from labelgrove.evaluation.predictions import check_fitted
from labelgrove.methods.interface import Model

if TYPE_CHECKING:  # prediction does without the other rooms, so the verbs import them
    from labelgrove.evaluation.calibration import Calibration
    from labelgrove.methods.explaining.explanation import Explanation
    from labelgrove.methods.updating.report import Growth


class Estimator(Model):
    """A method: a keyword-only dataclass with ``fit``, over what :class:`Model` answers."""

    def score(self, X: Any, y: Any) -> float:
        """P@1, so that scikit-learn's searches have a default to maximise.

        >>> from labelgrove import Linear
        >>> Linear().fit(["red shoes", "blue hat"], [["a"], ["b"]]).score(["hat"], [["b"]])
        1.0
        """
        from labelgrove.evaluation.metrics import scorer

        return float(scorer("P@1")(self, X, y))

    @property
    def classes_(self) -> npt.NDArray[np.object_]:
        """The ids of the labels, in the order of the columns of all matrices."""
        check_fitted(self)
        return np.array(list(self.index_.ids), dtype=object)

    def predict_proba(self, X: Any, *, k: int | None = None, **options: Any) -> CSR:
        """Probabilities of each document's ``k`` best labels: a sparse documents x labels matrix.

        ``k`` is by default the number of labels per document that calibration has seen; other
        labels are not stored. Options are those of :meth:`predict`. Models whose scores are no
        probabilities refuse until they are calibrated.

        >>> from labelgrove import Linear
        >>> model = Linear().fit(["red shoes", "blue hat"] * 20, [["shoes"], ["hats"]] * 20)
        >>> _ = model.calibrate(["a shoes shop", "hat box"] * 20, [["shoes"], ["hats"]] * 20)
        >>> model.predict_proba(["blue hat"]).toarray().round().tolist(), model.classes_.tolist()
        ([[1.0, 0.0]], ['hats', 'shoes'])
        """
        check_fitted(self)
        calibration = self.calibration_
        if k is None:
            k = 20 if calibration is None else calibration.places
        # Scores of some ensembles are probabilities by themselves.
        own = "probability" if calibration is not None else self.score_kind
        if own in ("probability", None):
            predictions = self.predict(X, k, **options)
            if predictions.score_kind == "probability":
                return predictions.to_csr()
        raise ConfigError(
            f"the scores of this {self.method} model are no probabilities yet; call "
            "model.calibrate(X, y) with documents that it was not trained on, or take its scores: "
            "model.predict(X).to_csr()"
        )

    def calibrate(self, X: Any, y: Any = None, **options: Any) -> Calibration:
        """Learns probabilities and a threshold from documents that the model was not trained on.

        The options are those of :func:`labelgrove.calibrate`.
        """
        from labelgrove.evaluation import calibrate as learning

        return learning.calibrate(self, X, y, **options)

    def explain(self, text: Any, label: str, **options: Any) -> Explanation:
        """Why the model gives one text its score for ``label`` (an id or a name).

        The options are those of ``explain`` in ``labelgrove.methods.explaining.explain``, such as
        ``top`` (how many words) and ``corpus`` (to name similar documents).

        >>> from labelgrove import Linear
        >>> model = Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]])
        >>> model.explain("a blue hat", "hats").reasons[0].text
        'blue'
        """
        from labelgrove.methods.explaining import explain

        return explain.explain(self, text, label, **options)

    def explain_best(self, text: Any, k: int = 3, **options: Any) -> list[Explanation]:
        """Explanations of the ``k`` best labels of one text; options as for :meth:`explain`."""
        from labelgrove.methods.explaining import explain

        return explain.explain_best(self, text, k, **options)

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
        from labelgrove.methods.updating import update as updating

        return updating.add_labels(self, names, **options)

    def update(self, X: Any, y: Any = None, **options: Any) -> Growth:
        """Learns from new documents, with labels that may be new, without a full training.

        ``X``, ``y``, ``dense`` and ``index`` are as for ``fit``. New labels are added. They and the
        labels that occur in the documents are trained; other labels stay as they are. With the old
        documents (``corpus``: a Corpus, or a pair of texts and labels) this is the training of
        ``fit``; without them, old labels change only as far as the new documents demand. Labels
        that people ``rejected`` are trained, too, if an old document has them. ``params`` are
        GrowthParams. The report says whether a full training is due.
        :meth:`add_labels` says which methods refuse.

        >>> from labelgrove import Linear
        >>> model = Linear().fit(["red shoes", "blue hat"], [["shoes"], ["hats"]])
        >>> model.update(["green coat", "a green hat"], [["coats"], ["hats"]])
        Growth(added=('coats',), retrained=('hats',), documents=2, ...)
        """
        from labelgrove.methods.updating import update as updating

        return updating.update(self, X, y, **options)

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
