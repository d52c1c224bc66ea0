"""The page in chromium, about simulated hosts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.pages import Site, Watched, fail, run, serving, until_printed, watch
from tests.cluster.conftest import hosts, module_hosts, servers
from tests.cluster.hosts import Hosts

__all__ = ["hosts", "module_hosts", "servers"]

#: The distribution's: playwright's own would be downloaded.
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
#: A training that prints a progress line every 0.2 s, as Keras does.
TRAIN = r"""
    echo "Epoch 1/3"
    n=0
    while [ $n -lt 3000 ]; do
        n=$((n + 1))
        echo "$n/3000 - 9s - 20ms/step - loss: 0.$((4000 - n)) - accuracy: 0.$((5000 + n))"
        sleep 0.2
    done
"""
BREAK = r"""
    echo begun
    [ $1 = chief ] || exec sleep 600
    sleep 1
    echo "Traceback (most recent call last):"
    echo '  File "train.py", line 3, in <module>'
    echo "ValueError: the batch is empty"
    echo "the last words of the chief"
    exit 3
"""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


@pytest.fixture
def console() -> Watched:
    """What the console of ``page`` has complained about."""
    return Watched()


@pytest.fixture
def page(browser: Browser, console: Watched) -> Iterator[Page]:
    """A tab in which nothing may go wrong: neither an error in the console nor a violation of the CSP."""
    with browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce") as context:
        made = context.new_page()
        watch(made, console)
        yield made
        assert not console.complaints, console.complaints


@pytest.fixture(scope="module")
def site(module_hosts: Hosts) -> Iterator[Site]:
    """`tfctl ui` about hosts on which the job digits runs and the job broken has failed."""
    run(module_hosts, "digits", "{chief: 1, worker: 2, ps: 1}", TRAIN)
    fail(module_hosts, "broken", BREAK)
    until_printed(module_hosts, "digits", "3/3000")
    with serving(module_hosts) as made:
        yield made


@pytest.fixture(scope="module")
def sampled(module_hosts: Hosts) -> Iterator[Hosts]:
    """Hosts whose guards keep samples."""
    text = module_hosts.inventory.read_text()
    module_hosts.inventory.write_text(text.replace("tfctl_ports=23400-23499", "tfctl_ports=23450-23499"))
    for tree in module_hosts.trees.values():
        (tree / "guards").touch()
        (tree / "samples").touch()
    yield module_hosts
    module_hosts.inventory.write_text(text)
