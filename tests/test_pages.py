"""How pages are compared with what their commands print."""

import pytest

from support.pages import shows

OUTPUT = """shop.jsonl: 2,000 documents
plan: 2 s to 6 s, about 178.0 MiB
  memory
P  90.50
model 221715b339ea, 1 min 15 s, 4,540 documents/s
"""


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("90.50", "89.00", True),
        ("90.50", "80.50", False),
        ("2,000", "2,001", False),
        ("memory", "time", False),
        ("  memory\n", "", False),
        ("P  90.50", "P 90.50", True),
        ("2 s to 6 s, about 178.0 MiB", "under 1 s, 1.2 GiB", True),
        ("178.0 MiB", "many", False),
        ("221715b339ea, 1 min 15 s, 4,540", "0123456789ab, 4.20 s, 28,963", True),
        ("plan: 2 s to 6 s, about 178.0 MiB\n  memory\n", "...\n", True),
        ("P  90.50\n", "...\n", True),
        ("2,000 documents\n", "2,000 documents\n...\n", True),
        ("shop.jsonl: 2,000 documents\n", "...\n", True),
        ("shop.jsonl: 2,000 documents\n", "...\nnothing\n...\n", False),
    ],
)
def test_a_page_shows_an_output(old, new, same):
    assert shows(OUTPUT.replace(old, new), OUTPUT) is same
