"""A lab seen through eyes that are not tfctl's: its inventory read as text, plain OpenSSH to its nodes."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import testinfra
from testinfra.host import Host

from tfctl.lab import spec

TFCTL = Path(sys.executable).with_name("tfctl")
LABS = Path("/var/lib/tfctl-lab/labs")


@dataclass(frozen=True)
class Lab:
    """A lab by its name; its inventory is in ``folder``/inventory."""

    name: str
    folder: Path

    @property
    def inventory(self) -> Path:
        return self.folder / "inventory" / f"{self.name}.ini"

    def tfctl(self, *words: object, check: bool = True, timeout: float = 180) -> subprocess.CompletedProcess[str]:
        """`tfctl` as a user runs it."""
        command = [str(TFCTL), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=self.folder)
        assert "Traceback" not in done.stderr, done.stderr
        assert not check or done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def up(self, *words: object) -> str:
        """What it says."""
        return self.tfctl("lab", "up", "--name", self.name, *words, timeout=600).stderr

    def down(self) -> None:
        self.tfctl("lab", "down", "--name", self.name)

    def hosts(self) -> dict[str, dict[str, str]]:
        """The variables of each host's line, by its name."""
        lines = [shlex.split(line) for line in self.inventory.read_text().splitlines() if line.startswith("node")]
        return {name: dict(word.split("=", 1) for word in words) for name, *words in lines}

    def ssh(self, node: str, command: str) -> list[str]:
        told = self.hosts()[node]
        return [
            "ssh", "-F", "none", "-o", "BatchMode=yes", "-i", told["ansible_ssh_private_key_file"],
            *shlex.split(told["ansible_ssh_common_args"]), f"{told['ansible_user']}@{told['ansible_host']}", command,
        ]  # fmt: skip

    def said(self, node: str, command: str, timeout: float = 30) -> str:
        """What a shell line prints there, as the user that Ansible logs in as."""
        done = subprocess.run(self.ssh(node, command), capture_output=True, text=True, timeout=timeout)
        assert done.returncode == 0, f"{node}: {command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def testinfra(self, node: str) -> Host:
        """The node as root sees it. All looks share one connection, which closes some seconds after the last."""
        told = self.hosts()[node]
        options = ["BatchMode=yes", "ServerAliveInterval=5", f"ControlPath={self.folder}/%h"]
        extra = shlex.join(word for option in options for word in ("-o", option))
        return testinfra.get_host(
            f"ssh://{told['ansible_user']}@{told['ansible_host']}",
            sudo=True,
            ssh_config="none",
            ssh_identity_file=told["ansible_ssh_private_key_file"],
            ssh_extra_args=f"{extra} {told['ansible_ssh_common_args']}",
            controlpersist=10,
        )

    def inside(self, node: str, command: str) -> str:
        """What a shell line prints there, as root, without any network."""
        nodes = json.loads(self.tfctl("lab", "status", "--name", self.name, "-o", "json").stdout)["nodes"]
        [nspawn] = [each["pid"] for each in nodes if each["name"] == node]
        init = Path(f"/proc/{nspawn}/task/{nspawn}/children").read_text().split()[0]
        enter = ["nsenter", "-t", init, "-m", "-u", "-n", "-p", "sh", "-c", command]
        return subprocess.run(enter, capture_output=True, text=True, timeout=30).stdout.strip()

    @contextmanager
    def unplugged(self, node: str) -> Iterator[None]:
        """The node's network cable hangs loose."""
        cable = spec.cable(spec.machine_prefix(self.name) + node.removeprefix("node"))
        subprocess.run(["ip", "link", "set", cable, "down"], check=True, timeout=10)
        try:
            yield
        finally:
            subprocess.run(["ip", "link", "set", cable, "up"], check=True, timeout=10)
