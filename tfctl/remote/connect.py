"""A connection to a host: first the way there, then ssh over it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tfctl.model.host import Host
from tfctl.remote.dial import dial
from tfctl.remote.target import resolve

if TYPE_CHECKING:
    from tfctl.remote.ssh import Connection


def connect(host: Host) -> Connection:
    """A connection to ``host``: reached, its key verified, logged in, within 10 s or its own ConnectTimeout.

    Raises Unreachable, and BadFile for ssh arguments or an ssh_config that ssh refuses.
    """
    target = resolve(host)
    end = time.monotonic() + target.limit
    way = dial(target, end)
    # Not before: paramiko takes as long to import as an sshd takes to begin a session.
    from tfctl.remote.ssh import enter

    return enter(host, target, way, end)
