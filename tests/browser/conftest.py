"""The page in chromium, about simulated hosts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.pages import Watched, watched
from tests.cluster.conftest import guarded, hosts, servers

__all__ = ["guarded", "hosts", "servers"]

#: The distribution's: playwright's own would be downloaded.
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A tab in which nothing may go wrong: neither an error in the console nor a violation of the CSP."""
    with browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce") as context:
        made = context.new_page()
        found: Watched = watched(made)
        yield made
        assert not found.complaints, found.complaints
