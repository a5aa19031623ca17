"""Builds these documents as a site: ``sphinx-build -W docs OUT`` (docs/packaging.md)."""

from __future__ import annotations

import re
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

import federator

project = "Federator"
release = federator.__version__
extensions = ["myst_parser"]
exclude_patterns = ["README.md"]  # the list of pages where there is no site
myst_heading_anchors = 4
html_theme = "furo"
html_title = f"Federator {release}"
html_copy_source = False
html_theme_options = {"top_of_page_buttons": []}

_FOLDER = Path(__file__).parent
_OUT_OF_HERE = re.compile(r"\[([^\]\[]+)\]\((?:\.\./)+([\w./-]+)(?:#[\w-]+)?\)")


def _outside(_app: Sphinx, page: str, source: list[str]) -> None:
    """Name a file of the repository that is no page, instead of a link that leads nowhere."""
    depth = page.count("/") + 1

    def named(match: re.Match[str]) -> str:
        text, path = match.groups()
        if match[0].count("../") < depth:
            return match[0]
        return text if path in text else f"{text} (`{path}`)"

    source[0] = _OUT_OF_HERE.sub(named, source[0])


def setup(app: Sphinx) -> None:
    app.connect("source-read", _outside)
    app.add_lexer("mermaid", TextLexer)  # drawn by a forge; here its text is shown
