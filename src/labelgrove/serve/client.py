"""A client of ``labelgrove serve`` that predicts as a model does; it needs no extra."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np

from labelgrove.core.strings import StringTable
from labelgrove.data.corpus import LabelIndex
from labelgrove.data.inputs import checked_inputs, with_fields
from labelgrove.data.records import FieldNames
from labelgrove.errors import ConfigError, DataError, ServiceError
from labelgrove.evaluation.predictions import Predictions, ScoredLabel, ScoreKind

# A busy service says when to ask again; one that is being restarted does not.
BUSY = (429,)


class Client:
    """One model of a running service.

    ``model`` is its name there; None: the service's default model. A ``token`` is sent with every
    request. ``timeout`` is how many seconds an answer may take, and how long a service that is busy
    is asked again.

    >>> client = Client("http://localhost:8000", model="english")
    >>> client
    Client('http://localhost:8000', model='english')
    """

    def __init__(
        self, url: str, *, model: str | None = None, token: str | None = None, timeout: float = 60.0
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"{url!r}: the address of a service begins with http:// or https://")
        self.url = url.rstrip("/")
        self.model = model
        self.timeout = timeout
        self._token = token
        self._base = "/v1" if model is None else f"/v1/models/{quote(model, safe='')}"

    def __repr__(self) -> str:
        return f"Client({self.url!r}{f', model={self.model!r}' if self.model else ''})"

    def predict(
        self,
        X: Any,
        k: int = 5,
        *,
        allow: Sequence[str] | None = None,
        deny: Sequence[str] | None = None,
        threshold: float | str | None = None,
    ) -> Predictions:
        """The k best labels of each document, as :meth:`labelgrove.Linear.predict` gives them.

        Documents are texts, a column of a data frame, or mappings for a model with fields. More
        than one request may have are sent in several. The index of the predictions has the labels
        that occur in them.
        """
        facts = self.facts()
        fields = facts["fields"] and FieldNames.from_dict(facts["fields"])
        texts = checked_inputs(with_fields(X, fields or None))
        if not isinstance(texts, (Sequence, StringTable)):
            raise DataError("a service reads texts; give a list of strings")
        options = {"k": k, "allow": allow, "deny": deny, "threshold": threshold}
        given = {name: value for name, value in options.items() if value is not None}
        rows: list[list[dict[str, Any]]] = []
        kind: ScoreKind = facts["score_kind"]
        for portion in _portions(texts, facts["limits"]):
            answer = self._ask(f"{self._base}/predict", {"texts": portion, **given})
            rows += answer["predictions"]
            kind = answer["score_kind"]
        return _predictions(rows, k, kind)

    def labels(self, query: str = "", *, limit: int = 20) -> list[dict[str, Any]]:
        """Labels whose name or id has ``query`` in it; without one, the most frequent."""
        query = urlencode({"q": query, "limit": limit})
        return list(self._ask(f"{self._base}/labels?{query}")["labels"])

    def feedback(
        self,
        document: str | Mapping[str, object],
        labels: Sequence[str],
        *,
        suggestions: Sequence[ScoredLabel] = (),
        threshold: float | None = None,
    ) -> None:
        """Tells the service which labels fit a document; see ``labelgrove update --feedback``.

        ``suggestions`` are those that a person saw, such as ``client.predict([text])[0]``.
        """
        offers = [{"id": one.id, "score": one.score} for one in suggestions]
        body: dict[str, object] = {"text": document, "labels": list(labels), "suggestions": offers}
        if threshold is not None:
            body["threshold"] = threshold
        self._ask(f"{self._base}/feedback", body)

    def facts(self) -> dict[str, Any]:
        """What the service says about the model: method, labels, limits and so on."""
        return self._ask("/v1/model" if self.model is None else self._base)

    def models(self) -> list[dict[str, Any]]:
        """The models of the service, each with its name."""
        return list(self._ask("/v1/models")["models"])

    def _ask(self, path: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"accept": "application/json", "content-type": "application/json"}
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(self.url + path, data, headers)
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                with urllib.request.urlopen(request, timeout=self.timeout) as response:
                    return dict(json.load(response))
            except urllib.error.HTTPError as error:
                problem = _problem(error)
                wait = problem.retry_after or 1.0
                if problem.status not in BUSY or time.monotonic() + wait > deadline:
                    raise problem from None
                time.sleep(wait)
            except (OSError, ValueError) as error:
                reason = getattr(error, "reason", error)
                raise ServiceError(
                    f"{self.url} does not answer ({reason}); is labelgrove serve running there?"
                ) from error


def _problem(error: urllib.error.HTTPError) -> ServiceError:
    try:
        body = json.load(error)
        code, detail = str(body["code"]), str(body["detail"])
    except (ValueError, KeyError, TypeError):  # from a proxy, for example
        code, detail = "unknown", str(error.reason)
    wait = error.headers.get("Retry-After") or ""
    return ServiceError(
        f"{detail} ({error.code}, {code})",
        status=error.code,
        code=code,
        retry_after=float(wait) if wait.isdigit() else None,
    )


def _portions(texts: Sequence[str], limits: Mapping[str, float]) -> Iterator[list[str]]:
    """As many texts at a time as a request may have."""
    most, room = int(limits["max_texts"]), 0.9 * limits["max_body"] - 1000
    portion: list[str] = []
    size = 0
    for text in texts:
        own = len(json.dumps(text)) + 2
        if portion and (len(portion) == most or size + own > room):
            yield portion
            portion, size = [], 0
        portion.append(text)
        size += own
    if portion:
        yield portion


def _predictions(rows: list[list[dict[str, Any]]], k: int, kind: ScoreKind) -> Predictions:
    names = {label["id"]: label["name"] for row in rows for label in row}
    position = {label: column for column, label in enumerate(names)}
    width = max([k, *map(len, rows)]) if rows else k
    columns = np.full((len(rows), width), -1, np.int32)
    scores = np.full((len(rows), width), -np.inf, np.float32)
    for number, row in enumerate(rows):
        columns[number, : len(row)] = [position[label["id"]] for label in row]
        scores[number, : len(row)] = [label["score"] for label in row]
    counts = np.array([len(row) for row in rows], np.int32)
    same = all(label == name for label, name in names.items())
    index = LabelIndex(names, names=None if same else names.values())
    return Predictions(columns, scores, counts, index, kind)
