"""Jobs on a provisioned lab, started as a user starts them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.lab.labs import TFCTL, Lab

#: Lists what a job could leave on a host: files, units, mounts, ports, processes. It omits what a login creates, and
#: tfctl.slice and directories of the node part, which stay. ps prints [NAME] for a process that is about to end, and
#: for a zombie. The parent of a zombie is listed as well.
LIST_TRACES = r"""
find /run/tfctl /run/systemd/system /run/systemd/transient /etc/systemd/system /var/lib/tfctl /srv/tfctl \
    -not -path '*/__pycache__*' -not -name 'session-*' -not -path /run/tfctl/lock \
    -not -path /run/tfctl/env -not -path /run/tfctl/reserved | sort
systemctl list-units --all --plain --no-legend --type=service,slice,timer,mount,socket,scope |
    awk '{print $1, $2, $3}' | grep -Ev '^(user|session|run-user)|^systemd-|^run-credentials|^tfctl.slice' | sort
grep -Ev ' /run/(user|credentials)/' /proc/mounts | cut -d' ' -f2,3 | sort
ss -ltnH | awk '{print $4}' | sort
ps -e -o user=,args= | grep -Ev '^\S+ +\[|^ops|ssh|sd-pam|systemd|ps -e|sudo|sort|grep|awk|sh -c|kworker' | sort
"""


@dataclass
class Jobs:
    """Job files in ``folder``, and tfctl run there with the inventory of the lab, or another one.

    ``names``: the jobs that `clean` stops.
    """

    lab: Lab
    folder: Path
    names: list[str] = field(default_factory=list)
    inventory: Path | None = None

    def file(self, name: str, text: str) -> Path:
        """Write a job file in its own directory. Strategy and stack default to custom and none."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        lines = textwrap.dedent(text)
        head = [f"name: {name}"]
        head += [
            f"{key}: {value}" for key, value in (("strategy", "custom"), ("stack", "none")) if f"{key}:" not in lines
        ]
        path = folder / "job.yaml"
        path.write_text("\n".join(head) + "\n" + lines)
        self.names.append(name)
        return path

    def __call__(self, *words: object, timeout: float = 90) -> subprocess.CompletedProcess[str]:
        """Run tfctl to its end, whatever its exit code."""
        done = subprocess.run(
            self.command(*words), capture_output=True, text=True, timeout=timeout, cwd=self.folder,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        assert "this is a bug in tfctl" not in done.stderr, done.stderr
        return done

    def ok(self, *words: object, timeout: float = 90) -> str:
        """Run tfctl, which must succeed; return its stdout."""
        done = self(*words, timeout=timeout)
        assert done.returncode == 0, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def elsewhere(self, *words: object) -> str:
        """Run tfctl as on another machine that has only the inventory: with empty home and current directories. Return
        its stdout."""
        settings = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
        with TemporaryDirectory() as home:
            done = subprocess.run(
                self.command(*words), capture_output=True, text=True, timeout=90, cwd=home,
                env={**settings, "HOME": home}, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        assert done.returncode == 0, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def begin(self, *words: object) -> subprocess.Popen[str]:
        """Start tfctl and return at once."""
        return subprocess.Popen(
            self.command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def command(self, *words: object) -> list[str]:
        return [str(TFCTL), *self.words(*words)]

    def words(self, *words: object) -> list[str]:
        return [*map(str, words), "-i", str(self.inventory or self.lab.inventory)]

    def with_host_variables(self, host: str, **variables: object) -> Jobs:
        """Return the same with an inventory that has more variables for one host."""
        path = self.folder / f"{host}.ini"
        more = "".join(f" {name}={shlex.quote(str(value))}" for name, value in variables.items())
        path.write_text(re.sub(rf"^({host} .*)$", rf"\1{more}", self.lab.inventory.read_text(), flags=re.MULTILINE))
        return Jobs(self.lab, self.folder, self.names, path)

    def status(self, name: str) -> dict[str, Any]:
        return dict(json.loads(self.ok("status", name, "-o", "json")))

    def states(self, name: str) -> dict[str, str]:
        return {f"{task['role']}/{task['index']}": task["state"] for task in self.status(name)["tasks"]}

    def traces(self) -> dict[str, list[str]]:
        """Return what is left on each host: files of this test's jobs, and processes and ports of any job."""
        names = "|".join(self.names)
        look = (
            f"ls /run/systemd/system /run/tfctl/env | "
            f"grep -E '^tfctl(deadline|guard|guardroot|guardnotify)?-({names})[-.@]'; "
            "ps -u tfctl -o pid=,args=; ss -Hltn | awk '{print $4}' | grep -E ':(22[2-9][0-9]|30[0-9][0-9])$'; true"
        )
        return self.everywhere(look)

    def everywhere(self, command: str, hosts: Sequence[str] = ()) -> dict[str, list[str]]:
        """Run a shell command as root on these hosts, by default on all; return the lines that each prints."""
        hosts = hosts or list(self.lab.hosts())
        with ThreadPoolExecutor(len(hosts)) as pool:
            outputs = pool.map(lambda host: self.root(host, command), hosts)
        return {host: text.splitlines() for host, text in zip(hosts, outputs, strict=True)}

    def root(self, host: str, command: str) -> str:
        """Run a shell command on a host as root; return its stdout."""
        return self.lab.shell(host, f"sudo sh -c {shlex.quote(command)}")

    @contextmanager
    def leaving_nothing(self, within: float = 60, but: str = "no such line") -> Iterator[None]:
        """Assert that within these seconds the traces are as before; ``but``: a pattern of lines to ignore."""

        def look() -> dict[str, list[str]]:
            found = self.everywhere(LIST_TRACES)
            return {host: [line for line in lines if not re.search(but, line)] for host, lines in found.items()}

        before = look()
        yield
        now: Mapping[str, list[str]] = {}

        def same() -> bool:
            nonlocal now
            now = look()
            return now == before

        wait_for(same, within, lambda: str({host: sorted({*before[host]} ^ {*now[host]}) for host in before}))

    def assert_nothing_left(self) -> None:
        """Assert that within 60 s nothing of this test's jobs is left on any host."""
        wait_for(lambda: not any(self.traces().values()), 60, lambda: str(self.traces()))

    def clean(self) -> None:
        """Stop all jobs of this test."""
        for name in dict.fromkeys(self.names):
            self("stop", name)


def wait_for(condition: Callable[[], bool], seconds: float, shown: Callable[[], str] = lambda: "") -> None:
    """Wait until the condition holds; fail after these seconds with what ``shown`` returns."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {shown()}"
        time.sleep(0.2)


def lines_of(text: str) -> list[tuple[str, str]]:
    """Parse the output of `tfctl logs` into (task, line)."""
    found = []
    for line in text.splitlines():
        task, _, rest = line.partition(" │ ")
        found.append((task.strip(), rest))
    return found


def lines_of_task(text: str, task: str) -> list[str]:
    """Return the lines of one task in the output of `tfctl logs`."""
    return [line for owner, line in lines_of(text) if owner == task]
