"""The page's files and the report, as they are sent."""

import os
import re

import pytest

from labelgrove.serve.app import FOLDER, TYPES
from support.browsing import Visit
from support.label_reports import made
from support.services import check_problem, running

pytestmark = pytest.mark.slow


def test_the_page_and_its_files_are_sent_under_a_strict_policy(client):
    page = client.get("/")
    assert page.status_code == 200 and page.text.startswith("<!DOCTYPE html>")
    files = {file.name for file in FOLDER.iterdir() if file.suffix in TYPES}
    assert files >= {"main.js", "style.css", "icon.svg"}
    for path in ("/", *(f"/page/{name}" for name in files)):
        answer = client.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        again = client.get(path, headers={"if-none-match": answer.headers["etag"]})
        assert again.status_code == 304 and not again.content
        assert client.head(path).headers["content-type"] == answer.headers["content-type"]
    check_problem(client.get("/page/nothing.js"), 404, "not-found")
    check_problem(client.get("/page/../app.py"), 404, "not-found")


def test_every_file_that_is_named_exists():
    """Names in the page, and imports between modules; none of another host."""
    for file in FOLDER.iterdir():
        text = file.read_text(encoding="utf-8")
        outside = set(re.findall(r"https?://[^\s\"']+", text)) - {"http://www.w3.org/2000/svg"}
        assert not outside
        named = re.findall(r'(?:href|src)="page/([^"]+)"', text)
        named += re.findall(r'from "\./([^"]+)"', text)
        assert all((FOLDER / name).is_file() for name in named)
        assert not re.search(r"\son\w+=|style=|<script>", text) or file.suffix != ".html"


def test_the_page_can_be_left_out(model_path):
    with running(model_path, page=False) as client:
        check_problem(client.get("/"), 404, "not-found")
        check_problem(client.get("/page/main.js"), 404, "not-found")


def test_with_a_token_the_page_is_open_and_the_model_is_not(model_path):
    with running(model_path, token="s3cret") as client:
        assert client.get("/").status_code == client.get("/page/main.js").status_code == 200
        for path in ("/report", "/v1/tree", "/v1/model", "/page", "/pages/x"):
            check_problem(client.get(path), 401, "no-token")


@pytest.mark.parametrize("given", [True, False])
def test_the_report(model_path, tmp_path, given):
    report = tmp_path / "report.html"
    report.write_text("<!DOCTYPE html><h1>A report</h1>", encoding="utf-8")
    with running(model_path, report=report if given else None) as client:
        assert client.get("/v1/model").json()["report"] is given
        if not given:
            check_problem(client.get("/report"), 404, "no-report")
            return
        answer = client.get("/report")
        assert "A report" in answer.text
        rules = answer.headers["content-security-policy"].split("; ")
        scripts = next(rule for rule in rules if rule.startswith("script-src"))
        assert re.fullmatch(r"script-src 'sha256-[\w+/]{43}='", scripts)  # ours and no other
        report.unlink()
        check_problem(client.get("/report"), 404, "no-report")


def test_a_served_report_has_its_search_box_and_runs_no_other_script(model_path, tmp_path, browser):
    pytest.importorskip("matplotlib")
    from labelgrove.experiments.report import write_report

    report = tmp_path / "report.html"
    corpus, predictions = made()
    write_report(predictions, corpus, report, intervals=None)
    html = report.read_text(encoding="utf-8")
    assert html.count("<head>") == html.count('http-equiv="Content-Security-Policy"') == 1
    # Somebody else's report would not forbid its own script.
    html = html.replace('http-equiv="Content-Security-Policy"', "")
    report.write_text(html.replace("<head>", "<head><script>strange = 1</script>"), "utf-8")
    with running(model_path, report=report) as client:
        visit = Visit(browser.new_context(), str(client.base_url))
        visit.page.goto(f"{visit.address}/report")
        visit.page.fill("#label-search", "id:77")
        found = "document.querySelector('[role=status]').textContent.includes('that match')"
        visit.wait_until(found)
        names = visit.page.locator("#label-table tbody th").all_inner_texts()
        assert names and all("77" in name for name in names)
        assert visit.page.evaluate("typeof strange") == "undefined"


def test_a_link_in_a_model_folder_is_not_followed(model_path, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("of this machine", encoding="utf-8")
    report = tmp_path / "report.html"
    report.symlink_to(secret)
    with running(model_path, report=report, follow=False) as client:
        check_problem(client.get("/report"), 404, "no-report")
        report.unlink()
        report.write_text("<!DOCTYPE html>", encoding="utf-8")
        assert client.get("/report").status_code == 200
        report.unlink()
        os.mkfifo(report)  # reading it would never end
        check_problem(client.get("/report"), 404, "no-report")
    report.unlink()
    report.symlink_to(secret)
    with running(model_path, report=report) as client:  # one that the user names is followed
        assert client.get("/report").text == "of this machine"
