"""Tabs of the browser, and `tfctl ui` to look at."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from node_tree import wait_until
from playwright.sync_api import ConsoleMessage, Error, Locator, Page, expect

from tests.cluster.hosts import Hosts

#: Two slow processors run the hosts, the page and the browser (ms).
expect.set_options(timeout=30_000)

#: The views of a job.
VIEWS = ("job", "logs", "curves", "more")
#: Text of a view that is there once the hosts have answered.
DRAWN = {
    "cluster": ".host.ready",
    "job": ".strips li",
    "logs": ".line, .stage .empty",
    "curves": ".charts figure, .charts .empty",
    "more": ".events tbody tr, .code, section .facts",
}


@dataclass
class Watched:
    """What the console of a tab has complained about."""

    complaints: list[str] = field(default_factory=list)

    def message(self, said: ConsoleMessage) -> None:
        if said.type in ("error", "warning"):
            self.complaints.append(said.text)

    def failed(self, error: Error) -> None:
        self.complaints.append(str(error))

    def forgive(self, text: str) -> None:
        """Forget the complaints with this text: browsers report each request that a server refuses."""
        self.complaints = [each for each in self.complaints if text not in each]


def watch(page: Page, into: Watched) -> None:
    """Add what the console of the tab complains about from now on."""
    page.on("console", into.message)
    page.on("pageerror", into.failed)


@dataclass(frozen=True)
class Site:
    """A `tfctl ui` that runs. ``base``: its URL without a path."""

    base: str
    token: str

    def url(self, path: str) -> str:
        """Return the URL of a view, with the token."""
        return f"{self.base}/{path}{'&' if '?' in path else '?'}token={self.token}"

    def open(self, page: Page, path: str) -> None:
        """Open a view, such as `logs/digits?task=worker/0`, and wait until it shows what the hosts have answered."""
        page.goto(self.url(path))
        expect(page.locator(DRAWN[re.split(r"[/?]", path)[0]]).first).to_be_visible()


@contextmanager
def serving(hosts: Hosts, *words: str) -> Iterator[Site]:
    """Run `tfctl ui` at any free port, and yield it."""
    with hosts.begin("ui", *words) as client:
        client.until(out="\n")
        found = re.fullmatch(r"(http://127\.0\.0\.1:\d+)/\?token=([\w-]+)\n", client.out)
        assert found, client.out + client.err
        yield Site(found[1], found[2])


def until_printed(hosts: Hosts, job: str, text: str) -> None:
    """Wait until a task of the job has printed this."""
    wait_until(lambda: text in hosts.ok("logs", "-j", job), timeout=40)


def run(hosts: Hosts, name: str, roles: str, script: str, more: str = "") -> None:
    """Start a job whose tasks run a script; ``$1`` is the index of the task."""
    text = f"command: [sh, task, '{{index}}']\nroles: {roles}\n{more}"
    hosts.ok("start", hosts.file(name, text, task=script))


def fail(hosts: Hosts, name: str, script: str, roles: str = "{chief: 1, worker: 2}") -> None:
    """Run a job until it has failed."""
    text = f"command: [sh, task, '{{role}}', '{{index}}']\nroles: {roles}\n"
    assert hosts("start", hosts.file(name, text, task=script), "--wait").code not in (0, 2)


def lines(page: Page) -> list[str]:
    """Return the text of the lines that are in the document, from top to bottom."""
    found: list[str] = json.loads(
        page.evaluate(
            "JSON.stringify([...document.querySelectorAll('.line')]"
            ".sort((one, other) => Number(one.id.slice(5)) - Number(other.id.slice(5)))"
            ".map((line) => line.querySelector('.text').textContent))"
        )
    )
    return found


def folder_of_pictures() -> Path | None:
    """Return where to keep pictures for the documentation, or None."""
    name = os.environ.get("TFCTL_TEST_PICTURES")
    if not name:
        return None
    folder = Path(name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def terminal(page: Page, command: str, printed: str) -> Locator:
    """Show what a command has printed, as a terminal does, in another tab. Return what to take a picture of."""
    tab = page.context.new_page()
    tab.set_content(
        "<style>pre { display: inline-block; margin: 0; padding: 18px 22px; background: #14171b; color: #e4e6e9; "
        "font: 14px/1.5 'DejaVu Sans Mono', monospace; border-radius: 8px }</style><pre></pre>"
    )
    shown = tab.locator("pre")
    shown.evaluate("(element, text) => { element.textContent = text; }", f"$ {command}\n{printed.rstrip()}")
    return shown
