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


def limited_request(params: ServeParams) -> type[RequestFields]:
    """The request with the limits of a service."""
    Text = Annotated[str, Field(max_length=params.max_text_chars), Tag("-text")]
    # The model checks the values of fields.
    Document = Annotated[Text | Annotated[dict[str, Any], Tag("-fields")], Discriminator(_kind)]
    most = params.max_labels

    class PredictRequest(RequestFields):
        """Texts, and which labels to answer with."""

        texts: list[Document] = Field(
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
    timing: Timing


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

    id: str
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
    limits: dict[str, float]


class Status(BaseModel):
    status: str
