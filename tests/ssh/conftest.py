"""Servers, networks and a home directory for the ssh tests, made of the parts in tests/fakes/loopback.py."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from loopback import Relay, Sshd, forget_files, serving_loop

from tfctl.model.host import LOCAL, TRANSPORTS, Host, Ssh
from tfctl.remote import ssh_config

# Whoever runs the tests in the background of a shell passes on that SIGINT is ignored; a test sends it to a child.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with serving_loop() as made:
        yield made


@pytest.fixture
def sshd_with(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> Iterator[Callable[..., Sshd]]:
    """Return a function that starts servers: ``sshd_with(name, **options of asyncssh.listen)``."""
    made: list[Sshd] = []

    def make(name: str = "sshd", **options: Any) -> Sshd:
        made.append(Sshd(loop, tmp_path / name, **options))
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture
def sshd(sshd_with: Callable[..., Sshd]) -> Sshd:
    return sshd_with()


@pytest.fixture
def relay(sshd: Sshd) -> Iterator[Relay]:
    with contextlib.closing(Relay(sshd.port)) as made:
        yield made


@pytest.fixture
def bastion(sshd_with: Callable[..., Sshd], tmp_path: Path) -> tuple[Sshd, tuple[str, ...]]:
    """Return a jump host, and the arguments that name an ssh_config with its settings."""
    server = sshd_with("bastion")
    (tmp_path / "config").write_text(
        f"Host bastion\n  HostName 127.0.0.1\n  Port {server.port}\n  User jumper\n  IdentityFile {server.key_file}\n"
        f"  UserKnownHostsFile {server.known_hosts}\n"
    )
    return server, ("-F", str(tmp_path / "config"))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test an empty home directory and no agent. `ssh -G` ignores $HOME, so tests that run it pass -F."""
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True)
    entry = [*pwd.getpwuid(os.getuid())]
    entry[5] = str(folder)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: pwd.struct_passwd(entry))
    monkeypatch.setattr(ssh_config, "SYSTEM_CONFIG", folder / "ssh_config")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    forget_files()
    return folder


@pytest.fixture(params=[*TRANSPORTS, LOCAL])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, sshd: Sshd) -> Host:
    """Run the test once with each transport: with the server as a host, and with this machine."""
    if request.param == LOCAL:
        return Host("node1", Ssh("node1", transport=LOCAL))
    monkeypatch.setenv("TFCTL_SSH", str(request.param))
    return sshd.host()


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the test once with each transport."""
    name = str(request.param)
    monkeypatch.setenv("TFCTL_SSH", name)
    return name
