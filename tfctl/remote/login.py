"""The command that logs a person in to a host, by the system's `ssh`."""

from __future__ import annotations

import os

from tfctl.model.host import Host
from tfctl.remote.ssh_config import login_options


def words(host: Host) -> list[str]:
    """Return the command: the host's settings in the inventory come before those in ssh_config(5).

    The host's key is always checked. Unlike tfctl's own connections, it may ask for a password. On a local host, the
    command is a shell.
    """
    if host.is_local:
        return [os.environ.get("SHELL") or "/bin/sh"]
    options = ["StrictHostKeyChecking=yes", *login_options(host.ssh)]
    return ["ssh", *(word for option in options for word in ("-o", option)), *host.ssh.args, "--", host.ssh.host]
