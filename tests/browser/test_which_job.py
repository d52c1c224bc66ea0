"""Views of jobs that the URL does not name, and jobs unlike those of the other files."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.pages import serving
from tests.cluster.hosts import Hosts

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]


def test_view_without_a_job_asks_which_one_when_several_have_ended(page: Page, hosts: Hosts) -> None:
    for name in ("first", "second"):
        hosts.ok("start", hosts.file(name, "command: [sh, -c, 'echo done']\nroles: {worker: 1}\n"), "--wait")
    with serving(hosts) as site:
        page.goto(site.url("logs"))
        expect(page.get_by_role("heading", name="Which job?")).to_be_visible()
        page.get_by_role("link", name="second").click()
        expect(page).to_have_url(f"{site.base}/logs/second")
        expect(page.locator(".line").first).to_contain_text("done")


def test_view_without_a_job_says_how_to_start_one_when_there_is_none(page: Page, hosts: Hosts) -> None:
    with serving(hosts) as site:
        page.goto(site.url("curves"))
        expect(page.locator(".empty code")).to_have_text("tfctl start job.yaml")
        site.open(page, "cluster")
        expect(page.locator(".empty code")).to_have_text("tfctl start job.yaml")
