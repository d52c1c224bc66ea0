"""Jobs of plain Python and shell on a provisioned lab, started as a user starts them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labs import TFCTL, Lab

#: What a job could leave on a host: files, units, mounts, ports, processes. A login's own come and go; tfctl.slice
#: stays, empty.
LOOK = r"""
find /run/tfctl /run/systemd/system /run/systemd/transient /etc/systemd/system /var/lib/tfctl /srv/tfctl \
    -not -path '*/__pycache__*' -not -name 'session-*' -not -path /run/tfctl/lock | sort
systemctl list-units --all --plain --no-legend --type=service,slice,timer,mount,socket,scope |
    awk '{print $1, $2, $3}' | grep -Ev '^(user|session|run-user)|^systemd-|^run-credentials|^tfctl.slice' | sort
grep -Ev ' /run/(user|credentials)/' /proc/mounts | cut -d' ' -f2,3 | sort
ss -ltnH | awk '{print $4}' | sort
ps -e -o user=,args= | grep -Ev '^ops|ssh|sd-pam|systemd|ps -e|sudo|sort|grep|awk|sh -c|kworker' | sort
"""


@dataclass
class Jobs:
    """Job files in ``folder``, and tfctl run there with the lab's inventory, or another; ``names`` are stopped at the
    end."""

    lab: Lab
    folder: Path
    names: list[str] = field(default_factory=list)
    inventory: Path | None = None

    def file(self, name: str, text: str) -> Path:
        """A job file of that name in a folder of its own; strategy custom and stack none unless the text says."""
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
        """tfctl, to its end, whatever its exit code."""
        done = subprocess.run(
            self.command(*words), capture_output=True, text=True, timeout=timeout, cwd=self.folder,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        assert "defect" not in done.stderr, done.stderr
        return done

    def ok(self, *words: object, timeout: float = 90) -> str:
        """Its stdout; it must succeed."""
        done = self(*words, timeout=timeout)
        assert done.returncode == 0, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def begin(self, *words: object) -> subprocess.Popen[str]:
        """tfctl, left running."""
        return subprocess.Popen(
            self.command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def begin_patched(self, patch: str, *words: object) -> subprocess.Popen[str]:
        """tfctl with some of its own lines replaced first: how a test reaches the moment between two of its steps."""
        script = (
            f"import os, signal, sys, time\nfrom tfctl.jobs import start, talks\n{textwrap.dedent(patch)}\n"
            f"sys.argv = {['tfctl', *self.words(*words)]!r}\nfrom tfctl.cli.main import main\nmain()"
        )
        return subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def command(self, *words: object) -> list[str]:
        return [str(TFCTL), *self.words(*words)]

    def words(self, *words: object) -> list[str]:
        return [*map(str, words), "-i", str(self.inventory or self.lab.inventory)]

    def told(self, host: str, **variables: object) -> Jobs:
        """The same, with an inventory that says other things of a host."""
        path = self.folder / f"{host}.ini"
        more = "".join(f" {name}={shlex.quote(str(value))}" for name, value in variables.items())
        path.write_text(re.sub(rf"^({host} .*)$", rf"\1{more}", self.lab.inventory.read_text(), flags=re.MULTILINE))
        return Jobs(self.lab, self.folder, self.names, path)

    def status(self, name: str) -> dict[str, Any]:
        return dict(json.loads(self.ok("status", name, "-o", "json")))

    def states(self, name: str) -> dict[str, str]:
        return {f"{task['role']}/{task['index']}": task["state"] for task in self.status(name)["tasks"]}

    def traces(self) -> dict[str, list[str]]:
        """What this test's jobs have left on each host: units, environment files; and any process and port of a job."""
        names = "|".join(self.names)
        look = (
            f"ls /run/systemd/system /run/tfctl/env | grep -E '^tfctl-({names})-'; ps -u tfctl -o pid=,args=; "
            "ss -Hltn | awk '{print $4}' | grep -E ':(22[2-9][0-9]|30[0-9][0-9])$'; true"
        )
        return self.everywhere(look)

    def everywhere(self, command: str) -> dict[str, list[str]]:
        """The lines that a shell line prints on each host, as root."""
        hosts = list(self.lab.hosts())
        with ThreadPoolExecutor(len(hosts)) as pool:
            said = pool.map(lambda host: self.root(host, command), hosts)
        return {host: text.splitlines() for host, text in zip(hosts, said, strict=True)}

    def root(self, host: str, command: str) -> str:
        """What a shell line prints there, as root."""
        return self.lab.said(host, f"sudo sh -c {shlex.quote(command)}")

    @contextmanager
    def leaving_nothing(self, within: float = 60, but: str = "no such line") -> Iterator[None]:
        """All of LOOK is afterwards as it was before, within so many seconds; ``but`` matches what does not count."""

        def look() -> dict[str, list[str]]:
            found = self.everywhere(LOOK)
            return {host: [line for line in lines if not re.search(but, line)] for host, lines in found.items()}

        before = look()
        yield
        now: Mapping[str, list[str]] = {}

        def same() -> bool:
            nonlocal now
            now = look()
            return now == before

        wait_for(same, within, lambda: str({host: sorted({*before[host]} ^ {*now[host]}) for host in before}))

    def untouched(self) -> None:
        """Nothing of this test's jobs runs or waits on any host, within 60 s."""
        wait_for(lambda: not any(self.traces().values()), 60, lambda: str(self.traces()))

    def clean(self) -> None:
        for name in dict.fromkeys(self.names):
            self("stop", name)


def wait_for(true: Callable[[], bool], seconds: float, shown: Callable[[], str] = lambda: "") -> None:
    """Until it is; fails after so long."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds} s: {shown()}"
        time.sleep(0.2)


def lines_of(text: str) -> list[tuple[str, str]]:
    """`tfctl logs` as (task, line)."""
    found = []
    for line in text.splitlines():
        task, _, rest = line.partition(" │ ")
        found.append((task.strip(), rest))
    return found


def said_by(text: str, task: str) -> list[str]:
    return [line for who, line in lines_of(text) if who == task]
