"""A lab without the code of tfctl: the tests read its inventory as text and reach its nodes with plain OpenSSH."""

from __future__ import annotations

import base64
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
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
    """The lab of this name; its inventory is in ``folder``/inventory."""

    name: str
    folder: Path

    @property
    def inventory(self) -> Path:
        return self.folder / "inventory" / f"{self.name}.ini"

    def tfctl(self, *words: object, check: bool = True, timeout: float = 180) -> subprocess.CompletedProcess[str]:
        """Run `tfctl` as a user does; unless ``check`` is False it must succeed."""
        command = [str(TFCTL), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=self.folder)
        assert "Traceback" not in done.stderr, done.stderr
        assert not check or done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def up(self, *words: object) -> str:
        """Run `tfctl lab up`; return its stderr."""
        return self.tfctl("lab", "up", "--name", self.name, *words, timeout=600).stderr

    def down(self) -> None:
        self.tfctl("lab", "down", "--name", self.name)

    def hosts(self) -> dict[str, dict[str, str]]:
        """Return the variables of each host in the inventory, by name."""
        lines = [shlex.split(line) for line in self.inventory.read_text().splitlines() if line.startswith("node")]
        return {name: dict(word.split("=", 1) for word in words) for name, *words in lines}

    def with_addresses(self, text: str, addresses: Mapping[str, str]) -> str:
        """Return a text of the documentation with the lab's addresses in place of those it has for these nodes."""
        hosts = self.hosts()
        assert hosts.keys() >= addresses.keys()
        for node, address in addresses.items():
            text = text.replace(address, hosts[node]["ansible_host"])
        return text

    def ssh(self, node: str, command: str) -> list[str]:
        """Return the ssh command that runs a shell command on a node."""
        variables = self.hosts()[node]
        login = f"{variables['ansible_user']}@{variables['ansible_host']}"
        options = ["-F", "none", "-o", "BatchMode=yes", "-i", variables["ansible_ssh_private_key_file"]]
        return ["ssh", *options, *shlex.split(variables["ansible_ssh_common_args"]), login, command]

    def shell(self, node: str, command: str, timeout: float = 30) -> str:
        """Run a shell command on a node as the user as whom Ansible logs in; return its stdout. It must succeed."""
        done = subprocess.run(self.ssh(node, command), capture_output=True, text=True, timeout=timeout)
        assert done.returncode == 0, f"{node}: {command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def root_script(self, node: str, script: str, timeout: float) -> str:
        """Run a shell script on a node as root, up to the first command that fails; return its stdout."""
        text = base64.b64encode(script.encode()).decode()
        return self.shell(node, f"echo {text} | base64 -d | sudo -n sh -e", timeout)

    def testinfra(self, node: str) -> Host:
        """Return a testinfra host for the node, as root. Its checks share a connection that is closed 10 s later."""
        variables = self.hosts()[node]
        options = ["BatchMode=yes", "ServerAliveInterval=5", f"ControlPath={self.folder}/%h"]
        extra = shlex.join(word for option in options for word in ("-o", option))
        return testinfra.get_host(
            f"ssh://{variables['ansible_user']}@{variables['ansible_host']}",
            sudo=True,
            ssh_config="none",
            ssh_identity_file=variables["ansible_ssh_private_key_file"],
            ssh_extra_args=f"{extra} {variables['ansible_ssh_common_args']}",
            controlpersist=10,
        )

    def inside(self, node: str, command: str) -> str:
        """Run a shell command on a node as root, without the network; return its stdout."""
        nodes = json.loads(self.tfctl("lab", "status", "--name", self.name, "-o", "json").stdout)["nodes"]
        [nspawn] = [each["pid"] for each in nodes if each["name"] == node]
        init = Path(f"/proc/{nspawn}/task/{nspawn}/children").read_text().split()[0]
        enter = ["nsenter", "-t", init, "-m", "-u", "-n", "-p", "sh", "-c", command]
        return subprocess.run(enter, capture_output=True, text=True, timeout=30).stdout.strip()

    @contextmanager
    def without_network(self, node: str) -> Iterator[None]:
        """Disconnect the node from the network during the block."""
        cable = spec.cable(spec.machine_prefix(self.name) + node.removeprefix("node"))
        subprocess.run(["ip", "link", "set", cable, "down"], check=True, timeout=10)
        try:
            yield
        finally:
            subprocess.run(["ip", "link", "set", cable, "up"], check=True, timeout=10)


@contextmanager
def sharing_nothing(name: str, folder: Path, nodes: int) -> Iterator[Lab]:
    """Bare nodes without the directory that the nodes of a lab share, during the block."""
    found = Lab(name, folder)
    found.up("--nodes", nodes)
    try:
        for node in found.hosts():
            found.shell(node, "sudo umount /srv/tfctl && sudo rmdir /srv/tfctl")
        yield found
    finally:
        found.down()
