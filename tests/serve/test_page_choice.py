"""The page with several models, and what people do with labels: tick, add, copy, send."""

import csv
import io
import json
from pathlib import Path

import pytest

from labelgrove import Corpus, LabelIndex, Linear
from support.browsing import find, violations, visiting
from support.services import COLOURS, THINGS, fitted, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
TEXT = "this red hat"
CLIPBOARD = {"permissions": ["clipboard-read", "clipboard-write"]}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """A model whose labels are URIs, and one with other names and ids."""
    folder = tmp_path_factory.mktemp("models")
    labels = [*COLOURS, *THINGS]
    ids = [f"http://example.org/{label}" for label in labels]
    index = LabelIndex(ids, names=[f"{label.title()}, goods" for label in labels])
    texts = [f"this {colour} {thing}" for colour in COLOURS for thing in THINGS] * 3
    lists = [
        [f"http://example.org/{colour}", f"http://example.org/{thing}"]
        for colour in COLOURS
        for thing in THINGS
    ] * 3
    Linear().fit(Corpus.from_lists(texts, lists, index=index)).save(folder / "uris")
    fitted().save(folder / "words")
    return {name: folder / name for name in ("uris", "words")}


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    return tmp_path_factory.mktemp("said")


@pytest.fixture(scope="module")
def service(browser, paths, said):
    with running(paths, feedback=said) as client:
        yield client


def ask(page, text=TEXT, least="0.5"):
    page.wait_for_selector("#find:enabled")
    page.fill("#least", least)
    find(page, ".choosing", text)
    if page.viewport_size["width"] > 1120:
        page.wait_for_selector(".why .links")


def chosen(page):
    return [chip.split("\n")[0] for chip in page.locator(".choosing .chip").all_inner_texts()]


def test_labels_are_ticked_added_and_copied(browser, service):
    with visiting(browser, service.base_url, **CLIPBOARD) as visit:
        page = visit.page
        ask(page)
        assert chosen(page) == []
        page.click("text=Take the first 2")
        assert sorted(chosen(page)) == ["Hat, goods", "Red, goods"]
        assert page.locator(".ranking > :not(.below) .tick :checked").count() == 2
        page.get_by_label("Choose Hat, goods").uncheck()
        assert chosen(page) == ["Red, goods"]
        page.locator(".choosing input[role=combobox]").fill("lam")
        page.wait_for_selector(".choosing [role=option]")
        page.keyboard.press("Enter")
        assert chosen(page) == ["Red, goods", "Lamp, goods"]
        assert page.get_by_label("Choose Lamp, goods").is_checked()  # it is below the line
        page.get_by_role("button", name="Remove Red, goods").click()
        assert not page.get_by_label("Choose Red, goods").is_checked()
        page.get_by_label("Choose Red, goods").check()

        def copied(format):
            page.select_option(".copying select", format)
            page.click(".copying button")
            page.wait_for_selector(".copying :text('Copied')")
            page.wait_for_selector(".copying button:text-is('Copy')")
            return str(page.evaluate("navigator.clipboard.readText()"))

        assert copied("names") == "Lamp, goods\nRed, goods"
        assert copied("ids") == "http://example.org/lamp\nhttp://example.org/red"
        assert page.locator(".copying option:checked").inner_text() == "URIs"
        table = list(csv.DictReader(io.StringIO(copied("csv"), newline="")))
        assert [row["name"] for row in table] == ["Lamp, goods", "Red, goods"]
        objects = json.loads(copied("json"))
        assert [one["id"] for one in objects] == [row["id"] for row in table]
        assert float(table[1]["score"]) == objects[1]["score"] > 0.5


def test_ids_that_are_addresses_are_links(page):
    ask(page)
    link = page.locator(".why a.id").first
    assert str(link.get_attribute("href")).startswith("http://example.org/")
    assert link.get_attribute("target") == "_blank"
    assert "noopener" in str(link.get_attribute("rel"))
    page.select_option("#which-model", "words")
    page.wait_for_selector(".why span.id")
    assert page.locator(".ranking a.id").count() == 0


def test_feedback_is_told_of_and_sent(page, said):
    ask(page)
    assert "keeps those that you send" in page.inner_text("footer")
    assert "keeps what you send" in page.inner_text(".choosing")
    assert not (said / "uris.jsonl").read_text(encoding="utf-8")
    page.get_by_label("Choose Red, goods").check()
    page.click("text=Send 1 label")
    page.wait_for_selector(".choosing >> text=Next text")
    page.get_by_label("Choose Red, goods").uncheck()
    page.click("text=Send “none fits”")
    page.wait_for_selector(".choosing >> text=Sent.")
    page.click("text=Next text")
    assert page.input_value("#text") == ""
    assert page.evaluate("document.activeElement.id") == "text"
    first, second = map(json.loads, (said / "uris.jsonl").read_text("utf-8").splitlines())
    assert first["text"] == TEXT and first["labels"] == ["http://example.org/red"]
    assert first["threshold"] == 0.5 and len(first["suggestions"]) == 9
    assert second["labels"] == []


def test_an_operator_may_have_suggestions_ticked(browser, paths):
    with (
        running(paths["words"], ticked=True) as client,
        visiting(browser, client.base_url) as visit,
    ):
        ask(visit.page)
        assert sorted(chosen(visit.page)) == ["Hat goods", "Red goods"]


def test_a_table_of_texts_is_gone_through_and_saved(browser, paths, tmp_path):
    """From an Excel file to a file of chosen labels; what was chosen survives everything else."""
    book = pytest.importorskip("openpyxl").Workbook()
    texts = ["this red hat", "this blue lamp", "this green chair"]
    for row in (["number", None, "text"], *([f"n{i}", "", text] for i, text in enumerate(texts))):
        book.active.append(row)
    book.save(tmp_path / "texts.xlsx")
    (tmp_path / "not.xlsx").write_text("no workbook")
    with running(paths["words"]) as client, visiting(browser, client.base_url) as visit:
        page = visit.page
        page.wait_for_selector("#find:enabled")
        page.set_input_files("#files", tmp_path / "not.xlsx")
        page.wait_for_selector("text=not.xlsx: this cannot be read as an Excel workbook")
        page.set_input_files("#files", tmp_path / "texts.xlsx")
        page.wait_for_selector("text=3 texts")
        assert page.locator("#text-column option:checked").inner_text() == "text"
        find(page, "text=3 of 3 texts answered")
        page.locator(".excerpt").first.click()
        page.get_by_label("Choose Red goods").check()
        page.click("text=Back to all texts")  # without a word to anybody
        page.locator(".excerpt").first.click()
        page.wait_for_selector(".choosing .chip >> text=Red goods")
        page.click("text=Keep 1 label")
        page.click("text=Next text")
        page.wait_for_selector(".reading >> text=this blue lamp")
        page.click("text=Back to all texts")
        assert page.locator(".found").first.inner_text() == "✓ your labels\nRed goods"
        page.reload()
        with page.expect_download() as downloading:
            page.click("#kept >> text=Download as CSV")
        written = Path(downloading.value.path()).read_text(encoding="utf-8-sig")
        (row,) = csv.DictReader(io.StringIO(written, newline=""))
        assert (row["id"], row["text"], row["label_1"]) == ("n0", "this red hat", "Red goods")
        page.on("dialog", lambda dialog: dialog.accept())
        page.click("#kept >> text=Forget")
        assert page.is_hidden("#kept")


def test_a_service_without_feedback_says_so(browser, paths):
    with running(paths["words"]) as client, visiting(browser, client.base_url) as visit:
        ask(visit.page)
        assert "It does not keep them." in visit.page.inner_text("footer")
        assert "feedback" not in visit.page.inner_text("main")
        visit.page.click("text=Keep “none fits”")
        visit.page.wait_for_selector("text=1 text with your labels")
        assert visit.page.locator("#which-model, #against").first.is_hidden()
        assert not any("feedback" in url for url in visit.requests)


def test_feedback_that_is_refused_can_be_sent_again(browser, paths, tmp_path):
    limits = {"feedback": tmp_path, "max_feedback_mb": 0.000_001}
    with running(paths["words"], **limits) as client, visiting(browser, client.base_url) as visit:
        ask(visit.page)
        visit.page.click("text=Send “none fits”")
        visit.page.wait_for_selector("text=the file for feedback is full")
        assert visit.page.locator("text=Send “none fits”").is_enabled()
        assert visit.page.is_hidden("#kept")


def test_a_model_is_chosen_and_asked_the_same(page, service):
    ask(page)
    page.select_option("#which-model", "words")
    page.wait_for_url("**/?model=words**")
    page.wait_for_selector(".ranking >> text=Red goods")
    assert page.input_value("#text") == TEXT
    page.goto(f"{service.base_url}/?model=words#/model")
    page.wait_for_selector("#model-facts >> text=words")
    page.goto(f"{service.base_url}/?model=words#/labels")
    page.wait_for_selector("#label-list >> text=Red goods")
    page.select_option("#which-model", "uris")
    page.wait_for_selector("#label-list >> text=Red, goods")
    assert "model=" not in page.url
    page.goto(f"{service.base_url}/?model=nothing")
    page.wait_for_selector("text=there is no model 'nothing'; there is uris or words")
    page.click("text=Try again")
    page.wait_for_selector("#summary:has-text('knows')")


def test_two_models_are_compared(page, service):
    body = {"texts": [TEXT], "k": 4}
    expected = [
        service.post(f"/v1/models/{name}/predict", json=body).json()["predictions"][0]
        for name in ("uris", "words")
    ]
    page.wait_for_selector("#find:enabled")
    page.select_option("#against", "words")
    page.fill("#k", "4")
    find(page, ".pair", TEXT)
    for section, labels in zip(page.locator(".pair section").all(), expected, strict=True):
        shown = section.locator(".name").all_inner_texts()
        assert shown == [label["name"] for label in labels]
    assert page.locator(".pair h3").all_inner_texts() == ["uris", "words"]
    assert "0 labels of 4 in both lists" in page.inner_text("#results")
    page.route("**/v1/models/words/predict", lambda route: route.fulfill(status=500, json={}))
    find(page, "text=One of the models did not answer")
    assert page.locator(".pair section").first.locator(".name").count() == 4


def test_a_request_is_copied_as_curl(browser, service):
    with visiting(browser, service.base_url, **CLIPBOARD) as visit:
        page = visit.page
        ask(page, "this red 'hat'")
        page.click("text=Copy as curl")
        page.wait_for_selector("text=Copied")
        command = page.evaluate("navigator.clipboard.readText()")
        assert command.startswith(f"curl '{service.base_url}/v1/predict'".replace("//v1", "/v1"))
        assert """"texts":["this red '\\''hat'\\''"]""" in command and '"threshold":0.5' in command


@pytest.mark.parametrize("place", ["try", "labels", "tree", "model", "compare", "many"])
def test_nothing_is_wrong_by_the_rules_of_axe(browser, service, place):
    view = "try" if place in ("compare", "many") else place
    with visiting(browser, service.base_url, view) as visit:
        page = visit.page
        if place == "compare":
            page.wait_for_selector("#find:enabled")
            page.select_option("#against", "words")
            find(page, ".pair", TEXT)
        elif place == "many":
            page.wait_for_selector("#find:enabled")
            page.check("input[value=lines]")
            find(page, "text=3 of 3 texts answered", f"{TEXT}\nxyzzy\n{TEXT}")
        elif place == "try":
            ask(page)
            page.click("#which summary")
        else:
            page.wait_for_selector(
                {"labels": "#label-list li", "tree": "#tree li"}.get(place, ".fact")
            )
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 360  # of a phone, the last
