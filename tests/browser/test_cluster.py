"""The view "Cluster": jobs, hosts, and what it shows when a host does not answer."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.pages import Site, run, serving
from tests.cluster.hosts import Hosts

pytestmark = [pytest.mark.browser, pytest.mark.timeout(360)]


def host(page: Page, name: str) -> Locator:
    return page.locator(".host").filter(has=page.locator(".name", has_text=name))


def test_cluster_lists_hosts_and_the_jobs_that_run_and_that_have_ended(page: Page, site: Site) -> None:
    site.open(page, "cluster")
    expect(page.locator(".host .name")).to_have_text(["node1", "node2", "node3"])
    expect(page.locator(".facts")).to_contain_text("3 of 3")
    running = page.get_by_role("table", name="Jobs that run")
    expect(running.get_by_role("row").nth(1)).to_contain_text("digits")
    expect(running.get_by_role("row").nth(1)).to_contain_text("4 tasks")
    ended = page.get_by_role("table", name="Jobs that have ended")
    expect(ended.locator(".badge")).to_have_text("failed")
    ended.get_by_role("link", name="broken").click()
    expect(page).to_have_url(f"{site.base}/job/broken")


def test_cluster_shows_a_job_soon_after_it_has_started_and_when_it_has_been_stopped(
    page: Page, module_hosts: Hosts, site: Site
) -> None:
    site.open(page, "cluster")
    run(module_hosts, "later", "{worker: 1}", "exec sleep 600\n")
    row = page.locator("tr").filter(has=page.get_by_role("link", name="later"))
    expect(row.locator(".badge")).to_have_text("running")
    module_hosts.ok("stop", "later")
    expect(row.locator(".badge")).to_have_text("stopped")


def test_filter_shows_the_hosts_that_match_and_is_in_the_url(page: Page, site: Site) -> None:
    site.open(page, "cluster")
    page.get_by_label("Filter hosts by name, job or state").fill("node2")
    expect(page.locator(".host")).to_have_count(1)
    expect(page).to_have_url(f"{site.base}/cluster?hosts=node2")
    page.reload()
    expect(page.locator(".host .name")).to_have_text(["node2"])
    page.get_by_label("Filter hosts by name, job or state").fill("no such host")
    expect(page.locator(".hosts")).to_have_text("No host matches.")
    page.get_by_label("Filter hosts by name, job or state").fill("ready")
    expect(page.locator(".host")).to_have_count(3)


def test_host_is_shown_as_silent_while_it_does_not_answer_and_the_others_as_ready(
    page: Page, module_hosts: Hosts
) -> None:
    with module_hosts.behind_relay("node2") as relay, serving(module_hosts) as site:
        run(module_hosts, "apart", "{worker: 3}", "while :; do echo tick; sleep 1; done\n")
        site.open(page, "cluster")
        expect(host(page, "node2")).to_contain_class("ready")
        relay.frozen = True
        expect(page.locator(".host.silent, .host.unreachable")).to_have_count(1, timeout=60_000)
        expect(host(page, "node2").locator(".state")).to_have_text("silent")
        expect(page.locator(".facts")).to_contain_text("2 of 3")
        for name in ("node1", "node3"):
            expect(host(page, name)).to_contain_class("ready")
        # After a while, the job says that a task is unknown, and the page goes on.
        expect(host(page, "node2")).to_contain_class("unreachable", timeout=60_000)
        host(page, "node2").locator(".name").hover()
        expect(page.locator(".detail")).to_contain_text("node2")
        file = module_hosts.file("meanwhile", "command: [sleep, '600']\nroles: {worker: 1}\n")
        assert module_hosts.with_inventory(module_hosts.without("node2"), "start", file).code == 0
        expect(page.get_by_role("link", name="meanwhile")).to_be_visible(timeout=20_000)
        relay.frozen = False
        expect(page.locator(".host.ready")).to_have_count(3, timeout=60_000)
        expect(page.locator(".facts")).to_contain_text("3 of 3")
