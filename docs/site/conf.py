"""Sphinx settings of the documentation site; build.py puts this file beside the staged pages."""

from importlib.util import find_spec
from pathlib import Path

from labelgrove.core.versions import VERSION

project = "labelgrove"
release = version = VERSION
copyright = "the labelgrove authors"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = "labelgrove"
html_static_path = ["_static"]
html_favicon = "_static/icon.svg"
html_css_files = ["site.css"]
html_show_copyright = False
html_copy_source = False
# Summaries are fetched, which browsers refuse for pages on disk; the search itself works there.
html_show_search_summary = False
html_search_scorer = str(Path(__file__).parent / "_static" / "scorer.js")
# Only what is in the built folder is ever loaded: no fonts, scripts or pictures of other hosts.
html_theme_options = {
    "light_logo": "icon.svg",
    "dark_logo": "icon.svg",
    "light_css_variables": {
        "color-brand-primary": "#1d6b51",
        "color-brand-content": "#1d6b51",
        "color-brand-visited": "#1d6b51",
    },
    "dark_css_variables": {
        "color-brand-primary": "#74cba8",
        "color-brand-content": "#74cba8",
        "color-brand-visited": "#74cba8",
    },
}
myst_heading_anchors = 6
myst_enable_extensions = ["fieldlist"]
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "inherited-members": False}
autodoc_preserve_defaults = True
autodoc_mock_imports = [
    name
    for name in ("torch", "transformers", "optuna", "fastapi", "onnx", "onnxruntime", "tokenizers")
    if find_spec(name) is None
]
# Docstrings name types of annotations that have no page of their own.
nitpicky = False
