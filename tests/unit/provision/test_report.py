"""Events of a run become lines for people and a report: who failed, in what, why, and what helps."""

from __future__ import annotations

from typing import Any

import pytest

from tfctl.errors import Exit
from tfctl.remote.report import Began, Collector, HostDone, TaskStarted, Warned, explain


def host(name: str, state: str, **result: Any) -> dict[str, Any]:
    return {"event": "host", "host": name, "role": "job_host", "task": "Prepare", "state": state, "result": result}


def stats(**hosts: tuple[int, int]) -> dict[str, Any]:
    return {"event": "stats", "hosts": {name: {"ok": ok, "changed": changed} for name, (ok, changed) in hosts.items()}}


def test_a_run_with_every_kind_of_end() -> None:
    collector = Collector()
    assert collector.take({"event": "play", "hosts": ["n1", "n2", "n3"]}) == [Began(("n1", "n2", "n3"))]
    assert collector.take({"event": "task", "role": "job_host", "task": "Prepare"}) == [
        TaskStarted("job_host: Prepare")
    ]
    assert collector.take(host("n3", "changed", diff="+a\n", warnings=["careful"])) == [
        Warned("n3", "careful"),
        HostDone("n3", "job_host: Prepare", "changed", "+a\n"),
    ]
    fault = {"message": "2 MB are free", "remedy": "free space on HOST", "exit": 8}
    collector.take(host("n2", "failed", msg="2 MB are free", faults=[fault]))
    collector.take(host("n1", "unreachable", msg="ssh: connect to host 10.0.0.1 port 22: Connection refused"))
    assert not collector.finished
    collector.take(stats(n3=(2, 1), n2=(1, 0), n1=(0, 0)))
    assert collector.finished
    report = collector.report()
    assert [(row.host, row.ok, row.changed, row.failed, row.unreachable) for row in report.hosts] == [
        ("n1", 0, 0, False, True),
        ("n2", 1, 0, True, False),
        ("n3", 2, 1, False, False),
    ]
    assert [row.exit for row in report.hosts] == [Exit.UNREACHABLE, Exit.PREFLIGHT, Exit.OK]
    assert (report.hosts[1].task, report.hosts[1].reason) == ("job_host: Prepare", "2 MB are free")
    assert report.hosts[1].remedy == "free space on n2"
    assert (report.changed, report.exit) == (1, Exit.PREFLIGHT)


@pytest.mark.parametrize(
    ("state", "result", "reason", "remedy", "code"),
    [
        (
            "unreachable",
            {"msg": "Failed to connect to the host via ssh: ops@h: Permission denied (publickey)."},
            "ops@h: Permission denied (publickey).",
            "give n1 the public key",
            Exit.UNREACHABLE,
        ),
        ("failed", {"msg": "Missing sudo password"}, "Missing sudo password", "NOPASSWD", Exit.PREFLIGHT),
        (
            "failed",
            {"msg": "non-zero return code", "rc": 100, "stderr": "E: Unable to locate package python9"},
            "Unable to locate package python9",
            "package sources",
            Exit.FAILED,
        ),
        (
            "failed",
            {"msg": "MODULE FAILURE", "rc": 127, "module_stdout": "/bin/sh: 1: /usr/bin/python3: not found"},
            "MODULE FAILURE\n/bin/sh: 1: /usr/bin/python3: not found",
            "install python3 on n1",
            Exit.FAILED,
        ),
        (
            "failed",
            {"msg": "Failed to replace '/var/tmp/a.tar' with b'/b': [Errno 28] No space left on device: b'/b'"},
            "no space left on device for /var/tmp/a.tar",
            "free space on n1",
            Exit.FAILED,
        ),
        (
            "failed",
            {"msg": "'/usr/bin/apt-get -y install 'make'' failed: E: Held packages were changed and -y was used."},
            "Held packages were changed and -y was used.",
            "apt-mark unhold",
            Exit.FAILED,
        ),
        ("failed", {"msg": "odd"}, "odd", "", Exit.FAILED),
        ("failed", {}, "no reason given", "", Exit.FAILED),
    ],
)
def test_why_a_task_failed(state: str, result: dict[str, Any], reason: str, remedy: str, code: Exit) -> None:
    found = explain(result, "n1", state)
    assert (found[0], found[2]) == (reason, code)
    assert remedy in found[1] and bool(remedy) == bool(found[1])


def test_no_password_of_an_address_is_told() -> None:
    reason, _, _ = explain({"msg": "http://me:secret@index.example/simple: 403"}, "n1", "failed")
    assert reason == "http://me:***@index.example/simple: 403"
