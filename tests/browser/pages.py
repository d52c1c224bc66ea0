"""Tabs of the browser, and `tfctl ui` to look at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from node_tree import wait_until
from playwright.sync_api import Page

from tests.cluster.hosts import Hosts


@dataclass
class Watched:
    """What the console of a tab has complained about."""

    complaints: list[str] = field(default_factory=list)


def watched(page: Page) -> Watched:
    found = Watched()
    page.on("console", lambda each: each.type in ("error", "warning") and found.complaints.append(each.text))
    page.on("pageerror", lambda error: found.complaints.append(str(error)))
    return found


@contextmanager
def serving(hosts: Hosts, *words: str) -> Iterator[str]:
    """Run `tfctl ui`, and yield its URL with the token."""
    with hosts.begin("ui", *words) as client:
        client.until(out="\n")
        found = re.fullmatch(r"(http://127\.0\.0\.1:\d+/\?token=[\w-]+)\n", client.out)
        assert found, client.out + client.err
        yield found[1]


def until_printed(hosts: Hosts, job: str, text: str) -> None:
    """Wait until a task of the job has printed this."""
    wait_until(lambda: text in hosts.ok("logs", "-j", job), timeout=30)
