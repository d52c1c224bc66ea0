"""tests/fakes/fake_proxy.py in front of the node part of lab hosts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.lab.jobs import Jobs
from tfctl.node import names

SOURCE = Path(__file__).parents[1] / "fakes/fake_proxy.py"
#: On a host: the proxy, the node part that it runs, and the file in which it writes that the message has arrived.
FOLDER = "/root/proxy"
NODE_PART = f"{FOLDER}/tfctl-node"
FILE = f"{FOLDER}/message"


@dataclass(frozen=True)
class Proxy:
    """The proxies of these hosts."""

    jobs: Jobs
    hosts: Sequence[str]

    def reached(self) -> bool:
        """Return whether the message has arrived on all of the hosts."""
        return all(lines == ["reached"] for lines in self.jobs.everywhere(f"cat {FILE}", self.hosts).values())

    def release(self) -> None:
        """Forward the held message on all of the hosts, also on those without a network."""
        for host in self.hosts:
            self.jobs.lab.inside(host, f"rm {FILE}")


@contextmanager
def proxied(
    jobs: Jobs, mode: Literal["hold", "stall"], side: Literal["client", "node"], kind: str, hosts: Sequence[str]
) -> Iterator[Proxy]:
    """Hold one message of every session with these hosts, or stall the session there, during the block."""
    words = ["/usr/bin/python3", "-IS", f"{FOLDER}/proxy.py", mode, side, kind, FILE, NODE_PART]
    install = (
        f"mkdir {FOLDER} && printf %s {shlex.quote(SOURCE.read_text())} > {FOLDER}/proxy.py && touch {FILE} && "
        f"mv {names.PROGRAM} {NODE_PART} && printf '#!/bin/sh\\nexec {shlex.join(words)}\\n' > {names.PROGRAM} && "
        f"chmod 755 {names.PROGRAM}"
    )
    try:
        jobs.everywhere(install, hosts)
        yield Proxy(jobs, hosts)
    finally:
        jobs.everywhere(f"! test -e {NODE_PART} || mv {NODE_PART} {names.PROGRAM}; rm -rf {FOLDER}", hosts)
