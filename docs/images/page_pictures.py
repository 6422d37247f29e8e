"""Takes the pictures of the service's page and of a report, with a model of invented goods.

Needs Chromium, playwright and Pillow: PYTHONPATH=tests python docs/images/page_pictures.py
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from labelgrove import Linear, calibrate
from labelgrove.data.shop import shop_corpus
from labelgrove.experiments.report import write_report
from labelgrove.labels.tree import TreeParams
from labelgrove.text.tfidf import TfidfParams
from support.browsing import browser, visiting
from support.services import running

WIDE = {"viewport": {"width": 1280, "height": 860}}
PHONE = {"viewport": {"width": 360, "height": 740}, "device_scale_factor": 2}


def save(name: str, *shots: bytes, gap: int = 24) -> None:
    """Shots side by side as one WebP file."""
    pictures = [Image.open(io.BytesIO(shot)).convert("RGB") for shot in shots]
    width = sum(one.width for one in pictures) + gap * (len(pictures) - 1)
    sheet = Image.new("RGB", (width, max(one.height for one in pictures)), "white")
    at = 0
    for one in pictures:
        sheet.paste(one, (at, 0))
        at += one.width + gap
    file = Path(__file__).with_name(name)
    sheet.save(file, quality=82, method=6)
    print(file, sheet.size, f"{file.stat().st_size / 1000:.0f} kB")


def labelled(page: Any, text: str) -> None:
    page.fill("#text", text)
    page.fill("#k", "6")
    page.click("#find")
    page.wait_for_selector(".ranking")
    if page.is_hidden(".why"):  # as on phones
        page.locator(".label").first.click()
    page.wait_for_selector(".why .links")
    page.evaluate("document.activeElement.blur()")
    page.wait_for_timeout(600)


def main() -> None:
    train, held_out = shop_corpus(12_000, labels=1200), shop_corpus(1000, labels=1200, part="dev")
    model = Linear(tree=TreeParams(branching=8, max_leaf_size=20)).fit(train)
    calibrate(model, held_out)
    sure = model.predict(held_out, k=5).scores[:, :5].min(axis=1)
    text = held_out.texts[int(sure.argmax())]
    with tempfile.TemporaryDirectory() as folder, browser() as started:
        model.save(Path(folder) / "model")
        plain = Linear(tree=model.tree, tfidf=TfidfParams(max_features=2000)).fit(train)
        plain.save(Path(folder) / "fewer-words")
        models = {name: Path(folder) / name for name in ("model", "fewer-words")}
        with running(models, feedback=Path(folder)) as client:
            with visiting(started, client.base_url, reduced_motion="reduce", **WIDE) as visit:
                labelled(visit.page, text)
                save("page-labels.webp", visit.page.screenshot())
                visit.page.click("text=/Take the first/")
                save("page-choice.webp", visit.page.screenshot())
                visit.page.select_option("#against", "fewer-words")
                visit.page.click("#find")
                visit.page.wait_for_selector(".pair")
                visit.page.wait_for_timeout(600)
                save("page-compare.webp", visit.page.screenshot())
                visit.page.select_option("#against", "")
                visit.page.check("input[value=lines]", force=True)
                visit.page.fill("#text", "\n".join(held_out.texts[row] for row in range(40)))
                visit.page.click("#find")
                visit.page.wait_for_selector("text=40 of 40 texts answered")
                visit.page.locator("#results").scroll_into_view_if_needed()
                save("page-table.webp", visit.page.screenshot())
            phone = PHONE | {"color_scheme": "dark", "reduced_motion": "reduce"}
            with visiting(started, client.base_url, **phone) as visit:
                page = visit.page
                labelled(page, text)
                shots = [page.screenshot()]
                page.locator(".tick input").first.check()
                page.locator(".label").first.click()
                page.evaluate("scrollTo(0, 0)")
                page.locator(".ranking").scroll_into_view_if_needed()
                shots.append(page.screenshot())
                page.goto(f"{client.base_url}/#/model")
                page.wait_for_selector("#model-facts section")
                shots.append(page.screenshot())
                save("page-phone.webp", *shots)
        report = Path(folder) / "report.html"
        name = {"name": "model", "data_name": "test.jsonl"}
        write_report(model, held_out, report, against={"fewer words": plain}, **name)
        page = started.new_page(viewport={"width": 1000, "height": 1100})
        page.goto(report.as_uri())
        save("report.webp", page.screenshot())


if __name__ == "__main__":
    main()
