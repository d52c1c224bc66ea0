"""The documentation builds as a site, and a link or page that is lost is an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"

pytestmark = pytest.mark.timeout(600)  # for a machine that does much else


def build(source: Path, output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "-q",
        "-b",
        "html",
        "-c",
        str(DOCS),
        *options,
        str(source),
        str(output),
    ]
    return subprocess.run(words, capture_output=True, text=True, timeout=600)


def test_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = build(DOCS, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    page = (tmp_path / "provision.html").read_text()
    assert 'href="job-file.html#requirements"' in page
    assert "/blob/main/roles/proxy/README.md" in (tmp_path / "host-services.html").read_text()


def test_lost_links_anchors_and_pages_are_errors(tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text(
        "# Index\n\n[page](none.md) [anchor](#none) [file](../none.md)\n\n[section](other.md#none)\n"
    )
    (tmp_path / "other.md").write_text("# Other\n")
    done = build(tmp_path, tmp_path / "site", "--keep-going")
    assert done.returncode == 1
    for said in (
        "'none.md'",
        "target not found: 'none'",
        "../none.md does not exist",
        "other.md: WARNING: document isn't",
    ):
        assert said in done.stderr
