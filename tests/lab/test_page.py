"""`tfctl ui` in chromium about jobs of a lab: TensorFlow on six tasks, a job that fails, one that restarts, and a host
that is away for a while."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import browser, console, page
from tests.browser.pages import Site, folder_of_pictures
from tests.lab.jobs import Jobs

__all__ = ["browser", "console", "page"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]

DIGITS = Path(__file__).parents[2] / "examples/digits-ps/job.yaml"
#: TensorFlow takes so long (ms) until a task has trained, and a host until it counts as away and as back.
TRAINED, AWAY = 180_000, 90_000


@contextmanager
def serving(jobs: Jobs) -> Iterator[Site]:
    process: subprocess.Popen[str] = jobs.begin("ui")
    with process:
        try:
            assert process.stdout is not None
            found = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/\?token=([\w-]+)\n", process.stdout.readline())
            assert found
            yield Site(found[1], found[2])
        finally:
            process.terminate()


def test_page_shows_a_training_of_six_tasks_to_its_end(page: Page, jobs: Jobs) -> None:
    jobs.names.append("digits-ps")
    jobs.ok("start", DIGITS)
    pictures = folder_of_pictures()
    with serving(jobs) as site:
        site.open(page, "job/digits-ps")
        expect(page.locator(".strips li")).to_have_count(6)
        expect(page.locator(".strips > .running")).to_have_count(6, timeout=TRAINED)
        expect(page.locator(".facts")).to_contain_text("parameter_server")
        site.open(page, "logs/digits-ps")
        expect(page.locator(".pill")).to_have_text("Following")
        # A search finds what has been printed so far.
        expect(page.locator(".line").filter(has_text="loss").first).to_be_visible(timeout=TRAINED)
        page.get_by_label("Search with a regular expression").fill("loss")
        page.keyboard.press("Enter")
        expect(page.locator(".found")).to_contain_text(re.compile(r"\d+ of \d+ match"), timeout=TRAINED)
        if pictures:
            page.screenshot(path=pictures / "lab-logs.png")
        site.open(page, "curves/digits-ps")
        expect(page.locator("figcaption b").first).to_have_text("loss", timeout=TRAINED)
        site.open(page, "job/digits-ps")
        expect(page.locator("#subject .badge")).to_have_text("succeeded", timeout=TRAINED)
        expect(page.locator(".strips > .succeeded")).not_to_have_count(0)
        site.open(page, "curves/digits-ps")
        table = page.get_by_role("table", name="Figures of each task")
        expect(table.get_by_role("row")).to_have_count(7)
        expect(table.get_by_role("img").first).to_have_attribute("aria-label", re.compile(r"first step|not measured"))
        if pictures:
            page.screenshot(path=pictures / "lab-curves.png")
        site.open(page, "more/digits-ps?tab=tf_config")
        expect(page.locator(".code")).to_contain_text('"cluster"')


def test_page_shows_why_a_job_failed_and_each_restart(page: Page, jobs: Jobs) -> None:
    script = "import sys, time; print('begun', flush=True); time.sleep(12); raise ValueError('the batch is empty')"
    for name, more in (("falls", ""), ("again", "policy: {on_failure: restart, max_restarts: 2}\n")):
        job = f'strategy: custom\nstack: tf2.15\ncommand: [python, -c, "{script}"]\nroles: {{worker: 2}}\n{more}'
        jobs.ok("start", jobs.file(name, job))
    with serving(jobs) as site:
        site.open(page, "job/falls")
        expect(page.locator(".cause.bad")).to_contain_text("worker/", timeout=AWAY)
        page.locator(".cause.bad a").click()
        expect(page.locator(".line").last).to_contain_text("ValueError: the batch is empty")
        page.keyboard.press("e")
        expect(page.locator(".line.selected")).to_contain_text("Traceback (most recent call last):")
        site.open(page, "job/again")
        expect(page.locator(".strips .value b").first).to_contain_text("↻1", timeout=AWAY)
        expect(page.locator("#subject .badge")).to_have_text("failed", timeout=AWAY)
        site.open(page, "more/again")
        expect(page.locator(".events tbody tr").filter(has=page.locator(".badge.begin"))).not_to_have_count(2)


def test_page_shows_a_host_that_is_away_and_its_lines_when_it_is_back(page: Page, jobs: Jobs) -> None:
    tick = "command: [sh, -c, 'n=0; while :; do n=$((n + 1)); echo tick $n; sleep 1; done']\n"
    jobs.ok("start", jobs.file("ticks", tick + "roles: {worker: {per_host: 1}}\n"))
    with serving(jobs) as site:
        site.open(page, "cluster")
        expect(page.locator(".host.ready")).to_have_count(4)
        logs = page.context.new_page()
        site.open(logs, "logs/ticks?task=worker/1")
        expect(logs.locator(".line").last).to_contain_text("tick")
        page.bring_to_front()
        with jobs.lab.without_network("node2"):
            away = page.locator(".host").filter(has=page.locator(".name", has_text="node2"))
            expect(away).to_contain_class("silent", timeout=AWAY)
            expect(page.locator(".host.ready")).to_have_count(3)
        expect(page.locator(".host.ready")).to_have_count(4, timeout=AWAY)
        logs.bring_to_front()
        before = int(logs.locator(".line").last.inner_text().rsplit(" ", 1)[1])
        expect(logs.locator(".line").last).to_contain_text(f"tick {before + 3}", timeout=AWAY)
