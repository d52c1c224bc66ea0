"""The role wheels: each wheel leaves the control machine once, and hosts that reach no other one still get it.

The hosts are directories of this machine. Each has an interpreter of its own, which sets NODE_DIR. Fakes replace
systemd-run and systemctl: they start and stop the real server of the wheels as a process of this machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
FAKES = {
    "systemd-run": 'while case $1 in -*) true ;; *) false ;; esac; do shift; done\n"$@" >"$NODE_DIR/log" 2>&1 &\n'
    'echo $! >"$NODE_DIR/server"\n',
    "systemctl": 'test ! -e "$NODE_DIR/server" || kill $(cat "$NODE_DIR/server"); rm -f "$NODE_DIR/server"\n',
}


class Fleet:
    """Hosts in ``folder``, n1 and so on, and wheels that a folder serves in place of a package index."""

    def __init__(self, folder: Path, hosts: int) -> None:
        self.folder, self.index = folder, folder / "index"
        self.names = [f"n{number}" for number in range(1, hosts + 1)]
        self.index.mkdir()
        for name, text in FAKES.items():
            self._program(folder / "bin" / name, text)
        for name in self.names:
            self._program(folder / name / "python", f'NODE_DIR={folder / name} exec {sys.executable} "$@"\n')
        for name in ("one", "two"):
            self.wheel(name, "1.0")

    def wheel(self, name: str, version: str) -> Path:
        path = self.index / f"{name}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as file:
            info = f"{name}-{version}.dist-info"
            file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            file.writestr(f"{info}/RECORD", name * 1000)
        return path

    def run(
        self,
        *wheels: str,
        address: str = "127.0.0.1",
        batches: Sequence[int | str] = (1, "100%"),
        check: bool = False,
    ) -> dict[str, list[str]]:
        """Run the role for these wheels; return the hosts that ran each task, by the task's name.

        Wheels after "then" are those of a second time that the play includes the role.
        """
        locks: list[Path] = []
        for names in " ".join(wheels).split(" then "):
            files = [next(self.index.glob(f"{name}-*")) for name in names.split()]
            lines = ("{}=={} --hash=sha256:{}\n".format(*file.name.split("-")[:2], digest(file)) for file in files)
            locks.append(self.folder / f"lock{len(locks)}.txt")
            locks[-1].write_text("".join(lines))
        hosts = {name: {"ansible_python_interpreter": f"{self.folder / name}/python"} for name in self.names}
        inventory = {"all": {"hosts": hosts, "vars": {"ansible_connection": "local", "tfctl_address": address}}}
        (self.folder / "hosts.json").write_text(json.dumps(inventory))
        given = {
            "wheels_python_version": VERSION, "wheels_machine": "x86_64",
            "wheels_cache": f"{self.folder}/cache", "wheels_store": "$NODE_DIR/store", "wheels_ports": free_ports(),
        }  # fmt: skip
        after = {"ansible.builtin.add_host": {"name": "{{ item }}", "groups": "tfctl_provisioned"}}
        tasks = [
            {"ansible.builtin.include_role": {"name": "tfctl.cluster.wheels"}, "vars": {"wheels_locks": [str(lock)]}}
            for lock in locks
        ]
        play = {
            "hosts": "all", "gather_facts": False, "serial": [*batches], "vars": given, "tasks": tasks,
            "post_tasks": [{"name": "Group", "loop": "{{ ansible_play_batch }}", **after}],
        }  # fmt: skip
        (self.folder / "play.yml").write_text(json.dumps([play]))
        settings = {
            "HOME": self.folder, "PIP_NO_INDEX": 1, "PIP_FIND_LINKS": self.index, "PIP_CONFIG_FILE": "/dev/null",
            "PIP_EXTRA_INDEX_URL": "", "ANSIBLE_NOCOLOR": 1,
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "ANSIBLE_DISPLAY_SKIPPED_HOSTS": 0,
        }  # fmt: skip
        environment = {**os.environ, **{name: str(value) for name, value in settings.items()}}
        words = [sys.executable, "-m", "ansible", "playbook", "-i", "hosts.json", "play.yml"]
        words += ["--check"] if check else []
        done = subprocess.run(
            words, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=110, check=False
        )
        self.output = done.stdout + done.stderr
        assert done.returncode == 0, self.output
        found: dict[str, list[str]] = {}
        for name, text in re.findall(
            r"TASK \[(?:tfctl.cluster.wheels : )?(.*?)\] \*+\n(.*?)(?=\n\n|\Z)", done.stdout, re.DOTALL
        ):
            found.setdefault(name, []).extend(re.findall(r"^(?:ok|changed): \[(\w+)", text, re.MULTILINE))
        return found

    def fill(self, name: str, *wheels: str) -> None:
        """Store these wheels on a host, as the role does."""
        store = self.folder / name / "store"
        store.mkdir()
        for wheel in wheels:
            file = next(self.index.glob(f"{wheel}-*"))
            shutil.copy(file, store / digest(file))

    def stores(self) -> list[list[str]]:
        return [sorted(path.name for path in (self.folder / name / "store").iterdir()) for name in self.names]

    def _program(self, path: Path, text: str) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}")
        path.chmod(0o755)


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def free_ports() -> str:
    """Return a range of ports for the servers of all hosts, of which the last one is free."""
    with socket.socket() as tried:
        tried.bind(("", 0))
        port: int = tried.getsockname()[1]
    return f"{max(port - 50, 1024)}-{port}"


@pytest.fixture
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet of as many hosts as the test says. Each module that runs on a host takes half a second."""
    yield Fleet(tmp_path, request.param)
    for file in tmp_path.glob("*/server"):
        with suppress(OSError, ValueError):
            os.kill(int(file.read_text()), signal.SIGKILL)


SEND, RESEND = "Send the wheels that no host has", "Send the wheels that no other host could send"


@pytest.mark.extended
@pytest.mark.parametrize("fleet", [4], indirect=True)
def test_wheels_leave_the_control_machine_once_and_later_only_the_changed_one_does(fleet: Fleet) -> None:
    found = fleet.run("one", "two")
    assert (found[SEND], found.get(RESEND, [])) == (["n1"], []), fleet.output
    assert sorted(found["Copy the wheels from that host"]) == ["n2", "n3", "n4"]
    wheels = sorted(digest(path) for path in fleet.index.iterdir())
    assert fleet.stores() == [wheels] * 4
    assert not list(fleet.folder.glob("*/server")), "a host still serves wheels"
    found = fleet.run("one", "two")
    assert found.get(SEND, []) == [] and "Copy the wheels from that host" not in found
    (fleet.index / "two-1.0-py3-none-any.whl").unlink()
    new = fleet.wheel("two", "2.0")
    found = fleet.run("one", "two")
    assert found[SEND] == ["n1"]
    assert fleet.stores() == [sorted([*wheels, digest(new)])] * 4


@pytest.mark.extended
@pytest.mark.parametrize("fleet", [2], indirect=True)
def test_check_looks_for_the_wheels_and_copies_none(fleet: Fleet) -> None:
    found = fleet.run("one", batches=[2], check=True)
    assert sorted(found["Look for the wheels on the host"]) == ["n1", "n2"], fleet.output
    assert not {SEND, RESEND, "Copy the wheels from that host"} & {*found}
    assert not list(fleet.folder.glob("n*/store"))


@pytest.mark.extended
@pytest.mark.parametrize("fleet", [2], indirect=True)
def test_later_batch_copies_all_wheels_from_the_first_one_if_a_host_needs_two_sets(fleet: Fleet) -> None:
    found = fleet.run("one", "then", "two")
    assert (found[SEND], found["Copy the wheels from that host"]) == (["n1", "n1"], ["n2", "n2"]), fleet.output
    assert fleet.stores() == [sorted(digest(path) for path in fleet.index.iterdir())] * 2


@pytest.mark.extended
@pytest.mark.parametrize("fleet", [3], indirect=True)
def test_control_machine_sends_only_what_the_host_that_lacks_least_is_missing(fleet: Fleet) -> None:
    fleet.fill("n2")
    fleet.fill("n3", "two")
    found = fleet.run("one", "two", batches=[3])
    assert (found[SEND], found.get(RESEND, [])) == (["n3"], []), fleet.output
    assert fleet.stores() == [sorted(digest(path) for path in fleet.index.iterdir())] * 3


@pytest.mark.extended
@pytest.mark.parametrize("fleet", [3], indirect=True)
def test_hosts_that_reach_no_other_one_get_the_wheels_from_the_control_machine(fleet: Fleet) -> None:
    found = fleet.run("one", address="nowhere.invalid")
    assert (found[SEND], sorted(found[RESEND])) == (["n1"], ["n2", "n3"]), fleet.output
    assert "this machine sends the wheels to the host, because http://nowhere.invalid:" in " ".join(
        fleet.output.split()
    )
    assert fleet.stores() == [[digest(next(fleet.index.glob("one-*")))]] * 3
