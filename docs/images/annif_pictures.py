"""Takes the picture of Annif's page with our suggestions, in a project of invented goods.

Needs Chromium, playwright, Pillow, and the annif command of an environment with Annif and our
backend: PYTHONPATH=tests:docs/images python docs/images/annif_pictures.py VENV/bin/annif
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import httpx
from page_pictures import save

from labelgrove.data.corpus import Corpus
from labelgrove.data.shop import shop_corpus
from support.browsing import browser, visiting

PROJECT = """[shop]
name=Shop, labelgrove
language=en
vocab=shop
backend=labelgrove
calibrate=0.1
"""


def uri(label: str) -> str:
    return f"http://example.org/{label}"


def write(file: Path, corpus: Corpus) -> None:
    rows = zip(corpus.texts or (), corpus.label_lists(), strict=True)
    lines = (f"{text}\t{' '.join(f'<{uri(label)}>' for label in row)}\n" for text, row in rows)
    file.write_text("".join(lines), encoding="utf-8")


def main() -> None:
    annif = sys.argv[1]
    train, held_out = shop_corpus(8000, labels=800), shop_corpus(60, labels=800, part="dev")
    # The text with the most labels shows most.
    text = (held_out.texts or ())[max(range(60), key=lambda row: len(held_out.label_lists()[row]))]
    with tempfile.TemporaryDirectory() as name, socket.socket() as free:
        folder = Path(name)
        (folder / "projects.cfg").write_text(PROJECT, encoding="utf-8")
        names = zip(train.index.ids, train.index.names, strict=True)
        table = "".join(f"<{uri(label)}>\t{title}\n" for label, title in names)
        (folder / "shop.tsv").write_text(table, encoding="utf-8")
        write(folder / "train.tsv", train)
        for command in ("load-vocab shop shop.tsv --language en", "train shop train.tsv"):
            subprocess.run([annif, *command.split()], cwd=folder, check=True)
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        service = subprocess.Popen([annif, "run", "--port", str(port)], cwd=folder)
        try:
            address = f"http://127.0.0.1:{port}"
            wait_for(address)
            answer = httpx.post(f"{address}/v1/projects/shop/suggest", data={"text": text})
            print(answer.raise_for_status().json()["results"][:3])
            with (
                browser() as started,
                visiting(started, address, "", reduced_motion="reduce") as visit,
            ):
                visit.page.fill("#text", text)
                visit.page.click("#get-suggestions")
                visit.page.wait_for_selector("#results li")
                visit.page.evaluate("document.activeElement.blur()")
                visit.page.wait_for_timeout(600)
                save("annif-page.webp", visit.page.screenshot())
        finally:
            service.terminate()
            service.wait()


def wait_for(address: str) -> None:
    """Waits until Annif answers; it imports for some seconds."""
    last = time.monotonic() + 60
    while time.monotonic() < last:
        with suppress(httpx.TransportError):
            if httpx.get(f"{address}/v1/projects").is_success:
                return
        time.sleep(0.2)
    raise SystemExit("annif run did not answer within a minute")


if __name__ == "__main__":
    main()
