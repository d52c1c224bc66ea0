"""Searching lines, the first error, and links to lines."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.pages import Site, Watched, lines, run, until_printed
from tests.cluster.hosts import Hosts

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

#: Each task prints 1,500 lines; every 500th is a match, so that most matches are not among those that are loaded.
RARE = r"""
    n=0
    while [ $n -lt 1500 ]; do
        n=$((n + 1))
        [ $((n % 500)) = 0 ] && echo "rare $n of $1" || echo "common $n"
    done
    [ $1 = 0 ] && sleep 3 && echo "rare last"
    exec sleep 600
"""


@pytest.fixture
def logs(page: Page, module_hosts: Hosts, site: Site) -> Page:
    if not module_hosts("status", "rare").out:
        run(module_hosts, "rare", "{worker: 2}", RARE)
        until_printed(module_hosts, "rare", "rare last")
    site.open(page, "logs/rare")
    return page


def search(page: Page, pattern: str) -> Locator:
    """Search, and return the element that says what was found."""
    page.get_by_label("Search with a regular expression").fill(pattern)
    page.keyboard.press("Enter")
    return page.locator(".found")


def test_search_counts_matches_by_task_and_steps_through_them(logs: Page) -> None:
    found = search(logs, r"rare \w+")
    expect(found).to_have_text("7 of 7 matches")
    expect(logs.locator(".counts button")).to_have_text(["worker/0 4", "worker/1 3"])
    expect(logs.locator(".line.selected .text")).to_have_text("rare last")
    expect(logs).to_have_url(re.compile(r"[?&]q=rare"))
    logs.get_by_role("button", name="Previous match").click()
    expect(found).to_have_text("6 of 7 matches")
    for at in range(5, 0, -1):
        logs.get_by_role("button", name="Previous match").click()
        expect(found).to_have_text(f"{at} of 7 matches")
    expect(logs.locator(".line.selected .text")).to_have_text(re.compile("rare 500 of"))
    expect(logs.locator(".line.selected mark")).to_have_text("rare 500")
    logs.get_by_role("button", name="Next match").click()
    expect(found).to_have_text("2 of 7 matches")
    expect(logs.locator(".line.selected")).to_be_visible()


def test_search_shows_only_matches_and_then_all_lines_again(logs: Page) -> None:
    expect(search(logs, "^rare")).to_have_text("7 of 7 matches")
    only = logs.get_by_role("button", name="Only matches")
    only.click()
    expect(logs.locator(".line")).to_have_count(7)
    assert all(line.startswith("rare") for line in lines(logs))
    only.click()
    expect(logs.locator(".line").filter(has_text="common").first).to_be_visible()


def test_search_is_limited_to_a_task_when_its_count_is_clicked(logs: Page) -> None:
    expect(search(logs, "^rare")).to_have_text("7 of 7 matches")
    logs.locator(".counts button").last.click()
    expect(logs).to_have_url(re.compile("task=worker/1"))
    expect(logs.locator(".found")).to_have_text("3 of 3 matches")


def test_search_says_so_when_nothing_matches(logs: Page) -> None:
    expect(search(logs, "no line has this")).to_have_text("No match")
    assert logs.locator(".counts button").count() == 0


@pytest.mark.parametrize("pattern", ["(", "a{2,1}", "[z-a]"])
def test_search_shows_an_error_when_the_pattern_is_none(logs: Page, console: Watched, pattern: str) -> None:
    found = search(logs, pattern)
    expect(logs.get_by_role("alert")).to_contain_text("regular expression")
    expect(found).not_to_contain_text("Searching")
    expect(logs.locator(".search").get_by_role("button", name="Cancel")).to_be_hidden()
    expect(search(logs, "^rare 1000")).to_contain_text("2 matches")
    expect(logs.get_by_role("alert")).to_have_count(0)
    console.forgive("status of 400")


def test_search_is_in_the_url_and_is_made_again_when_it_is_opened(logs: Page) -> None:
    expect(search(logs, "rare (5|10)00")).to_have_text("4 of 4 matches")
    logs.reload()
    expect(logs.locator(".found")).to_have_text("4 of 4 matches")
    expect(logs.get_by_label("Search with a regular expression")).to_have_value("rare (5|10)00")


def test_first_error_selects_the_line_where_the_traceback_begins(page: Page, site: Site) -> None:
    site.open(page, "logs/broken")
    page.get_by_role("button", name="First error").click()
    expect(page.locator(".line.selected .text")).to_have_text("Traceback (most recent call last):")
    expect(page.locator(".line-detail")).to_contain_text("chief/0 on node")


def test_first_error_says_so_when_there_is_none(logs: Page) -> None:
    logs.get_by_role("button", name="First error").click()
    expect(logs.locator(".found")).to_have_text("No error was found")


def test_link_to_a_line_opens_the_logs_at_that_line(page: Page, logs: Page, site: Site) -> None:
    expect(search(logs, "rare 1000 of 1")).to_have_text("1 of 1 match")
    link = logs.locator(".line-detail").get_by_role("link", name="Link").get_attribute("href")
    assert link and re.fullmatch(r"/logs/rare\?t=[\d.]+&at=worker/1", link)
    page.goto(site.base + link)
    expect(page.locator(".line.selected .text")).to_have_text("rare 1000 of 1")
    expect(page.locator(".line.selected")).to_be_in_viewport()
    expect(page.locator(".pill")).to_have_text("Go to the end ↓")
    page.locator(".pill").click()
    expect(page.locator(".pill")).to_have_text("Following")
    expect(page).to_have_url(f"{site.base}/logs/rare")
