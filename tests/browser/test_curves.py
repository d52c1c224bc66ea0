"""The view "Curves", from samples that the guards of the hosts keep."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import TRAIN
from tests.browser.pages import Site, Watched, run, serving
from tests.cluster.hosts import Hosts

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

#: Samples are kept every 10 s, and the page reads them every 10 s (ms).
SAMPLED = 90_000


def test_curves_show_the_loss_with_one_cursor_for_all_charts(page: Page, sampled: Hosts) -> None:
    progress = (
        r"""progress: '(?P<step>\d+)/(?P<total>\d+) - .*loss: (?P<loss>[\d.]+) - accuracy: (?P<accuracy>[\d.]+)'"""
    )
    run(sampled, "sampled", "{chief: 1, worker: 2}", TRAIN, progress + "\n")
    with serving(sampled) as site:
        page.goto(site.url("curves/sampled"))
        loss = page.locator("figure").filter(has=page.locator("figcaption", has_text=re.compile("^loss")))
        expect(loss).to_have_count(1, timeout=SAMPLED)
        expect(loss.locator("path.curve")).to_have_count(3, timeout=SAMPLED)
        # A curve has a line once there are two samples.
        expect(loss.locator("path.curve").first).to_have_attribute("d", re.compile("L.*L"), timeout=SAMPLED)
        expect(page.locator("figcaption b").first).to_have_text("loss")
        expect(page.locator("figure").filter(has_text="accuracy")).to_have_count(1)
        expect(loss.locator("svg")).to_have_attribute("aria-label", re.compile(r"^loss: chief/0 0\.\d+"))
        charts = page.locator("figure").count()
        assert charts >= 3
        loss.locator("svg").hover(position={"x": 200, "y": 60})
        expect(page.locator(".cursor-time")).to_have_text(re.compile(r"\d\d:\d\d:\d\d"))
        places = {each.get_attribute("x1") for each in page.locator("line.cursor").all()}
        assert len(places) == 1 and float(places.pop() or -9) > 0
        expect(loss.locator(".values")).to_contain_text(re.compile(r"chief/0 0\.\d+"))
        page.mouse.move(5, 5)
        expect(page.locator(".cursor-time")).to_be_empty()
        choose_one_task(page, site)
        choose_a_span(page, site)


def choose_one_task(page: Page, site: Site) -> None:
    page.locator(".picker summary").click()
    page.locator(".chips fieldset").filter(has_text="chief").get_by_role("button", name="0", exact=True).click()
    expect(page).to_have_url(f"{site.base}/curves/sampled?task=chief/0")
    expect(page.locator("figure").first.locator("path.curve")).to_have_count(1)
    page.keyboard.press("Escape")


def choose_a_span(page: Page, site: Site) -> None:
    page.get_by_role("button", name="15 min").click()
    expect(page).to_have_url(re.compile(r"span=900"))
    expect(page.get_by_role("button", name="15 min")).to_have_attribute("aria-pressed", "true")
    page.reload()
    expect(page.get_by_role("button", name="15 min")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("figure").first.locator("path.curve")).to_have_count(1)
    assert page.url.startswith(site.base)


def test_curves_say_what_fills_them_when_there_are_no_samples(page: Page, module_hosts: Hosts) -> None:
    for tree in module_hosts.trees.values():
        (tree / "samples").unlink(missing_ok=True)
    run(module_hosts, "bare", "{worker: 1}", "exec sleep 600\n")
    with serving(module_hosts) as site:
        site.open(page, "curves/bare")
        expect(page.locator(".charts .empty")).to_contain_text("The first samples")
        expect(page.locator(".charts .empty code")).to_have_text("tfctl logs -f bare")
        module_hosts.ok("stop", "bare")
        expect(page.locator("#subject .badge")).to_have_text("stopped")


def test_report_shows_a_row_per_task_and_says_why_there_is_no_tensorboard(
    page: Page, console: Watched, site: Site
) -> None:
    site.open(page, "curves/broken")
    table = page.get_by_role("table", name="Figures of each task")
    expect(table.get_by_role("row")).to_have_count(4)
    expect(table.get_by_role("row").nth(1)).to_contain_text("chief/0")
    expect(table.get_by_role("row").nth(1)).to_contain_text("failed")
    expect(table.get_by_role("img").first).to_have_attribute("aria-label", re.compile(r"^not measured \d"))
    expect(page.locator(".report .facts")).to_contain_text("3 devices")
    page.get_by_role("button", name="TensorBoard").click()
    expect(page.locator(".report .problem")).to_contain_text("broken has no stack, and so no TensorBoard")
    expect(page.get_by_role("button", name="TensorBoard")).to_be_enabled()
    console.forgive("status of 404")
