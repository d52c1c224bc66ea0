"""The five views, how one gets from one to another, and what each says about a job."""

from __future__ import annotations

import re

import pytest
from node_tree import wait_until
from playwright.sync_api import Page, expect

from tests.browser.pages import VIEWS, Site

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]


def test_links_lead_to_the_five_views_of_the_job_that_was_opened_last(page: Page, site: Site) -> None:
    site.open(page, "job/digits")
    links = page.get_by_role("navigation", name="Views").get_by_role("link")
    expect(links).to_have_text(["Cluster", "Job", "Logs", "Curves", "More"])
    for name, path in (("Logs", "logs/digits"), ("Curves", "curves/digits"), ("More", "more/digits"),
                       ("Cluster", "cluster"), ("Job", "job/digits")):  # fmt: skip
        links.get_by_text(name, exact=True).click()
        expect(page).to_have_url(f"{site.base}/{path}")
        expect(page.locator("nav[aria-label=Views] a[aria-current=page]")).to_have_text(name)


@pytest.mark.parametrize("path", ["cluster", *(f"{view}/digits" for view in VIEWS)])
def test_view_shows_the_same_when_it_is_reloaded(page: Page, site: Site, path: str) -> None:
    site.open(page, path)
    assert page.url == f"{site.base}/{path}", "the token is not in the URL"
    page.reload()
    expect(page).to_have_url(f"{site.base}/{path}")
    expect(page.get_by_text("digits").first).to_be_visible()


def test_page_is_refused_when_the_token_is_missing(page: Page, site: Site) -> None:
    page.context.clear_cookies()
    answer = page.request.get(f"{site.base}/cluster")
    assert answer.status == 403 and "tfctl ui has printed" in answer.text()
    assert "<script" not in answer.text()


@pytest.mark.parametrize("view", VIEWS)
def test_view_reports_a_job_that_no_host_has(page: Page, site: Site, view: str) -> None:
    page.goto(site.url(f"{view}/absent"))
    expect(page.get_by_role("alert").first).to_contain_text("absent")


def test_job_view_shows_the_reason_and_the_culprit_when_the_job_has_failed(page: Page, site: Site) -> None:
    site.open(page, "job/broken")
    expect(page.get_by_role("heading", level=1)).to_have_text("broken")
    cause = page.locator(".cause")
    expect(cause).to_contain_text(re.compile(r"chief/0 on node\d failed with exit code 3"))
    expect(page.locator(".strips li")).to_have_count(3)
    expect(page.locator(".strips li").first).to_contain_text("chief/0")
    expect(page.locator(".strips li").first).to_contain_text("exit code 3")
    cause.get_by_role("link", name="What chief/0 printed last").click()
    expect(page).to_have_url(f"{site.base}/logs/broken?task=chief/0")
    expect(page.locator(".line").last).to_contain_text("the last words of the chief")


def test_job_view_shows_a_strip_for_each_task_when_the_job_runs(page: Page, site: Site) -> None:
    site.open(page, "job/digits")
    expect(page.locator(".strips .task")).to_have_text(["chief/0", "ps/0", "worker/0", "worker/1"])
    expect(page.locator(".title .badge")).to_have_text("running")
    # The strips are pictures: some pixels of each have been painted.
    wait_until(
        lambda: page.evaluate(
            "[...document.querySelectorAll('.strips canvas')].every((one) => one.width && one.getContext('2d')"
            ".getImageData(0, 0, one.width, one.height).data.some((value) => value))"
        )
    )
    page.locator(".strips a").nth(2).click()
    expect(page).to_have_url(f"{site.base}/logs/digits?task=worker/0")


def test_more_view_shows_events_record_tf_config_unit_and_versions(page: Page, site: Site) -> None:
    site.open(page, "more/digits")
    expect(page.locator(".events tbody")).to_contain_text("start")
    tabs = page.get_by_role("navigation", name="Parts").get_by_role("link")
    expect(tabs).to_have_text(["Events", "Record", "TF_CONFIG", "Unit", "Versions"])
    tabs.get_by_text("Record").click()
    expect(page.locator("pre")).to_contain_text('"digits"')
    tabs.get_by_text("Unit").click()
    expect(page.locator("pre")).to_contain_text("[Service]")
    page.get_by_label("Task").select_option("worker/1")
    expect(page).to_have_url(re.compile("task=worker/1"))
    expect(page.locator("pre")).to_contain_text("worker-1")
    tabs.get_by_text("Versions").click()
    expect(page.locator(".facts dd").first).not_to_be_empty()
    tabs.get_by_text("TF_CONFIG").click()
    page.get_by_label("Task").select_option("worker/1")
    expect(page.locator("pre")).to_contain_text('"index": 1')


def test_job_says_who_is_the_cause_when_somebody_asks(page: Page, site: Site) -> None:
    site.open(page, "job/broken")
    page.get_by_role("button", name="What is wrong?").click()
    answer = page.locator(".why")
    expect(answer.locator(".cause.bad")).to_contain_text("chief/0 on node1 raised ValueError: the batch is empty")
    expect(answer.locator(".evidence li").first).to_be_visible()
    answer.get_by_role("link", name="Logs").click()
    expect(page).to_have_url(f"{site.base}/logs/broken?task=chief/0")
