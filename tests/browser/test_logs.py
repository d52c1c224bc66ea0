"""The view "Logs": it follows a live job, stays where the reader is, and draws few of many lines."""

from __future__ import annotations

import re

import pytest
from node_tree import wait_until
from playwright.sync_api import Page, expect

from tests.browser.pages import Site, lines, run, until_printed
from tests.cluster.hosts import Hosts

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

#: 3,000 lines from 3 tasks.
MANY = 'n=0; while [ $n -lt 1000 ]; do n=$((n + 1)); echo "line $n of $1"; done; exec sleep 600\n'


def newest(page: Page) -> int:
    """Return the highest step among the lines that are drawn."""
    return max((int(found[1]) for line in lines(page) if (found := re.match(r"(\d+)/3000", line))), default=0)


def tasks_of(page: Page) -> set[str]:
    return set(page.locator(".line .task").all_text_contents())


def at_end(page: Page) -> bool:
    return bool(
        page.evaluate("(() => { const e = document.querySelector('.lines');"
                      " return e.scrollTop + e.clientHeight >= e.scrollHeight - 30 })()")
    )  # fmt: skip


def height(page: Page) -> float:
    """Return the height of all lines, drawn or not (pixels)."""
    return float(page.evaluate("parseFloat(document.querySelector('.sized').style.height)"))


def to_top(page: Page) -> float:
    """Scroll to the first line, and return the height of all lines."""
    page.evaluate("document.querySelector('.lines').scrollTop = 0")
    return height(page)


def scroll_up(page: Page, pixels: int = 300) -> None:
    wait_until(lambda: height(page) > 900 + pixels)
    page.locator(".lines").hover()
    page.mouse.wheel(0, -pixels)


def test_logs_open_at_the_end_and_follow_when_the_job_runs(page: Page, module_hosts: Hosts, site: Site) -> None:
    until_printed(module_hosts, "digits", " 60/3000")
    site.open(page, "logs/digits")
    pill = page.locator(".pill")
    expect(pill).to_have_text("Following")
    expect(pill).to_be_disabled()
    wait_until(lambda: newest(page) > 50)
    first = newest(page)
    wait_until(lambda: newest(page) > first + 10 and at_end(page))


def test_logs_stay_when_the_reader_scrolls_up_and_the_pill_returns_to_the_end(page: Page, site: Site) -> None:
    site.open(page, "logs/digits")
    expect(page.locator(".pill")).to_have_text("Following")
    scroll_up(page, 400)
    pill = page.locator(".pill")
    expect(pill).to_have_text(re.compile(r"^\d+ new lines? ↓$"))
    before = lines(page)
    place = page.evaluate("document.querySelector('.lines').scrollTop")
    text = pill.inner_text()
    expect(pill).not_to_have_text(text)  # more lines have come
    assert page.evaluate("document.querySelector('.lines').scrollTop") == place
    assert lines(page) == before
    pill.click()
    expect(pill).to_have_text("Following")
    assert at_end(page) and newest(page) > max(int(re.findall(r"\d+", line)[0]) for line in before if "/3000" in line)
    first = newest(page)
    wait_until(lambda: newest(page) > first)


def test_logs_follow_again_when_the_reader_scrolls_to_the_end(page: Page, site: Site) -> None:
    site.open(page, "logs/digits")
    scroll_up(page)
    expect(page.locator(".pill")).to_contain_text("↓")
    page.mouse.wheel(0, 100_000)
    expect(page.locator(".pill")).to_have_text("Following")


def test_logs_draw_few_rows_when_there_are_thousands_of_lines(page: Page, module_hosts: Hosts, site: Site) -> None:
    run(module_hosts, "many", "{worker: 3}", MANY)
    until_printed(module_hosts, "many", "line 1000 of 2")
    site.open(page, "logs/many")
    expect(page.locator(".line").last).to_contain_text("line 1000")
    wait_until(lambda: height(page) >= 2000 * 20)
    assert page.locator(".line").count() < 100
    # The lines before those that were loaded first are read when the reader gets there.
    wait_until(lambda: to_top(page) >= 3000 * 20)
    assert page.locator(".line").count() < 100
    expect(page.locator("#line-0 .text")).to_have_text(re.compile("line 1 of"))
    rows = [each for each in lines(page) if each.startswith("line ")]
    assert len(rows) == len(set(rows)), "no line is shown twice"


def test_logs_show_only_the_tasks_that_are_chosen_and_the_url_names_them(page: Page, site: Site) -> None:
    site.open(page, "logs/digits")
    summary = page.locator(".picker summary")
    expect(summary).to_have_text("All 4 tasks")
    summary.click()
    page.locator(".chips fieldset").filter(has_text="worker").get_by_role("button", name="1", exact=True).click()
    expect(page).to_have_url(f"{site.base}/logs/digits?task=worker/1")
    page.keyboard.press("Escape")
    expect(page.locator(".chips")).to_be_hidden()
    expect(summary).to_have_text("worker/1")
    expect(page.locator(".line").first).to_be_visible()
    wait_until(lambda: tasks_of(page) == {"worker/1"})
    page.reload()
    expect(page.locator(".line").first).to_be_visible()
    assert tasks_of(page) == {"worker/1"}
    summary.click()
    page.get_by_role("button", name="All tasks").click()
    expect(page).to_have_url(f"{site.base}/logs/digits")
    wait_until(lambda: tasks_of(page) == {"chief/0", "ps/0", "worker/0", "worker/1"})


def test_download_is_the_text_of_the_chosen_tasks(page: Page, site: Site) -> None:
    site.open(page, "logs/broken?task=chief/0")
    expect(page.locator(".line")).to_have_count(5)
    with page.expect_download() as started:
        page.get_by_role("link", name="Download").click()
    assert started.value.suggested_filename == "broken.log"
    text = started.value.path().read_text()
    assert [line.partition(" │ ")[2] for line in text.splitlines()][-1] == "the last words of the chief"
    assert len(text.splitlines()) == 5 and "worker" not in text


def test_logs_say_what_will_fill_them_when_nothing_has_been_printed(
    page: Page, module_hosts: Hosts, site: Site
) -> None:
    run(module_hosts, "mute", "{worker: 1}", "exec sleep 600\n")
    site.open(page, "logs/mute")
    expect(page.locator(".stage .empty")).to_contain_text("Lines appear here as tasks print them")
    expect(page.locator(".stage .empty code")).to_have_text("tfctl status mute")


def test_logs_end_when_the_job_is_stopped(page: Page, module_hosts: Hosts, site: Site) -> None:
    run(module_hosts, "brief", "{worker: 1}", "echo begun; exec sleep 600\n")
    site.open(page, "logs/brief")
    expect(page.locator(".pill")).to_have_text("Following")
    module_hosts.ok("stop", "brief")
    expect(page.locator(".pill")).to_have_text("End: the job is over")
    expect(page.locator("#subject .badge")).to_have_text("stopped")
