"""The stacks that py-spy prints, and the connections that ss prints, as they were recorded on a node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tfctl.node import connections, names, pystacks, wire
from tfctl.node.system import System

#: What `py-spy dump --nonblocking --json` of version 0.4.3 printed about a task, without the path of the environment.
FRAMES = [
    {"name": "quick_execute", "filename": "/x/tensorflow/python/eager/execute.py", "module": None,
     "short_filename": "tensorflow/python/eager/execute.py", "line": 53, "locals": None, "is_entry": False,
     "is_shim_entry": False},
    {"name": "<module>", "filename": "/var/lib/tfctl/jobs/a/code/train.py", "module": None,
     "short_filename": "train.py", "line": 11, "locals": None, "is_entry": True, "is_shim_entry": True},
]  # fmt: skip
RECORDED = [
    {"pid": 859, "thread_id": 1, "thread_name": "Thread-27 (worker)", "os_thread_id": 900, "active": False,
     "owns_gil": False, "frames": FRAMES[:1]},
    {"pid": 859, "thread_id": 2, "thread_name": "MainThread", "os_thread_id": 859, "active": True, "owns_gil": True,
     "frames": FRAMES},
]  # fmt: skip
SS = (
    "ESTAB 0 0 10.87.0.2:2223 10.87.0.3:41234 uid:880 ino:71 sk:3 {cgroup} <-> cubic wscale:7,7 rto:201 rtt:0.1/0.05 "
    "mss:1448 cwnd:10 lastsnd:86540 lastrcv:86541 lastack:86500\n"
    "SYN-SENT 0 1 [::ffff:10.87.0.2]:41000 [::ffff:10.87.0.4]:2223 timer:(on,3sec,4) uid:880 ino:72 sk:4 {cgroup} "
    "<-> cubic rto:8000 backoff:4 lastsnd:2100\n"
    "ESTAB 0 0 10.87.0.2:22 10.87.0.1:1 uid:0 ino:1 sk:1 cgroup:/system.slice/ssh.service <-> cubic\n"
    "nonsense\n"
).format(cgroup="cgroup:" + names.cgroup("a", "worker", 0))


def system(tmp_path: Path, **programs: str) -> System:
    """Return a system whose programs are these scripts of sh."""
    made = {}
    for name, script in programs.items():
        made[name] = tmp_path / name
        made[name].write_text(f"#!/bin/sh\n{script}\n")
        made[name].chmod(0o755)
    spy = tmp_path / names.PY_SPY.lstrip("/")
    spy.parent.mkdir(parents=True)
    spy.write_text("")
    return System(str(tmp_path), **{name: (str(path),) for name, path in made.items()})  # type: ignore[arg-type]


def test_stacks_of_each_process_begin_with_the_main_thread(tmp_path: Path) -> None:
    answer = json.dumps(RECORDED)
    found = pystacks.of(system(tmp_path, systemd_run=f"printf '\\0367\\n'; cat <<'END'\n{answer}\nEND"), [7])
    threads = found[7]
    assert not isinstance(threads, str)
    main, worker = threads
    assert (main.name, main.active, worker.name) == ("MainThread", True, "Thread-27 (worker)")
    assert main.frames == (
        wire.Frame("quick_execute", "tensorflow/python/eager/execute.py", 53), wire.Frame("<module>", "train.py", 11),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("printf '\\0367\\nError: Failed to find python version\\n'", "Error: Failed to find python version"),
        ("printf '\\0367\\n'", "py-spy has printed nothing"),
        ("printf '\\0367\\n[{]\\n'", "[{]"),
        ("printf '\\0367\\n[{\"frames\": 3}]\\n'", '[{"frames": 3}]'),
        ("echo Failed to start the unit >&2; exit 1", "Failed to start the unit"),
        ("exit 1", "the unit of py-spy has ended"),
    ],
)
def test_what_py_spy_says_instead_of_stacks_is_the_trouble(tmp_path: Path, script: str, why: str) -> None:
    assert pystacks.of(system(tmp_path, systemd_run=script), [7, 8])[7] == why


def test_a_host_without_py_spy_says_how_to_install_it(tmp_path: Path) -> None:
    found = pystacks.of(System(str(tmp_path)), [7])[7]
    assert found == "py-spy is not installed; run: tfctl provision INVENTORY --tags py_spy"
    assert pystacks.of(System(str(tmp_path)), []) == {}


def test_py_spy_runs_in_a_unit_that_may_only_read_memory(tmp_path: Path) -> None:
    pystacks.of(system(tmp_path, systemd_run=f'echo "$@" > {tmp_path}/words'), [7])
    words = (tmp_path / "words").read_text()
    for right in ("CapabilityBoundingSet=CAP_SYS_PTRACE", "User=nobody", "PrivateNetwork=yes", "ProtectSystem=strict"):
        assert f"--property={right}" in words
    assert "--locals" not in words and "--nonblocking" in words and "PrivateUsers" not in words


def test_connections_are_those_of_the_units(tmp_path: Path) -> None:
    units = {names.unit("a", "worker", 0): ("worker", 0), names.unit("a", "worker", 1): ("worker", 1)}
    found = connections.of_units(system(tmp_path, ss=f"cat <<'END'\n{SS}END"), units)
    assert found == {
        ("worker", 0): (
            wire.Socket("10.87.0.2:2223", "10.87.0.3:41234", "ESTAB", 0, 0, 0, 86.54),
            wire.Socket("10.87.0.2:41000", "10.87.0.4:2223", "SYN-SENT", 0, 1, 4, 2.1),
        )
    }
    assert connections.of_units(System(str(tmp_path), ss=("/nowhere/ss",)), units) == {}
