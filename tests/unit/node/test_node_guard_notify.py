"""How the guard tells people about the end of a job, and what it notes when that fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from node_tree import free_port
from records import make_record

from tests.unit.node.test_node_guard_messages import JOB, local_node_part
from tfctl.node import guards, names, wire
from tfctl.node.guard.head import Outcome
from tfctl.node.guard.host_access import HostAccess
from tfctl.node.guard.notify import notify
from tfctl.node.system import System

RECORD = make_record(job=JOB)
FAILED = Outcome("failed", "worker/0 on node1 failed with exit code 7", 1.0)
#: A part of the URL that is never noted.
SECRET = "token-5d41402a"


@contextmanager
def server(answers: Sequence[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the port of an HTTP server that gives these answers, one for each POST, and the bodies that it got."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.wfile.write(answers[len(bodies) - 1])

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        try:
            yield found.server_address[1], bodies
        finally:
            found.shutdown()
            thread.join()


def noted(folder: Path, url: str) -> str:
    """Send the POST, and return what was noted."""
    system = System(prefix=str(folder))
    system.at(names.guard_dir(JOB, 1)).mkdir(parents=True)
    asyncio.run(notify(HostAccess(JOB, "node1", system), wire.Notify(url=url), RECORD, FAILED))
    [action] = guards.actions(system, JOB, 1)
    assert action.deed == "notify"
    return action.reason or ""


REFUSED, ACCEPTED = b"HTTP/1.0 500 No\r\n\r\n", b"HTTP/1.0 200 Yes\r\n\r\n"


@pytest.mark.extended
@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([ACCEPTED], "the POST was accepted"),
        ([REFUSED, b"", ACCEPTED], "the POST was accepted"),
        ([REFUSED] * 3, "the POST failed: status 500"),
        ([b""] * 3, "the POST failed: RemoteDisconnected"),
        ([b"who is there?\r\n"] * 3, "the POST failed: BadStatusLine"),
    ],
    ids=["accepted", "accepted-at-last", "refused", "closed", "no-http"],
)
def test_the_post_is_tried_three_times(answers: list[bytes], reason: str, tmp_path: Path) -> None:
    with server(answers) as (port, bodies):
        assert noted(tmp_path, f"http://127.0.0.1:{port}/{SECRET}") == reason
        assert len(bodies) == len(answers)
        assert b'"reason": "worker/0 on node1 failed with exit code 7"' in bodies[-1]


@pytest.mark.extended
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (f"http://127.0.0.1:PORT/{SECRET}", "Connection refused"),
        (f"http://{SECRET}:http/", "InvalidURL"),
        (f"http:///{SECRET}", "no host given"),
        (f"https://[{SECRET}/", "ValueError"),
    ],
)
def test_a_post_that_cannot_be_sent_is_noted_without_the_url(url: str, reason: str, tmp_path: Path) -> None:
    found = noted(tmp_path, url.replace("PORT", str(free_port())))
    assert found.startswith("the POST failed: ")
    assert reason in found
    assert SECRET not in found


@pytest.mark.parametrize(
    ("error", "reason"), [("exit code 1", "the program failed: exit code 1"), (None, "the program has run")]
)
def test_how_the_program_ended_is_noted(error: str | None, reason: str, tmp_path: Path) -> None:
    with local_node_part(tmp_path, wire.line(wire.Notified(error))) as (here, run):
        system = System(str(tmp_path))
        system.at(names.guard_dir(JOB, 1)).mkdir(parents=True)
        run(notify(here, wire.Notify(("/srv/tfctl/ended.sh",)), RECORD, FAILED))
    assert [action.reason for action in guards.actions(system, JOB, 1)] == [reason]


def test_a_program_that_the_node_part_cannot_run_is_noted(tmp_path: Path) -> None:
    with local_node_part(tmp_path) as (here, run):
        system = System(str(tmp_path))
        system.at(names.guard_dir(JOB, 1)).mkdir(parents=True)
        run(notify(here, wire.Notify(("/srv/tfctl/ended.sh",)), RECORD, FAILED))
    [action] = guards.actions(system, JOB, 1)
    assert action.reason == "the program failed: the node part does not answer: No such file or directory"
