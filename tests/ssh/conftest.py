"""Servers, networks and a home folder for the ssh tests; loopback.py has what they are made of."""

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
from loopback import Relay, Sshd, serving_loop

from tfctl.remote import target

# Whoever runs the tests in the background of a shell passes on that SIGINT is ignored; a test sends it to a child.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with serving_loop() as made:
        yield made


@pytest.fixture
def sshd_with(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> Iterator[Callable[..., Sshd]]:
    """Makes servers: ``sshd_with(name, **options of asyncssh.listen)``."""
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


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, without agent, keys and ssh_config; for `ssh -G`, which takes no word for it, give -F."""
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True)
    entry = [*pwd.getpwuid(os.getuid())]
    entry[5] = str(folder)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: pwd.struct_passwd(entry))
    monkeypatch.setattr(target, "SYSTEM_CONFIG", folder / "ssh_config")
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return folder
