"""Documents with fields over HTTP and on the page."""

import json

import pytest

from labelgrove import Linear, load, records
from labelgrove.serve.served import ModelFolder, Options
from support.browsing import find, names, visiting
from support.services import check_problem, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

ROWS = [
    {"title": f"volume {n % 5}", "abstract": "the same words", "creator": f"Person {n % 3}"}
    for n in range(60)
]
LABELS = [[f"L{n % 3}"] for n in range(60)]
ASKED = {"title": "volume 1", "creator": ["Person 2"]}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fields")
    documents = records(ROWS, text=["title", "abstract"], fields="creator")
    Linear().fit(documents, LABELS).save(folder / "model")
    rows = (row | {"labels": own} for row, own in zip(ROWS, LABELS, strict=True))
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "model"


@pytest.fixture(scope="module")
def fields_client(path):
    with running(path, max_text_chars=500, max_k=20) as client:
        yield client


def predict(client, *documents, **options):
    return client.post("/v1/predict", json={"texts": documents, **options})


def test_a_document_is_a_text_or_an_object(fields_client, path):
    documents = [ASKED, "volume 1", {"abstract": "same", "creator": "person 0"}]
    answers = predict(fields_client, *documents, k=3).json()["predictions"]
    expected = load(path).predict(documents, k=3)
    assert [[label["name"] for label in row] for row in answers] == expected.names()
    assert answers[0][0]["name"] == "L2" and answers[2][0]["name"] == "L0"
    facts = fields_client.get("/v1/model").json()
    assert facts["fields"] == {"texts": ["title", "abstract"], "fields": ["creator"]}
    why = predict(fields_client, ASKED, k=1, explain=True).json()["predictions"][0][0]["why"]
    assert why["reasons"][0]["text"] == "creator: person 2" and not why["reasons"][0]["spans"]


def test_documents_that_the_model_does_not_read_are_refused(fields_client, client):
    for document, detail in [
        ({"title": "x", "creater": "Person 2"}, "document 0 has the field 'creater'"),
        ({"creator": "Person 2"}, "document 0 has no text"),
        ({"title": 5}, "field 'title' must be a string"),
        ({"title": "x", "creator": {"name": "x"}}, "field 'creator' must be a string, a number"),
    ]:
        problem = check_problem(predict(fields_client, document), 422, "refused-by-model")
        assert detail in problem["detail"]
    long = predict(fields_client, {"title": "x" * 300, "abstract": "y" * 300})
    assert "texts[0]" in check_problem(long, 422, "invalid-request")["detail"]
    plain = check_problem(predict(client, {"title": "x"}), 422, "refused-by-model")
    assert "trained on plain texts" in plain["detail"]
    assert client.get("/v1/model").json()["fields"] is None


def test_similar_documents_are_read_with_their_fields(path):
    folder = ModelFolder(path, threads=1, train=path.parent / "train.jsonl")
    assert folder.current.documents is not None
    text = folder.current._model.documents([ASKED])[0]
    _, rows = folder.current.answer(Options(1, allow=("L2",), explain=True), [text])
    assert "creator: person 2" in rows[0][0]["why"]["neighbours"][0]["terms"]


def test_the_page_has_boxes_for_the_fields(browser, fields_client):
    expected = predict(fields_client, ASKED, k=3).json()["predictions"][0]
    with visiting(browser, fields_client.base_url) as visit:
        page = visit.page
        page.wait_for_selector("#field-title")
        assert page.inner_text("#text-label") == "abstract"
        assert not page.is_visible("#holds")
        page.fill("#field-title", "volume 1")
        page.fill("#field-creator", "Person 2; Nobody")
        find(page, ".why .word")
        assert names(page)[0].startswith(expected[0]["name"])
        assert "creator: person 2" in page.locator(".why .words .word").all_inner_texts()
        assert page.locator(".reading blockquote").first.inner_text() == "volume 1"
        lines = "".join(json.dumps(row) + "\n" for row in ROWS[:6])
        page.set_input_files(
            "#files",
            {"name": "rows.jsonl", "mimeType": "application/json", "buffer": lines.encode()},
        )
        find(page, "text=6 of 6 texts answered")
        best = page.locator("table.batch tbody tr .chips li:first-child").all_inner_texts()
        assert [name.split()[0] for name in best] == [own[0] for own in LABELS[:6]]
