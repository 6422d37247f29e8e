"""The page around the sections: one file, no scripts, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labelgrove.report.drawing import COLOURS
from labelgrove.report.markup import escape

# Nothing may be loaded and no script may run, whatever the texts in the page say.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading; ``inside`` is HTML."""

    name: str
    heading: str
    inside: str


def page(title: str, introduction: str, sections: Sequence[Section], footer: str) -> str:
    """The whole document; ``introduction`` and ``footer`` are HTML.

    >>> page("A < B", "", [], "").splitlines()[6]
    '<title>A &lt; B</title>'
    """
    links = "".join(
        f"<li><a href='#{section.name}'>{escape(section.heading)}</a></li>" for section in sections
    )
    parts = "\n".join(
        f"<section aria-labelledby='{section.name}'>"
        f"<h2 id='{section.name}' tabindex='-1'>{escape(section.heading)}</h2>\n"
        f"{section.inside}</section>"
        for section in sections
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(title)}</title>
<meta name="color-scheme" content="light dark">
<meta name="generator" content="labelgrove">
<style>{_style()}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header><h1><bdi>{escape(title)}</bdi></h1>
{introduction}
<nav aria-label="Sections"><ul>{links}</ul></nav></header>
<main id="content" tabindex="-1">
{parts}
</main>
<footer>{footer}</footer>
</body>
</html>
"""


def _style() -> str:
    light, dark = (
        ";".join(f"--{role}:{pair[number]}" for role, pair in COLOURS.items()) for number in (0, 1)
    )
    roles = "".join(
        f".s-{role}{{stroke:var(--{role});fill:none}}.f-{role}{{fill:var(--{role})}}"
        for role in COLOURS
    )
    return (
        f":root{{{light};color-scheme:light dark}}"
        f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}{roles}{STYLE}"
    )


STYLE = """
*{box-sizing:border-box}
body{margin:0 auto;max-width:70rem;padding:0 1rem 3rem;background:var(--paper);color:var(--ink);
font:1rem/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif;
overflow-wrap:anywhere}
h1{font-size:1.6rem;line-height:1.2;margin:1.5rem 0 .5rem}
h2{font-size:1.25rem;margin:2.5rem 0 .5rem;padding-top:.75rem;border-top:1px solid var(--grid)}
h3{font-size:1rem;margin:1.25rem 0 .25rem}
p,li{max-width:46rem}
a{color:var(--run0)}
:focus-visible{outline:3px solid var(--run1);outline-offset:2px}
.skip{position:absolute;left:-99rem}
.skip:focus{position:static;display:inline-block;padding:.5rem}
nav ul{list-style:none;display:flex;flex-wrap:wrap;gap:.25rem 1rem;padding:0;margin:1rem 0 0}
nav a{display:inline-block;padding:.25rem 0}
.note,figcaption,caption,footer,.facts{color:var(--muted);font-size:.9rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr));gap:.75rem;
margin:1rem 0;padding:0}
.tiles div{border:1px solid var(--grid);border-radius:.5rem;padding:.6rem .8rem}
.tiles dt{color:var(--muted);font-size:.9rem}
.tiles dd{margin:0}
.tiles .value{font-size:1.5rem;font-weight:600;line-height:1.2}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));
gap:1rem 2rem;align-items:start}
figure{margin:.5rem 0;max-width:34rem}
figure svg{width:100%;height:auto;display:block}
svg text{font-family:inherit}
td .note{display:block;font-size:.8rem}
.scroll{overflow-x:auto;margin:.75rem 0}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;min-width:20rem}
caption{text-align:left;padding-bottom:.25rem}
th,td{padding:.3rem .7rem;text-align:right;border-bottom:1px solid var(--grid);vertical-align:top;
white-space:nowrap}
th:first-child{padding-left:0}
th[scope=row],.words{text-align:left}
td.words,th[scope=row]{white-space:normal;min-width:7rem}
details{margin:.5rem 0}
summary{cursor:pointer;padding:.25rem 0;color:var(--run0)}
pre{overflow-x:auto;padding:.75rem;border:1px solid var(--grid);border-radius:.5rem;
font-size:.85rem}
ol.documents{padding-left:0;list-style:none}
ol.documents>li{border:1px solid var(--grid);border-radius:.5rem;padding:.75rem 1rem;
margin:.75rem 0;max-width:none}
ol.documents h3{margin-top:0}
ol.documents p{margin:.25rem 0}
.labels{list-style:none;display:flex;flex-wrap:wrap;gap:.35rem;padding:0;margin:.35rem 0}
.labels li{border:1px solid var(--grid);border-radius:1rem;padding:.05rem .6rem;font-size:.9rem}
.labels .right{border-color:var(--run2)}
.labels .off{border-style:dashed}
@media print{nav,.skip{display:none}section{break-inside:avoid-page}}
"""
