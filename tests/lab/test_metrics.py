"""Debian's Prometheus scrapes `tfctl metrics` while a job runs, and computes what the panels of the dashboard show."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from node_tree import free_port

from tests.lab.jobs import Jobs
from tests.lab.test_samples import PATTERN, STEPS, until

DASHBOARD = json.loads((Path(__file__).parents[2] / "docs/grafana.json").read_text())
#: As docs/howto/monitoring.md describes it, but with a shorter interval.
SETTINGS = """
scrape_configs:
  - job_name: tfctl
    scrape_interval: 2s
    scrape_timeout: 2s
    honor_labels: true
    static_configs: [targets: ["{}"]]
"""


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    with process:
        try:
            yield process
        finally:
            process.terminate()


class Prometheus:
    """A Prometheus that listens at a port of this machine."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1/query"

    def values(self, query: str) -> list[tuple[dict[str, str], float]]:
        """Return the labels and the value of each result; none until Prometheus is ready."""
        try:
            with urllib.request.urlopen(
                f"{self._url}?{urllib.parse.urlencode({'query': query})}", timeout=10
            ) as answer:
                found: dict[str, Any] = json.load(answer)
        except ConnectionRefusedError:
            return []
        except OSError as error:
            if isinstance(getattr(error, "reason", None), ConnectionRefusedError):
                return []
            raise
        return [(result["metric"], float(result["value"][1])) for result in found["data"]["result"]]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of prometheus and promtool. The package is not installed, because it would start a service."""
    folder = tmp_path_factory.mktemp("prometheus")
    subprocess.run("apt-get -q download prometheus && dpkg-deb -x prometheus_*.deb .", shell=True, check=True,
                   cwd=folder, timeout=300)  # fmt: skip
    return folder / "usr/bin"


@pytest.fixture
def prometheus(jobs: Jobs, programs: Path, tmp_path: Path) -> Iterator[Prometheus]:
    words = jobs.command("metrics", "--listen", 0)
    with ended(subprocess.Popen(words, cwd=jobs.folder, stdout=subprocess.PIPE, text=True)) as client:
        assert client.stdout is not None
        target = urllib.parse.urlsplit(client.stdout.readline().strip()).netloc
        (tmp_path / "prometheus.yml").write_text(SETTINGS.format(target))
        port = free_port()
        options = [f"--web.listen-address=127.0.0.1:{port}", f"--config.file={tmp_path}/prometheus.yml",
                   f"--storage.tsdb.path={tmp_path}/data"]  # fmt: skip
        with (
            (tmp_path / "log").open("w") as log,
            ended(subprocess.Popen([programs / "prometheus", *options], stdout=log, stderr=log, text=True)),
        ):
            yield Prometheus(port)


def test_prometheus_scrapes_a_job_and_computes_every_panel(jobs: Jobs, prometheus: Prometheus) -> None:
    text = f"command: [sh, -c, {json.dumps(STEPS)}]\n{PATTERN}\nroles: {{worker: 2}}\n"
    jobs.ok("start", jobs.file("scraped", text))
    begun = time.time()
    until(lambda: len(prometheus.values('tfctl_task_step{job="scraped"} > 0')) == 2)
    [(labels, _)] = prometheus.values('tfctl_job_state{job="scraped"} == 1')
    assert labels["state"] == "running"
    [(_, ratio)] = prometheus.values('tfctl_job_progress_ratio{job="scraped"}')
    assert 0 < ratio < 1
    [(_, started)] = prometheus.values('tfctl_job_start_time_seconds{job="scraped"}')
    assert abs(started - begun) < 60
    assert all(0 < value < 4 for _, value in prometheus.values('tfctl_task_cpu_cores{job="scraped"}'))
    assert {value for _, value in prometheus.values("tfctl_host_up")} == {1}
    filled = set()
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            query = target["expr"].replace("$job", "scraped").replace("$host", ".*")
            if prometheus.values(query):  # raises an error if Prometheus does not understand it
                filled.add(panel["title"])
    assert {"State of jobs", "Progress", "Tasks by state", "CPU cores", "Loss and other figures", "Load"} <= filled
    jobs.ok("stop", "scraped", "--now")
    until(lambda: prometheus.values('tfctl_job_state{job="scraped",state="stopped"} == 1'))


def test_promtool_has_nothing_to_correct(jobs: Jobs, programs: Path) -> None:
    done = subprocess.run(
        [programs / "promtool", "check", "metrics"],
        input=jobs.ok("metrics"),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
