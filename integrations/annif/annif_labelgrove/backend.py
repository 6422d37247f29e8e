"""The backend: turns Annif's documents into labelgrove's predictions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from annif.backend.backend import AnnifLearningBackend
from annif.exception import (
    ConfigurationException,
    NotInitializedException,
    NotSupportedException,
)
from annif.suggestion import SuggestionBatch
from scipy.sparse import csr_array

from annif_labelgrove.errors import as_annif
from annif_labelgrove.settings import Settings, limit_of
from annif_labelgrove.subjects import Places, labelled_documents, suggestion_matrix
from labelgrove import Corpus, LabelIndex
from labelgrove.data.formats import read_corpus, write_corpus, write_label_table
from labelgrove.data.formats.write import corpus_documents
from labelgrove.disk.run_folder import RunFolder
from labelgrove.methods import method_class
from labelgrove.methods.settings import groups_of

if TYPE_CHECKING:
    from annif.corpus.types import Document, DocumentCorpus

# These rules only rank labels; their scores are not numbers between 0 and 1.
ONLY_ORDER = ("rank", "round-robin")


class LabelgroveBackend(AnnifLearningBackend):
    """Any method of labelgrove: the ``method`` of the project's section, or what auto chooses."""

    name = "labelgrove"

    MODEL = "labelgrove-model"
    TRAIN = "labelgrove-train"  # Annif does not mistake files of this name for a model

    _model: Any = None
    _places: Places | None = None
    _one_thread = False

    @property
    def model_folder(self) -> Path:
        """The folder of the trained model."""
        return Path(self.datadir) / self.MODEL

    @property
    def _model_file_paths(self) -> list[str]:
        # Annif looks at these files to see whether, and when, a project was trained.
        manifest = self.model_folder / "manifest.json"
        return [str(manifest)] if manifest.exists() else []

    def initialize(self, parallel: bool = False) -> None:
        """Loads the model once. Annif's parallel processes predict with one thread each."""
        self._one_thread = self._one_thread or parallel
        if self._model is not None:
            return
        if not self._model_file_paths:
            raise NotInitializedException(
                f"model {self.model_folder} not found; train the project first",
                project_id=self.project.project_id,
            )
        from labelgrove import load

        with as_annif(self.project.project_id):
            self._use(load(self.model_folder))

    def _use(self, model: Any) -> None:
        self._places = Places.of(model.index_, self.project.subjects)
        self._model = model
        if self._places is None:
            self.warning("the vocabulary has none of the model's subjects; train the project again")

    def _train(self, corpus: DocumentCorpus, params: dict[str, Any], jobs: int = 0) -> None:
        with as_annif(self.project.project_id):
            settings = Settings.of(params)
            method = method_class(settings.method)
            model = settings.estimator(analyzed=self._analyzed(method), threads=jobs)
            self._check_rule(getattr(model, "rule", None))
            documents = self._training_documents(corpus, method, keep=settings.keep_training_data)
            training, held_out = documents, None
            if settings.calibrate:
                from labelgrove.data.inputs import hold_out

                training, held_out = hold_out(documents, settings.calibrate, model.random_state)
            self.info(f"training {settings.method} on {len(training)} documents")
            if settings.keep_training_data:
                with RunFolder(self._saved_corpus.with_name("stages")) as run:
                    model.fit(training, run=run)
            else:
                model.fit(training)
            self._check_rule(getattr(model, "rule_", None))  # a learned ensemble chooses its rule
            if held_out is not None:
                self._calibrate(model, held_out)
            elif settings.calibrate:
                self.warning("scores are not calibrated: too few documents to hold some out")
            model.save(self.model_folder, overwrite=True)
            if corpus != "cached" and not settings.keep_training_data:
                # They are of an earlier training; learning would mistake them for this one's.
                self._saved_corpus.unlink(missing_ok=True)
            self._use(model)

    def _check_rule(self, rule: str | None) -> None:
        if rule in ONLY_ORDER:
            raise ConfigurationException(
                f"an ensemble with the rule {rule!r} has no scores that Annif can use; "
                "choose mean, softmax or sigmoid",
                project_id=self.project.project_id,
            )

    @property
    def _saved_corpus(self) -> Path:
        """The file of the training documents, if the project keeps them."""
        return Path(self.datadir) / self.TRAIN / "corpus.jsonl"

    def _save_corpus(self, first: Corpus, more: Corpus | None, index: LabelIndex) -> None:
        self._saved_corpus.parent.mkdir(exist_ok=True)
        parts = [first] if more is None else [first, more]
        write_corpus(chain.from_iterable(map(corpus_documents, parts)), self._saved_corpus)
        write_label_table(index, self._saved_corpus.with_name("labels.tsv"))

    def _training_documents(self, corpus: Any, method: Any, *, keep: bool) -> Corpus:
        if corpus != "cached":
            documents = self._documents(corpus, method)
            if keep:
                self._save_corpus(documents, None, documents.index)
            return documents
        if not self._saved_corpus.exists():
            raise NotSupportedException(
                "there is no saved training data; set keep_training_data=true and train once "
                "without --cached",
                project_id=self.project.project_id,
            )
        self.info(f"reading the documents of the previous run from {self._saved_corpus}")
        return read_corpus(self._saved_corpus)

    def _documents(self, corpus: DocumentCorpus, method: Any, index: Any = None) -> Corpus:
        project = self.project
        documents, left_out = labelled_documents(
            corpus, project.subjects, project.vocab_lang, self._cleaner(method), index
        )
        if documents is None:
            raise NotSupportedException(
                "there is no document with a text and subjects of the vocabulary",
                project_id=project.project_id,
            )
        if left_out:
            self.warning(f"{left_out} documents without text or known subjects were left out")
        return documents

    def _analyzed(self, method: Any) -> bool:
        """Whether Annif's analyzer is applied to texts: only for methods that count words.

        Encoders need the whole texts, and so do models that auto chose: it may have tried some.
        """
        if not self.project.analyzer_spec or method.tried_:
            return False
        groups = groups_of(method_class(method.method))
        return "tfidf" in groups and "encoder" not in groups

    def _cleaner(self, method: Any) -> Callable[[str], str]:
        if not self._analyzed(method):
            return lambda text: text
        words = self.project.analyzer.tokenize_words
        return lambda text: " ".join(words(text))

    def _suggest_batch(self, documents: list[Document], params: dict[str, Any]) -> SuggestionBatch:
        subjects = self.project.subjects
        with as_annif(self.project.project_id):
            limit = limit_of(params)
            if self._places is None or limit < 1:
                return SuggestionBatch(csr_array((len(documents), len(subjects)), dtype="float32"))
            clean = self._cleaner(self._model)
            predictions = self._model.predict(
                [clean(document.text) for document in documents],
                k=limit,
                allow=self._places.allow,
                threads=1 if self._one_thread or len(documents) == 1 else None,
            )
        return SuggestionBatch(suggestion_matrix(predictions, self._places, subjects))

    def _calibrate(self, model: Any, documents: Corpus) -> None:
        from labelgrove import calibrate

        report = calibrate(model, documents).report or {}
        before, after = report["before"]["ece"], report["after"]["ece"]
        self.info(
            f"calibrated with {len(documents)} documents: expected calibration error "
            f"{before:.4f} before, {after:.4f} after"
        )

    def calibrate(self, corpus: DocumentCorpus) -> None:
        """Calibrates the trained project with documents that were not trained on, and saves it."""
        self.initialize()
        with as_annif(self.project.project_id):
            self._calibrate(self._model, self._documents(corpus, self._model, self._model.index_))
            self._model.save(self.model_folder, overwrite=True)

    def _learn(self, corpus: DocumentCorpus, params: dict[str, Any]) -> None:
        from labelgrove import load

        self.initialize()
        with as_annif(self.project.project_id):
            documents = self._documents(corpus, self._model)
            old = read_corpus(self._saved_corpus) if self._saved_corpus.exists() else None
            model = load(self.model_folder)  # requests keep using the other one meanwhile
            growth = model.update(documents, corpus=old)
            model.save(self.model_folder, overwrite=True)
            if old is not None:  # only now, when the model knows the new documents
                self._save_corpus(old, documents, model.index_)
            self._use(model)
        self.info(str(growth))
        for reason in growth.reasons:
            self.warning(f"time to train the project again: {reason}")
