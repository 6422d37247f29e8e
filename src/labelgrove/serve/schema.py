"""Requests and answers, as the OpenAPI text describes them."""

from copy import deepcopy
from typing import Annotated, Any, Literal, NotRequired, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, create_model
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from labelgrove.evaluation.predictions import ScoreKind
from labelgrove.serve.settings import ServeParams


def _whole(value: object) -> object:
    # JSON has one kind of number, and its schemas count 3.0 as an integer.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _kind(document: object) -> str:
    return "-fields" if isinstance(document, dict) else "-text"


Whole = Annotated[int, BeforeValidator(_whole)]
Document = str | dict[str, object]
Threshold = float | Literal["auto"] | None
FORM = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class PredictRequest(BaseModel):
    """Texts, and which labels to answer with."""

    model_config = FORM | ConfigDict(
        json_schema_extra={"example": {"texts": ["a chopping board of oak"], "k": 3}}
    )

    texts: list[Document] = Field(
        min_length=1, description="plain texts, each on its own, or objects with the model's fields"
    )
    k: Whole = 5
    threshold: Threshold = Field(
        default=None,
        description="only labels with at least this score; auto: the sets of a calibrated model",
    )
    allow: list[str] | None = Field(
        default=None, description="ids, names or groups of labels: only these may come back"
    )
    deny: list[str] | None = Field(
        default=None, description="ids, names or groups of labels: none of these may come back"
    )
    explain: bool = Field(default=False, description="also say why each label was chosen")


class Offer(BaseModel):
    """A suggestion that a person saw."""

    model_config = FORM

    id: str = Field(max_length=1000, description="id or name of a label")
    score: float | None = None


class FeedbackRequest(BaseModel):
    """A text, the labels that a person chose for it, and what the model suggested."""

    model_config = FORM | ConfigDict(
        json_schema_extra={
            "example": {
                "text": "a chopping board of oak",
                "labels": ["LABEL"],
                "suggestions": [{"id": "LABEL", "score": 0.9}],
            }
        }
    )

    text: Document = Field(description="the text, or an object with the model's fields")
    labels: list[str] = Field(description="ids or names of all labels that fit")
    suggestions: list[Offer] = Field(default=[], description="what the person saw, best first")
    threshold: float | None = Field(
        default=None, description="suggestions below this score were not proposed"
    )
    model: str | None = Field(
        default=None, max_length=64, description="id of the model that made the suggestions"
    )


Request = TypeVar("Request", bound=BaseModel)


def limited_requests(params: ServeParams) -> tuple[type[PredictRequest], type[FeedbackRequest]]:
    """The requests with the limits of a service."""
    text = Annotated[str, Field(max_length=params.max_text_chars), Tag("-text")]
    # The model checks the values of fields.
    document = Annotated[text | Annotated[dict[str, object], Tag("-fields")], Discriminator(_kind)]
    labels = Field(max_length=params.max_labels)
    most = params.max_k
    predict = _limited(
        PredictRequest,
        texts=Annotated[list[document], Field(max_length=params.max_texts)],
        k=(Whole, Field(default=min(5, most), ge=1, le=most, description="labels per text")),
        allow=Annotated[list[str] | None, labels],
        deny=Annotated[list[str] | None, labels],
    )
    offers = Annotated[list[Offer], Field(max_length=most)]
    feedback = _limited(
        FeedbackRequest, text=document, labels=Annotated[list[str], labels], suggestions=offers
    )
    return predict, feedback


def _limited(request: type[Request], **types: Any) -> type[Request]:
    """The request with other types, or other types and fields, in some places."""
    own = request.model_fields
    for name, kind in types.items():
        # A copy: pydantic before 2.11 writes what it makes of the type into the field.
        types[name] = kind if isinstance(kind, tuple) else (kind, deepcopy(own[name]))
    return create_model(request.__name__, __base__=request, __doc__=request.__doc__, **types)


class Label(TypedDict):
    id: str
    name: str
    score: float
    why: NotRequired[Annotated[dict[str, object], Field(description="if the request has explain")]]


class Timing(TypedDict):
    waiting_ms: Annotated[float, Field(description="until the batch began")]
    predicting_ms: Annotated[
        float, Field(description="of the whole batch that the request was part of")
    ]


class PredictResponse(TypedDict):
    """For each text, in the order of the request, its labels, best first."""

    model: Annotated[str, Field(description="id of the model that answered")]
    score_kind: ScoreKind
    predictions: list[list[Label]]
    unknown: Annotated[
        list[int],
        Field(
            description="positions of texts that get the labels of an empty text, because none of "
            "their words tells the model anything; only without threshold, allow and deny"
        ),
    ]
    timing: Timing


class FeedbackResponse(TypedDict):
    """What was kept."""

    model: Annotated[str, Field(description="id of the model that would answer now")]
    labels: Annotated[list[str], Field(description="ids of the labels, without repetitions")]


class Summary(TypedDict):
    id: Annotated[str, Field(description="changes with every training")]
    method: str
    labels: int
    training_documents: int | None
    score_kind: ScoreKind
    created: str | None
    loaded: str


class ModelSummary(Summary):
    name: Annotated[str, Field(description="what the service calls it, for /v1/models/{name}")]
    feedback: Annotated[bool, Field(description="whether POST /v1/feedback keeps anything")]


class ModelsResponse(TypedDict):
    """All models of the service."""

    default: Annotated[
        str, Field(description="name of the model that answers where a request names none")
    ]
    models: list[ModelSummary]


class FoundLabel(TypedDict):
    id: str
    name: str
    training_documents: Annotated[int, Field(description="training documents with the label")]


class LabelsResponse(TypedDict):
    model: str
    labels: list[FoundLabel]


class TreeNode(TypedDict):
    id: Annotated[str, Field(description="root, or level and number, such as 1.17")]
    label: Annotated[FoundLabel | None, Field(description="of a leaf")]
    labels: Annotated[int, Field(description="number of labels below")]
    children: int
    examples: Annotated[list[str], Field(description="names of its most frequent labels")]


class TreePage(TypedDict):
    node: TreeNode
    path: list[TreeNode]
    children: list[TreeNode]
    offset: Annotated[int, Field(description="number of children before this page")]
    toward: Annotated[str | None, Field(description="the child that leads to the requested label")]


class TreeResponse(TreePage):
    """A node of a label tree, the nodes above it from the root on, and a page of its children."""

    model: str
    tree: int


class CalibrationFacts(TypedDict):
    kind: str
    threshold: Annotated[float, Field(description="best smallest probability of a label")]
    report: Annotated[
        dict[str, object] | None, Field(description="quality of the scores before and after")
    ]


class Facts(Summary):
    groups: Annotated[
        list[str], Field(description="names for allow and deny lists, besides labels")
    ]
    versions: dict[str, str]
    params: dict[str, object]
    supports: Annotated[
        dict[str, bool], Field(description="which optional fields of a request it supports")
    ]
    calibration: CalibrationFacts | None
    fields: Annotated[
        dict[str, list[str]] | None,
        Field(description="names of the texts and catalogue fields of documents with fields"),
    ]
    trees: Annotated[
        list[str], Field(description="label trees that GET /v1/tree can show, by name")
    ]
    held_out: Annotated[
        dict[str, dict[str, float]],
        Field(description="metrics on documents held out of training, of this method and others"),
    ]
    dev: Annotated[dict[str, float], Field(description="metrics on the documents of train --dev")]
    training_seconds: Annotated[dict[str, float], Field(description="by stage, in order")]


class ModelResponse(Facts, ModelSummary):
    """The current model, what it can do, and the limits of a request."""

    report: Annotated[bool, Field(description="whether GET /report shows an evaluation")]
    ticked: Annotated[bool, Field(description="whether the page ticks what reaches the threshold")]
    limits: dict[str, float]


class Status(TypedDict):
    status: str
