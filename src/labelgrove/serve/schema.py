"""Requests and answers, as the OpenAPI text describes them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

from labelgrove.serve.settings import ServeParams


def _whole(value: Any) -> Any:
    # JSON has one kind of number, and its schemas count 3.0 as an integer.
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]


def _kind(document: Any) -> str:
    return "-fields" if isinstance(document, dict) else "-text"


# What the OpenAPI text shows for a request.
PREDICT_EXAMPLE: dict[str, Any] = {"texts": ["a chopping board of oak"], "k": 3}
FEEDBACK_EXAMPLE: dict[str, Any] = {
    "text": "a chopping board of oak",
    "labels": ["LABEL"],
    "suggestions": [{"id": "LABEL", "score": 0.9}],
}

Threshold = float | Literal["auto"] | None


class RequestFields(BaseModel):
    """The fields of a request to predict, without limits."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    texts: list[Any]
    k: Whole = 5
    threshold: Threshold = None
    allow: list[str] | None = None
    deny: list[str] | None = None
    explain: bool = False


class Offer(BaseModel):
    """A suggestion that a person saw."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    id: str = Field(max_length=1000, description="id or name of a label")
    score: float | None = None


class FeedbackFields(BaseModel):
    """The fields of feedback, without limits."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    text: Any
    labels: list[str]
    suggestions: list[Offer] = []
    threshold: float | None = None
    model: str | None = None


def _document(params: ServeParams) -> Any:
    Text = Annotated[str, Field(max_length=params.max_text_chars), Tag("-text")]
    # The model checks the values of fields.
    return Annotated[Text | Annotated[dict[str, Any], Tag("-fields")], Discriminator(_kind)]


def limited_feedback(params: ServeParams) -> type[FeedbackFields]:
    """Feedback with the limits of a service."""

    class FeedbackRequest(FeedbackFields):
        """A text, the labels that a person chose for it, and what the model suggested."""

        model_config = ConfigDict(json_schema_extra={"example": FEEDBACK_EXAMPLE})

        text: _document(params) = Field(  # type: ignore[valid-type]
            description="the text, or an object with the model's fields"
        )
        labels: list[str] = Field(
            max_length=params.max_labels, description="ids or names of all labels that fit"
        )
        suggestions: list[Offer] = Field(
            default=[], max_length=params.max_k, description="what the person saw, best first"
        )
        threshold: float | None = Field(
            default=None, description="suggestions below this score were not proposed"
        )
        model: str | None = Field(
            default=None, max_length=64, description="id of the model that made the suggestions"
        )

    return FeedbackRequest


def limited_request(params: ServeParams) -> type[RequestFields]:
    """The request with the limits of a service."""
    most = params.max_labels

    class PredictRequest(RequestFields):
        """Texts, and which labels to answer with."""

        model_config = ConfigDict(json_schema_extra={"example": PREDICT_EXAMPLE})

        texts: list[_document(params)] = Field(  # type: ignore[valid-type]
            min_length=1,
            max_length=params.max_texts,
            description="plain texts, each on its own, or objects with the model's fields",
        )
        k: Whole = Field(
            default=min(5, params.max_k), ge=1, le=params.max_k, description="labels per text"
        )
        threshold: Threshold = Field(
            default=None,
            description="only labels with at least this score; auto: the sets of a "
            "calibrated model",
        )
        allow: list[str] | None = Field(
            default=None,
            max_length=most,
            description="ids, names or groups of labels: only these may come back",
        )
        deny: list[str] | None = Field(
            default=None,
            max_length=most,
            description="ids, names or groups of labels: none of these may come back",
        )
        explain: bool = Field(default=False, description="also say why each label was chosen")

    return PredictRequest


class Label(BaseModel):
    id: str
    name: str
    score: float
    why: dict[str, Any] | None = Field(default=None, description="if the request has explain")


class Timing(BaseModel):
    waiting_ms: float = Field(description="until the batch began")
    predicting_ms: float = Field(description="of the whole batch that the request was part of")


class PredictResponse(BaseModel):
    """For each text, in the order of the request, its labels, best first."""

    model: str = Field(description="id of the model that answered")
    score_kind: Literal["margin", "product", "probability"]
    predictions: list[list[Label]]
    unknown: list[int] = Field(
        description="positions of texts that get the labels of an empty text, because none of "
        "their words tells the model anything; only without threshold, allow and deny"
    )
    timing: Timing


class FeedbackResponse(BaseModel):
    """What was kept."""

    model: str = Field(description="id of the model that would answer now")
    labels: list[str] = Field(description="ids of the labels, without repetitions")


class ModelSummary(BaseModel):
    name: str = Field(description="for /v1/models/{name}")
    id: str
    method: str
    labels: int
    training_documents: int | None
    score_kind: Literal["margin", "product", "probability"]
    created: str | None
    loaded: str
    feedback: bool


class ModelsResponse(BaseModel):
    """All models of the service."""

    default: str = Field(description="name of the model that answers where a request names none")
    models: list[ModelSummary]


class FoundLabel(BaseModel):
    id: str
    name: str
    training_documents: int | None = Field(description="training documents with the label")


class LabelsResponse(BaseModel):
    model: str
    labels: list[FoundLabel]


class TreeNode(BaseModel):
    id: str = Field(description="root, or level and number, such as 1.17")
    label: FoundLabel | None = Field(description="of a leaf")
    labels: int = Field(description="number of labels below")
    children: int
    examples: list[str] = Field(description="names of its most frequent labels")


class TreeResponse(BaseModel):
    """A node of a label tree, the nodes above it from the root on, and a page of its children."""

    model: str
    tree: int
    node: TreeNode
    path: list[TreeNode]
    children: list[TreeNode]
    offset: int = Field(description="number of children before this page")
    toward: str | None = Field(description="the child that leads to the requested label")


class CalibrationFacts(BaseModel):
    kind: str
    threshold: float = Field(description="best smallest probability of a label")
    report: dict[str, Any] | None = Field(description="quality of the scores before and after")


class ModelResponse(BaseModel):
    """The current model, what it can do, and the limits of a request."""

    name: str = Field(description="what the service calls it")
    id: str = Field(description="changes with every training")
    method: str
    labels: int
    groups: list[str] = Field(description="names for allow and deny lists, besides labels")
    training_documents: int | None
    created: str | None
    loaded: str
    versions: dict[str, str]
    params: dict[str, Any]
    supports: dict[str, bool] = Field(description="which optional fields of a request it supports")
    score_kind: Literal["margin", "product", "probability"]
    examples: list[str] = Field(description="texts to try, from the model card")
    calibration: CalibrationFacts | None
    fields: dict[str, list[str]] | None = Field(
        description="names of the texts and catalogue fields of documents with fields"
    )
    trees: list[str] = Field(description="label trees that GET /v1/tree can show, by name")
    held_out: dict[str, dict[str, float]] = Field(
        description="metrics on documents held out of training, of this method and of others"
    )
    dev: dict[str, float] = Field(description="metrics on the documents of train --dev")
    training_seconds: dict[str, float] = Field(description="by stage, in order")
    report: bool = Field(description="whether GET /report shows an evaluation")
    feedback: bool = Field(description="whether POST /v1/feedback keeps anything")
    limits: dict[str, float]


class Status(BaseModel):
    status: str
