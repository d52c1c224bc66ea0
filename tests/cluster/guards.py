"""Jobs with guards, for the tests of tests/cluster."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fake_manager import directives
from node_tree import wait_until

from tests.cluster.hosts import Hosts


def job(hosts: Hosts, name: str) -> dict[str, Any]:
    done = hosts("status", name, "-o", "json")
    return dict(json.loads(done.out))


def units(hosts: Hosts) -> list[str]:
    return [unit for tree in hosts.trees.values() for unit in tree.alive()]


def two_kinds(hosts: Hosts, name: str, chief: str, policy: str = "") -> None:
    """Start a job whose chief, on node1, runs this script, and whose servers, on node2 and node3, run until stopped."""
    text = f"""\
        command: [sh, -c, "exec sleep 600"]
        roles:
          chief: {{replicas: 1, hosts: node1, command: [sh, -c, {json.dumps(chief)}]}}
          server: {{replicas: 2, hosts: "node2,node3"}}
        policy: {{success: chief{policy}}}
        """
    done = hosts("start", hosts.file(name, text))
    assert done.code == 0, done.err


def running_until_flagged(hosts: Hosts, then: str = "exit 0") -> tuple[str, Path]:
    """Return a script that ends, on any host, once this file exists, and the file."""
    flag = hosts.trees["node1"] / "told"
    return f"until test -e {flag}; do sleep 0.1; done; {then}", flag


def head_port(hosts: Hosts, job: str) -> int:
    """Return the port at which the head of a job, on node1, listens."""
    unit = hosts.trees["node1"] / f"run/systemd/system/tfctlguard-{job}.socket"
    return int(directives(unit.read_text())["ListenStream"])


def established(hosts: Hosts) -> list[str]:
    """Return the members whose guard has a connection to the head."""
    sockets = [path.read_text() for path in (hosts.trees["node1"] / "run/systemd/system").glob("tfctlguard-*.socket")]
    connected = _connected_to({int(directives(text)["ListenStream"]) for text in sockets})
    found = []
    for name in ("node2", "node3"):
        for state in (hosts.trees[name] / "manager").glob("tfctlguard-*.service.state"):
            pid = directives(state.read_text()).get("MainPID", "0")
            found += [name] if pid != "0" and connected & _files(pid) else []
    return found


def _connected_to(ports: set[int]) -> set[str]:
    """Return the sockets of this machine that are connected to one of these ports, as /proc/PID/fd names them."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {f"socket:[{row[9]}]" for row in rows if row[3] == "01" and int(row[2].rpartition(":")[2], 16) in ports}


def _files(pid: str) -> set[str]:
    found = set()
    for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(FileNotFoundError):
            found.add(str(descriptor.readlink()))
    return found


def _running_guard(hosts: Hosts, name: str, job: str) -> tuple[Path, Mapping[str, str]]:
    """Return the file with the state of a guard and its content, once the guard has a process."""
    state = hosts.trees[name] / f"manager/tfctlguard-{job}.service.state"
    wait_until(lambda: "MainPID" in directives(state.read_text()))
    return state, directives(state.read_text())


def kill_guard(hosts: Hosts, name: str, job: str, *, for_good: bool = False) -> None:
    state, known = _running_guard(hosts, name, job)
    if for_good:
        os.kill(int(known["supervisor"]), signal.SIGKILL)
    os.killpg(int(known["MainPID"]), signal.SIGKILL)
    if for_good:  # as when systemd has given up
        state.write_text(state.read_text() + "ActiveState=failed\n")


@contextmanager
def paused_guard(hosts: Hosts, name: str, job: str) -> Iterator[None]:
    """Let the guard of this host do nothing, as on a host that is overloaded, during the block."""
    _, known = _running_guard(hosts, name, job)
    os.killpg(int(known["MainPID"]), signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(int(known["MainPID"]), signal.SIGCONT)
