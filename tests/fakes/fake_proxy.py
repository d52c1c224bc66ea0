"""A proxy in front of the node part that breaks a session at one message: `fake_proxy.py MODE SIDE KIND FILE COMMAND…`.

It runs the command and forwards what the client and the command send, until SIDE (client or node) sends a message of
this kind or a request with this verb. Then it writes "reached" to the file. What happens next depends on MODE:

hold   The message is forwarded when the file has been deleted. If there is no file, nothing is held.
stall  Neither the message nor anything after it from this side is forwarded, except the end of the client's input.
lose   The message is lost, the command's input ends, and the exit status is 127. Only for messages of the client.
strip  KIND is the name of a field, which is removed from all messages and requests. Nothing is written to the file.

The code of a job is forwarded in two halves. They count as messages of the kinds code-1 and code-2.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple


class Fault(NamedTuple):
    """What happens, and at which message."""

    mode: str
    side: str
    kind: str
    file: Path


def messages(source: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield the kind and the bytes of each message. The kind of a line that is no message is empty."""
    for line in source:
        kind, value = _parse(line)
        yield kind, line
        if kind == "code":
            half = value["size"] // 2
            yield "code-1", source.read(half)
            yield "code-2", source.read(value["size"] - half)


def forward(source: IO[bytes], sink: IO[bytes], fault: Fault | None) -> bool:
    """Forward messages to the end of ``source``. Return False if the fault has lost one."""
    stalled = False
    for kind, data in messages(source):
        if fault and fault.mode == "strip":
            data = _without(data, fault.kind)
        elif fault and kind == fault.kind:
            if fault.mode == "hold":
                _hold(fault.file)
            else:
                fault.file.write_text("reached")
                stalled = True
            if fault.mode == "lose":
                return False
        if not stalled:
            sink.write(data)
            sink.flush()
    return True


def main(fault: Fault, command: list[str]) -> int:
    node = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert node.stdin and node.stdout
    lost = threading.Event()

    def from_client(node_input: IO[bytes]) -> None:
        with contextlib.suppress(OSError), node_input:
            if not forward(sys.stdin.buffer, node_input, fault if fault.side == "client" else None):
                lost.set()

    # The node part may end before its client closes the input.
    threading.Thread(target=from_client, args=(node.stdin,), daemon=True).start()
    with contextlib.suppress(OSError), node.stdout:
        forward(node.stdout, sys.stdout.buffer, fault if fault.side == "node" else None)
    status = node.wait()
    if lost.is_set():
        return 127
    return status if status >= 0 else 128 - status


def _without(data: bytes, field: str) -> bytes:
    try:
        found = json.loads(data)
    except ValueError:
        return data
    for each in (found, *found.values()) if isinstance(found, dict) else ():
        if isinstance(each, dict):
            each.pop(field, None)
    return json.dumps(found).encode() + b"\n"


def _hold(file: Path) -> None:
    with contextlib.suppress(FileNotFoundError), file.open("r+") as existing:
        existing.write("reached")
    while file.exists():
        time.sleep(0.02)


def _parse(line: bytes) -> tuple[str, Any]:
    """Return the verb of a request or the kind of a message, with its value."""
    try:
        found = json.loads(line)
    except ValueError:
        return "", None
    if not isinstance(found, dict):
        return "", None
    kind = str(found.get("verb") or next(iter(found), ""))
    return kind, found.get(kind)


_mode, _side, _kind, _file, *_command = sys.argv[1:]
# The thread that reads the client's input may be blocked: do not wait for it.
os._exit(main(Fault(_mode, _side, _kind, Path(_file)), _command))
