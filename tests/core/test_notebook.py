"""HTML for notebooks is escaped and short."""

from labelgrove.core.notebook import LONGEST, cut, table


def test_long_texts_are_cut_and_stay_on_one_line():
    assert cut("red\n\tshoes ") == "red shoes"
    assert cut("x" * LONGEST) == "x" * LONGEST
    assert cut("x" * (LONGEST + 1)) == "x" * (LONGEST - 1) + "…"
    assert cut(" " * 10_000 + "far") == "…"  # something is there, and it is not read in full
    assert len(cut("word " * 1_000_000)) <= LONGEST


def test_everything_is_escaped_and_a_table_without_rows_is_its_title():
    bad = "<script>alert('x')</script>&"
    page = table(bad, [[bad, bad]], head=[bad], notes=[bad])
    assert "<script" not in page and page.count("&lt;script&gt;") == 5
    assert page.count("&amp;") == 5
    assert table("nothing", []) == "<div><p><b>nothing</b></p></div>"
