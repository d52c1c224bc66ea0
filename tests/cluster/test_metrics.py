"""`tfctl metrics` against three hosts, read as Prometheus reads it."""

from __future__ import annotations

import json
import os
import stat
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from node_tree import free_port, wait_until
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster.hosts import STAY, Client, Hosts
from tfctl.cli.metrics import parse
from tfctl.errors import UsageError
from tfctl.jobs.metrics import LIMIT_S
from tfctl.node import names, wire

Found = dict[tuple[str, str], float]
#: What a host may send as the name of a figure.
EVIL = 'x"} 1\ntfctl_host_up{host="forged'


def values(text: str, *labels: str) -> Found:
    """Return the values by the name of the metric and those of its labels that a test looks at."""
    wanted = labels or ("job", "host", "state", "figure")
    return {
        (sample.name, " ".join(sample.labels[name] for name in wanted if name in sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def keep_sample(hosts: Hosts, host: str, job: str) -> None:
    """Let the guard of a job on this host have kept a sample of worker/0."""
    figures = {"loss": wire.Figure(0.25), EVIL: wire.Figure(1)}
    sample = wire.TaskSample("worker", 0, cpu=1.5, step=3, total=10, percent=30.0, figures=figures)
    folder = hosts.trees[host] / names.samples_dir(job, 1)
    folder.mkdir(parents=True, exist_ok=True)
    line = json.dumps(wire.encode(wire.Sample(time.time(), None, None, (sample,))))
    (folder / "10s.jsonl").write_text(line + "\n")


@contextmanager
def serving(hosts: Hosts) -> Iterator[tuple[Client, Callable[[], str]]]:
    """Serve metrics at any port. Yield the client and a function that scrapes it."""
    with hosts.begin("metrics", "--listen", 0) as client:
        client.until(out="/metrics\n", err="Ctrl-C ends it")
        url = client.out.strip()

        def scrape() -> str:
            with urllib.request.urlopen(url, timeout=30) as answer:
                assert answer.status == 200 and answer.headers["Content-Type"].startswith("text/plain")
                return bytes(answer.read()).decode()

        yield client, scrape


def test_metrics_are_served_fresh_over_open_connections_until_ctrl_c(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("served", STAY + "roles: {worker: 2}\n"))
    keep_sample(hosts, "node1", "served")
    with serving(hosts) as (client, scrape):
        found = values(scrape())
        assert found["tfctl_job_state", "served running"] == 1
        assert found["tfctl_task_state", "served node2 running"] == found["tfctl_host_up", "node3"] == 1
        assert found["tfctl_job_progress_ratio", "served"] == 0.3
        assert found["tfctl_task_figure", "served node1 loss"] == 0.25
        assert found["tfctl_task_figure", f"served node1 {EVIL.replace(chr(10), '?')}"] == 1
        assert ("tfctl_host_up", "forged") not in found
        assert found["tfctl_scrape_errors", ""] == 0
        hosts.ok("stop", "served")
        logins = [hosts.logins(name) for name in hosts.names]
        found = values(scrape())
        assert found["tfctl_job_state", "served stopped"] == 1 and found["tfctl_job_state", "served running"] == 0
        with ThreadPoolExecutor(4) as pool:
            assert all("tfctl_host_up" in text for text in pool.map(lambda _: scrape(), range(4)))
        assert [hosts.logins(name) for name in hosts.names] == logins
        client.process.send_signal(2)
        assert client.done().code == 130
        assert "Traceback" not in client.err
    wait_until(lambda: all(hosts.sessions(name) == 0 for name in hosts.names))


def test_a_silent_host_is_down_and_the_others_are_reported(hosts: Hosts) -> None:
    hosts.ok("start", hosts.file("partly", STAY + "roles: {worker: 2}\n"))
    with hosts.behind_relay("node2") as relay, serving(hosts) as (_, scrape):
        assert values(scrape())["tfctl_host_up", "node2"] == 1
        relay.frozen = True
        began = time.monotonic()
        found = values(scrape())
        assert time.monotonic() - began < 2 * LIMIT_S
        assert [found["tfctl_host_up", name] for name in hosts.names] == [1, 0, 1]
        assert found["tfctl_job_state", "partly unknown"] == found["tfctl_task_state", "partly node2 unknown"] == 1
        assert found["tfctl_scrape_errors", ""] == 1
        relay.frozen = False
        wait_until(lambda: values(scrape())["tfctl_host_up", "node2"] == 1, timeout=90)


def test_metrics_are_printed_once_and_the_exit_code_says_that_a_host_is_missing(hosts: Hosts) -> None:
    assert values(hosts.ok("metrics"))["tfctl_host_up", "node1"] == 1
    done = hosts.with_inventory(hosts.told("node2", ansible_port=9), "metrics")
    found = values(done.out)
    assert (done.code, [found["tfctl_host_up", name] for name in hosts.names]) == (4, [1, 0, 1])
    assert "node2: " in done.err and "node1" not in done.err
    hosts.refuse("node2", "exit 127")
    done = hosts("metrics")
    assert (done.code, values(done.out)["tfctl_host_up", "node2"]) == (8, 0)


def test_a_text_file_is_replaced_as_a_whole_and_readable_by_others(hosts: Hosts) -> None:
    file = hosts.folder / "tfctl.prom"
    before = os.umask(0o077)
    try:
        hosts.ok("metrics", "--textfile", file)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert values(file.read_text())["tfctl_host_up", "node3"] == 1
    assert not [path for path in hosts.folder.iterdir() if path.name.startswith(".tfctl.prom")]
    done = hosts("metrics", "--textfile", hosts.folder / "missing" / "tfctl.prom")
    assert (done.code, done.out) == (1, "") and "No such file or directory" in done.err


def test_metrics_refuse_a_port_that_is_taken_and_two_ways_to_export(hosts: Hosts) -> None:
    with serving(hosts) as (client, _):
        port = client.out.strip().rpartition(":")[2].removesuffix("/metrics")
        done = hosts("metrics", "--listen", port)
        assert done.code == 5 and f"port {port} of 127.0.0.1 cannot be used" in done.err
    assert hosts("metrics", "--listen", free_port(), "--textfile", "x.prom").code == 2
    assert hosts("metrics", "--listen", "no port").code == 2


def test_address_to_listen_at_is_loopback_unless_another_one_is_named() -> None:
    assert parse("9836") == ("127.0.0.1", 9836)
    assert parse("0.0.0.0:9836") == ("0.0.0.0", 9836)
    assert parse("[::1]:0") == ("::1", 0)
    for wrong in ("", ":9836", "::1:9836", "host:", "65536", "a b:1", "-1"):
        with pytest.raises(UsageError):
            parse(wrong)
