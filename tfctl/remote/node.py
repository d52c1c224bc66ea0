"""The client's side of a conversation with `tfctl-node` on one host (tfctl.node.wire)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tfctl.errors import Exit, PreflightFailed, TfctlError, Unreachable, of_exit
from tfctl.node import names, wire

if TYPE_CHECKING:
    from tfctl.remote.channel import Channel
    from tfctl.remote.ssh import Connection

#: Seconds to wait for the process to exit after its last output.
_END_S = 10.0
_REMEDY = "tfctl provision INVENTORY --tags job_host"


def open_node(connection: Connection, request: bytes) -> NodeChannel:
    """Start `tfctl-node` on the host as root and send it ``request`` (from wire.request). Raises Unreachable."""
    words = [names.PROGRAM] if connection.is_root else ["sudo", "-n", names.PROGRAM]
    node = NodeChannel(connection.exec(words))
    node.send_raw(request)
    return node


def as_error(host: str, error: dict[str, Any]) -> TfctlError:
    """Convert an ERROR of tfctl.node.wire from ``host`` to a TfctlError."""
    code = error.get("exit", Exit.FAILED)
    remedy = _of_a_stack(error.get("stack")) or error.get("remedy", "") or (_REMEDY if code == Exit.PREFLIGHT else "")
    return of_exit(code, f"{host}: {error.get('message', 'no reason given')}", remedy)


def _of_a_stack(name: str | None) -> str:
    """Return the remedy for a missing stack that tfctl does not ship, else "". A site may have stacks of its own."""
    if name is None:
        return ""
    from tfctl.model import stacks  # slow to import, for it needs pydantic

    if name in stacks.load():
        return ""
    return f"tfctl ships no stack {name}: {stacks.others(name)}"


class NodeChannel:
    """A conversation, returned by `open_node`. A context manager; one thread may receive while others send.

    All methods raise Unreachable if the connection broke, and PreflightFailed if tfctl's part is missing on the host,
    may not be run, or speaks another protocol.
    """

    def __init__(self, channel: Channel) -> None:
        self.host = channel.host
        self._channel = channel
        self._heard = False

    def __enter__(self) -> NodeChannel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, kind: str, value: Any) -> None:
        self._channel.send(wire.line(kind, value))

    def send_raw(self, data: bytes) -> None:
        self._channel.send(data)

    @property
    def ended(self) -> bool:
        """Whether the node has ended or is known to be unreachable."""
        return self._channel.ended

    def beat(self) -> None:
        """Send a sign of life, unless another thread is sending, which is one too."""
        self._channel.send_if_idle(wire.line("beat", {}))

    def receive(self, timeout: float) -> tuple[str, Any]:
        """Return the kind and value of the next message other than a beat. Each beat restarts ``timeout`` (seconds).

        Raises the node's ERROR as a TfctlError (`as_error`), and Unreachable on timeout.
        """
        while True:
            try:
                line = self._channel.readline(timeout)
            except TimeoutError:
                raise Unreachable(
                    f"{self.host}: tfctl-node has said nothing for {timeout:g} s",
                    "the machine may be overloaded, or a file system there hangs",
                ) from None
            if not line.endswith(b"\n"):
                raise self._ended(line)
            kind, value = self._parsed(line)
            if kind == "error":
                raise as_error(self.host, value)
            if kind != "beat":
                return kind, value

    def lines(self) -> Iterator[bytes]:
        """Yield each further line with its newline as it arrives, until the node ends. Only complete lines.

        Raises TfctlError if the output ends within a line or the exit status is not 0.
        """
        while (line := self._channel.readline(None)).endswith(b"\n"):
            yield line
        if line or self.wait() != 0:
            raise self._ended(line)

    def close_stdin(self) -> None:
        """Close the node's stdin: nothing more will be sent."""
        self._channel.close_stdin()

    def wait(self) -> int:
        """Return the exit status of the node program, after its last output."""
        try:
            return self._channel.wait(_END_S)
        except TimeoutError:
            raise Unreachable(f"{self.host}: tfctl-node does not exit", "try again") from None

    def close(self) -> None:
        """Close the channel: the node reads end of file."""
        self._channel.close()

    def _parsed(self, line: bytes) -> tuple[str, Any]:
        try:
            kind, value = wire.parse(line)
        except ValueError:
            said = line[:200].decode(errors="replace").strip()
            raise PreflightFailed(f"{self.host}: this is not a message of tfctl-node: {said!r}", _REMEDY) from None
        self._heard = True
        return kind, value

    def _ended(self, rest: bytes) -> TfctlError:
        """Return the error that explains why the node ended."""
        status = self.wait()
        said = f"{self._channel.stderr()}\n{rest.decode(errors='replace')}".strip()
        if not self._heard and (refusal := _not_run(self.host, said, status)):
            return refusal
        last = (said.splitlines() or ["it said nothing"])[-1]
        return TfctlError(
            f"{self.host}: tfctl-node ended with status {status}: {last}", "`journalctl -e` there says more"
        )


def _not_run(host: str, said: str, status: int) -> PreflightFailed | None:
    """Return the reason why the program did not run, from the output of sudo or the shell, or None if it did run.
    sudo's messages are in the host's language but start with its name."""
    missing = r"sudo: (command )?not found|tfctl-node: (command )?not found|No such file or directory"
    for line in reversed(said.splitlines()):
        if "unable to resolve host" in line:
            continue
        if re.search(r"sudo: (command )?not found", line) and "tfctl-node" not in line:
            return PreflightFailed(f"{host}: sudo is not installed", "install it there: apt install sudo")
        if re.search(missing, line):
            return PreflightFailed(f"{host}: tfctl's part ({names.PROGRAM}) is not installed", _REMEDY)
        if line.startswith("sudo: ") or re.search(r"not allowed to execute|may not run sudo|not in the sudoers", line):
            what = line.removeprefix("sudo: ")
            return PreflightFailed(f"{host}: sudo does not let this user run {names.PROGRAM}: {what}", _REMEDY)
    if status in (126, 127):
        return PreflightFailed(f"{host}: {names.PROGRAM} cannot be run", _REMEDY)
    return None
