"""Configuration of Sphinx, which builds the documentation as a site.

    .venv/bin/sphinx-build -W -b html docs build/site

The pages are the Markdown files of this directory, as a reader of the repository sees them. Links to files outside of
it, such as ../README.md, lead to the repository.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

import tfctl

ROOT = Path(__file__).resolve().parent.parent
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
DOCS = ROOT / "docs"
#: A relative link of Markdown that leaves its directory.
_LINK = re.compile(r"(?<=\]\()(?P<path>\.\./[^)#\s]*)(?=[)#])")

project = "tfctl"
author = "the tfctl developers"
version = release = tfctl.__version__

extensions = ["myst_parser"]
myst_heading_anchors = 4
nitpicky = True
# Examples are shell commands, YAML, INI and output. Most blocks do not name their language.
highlight_language = "none"

html_theme = "alabaster"
html_title = f"tfctl {release}"
html_theme_options = {
    "description": "Distributed TensorFlow on plain Linux machines",
    "page_width": "1100px",
    "sidebar_width": "240px",
    "sidebar_collapse": True,
    "show_powered_by": False,
}
html_copy_source = False
html_show_copyright = False


def setup(app: Sphinx) -> dict[str, object]:
    app.connect("source-read", _link_the_repository)
    app.connect("source-read", _drop_empty_globs)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _link_the_repository(_app: Sphinx, docname: str, source: list[str]) -> None:
    """Replace links to files outside of docs/. Warn of those that do not exist."""

    def address(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(docname), link["path"]))
        if path.startswith("docs/"):
            return link["path"]
        if not (ROOT / path).exists():
            logging.getLogger(__name__).warning("%s does not exist", link["path"], location=docname)
        return f"{URLS['Repository']}/blob/main/{path}"

    source[0] = _LINK.sub(address, source[0])


def _drop_empty_globs(_app: Sphinx, docname: str, source: list[str]) -> None:
    """Remove patterns without a page from the index: a group may have no page yet, and Sphinx cannot suppress that
    warning."""
    if docname == "index":
        lines = source[0].splitlines()
        source[0] = "\n".join(
            line for line in lines if not re.fullmatch(r"[\w/]+\*", line) or any(DOCS.glob(f"{line}.md"))
        )
