"""The page for those who see little, have a small screen, or use a screen reader."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.pages import VIEWS, Site, Watched, watch

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

#: Every view, with a job that runs and one that has failed.
PATHS = ("cluster", *(f"{view}/{job}" for view in VIEWS for job in ("digits", "broken")),
         *(f"more/digits?tab={tab}" for tab in ("record", "tf_config", "unit", "versions")))  # fmt: skip
AUDIT = Path(__file__).with_name("audit.js").read_text()


def prepared(page: Page, site: Site, path: str) -> None:
    """Open a view, with what is shown only after a click."""
    site.open(page, path)
    if path == "logs/broken":
        page.locator(".line").last.click()
        page.get_by_label("Search with a regular expression").fill("Error|begun")
        page.keyboard.press("Enter")
        expect(page.locator(".found")).to_contain_text("4 matches")
    if path in ("logs/digits", "curves/digits"):
        expect(page.locator(".picker summary")).to_have_text("All 4 tasks")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1440])
def test_document_is_not_wider_than_the_screen(
    browser: Browser, site: Site, width: int, scheme: Literal["light", "dark"]
) -> None:
    console = Watched()
    with browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme) as context:
        page = context.new_page()
        watch(page, console)
        wide = {}
        for path in PATHS:
            prepared(page, site, path)
            found = page.evaluate("document.documentElement.scrollWidth")
            if found > width:
                wide[path] = found
    assert not wide
    assert not console.complaints


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_a_contrast_of_four_and_a_half(browser: Browser, site: Site, scheme: Literal["light", "dark"]) -> None:
    with browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme=scheme) as context:
        page = context.new_page()
        faint = {}
        for path in PATHS:
            prepared(page, site, path)
            assert page.evaluate(f"({AUDIT})().count") > 10
            if found := page.evaluate(f"({AUDIT})().faint"):
                faint[path] = found
    assert not faint


@pytest.mark.parametrize("path", PATHS)
def test_controls_have_names_and_headings_are_in_order(page: Page, site: Site, path: str) -> None:
    prepared(page, site, path)
    found = page.evaluate(f"({AUDIT})()")
    assert not found["nameless"]
    assert found["controls"] >= 6
    levels = [int(level) for level in found["headings"]]
    assert levels[:1] == [1], levels
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels)), levels


def test_page_names_its_language_and_each_view_has_its_title(page: Page, site: Site) -> None:
    titles = set()
    for path in ("cluster", *(f"{view}/digits" for view in VIEWS)):
        site.open(page, path)
        titles.add(page.title())
    assert len(titles) == 5 and all(re.search("tfctl$", title) for title in titles)
    assert page.locator("html").get_attribute("lang") == "en"
