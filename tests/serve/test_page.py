"""The page in a real browser, against the real service."""

import csv
import io
import json
import re
from pathlib import Path

import pytest

from labelgrove import Linear, calibrate
from support.browsing import TEXT, ask, find, names, visiting
from support.services import running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def service(browser, shop_model):
    with running(shop_model) as client:
        yield client


def test_a_text_gets_ranked_labels_with_reasons(page, service):
    request = {"texts": [TEXT], "k": 10}
    expected = service.post("/v1/predict", json=request).json()["predictions"][0]
    best = {"texts": [TEXT], "k": 1, "explain": True}
    why = service.post("/v1/predict", json=best).json()["predictions"][0][0]["why"]
    ask(page)
    for shown, label in zip(names(page), expected, strict=True):
        assert shown.startswith(label["name"])
    scores = page.locator(".ranking .label > .number").all_inner_texts()
    assert scores[0] == f"{expected[0]['score']:.2f}"
    assert "not calibrated" in page.inner_text("#results")
    assert page.locator("#live").inner_text().startswith(f"10 labels. Best: {why['name']}")
    # The whole text, with marks where the service says that words counted.
    assert page.locator(".reading blockquote").first.inner_text() == TEXT
    marked = page.locator(".reading blockquote mark").all_inner_texts()
    strong = [piece for piece in why["highlights"] if abs(piece[2]) >= 0.03]
    assert marked == [TEXT[start:end] for start, end, _ in strong]
    words = page.locator(".why .words .word").all_inner_texts()
    assert words == [reason["text"] for reason in why["reasons"][:8]]
    assert page.locator(".why .path li").count() == len(why["paths"][0]["steps"])


def test_percentages_are_rounded_to_the_nearest(page):
    values = {0.627: "63 %", 0.9949: "99 %", 0.0996: "10 %", 0.0627: "6 %", 0.001: "<1 %", 0: "0 %"}
    shown = page.evaluate(
        """(values) => import("/page/dom.js").then(
            ({ score }) => values.map((value) => score(value, "probability")))""",
        list(values),
    )
    assert shown == list(values.values())
    # What is shown is what counts: a label with the line's number is not below it.
    line = """([score, least]) => import("/page/dom.js").then(({ reaches, lowest }) =>
        [reaches(score, least, "probability"), score >= lowest(least, "probability")])"""
    for score, least, above in ((0.346, 0.3477, True), (0.344, 0.3477, False), (0.3, 0.3, True)):
        assert page.evaluate(line, [score, least]) == [above, above]


def test_k_and_minimum_score_are_sent(page, service):
    page.fill("#k", "3")
    ask(page)
    assert len(names(page)) == 3
    assert page.locator(".below, .threshold").count() == 0
    page.fill("#least", "1.5")
    find(page, "text=No label reaches the minimum score")
    assert page.locator(".ranking .below").count() == len(names(page)) == 3
    assert page.locator(".tick :checked").count() == 0
    page.check("input[value=lines]")
    find(page, "text=no label can reach 1.5", f"{TEXT}\n{TEXT}")
    page.check("input[value=one]")
    page.fill("#text", TEXT)
    page.fill("#k", "0")
    page.click("#find")
    assert "whole number from 1 to 100" in page.inner_text("#ask-problem")
    assert page.input_value("#text") == TEXT
    for field, value in {"#k": "3", "#least": "1", "#text": "xyzzy"}.items():
        page.fill(field, value)
    find(page, "text=No word of this text tells the model anything")
    request = {"texts": ["xyzzy"], "k": 3}
    (expected,) = service.post("/v1/predict", json=request).json()["predictions"]
    for shown, label in zip(names(page), expected, strict=True):
        assert shown.startswith(label["name"])
    assert page.locator(".tick :checked").count() == 0


def test_calibrated_scores_are_chances(browser, shop, tmp_path, shop_model):
    calibrated = Linear.load(shop_model)
    calibrate(calibrated, shop)
    calibrated.save(tmp_path / "calibrated")
    with running(tmp_path / "calibrated") as client, visiting(browser, client.base_url) as visit:
        visit.page.fill("#least", "30")  # per cent, as they are shown
        ask(visit.page)
        assert "Calibrated" in visit.page.inner_text("#results")
        assert visit.page.inner_text(".threshold") == "Below 30 %"
        for rows, above in ((".ranking > :not(.below)", True), (".ranking > .below", False)):
            numbers = visit.page.locator(f"{rows} .label > .number").all_inner_texts()
            assert numbers
            for shown in numbers:
                assert re.fullmatch(r"\d+ %|<1 %", shown)
                assert (int(re.sub(r"\D", "", shown)) >= 30) == above
        # Nothing is ticked for people, but one click takes all that reach the line.
        assert visit.page.locator(".tick :checked").count() == 0
        number = visit.page.locator(".ranking > :not(.below, .threshold)").count()
        visit.page.click(f"text=Take the first {number}")
        assert visit.page.locator(".ranking > :not(.below) .tick :checked").count() == number
        assert visit.page.locator(".tick :checked").count() == number
        # Without a minimum, the line is where calibration found it best.
        visit.page.fill("#least", "")
        visit.page.click("#find")
        best = round(100 * client.get("/v1/model").json()["calibration"]["threshold"])
        visit.page.wait_for_selector(f"text=/^Below {best} %/")
        # In a table they are pale, unless a minimum leaves them out.
        visit.page.check("input[value=lines]")
        find(visit.page, f"text=/Labels below {best} %.* are pale/", f"{TEXT}\n" * 3)
        for chips, above in ((".chip:not(.below)", True), (".chip.below", False)):
            numbers = visit.page.locator(f".batch {chips} .muted").all_inner_texts()
            assert numbers
            values = [int(re.sub(r"\D", "", shown)) for shown in numbers]
            assert min(values) >= best if above else max(values) < best
        visit.page.fill("#least", "30")
        find(visit.page, "text=3 of 3 texts answered")
        assert "pale" not in visit.page.inner_text("#results")
        assert visit.page.locator(".chip.below").count() == 0
        visit.page.goto(f"{client.base_url}/#/model")
        assert "Best threshold" in visit.page.inner_text("#model-facts")


def drop(page, name, content):
    """What a browser does when a file is dropped on the form."""
    files = page.evaluate_handle(
        """([name, content]) => {
            const carried = new DataTransfer();
            carried.items.add(new File([content], name));
            return carried;
        }""",
        [name, content],
    )
    page.dispatch_event("#ask", "drop", {"dataTransfer": files})


def test_a_dropped_table_becomes_a_table_of_labels(browser, service):
    texts = ["A kettle, of oak", '"Quoted" hat\nin two lines', "=1+1 oak"] + ["lamp"] * 70
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(["id", "colour", "text"])
    writer.writerows([f"n{number}", "red", text] for number, text in enumerate(texts))
    request = {"texts": texts[:50], "k": 2}
    expected = service.post("/v1/predict", json=request).json()["predictions"]
    with visiting(browser, service.base_url, accept_downloads=True) as visit:
        page = visit.page
        page.fill("#text", "typed before")
        page.fill("#k", "2")
        drop(page, "goods.csv", table.getvalue())
        page.wait_for_selector("text=73 texts")
        assert page.locator("#text-column option:checked").inner_text() == "text"
        find(page, "text=73 of 73 texts answered")
        first = page.locator(".batch tbody tr").first
        assert texts[0] in first.inner_text() and expected[0][0]["name"] in first.inner_text()
        row = page.locator(".batch tbody tr").nth(3)
        assert "no word tells the model anything" in row.inner_text()
        assert row.locator(".chip").count() > 0
        with page.expect_download() as downloading:
            page.click("text=Suggestions as CSV")
        written = Path(downloading.value.path()).read_text(encoding="utf-8-sig")
        rows = list(csv.DictReader(io.StringIO(written, newline="")))
        assert [row["id"] for row in rows] == [f"n{number}" for number in range(73)]
        assert [row["text"] for row in rows[:3]] == [*texts[:2], "'=1+1 oak"]
        assert [row["label_1"] for row in rows[:50]] == [row[0]["name"] for row in expected]
        assert float(rows[0]["score_2"]) == expected[0][1]["score"]
        with page.expect_download() as downloading:
            page.click("text=Suggestions as JSON")
        assert downloading.value.suggested_filename == "labels.json"
        objects = json.loads(Path(downloading.value.path()).read_text(encoding="utf-8"))
        assert [(one["id"], one["text"]) for one in objects] == [
            (f"n{number}", text) for number, text in enumerate(texts)
        ]
        assert [one["labels"] for one in objects[:50]] == expected
        assert "unknown" not in objects[0] and objects[3]["unknown"] is True
        # One text of them, and back.
        page.locator(".excerpt").first.click()
        page.wait_for_selector(".ranking .why .words")
        assert "Back" in page.evaluate("document.activeElement.textContent")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.classList.contains('excerpt')")
        assert page.locator(".batch tbody tr").count() == 73
        page.click("text=Remove")
        assert page.input_value("#text") == "typed before"


def test_other_files(visit, page):
    drop(page, "one.txt", "A kettle\nof copper")
    visit.wait_until("document.getElementById('text').value !== ''")
    assert page.input_value("#text") == "A kettle\nof copper"
    lines = [{"id": number, "text": f"hat {number}"} for number in range(3)]
    drop(page, "some.jsonl", "\n".join(map(json.dumps, lines)) + "\n\n")
    page.wait_for_selector("text=3 texts")
    drop(page, "bad.jsonl", '{"text": "x"}\n{"text": ')
    page.wait_for_selector("text=bad.jsonl, line 2: this is not JSON")
    drop(page, "picture.png", "x")
    page.wait_for_selector("text=reads .xlsx, .csv, .tsv, .jsonl and .txt")
    page.click("text=Remove")
    page.check("input[value=lines]")
    find(page, "text=2 of 2 texts answered")


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_tables_are_read_as_python_writes_them(page, delimiter):
    rows = [["a", 'say "hi"', "two\nlines"], ["", " x ", "\r\n"], ["1,2;3\t4", '"', "end"]]
    for line_end in ("\n", "\r\n"):
        written = io.StringIO()
        csv.writer(written, delimiter=delimiter, lineterminator=line_end).writerows(rows)
        script = "async (given) => (await import('./page/files.js')).parseCsv(...given)"
        assert page.evaluate(script, [written.getvalue(), delimiter]) == rows
        unfinished = written.getvalue().rstrip("\r\n")
        assert page.evaluate(script, [unfinished, delimiter]) == rows


def test_labels_are_searched_and_left_out(browser, service):
    best = service.post("/v1/predict", json={"texts": [TEXT], "k": 1}).json()["predictions"][0][0]
    with visiting(browser, service.base_url, "labels") as visit:
        page = visit.page
        page.wait_for_selector("#label-list li:nth-child(25)")
        page.fill("#label-query", best["name"].lower()[:5])
        page.wait_for_selector(f"#labels-lede:has-text('{best['name'].lower()[:5]}')")
        row = page.locator("#label-list li", has_text=best["id"]).first
        row.get_by_role("button", name="Never").click()
        assert page.locator("#deny .chip").inner_text().startswith(best["name"])
        ask(page)
        assert best["name"] not in [name.split(" ")[0] for name in names(page)]
        page.goto(f"{service.base_url}/#/labels")
        page.fill("#label-query", "no such thing")
        page.wait_for_selector("text=No label has this in its name or id")


def test_the_tree_is_walked_with_keys(browser, service):
    tree = service.get("/v1/tree").json()
    with visiting(browser, service.base_url, "tree") as visit:
        page = visit.page
        items = page.locator("#tree [role=treeitem]")
        page.wait_for_selector("#tree [role=treeitem]")
        assert items.count() == len(tree["children"])
        items.first.focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#tree [role=group] [role=treeitem]")
        page.keyboard.press("ArrowRight")
        inside = page.evaluate("document.activeElement.dataset.node")
        child = service.get("/v1/tree", params={"node": tree["children"][0]["id"]}).json()
        assert inside == child["children"][0]["id"]
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        assert page.evaluate("document.activeElement.ariaExpanded") == "false"
        page.keyboard.press("End")
        assert page.evaluate("document.activeElement.dataset.node") == tree["children"][-1]["id"]


def test_a_label_is_shown_in_the_tree(visit, page):
    ask(page)
    best = page.locator(".ranking .name").first.inner_text()
    page.click("text=For experts")
    page.click("text=Show in the tree")
    sought = page.wait_for_selector(".sought .name").inner_text()
    assert best.startswith(sought)
    assert page.evaluate("document.activeElement.classList.contains('sought')")
    page.go_back()
    assert page.is_visible(".ranking")
    page.click("text=Leave this label out")
    first = f"document.querySelector('.ranking')?.innerText.startsWith({json.dumps(best)})"
    visit.wait_until(f"{first} === false")
    visit.wait_until("document.activeElement.classList.contains('label')")


def test_of_two_ways_into_the_tree_the_later_one_is_shown(page, service):
    tree = service.get("/v1/tree").json()
    label = service.get("/v1/labels").json()["labels"][0]["id"]
    held = []

    def hold_the_first(route):
        if held:
            route.continue_()
        else:
            held.append(route)

    page.wait_for_selector("#find:enabled")
    page.route("**/v1/tree?*", hold_the_first)
    page.evaluate("location.hash = '#/tree'")
    page.wait_for_selector("#tree[aria-busy]")
    page.evaluate("(label) => { location.hash = `#/tree?label=${label}` }", label)
    page.wait_for_selector(".sought")
    with page.expect_response("**/v1/tree?*"):
        held[0].continue_()
    page.wait_for_timeout(100)
    assert page.locator("#tree > [role=treeitem]").count() == len(tree["children"])


def test_of_two_texts_the_one_that_was_chosen_last_is_shown(page):
    held = []
    page.check("input[value=lines]")
    find(page, "text=2 of 2 texts answered", "a copper kettle\na sofa of oak")
    page.route("**/v1/predict", lambda route: held.append(route), times=1)
    page.locator(".excerpt", has_text="copper kettle").click()
    page.wait_for_selector("#find[aria-busy]")
    page.locator(".excerpt", has_text="sofa of oak").click()
    page.wait_for_selector(".reading")
    held[0].continue_()
    page.wait_for_timeout(300)
    assert page.inner_text(".reading blockquote") == "a sofa of oak"


def test_keys_alone_are_enough(page):
    page.wait_for_selector("#summary:has-text('knows')")

    def tab_to(selector, most=30):
        for _ in range(most):
            page.keyboard.press("Tab")
            if page.evaluate("(s) => document.activeElement.matches(s)", selector):
                ring = "getComputedStyle(document.activeElement).outlineStyle"
                assert page.evaluate(ring) != "none" or "choice" in selector
                return
        raise AssertionError(f"{selector} was not reached")

    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # the link past the head
    assert page.evaluate("document.activeElement.id") == "main"
    tab_to("#text", 2)
    page.keyboard.type("a kettle of copper")
    tab_to("#which summary")
    page.keyboard.press("Enter")
    tab_to("#allow input")
    page.keyboard.type("purpl")
    page.wait_for_selector("#allow [role=option]")
    page.keyboard.press("ArrowDown")
    option = page.locator("#allow [aria-selected=true] span").first.inner_text()
    page.keyboard.press("Enter")
    assert page.locator("#allow .chip").inner_text().startswith(option)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".ranking .why .links")
    assert len(names(page)) == 1
    tab_to(".label")
    page.keyboard.press("Escape")
    assert not page.is_visible(".why")
    assert page.evaluate("document.activeElement.matches('.label')")
    page.keyboard.press("Enter")
    assert page.is_visible(".why")


def test_light_and_dark_follow_the_system_until_chosen(browser, service):
    ground = "getComputedStyle(document.body).backgroundColor"
    with visiting(browser, service.base_url, color_scheme="dark") as visit:
        page = visit.page
        dark = page.evaluate(ground)
        page.emulate_media(color_scheme="light")
        light = page.evaluate(ground)
        assert dark != light
        page.click("#theme")
        assert page.evaluate(ground) == dark
        page.reload()
        assert page.evaluate(ground) == dark
        page.click("#theme")
        assert page.evaluate(ground) == light
