"""A fake host that Ansible inspects: a fresh Debian 12, on which the module facts finds no fault.

The module is received but not run, because real hosts run it at the same time, on other machines.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

from tests.unit.provision.fresh_host import HOST

_BECOME = re.compile(r"echo (BECOME-SUCCESS-\w+) ; \S*python")


def mark_of(command: str) -> str:
    """Return the line that Ansible waits for before it sends a module, or "" if the command runs no module."""
    found = _BECOME.search(command)
    return found[1] if found else ""


class Inspection:
    """A session in which Ansible sends a module. ``send`` sends bytes to the client, and ``end`` ends the session."""

    def __init__(self, host: str, mark: str, send: Callable[[bytes], None], end: Callable[[int], None]) -> None:
        self._host, self._send, self._end = host, send, end
        self._begun = time.time()
        self._send(f"{mark}\n".encode())

    def received(self) -> None:
        """Answer, once the whole module has been received."""
        clock = {"begun": self._begun, "ended": time.time()}
        identity = dict.fromkeys(("hostname", "machine_id", "boot_id"), self._host)
        seen = {**HOST, "identity": identity, "addresses": [], "receipts": [], "clock": clock}
        self._send(json.dumps({"changed": False, "seen": seen}).encode() + b"\n")
        self._end(0)
