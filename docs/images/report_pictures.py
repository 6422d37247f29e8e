"""Takes the picture of a report's table of labels, with models of invented goods.

Needs Chromium, playwright and Pillow: PYTHONPATH=tests:docs/images python \
docs/images/report_pictures.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from page_pictures import save

from labelgrove import Linear
from labelgrove.data.shop import shop_corpus
from labelgrove.experiments.report import write_report
from labelgrove.text.tfidf import TfidfParams
from support.browsing import browser


def main() -> None:
    train, held_out = shop_corpus(4000, labels=400), shop_corpus(600, labels=400, part="dev")
    plain = Linear(tfidf=TfidfParams(max_features=600)).fit(train)
    with tempfile.TemporaryDirectory() as folder, browser() as started:
        report = Path(folder) / "report.html"
        name = {"name": "model", "data_name": "test.jsonl"}
        write_report(Linear().fit(train), held_out, report, against={"fewer words": plain}, **name)
        page = started.new_page(viewport={"width": 1180, "height": 760})
        page.goto(report.as_uri())
        page.fill("#label-search", "collection")
        page.get_by_role("button", name="F1", exact=True).click()
        page.wait_for_timeout(600)
        page.locator("#label-table tbody summary").nth(1).click()
        page.evaluate("document.activeElement.blur()")
        page.evaluate("document.getElementById('labels').scrollIntoView()")
        save("report-labels.webp", page.screenshot())


if __name__ == "__main__":
    main()
