"""The page without a mouse."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.pages import Site, lines

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]


def test_question_mark_shows_the_keys_and_escape_closes_them(page: Page, site: Site) -> None:
    site.open(page, "cluster")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    expect(dialog).to_be_visible()
    expect(dialog).to_contain_text("next and previous match")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.get_by_role("button", name="Keys").click()
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()


def test_g_and_a_letter_open_the_views(page: Page, site: Site) -> None:
    site.open(page, "job/digits")
    for key, path in (("l", "logs/digits"), ("u", "curves/digits"), ("m", "more/digits"), ("c", "cluster"),
                      ("j", "job/digits")):  # fmt: skip
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page).to_have_url(f"{site.base}/{path}")
        expect(page.locator("main > *").first).to_be_attached()


@pytest.mark.parametrize(("path", "name"), [("cluster", "Filter hosts"), ("logs/digits", "Search")])
def test_slash_focuses_the_field_and_escape_leaves_it(page: Page, site: Site, path: str, name: str) -> None:
    site.open(page, path)
    field = page.get_by_role("searchbox", name=re.compile(name))
    page.keyboard.press("/")
    expect(field).to_be_focused()
    page.keyboard.type("gc?/")
    expect(field).to_have_value("gc?/")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(field).not_to_be_focused()


def test_j_and_k_move_between_rows_and_enter_opens_one(page: Page, site: Site) -> None:
    site.open(page, "cluster")
    rows = page.locator("[data-row]")
    expect(page.get_by_role("link", name="broken")).to_be_visible()
    page.keyboard.press("j")
    expect(rows.nth(0)).to_be_focused()
    page.keyboard.press("j")
    expect(rows.nth(1)).to_be_focused()
    page.keyboard.press("k")
    page.keyboard.press("k")
    expect(rows.nth(0)).to_be_focused()
    expect(rows.nth(0)).to_have_text("digits")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{site.base}/job/digits")
    expect(page.locator(".strips li").first).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{site.base}/logs/digits?task=chief/0")


def test_hosts_describe_themselves_when_they_have_the_focus(page: Page, site: Site) -> None:
    site.open(page, "cluster")
    expect(page.get_by_role("link", name="broken")).to_be_visible()
    for _ in range(3):
        page.keyboard.press("j")
    expect(page.locator(".detail")).to_contain_text("node1")


def test_logs_are_read_with_keys_alone(page: Page, site: Site) -> None:
    site.open(page, "logs/broken")
    expect(page.locator(".line")).to_have_count(7)
    page.keyboard.press("e")
    expect(page.locator(".line.selected .text")).to_have_text("Traceback (most recent call last):")
    shown = lines(page)
    at = shown.index("Traceback (most recent call last):")
    for key, row in (("j", at + 1), ("j", at + 2), ("k", at + 1), ("k", at), ("k", at - 1)):
        page.keyboard.press(key)
        expect(page.locator(".line.selected")).to_have_attribute("id", f"line-{row}")
    page.keyboard.press("Escape")
    expect(page.locator(".line-detail")).to_be_hidden()
    page.keyboard.press("/")
    page.keyboard.type("begun|Error")
    page.keyboard.press("Enter")
    found = page.locator(".found")
    expect(found).to_have_text("4 of 4 matches")
    page.keyboard.press("Escape")
    page.keyboard.press("N")
    expect(found).to_have_text("3 of 4 matches")
    page.keyboard.press("n")
    expect(found).to_have_text("4 of 4 matches")


def test_capital_g_follows_the_end_again(page: Page, site: Site) -> None:
    site.open(page, "logs/digits")
    page.keyboard.press("k")
    expect(page.locator(".pill")).not_to_have_text("Following")
    page.keyboard.press("G")
    expect(page.locator(".pill")).to_have_text("Following")


def test_first_tab_stop_skips_to_the_content(page: Page, site: Site) -> None:
    site.open(page, "cluster")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
