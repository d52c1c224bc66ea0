"""`tfctl ui` against three hosts: what the page fetches, as a browser fetches it. tests/browser looks at the page."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from node_tree import free_port, wait_until

from tests.cluster.hosts import STAY, Client, Hosts
from tests.cluster.test_exec import left
from tests.cluster.test_forward import TENSORBOARD, with_stack
from tests.cluster.test_top import put, worker
from tfctl.node import wire

__all__ = ["with_stack"]

Query = dict[str, str | int | float]
#: The text of a host, which is data wherever it is shown.
EVIL = "</script><script>alert(1)</script>"


class Tab:
    """A browser that has opened the URL with the token."""

    def __init__(self, url: str) -> None:
        address, _, query = url.partition("?")
        self._client = httpx.Client(base_url=address, timeout=30)
        answer = self._client.get("/", params=query)
        assert answer.status_code == 303
        self.address, self.first = address, answer.headers["Location"]

    def __enter__(self) -> Tab:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str, query: Query | None = None, headers: dict[str, str] | None = None) -> httpx.Response:
        return self._client.get(path, params=query, headers=headers)

    def data(self, path: str, query: Query | None = None) -> Any:
        answer = self.get(path, query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    @contextmanager
    def events(self, path: str, query: Query | None = None) -> Iterator[Iterator[tuple[str, Any]]]:
        """Yield the events of a stream as they are sent."""

        def each(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
            kind = ""
            for line in lines:
                name, _, value = line.partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    yield kind, json.loads(value)

        with self._client.stream("GET", path, params=query) as answer:
            assert answer.headers["Content-Type"].startswith("text/event-stream"), answer.read()
            yield each(answer.iter_lines())

    def until_end(self, path: str, query: Query | None = None) -> dict[str, list[Any]]:
        """Return all events of a stream by name, until it says that it ends."""
        found: dict[str, list[Any]] = {}
        with self.events(path, query) as events:
            for kind, value in events:
                found.setdefault(kind, []).append(value)
                if kind == "end":
                    break
        return found


def lines_of(found: dict[str, list[Any]]) -> list[tuple[str, str]]:
    """Return the task and the text of each line of a stream."""
    return [(line[1], line[3]) for batch in found.get("lines", []) for line in batch]


@contextmanager
def serving(hosts: Hosts, *words: object) -> Iterator[tuple[Client, Tab]]:
    with hosts.begin("ui", *words) as client:
        client.until(out="\n", err="Ctrl-C ends it")
        with Tab(client.out.strip()) as tab:
            yield client, tab


@pytest.fixture
def ended(hosts: Hosts) -> Hosts:
    """A job that has failed: worker/1 says why."""
    text = f"echo begin $1; [ $1 = 0 ] || {{ echo 'ValueError: no {EVIL}'; exit 3; }}; sleep 60\n"
    hosts("start", hosts.file("digits", "command: [sh, train, '{index}']\nroles: {worker: 2}\n", train=text), "--wait")
    return hosts


def test_ui_prints_its_url_first_and_leaves_nothing_after_ctrl_c(hosts: Hosts) -> None:
    port = free_port()
    with serving(hosts, "--port", port) as (client, tab):
        assert client.out.startswith(f"http://127.0.0.1:{port}/?token=")
        assert tab.first == "/"
        answer = tab.get("/cluster")
        assert answer.status_code == 200 and all(
            f">{name}<" in answer.text for name in ("Cluster", "Job", "Logs", "Curves", "More")
        )
        client.process.send_signal(signal.SIGINT)
        done = client.done()
    assert (done.code, done.err.count("interrupted") <= 1) == (130, True), done
    with pytest.raises(httpx.ConnectError):
        httpx.get(tab.address)


def test_ui_begins_with_the_job_that_is_named_and_refuses_one_that_is_not_there(ended: Hosts) -> None:
    with serving(ended, "digits") as (_, tab):
        assert tab.get("/").headers["Location"] == "/job/digits"
    done = ended("ui", "nothing")
    assert (done.code, done.out) == (7, ""), done


def test_a_port_that_is_taken_is_refused_only_if_it_was_asked_for(hosts: Hosts) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = hosts("ui", "--port", port)
    assert done.out == "" and f"cannot listen on 127.0.0.1:{port}" in done.err and "--port N" in done.err
    with serving(hosts) as (_, first), serving(hosts) as (_, second):
        assert first.address != second.address


def test_nothing_is_answered_without_the_cookie_or_under_another_name(hosts: Hosts) -> None:
    with serving(hosts) as (_, tab):
        paths = ["/", "/cluster", "/static/page.js", "/stream/cluster", "/api/events/digits", "/download/digits"]
        for path in paths:
            refused = httpx.get(tab.address.rstrip("/") + path)
            assert (refused.status_code, "default-src 'none'" in refused.headers["Content-Security-Policy"]) == (
                403,
                True,
            )
            assert tab.get(path, headers={"Host": "evil.example"}).status_code == 400
        for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd"):
            assert tab.get(path).status_code == 404, path


def test_the_cluster_shows_hosts_and_jobs_and_goes_on_without_a_host(ended: Hosts) -> None:
    ended.ok("start", ended.file("stays", STAY + "roles: {worker: 3}\n"))
    with serving(ended) as (_, tab), tab.events("/stream/cluster") as events:
        for _, state in events:
            jobs = {job["job"]: job for job in state["jobs"] or ()}
            if len(jobs) == 2 and all(host["state"] == "ready" for host in state["hosts"]):
                break
        assert (jobs["digits"]["state"], jobs["stays"]["state"]) == ("failed", "running")
        [(job, task, _)] = next(host["tasks"] for host in state["hosts"] if host["name"] == "node3")
        assert (job, task) == ("stays", "worker/2")
        ended.refuse("node3", "exit 7")
        ended.drop("node3")
        for _, state in events:
            states = {host["name"]: host["state"] for host in state["hosts"]}
            if states["node3"] != "ready":
                break
        assert states["node3"] in ("unfit", "unreachable") and states["node1"] == "ready"
        ended.heal("node3")
        for _, state in events:
            if all(host["state"] == "ready" for host in state["hosts"]):
                break


def test_a_job_shows_why_it_failed_and_its_tasks(ended: Hosts) -> None:
    with serving(ended) as (_, tab), tab.events("/stream/job/digits") as events:
        _, job = next(events)
    assert (job["state"], job["culprit"], job["over"]) == ("failed", "worker/1", True)
    assert "worker/1" in job["reason"]
    assert [(row["task"], row["host"], row["state"]) for row in job["rows"]][1] == ("worker/1", "node2", "failed")


def test_lines_of_all_tasks_follow_a_job_to_its_end(hosts: Hosts) -> None:
    text = "command: [sh, -c, 'echo first {index}; sleep 2; echo last {index}']\nroles: {worker: 2}\n"
    hosts.ok("start", hosts.file("digits", text))
    with serving(hosts) as (_, tab):
        found = tab.until_end("/stream/logs/digits")
        assert sorted(lines_of(found)) == [
            (f"worker/{n}", f"{word} {n}") for n in (0, 1) for word in ("first", "last")
        ]  # fmt: skip
        one = tab.until_end("/stream/logs/digits", {"task": "worker/1", "tail": 1})
        assert lines_of(one)[-1] == ("worker/1", "last 1")
        assert tab.get("/stream/logs/digits", {"task": "evaluator/0"}).text.count("has no such task") == 1


def test_a_search_counts_on_the_hosts_and_a_bad_pattern_is_an_error(ended: Hosts) -> None:
    with serving(ended) as (_, tab):
        found = tab.until_end("/stream/search/digits", {"q": r"begin \d"})
        assert found["end"][0] == {"counts": {"worker/0": 1, "worker/1": 1}, "total": 2, "shown": 2}
        assert sorted(lines_of(found)) == [("worker/0", "begin 0"), ("worker/1", "begin 1")]
        errors = tab.until_end("/stream/search/digits", {"errors": ""})
        assert lines_of(errors) == [("worker/1", f"ValueError: no {EVIL}")]
        assert tab.until_end("/stream/search/digits", {"q": "nothing like it"})["end"][0]["total"] == 0
        for bad in ("(", "", "[z-a]"):
            answer = tab.get("/stream/search/digits", {"q": bad})
            assert (answer.status_code, "error" in answer.json()) == (400, True), (bad, answer.text)


def test_a_search_that_takes_for_ever_is_cut_off(hosts: Hosts) -> None:
    text = "command: [sh, -c, 'printf %01000d 0 | tr 0 a; echo b; sleep 60']\nroles: {worker: 1}\n"
    hosts.ok("start", hosts.file("digits", text))
    began = time.monotonic()
    with serving(hosts) as (_, tab):
        found = tab.until_end("/stream/search/digits", {"q": "(a+)+$"})
    assert time.monotonic() - began < 60
    assert found["end"][0]["total"] == 0


def test_a_download_has_every_line_with_its_time(ended: Hosts) -> None:
    with serving(ended) as (_, tab):
        answer = tab.get("/download/digits", {"task": "worker/1"})
    assert answer.status_code == 200
    assert [line.partition("Z ")[2] for line in answer.text.splitlines()] == [
        "worker/1 │ begin 1", f"worker/1 │ ValueError: no {EVIL}",
    ]  # fmt: skip


def test_curves_are_the_samples_of_tasks_and_hosts(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("digits", STAY + "roles: {worker: 2}\n"))
    gpu = wire.GpuSample(98, 40213, 61, 310, 1980)
    put(hosts, "node1", "digits", worker(0, cpu=3.9, gpus=(gpu,), figures={"loss": 0.25, EVIL: 1.0}))
    with serving(hosts) as (_, tab):
        found = tab.data("/api/series/digits")
        [moment] = found["curves"]["worker/0"]["t"]
        assert abs(moment - time.time()) < 60
        assert found["curves"]["worker/0"][".loss"] == [0.25] and found["curves"]["worker/0"]["gpu"] == [98.0]
        assert found["curves"]["node1"]["received"] == [10.0]
        assert tab.data("/api/series/digits", {"since": moment + 1})["curves"]["node1"]["t"] == []
        assert tab.get("/api/series/digits", {"since": "x"}).status_code == 400


def test_events_and_files_of_a_job_are_shown(ended: Hosts) -> None:
    with serving(ended) as (_, tab):
        events = tab.data("/api/events/digits")["events"]
        assert {event["event"] for event in events} >= {"start", "end", "stop"}
        files = tab.data("/api/files/digits")
        assert "ExecStart=" in files["tasks"]["worker/1"]["unit"] and files["versions"]["strategy"] == "custom"


@pytest.mark.parametrize("name", ["nothing", "..", "a b", "%00", "x" * 300])
def test_a_job_that_is_not_there_is_not_found(hosts: Hosts, name: str) -> None:
    with serving(hosts) as (_, tab):
        path = f"/api/events/{name.replace(' ', '%20')}"
        assert tab.get(path).status_code in (404, 400)


def test_the_first_match_is_sent_even_if_another_host_has_many(hosts: Hosts) -> None:
    script = "[ $1 = 1 ] && echo match early; sleep 1; [ $1 = 1 ] || exec /usr/bin/seq -f match%g 9000\n"
    job = "command: [sh, print, '{index}']\nroles: {worker: 3}\n"
    hosts.ok("start", hosts.file("many", job, print=script), "--wait")
    with serving(hosts) as (_, tab):
        found = tab.until_end("/stream/search/many", {"q": "match"})
    end = found["end"][0]
    assert (end["total"], end["counts"]["worker/1"]) == (18001, 1)
    lines = lines_of(found)
    assert 5000 <= len(lines) == end["shown"] < 10000
    assert {("worker/0", "match1"), ("worker/1", "match early"), ("worker/2", "match1")} <= set(lines)


def test_the_report_of_a_job_is_that_of_the_command_line(ended: Hosts) -> None:
    with serving(ended) as (_, tab):
        found = tab.data("/api/report/digits")
        assert found["errors"] == []
        [run] = found["report"]["runs"]
        assert (run["job"], run["devices"], [task["state"] for task in run["tasks"]][1]) == ("digits", 2, "failed")
        told = json.loads(ended.ok("report", "digits", "-o", "json"))
        assert found["report"].keys() == told.keys() and run.keys() == told["runs"][0].keys()


def test_tensorboard_is_started_once_and_ends_with_the_page(hosts: Hosts, with_stack: Callable[[str], None]) -> None:
    with_stack(TENSORBOARD)
    with serving(hosts) as (client, tab):
        port = tab.data("/api/tensorboard/curves")["port"]
        assert httpx.get(f"http://127.0.0.1:{port}/").status_code == 200
        assert tab.data("/api/tensorboard/curves")["port"] == port
        client.process.send_signal(signal.SIGINT)
        client.done()
    wait_until(lambda: left(hosts) == [], lambda: str(left(hosts)), timeout=20)


def test_tensorboard_says_why_it_cannot_be_started(ended: Hosts, with_stack: Callable[[str], None]) -> None:
    with serving(ended) as (_, tab):
        answer = tab.get("/api/tensorboard/digits")
        assert (answer.status_code, "has no stack" in answer.json()["error"]["message"]) == (404, True)
        with_stack("#!/bin/sh\necho no directory\nexit 1\n")
        for _ in range(2):  # it is tried again
            answer = tab.get("/api/tensorboard/curves")
            assert "has ended: no directory" in answer.json()["error"]["message"], answer.text


def test_the_page_says_who_is_the_cause_as_the_command_line_does(ended: Hosts) -> None:
    with serving(ended) as (_, tab):
        found = tab.data("/api/why/digits")
    assert found == json.loads(ended.ok("why", "digits", "-o", "json"))
    assert [(each["task"], each["host"]) for each in found["culprits"]] == [("worker/1", "node2")]
