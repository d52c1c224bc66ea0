"""Three hosts for the suite; fresh trees, and so hosts that know no job, for each test or module."""

from __future__ import annotations

import os
import pwd
import signal
from collections.abc import Iterator, Sequence

import pytest
from loopback import Sshd, forget_files, serving_loop

from tests.cluster.hosts import Hosts
from tfctl.remote import ssh_config

# Whoever runs the tests in the background of a shell passes on that SIGINT is ignored; tests send it to clients.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[Sshd]]:
    folder = tmp_path_factory.mktemp("cluster")
    with serving_loop() as loop:
        made = [Sshd(loop, folder / f"sshd{number}") for number in (1, 2, 3)]
        # Written once: to read a new one takes Ansible half a second.
        Hosts(made, folder).write_inventory()
        yield made
        for server in made:
            server.close()


@pytest.fixture(scope="module")
def module_hosts(servers: Sequence[Sshd]) -> Iterator[Hosts]:
    """Hosts for a whole module, whose tests then must not use ``hosts``."""
    yield from _hosts(servers)


@pytest.fixture
def hosts(servers: Sequence[Sshd]) -> Iterator[Hosts]:
    yield from _hosts(servers)


@pytest.fixture
def guarded(hosts: Hosts) -> Iterator[Hosts]:
    """Hosts that run guards. These listen on this machine, so each process of the tests has ports of its own."""
    first = 23500 + 50 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    text = hosts.inventory.read_text()
    hosts.inventory.write_text(text.replace("tfctl_ports=23400-23499", f"tfctl_ports={first}-{first + 49}"))
    for tree in hosts.trees.values():
        (tree / "guards").touch()
    yield hosts
    hosts.inventory.write_text(text)
    for name, tree in hosts.trees.items():
        for log in tree.path.glob("*.log"):
            print(name, log.name, log.read_text())


def _hosts(servers: Sequence[Sshd]) -> Iterator[Hosts]:
    """Yield the hosts. tfctl runs in an empty home directory without ssh_config and agent; the cache is the suite's."""
    home = servers[0].folder.parent
    entry = [*pwd.getpwuid(os.getuid())]
    entry[5] = str(home)
    with pytest.MonkeyPatch.context() as patch, Hosts(servers, home) as made:
        patch.setattr(pwd, "getpwuid", lambda _: pwd.struct_passwd(entry))
        patch.setattr(ssh_config, "SYSTEM_CONFIG", home / "ssh_config")
        for name in [name for name in os.environ if name.startswith(("XDG_", "ANSIBLE_", "SSH_"))]:
            patch.delenv(name)
        patch.setenv("HOME", str(home))
        patch.chdir(home)
        forget_files()
        yield made
        for server in servers:
            server.end_sessions()
