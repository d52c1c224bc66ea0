"""A conversation with `tfctl-node` on one host, in the words of tfctl.node.wire."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tfctl.errors import Exit, PreflightFailed, TfctlError, Unreachable, of_exit
from tfctl.node import names, wire

if TYPE_CHECKING:
    from tfctl.remote.channel import Channel
    from tfctl.remote.ssh import Connection

#: Seconds for a process that has said its last to end.
_END_S = 10.0
_REMEDY = "tfctl provision INVENTORY --tags job_host"


def open_node(connection: Connection, request: bytes) -> NodeChannel:
    """Start `tfctl-node` there, as root, and send it ``request`` (of wire.request). Raises Unreachable."""
    words = [names.PROGRAM] if connection.is_root else ["sudo", "-n", names.PROGRAM]
    node = NodeChannel(connection.exec(words))
    node.send_raw(request)
    return node


def as_error(host: str, error: dict[str, Any]) -> TfctlError:
    """The TfctlError that a wire.ERROR of ``host`` means."""
    code = error.get("exit", Exit.FAILED)
    remedy = _of_a_stack(error.get("stack")) or error.get("remedy", "") or (_REMEDY if code == Exit.PREFLIGHT else "")
    return of_exit(code, f"{host}: {error.get('message', 'no reason given')}", remedy)


def _of_a_stack(name: str | None) -> str:
    """What helps where a stack is missing that tfctl does not ship; a site may have its own."""
    if name is None:
        return ""
    from tfctl.model import stacks  # which takes pydantic

    if name in stacks.load():
        return ""
    return f"tfctl ships no stack {name}: {stacks.others(name)}"


class NodeChannel:
    """Made by open_node; also a context manager. One thread may receive while others send.

    All raise Unreachable where the connection broke, and PreflightFailed where tfctl's part is missing on the host,
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
        """Whether the node has ended, or is known to be out of reach."""
        return self._channel.ended

    def beat(self) -> None:
        """A sign of life; not while something is being sent, which is one."""
        self._channel.send_if_idle(wire.line("beat", {}))

    def receive(self, timeout: float) -> tuple[str, Any]:
        """Kind and value of the next message that is no beat; a beat ends the silence that ``timeout`` (s) limits.

        Raises the TfctlError that the node answers with (`as_error`), and Unreachable for silence.
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
        """What follows, line by line with its newline, as it comes, until the node ends; whole lines alone.

        Raises TfctlError where it ends in mid-line, or with another exit status than 0.
        """
        while (line := self._channel.readline(None)).endswith(b"\n"):
            yield line
        if line or self.wait() != 0:
            raise self._ended(line)

    def close_stdin(self) -> None:
        """Nothing more will be sent."""
        self._channel.close_stdin()

    def wait(self) -> int:
        """The exit status of the node program, once it has said its last."""
        try:
            return self._channel.wait(_END_S)
        except TimeoutError:
            raise Unreachable(f"{self.host}: tfctl-node does not exit", "try again") from None

    def close(self) -> None:
        """Hang up: the node reads end of file."""
        self._channel.close()

    def _parsed(self, line: bytes) -> tuple[str, Any]:
        try:
            kind, value = wire.parse(line)
        except ValueError:
            said = line[:200].decode(errors="replace").strip()
            raise PreflightFailed(f"{self.host}: this is no message of tfctl-node: {said!r}", _REMEDY) from None
        self._heard = True
        return kind, value

    def _ended(self, rest: bytes) -> TfctlError:
        """Why it said no more."""
        status = self.wait()
        said = f"{self._channel.stderr()}\n{rest.decode(errors='replace')}".strip()
        if not self._heard and (refusal := _not_run(self.host, said, status)):
            return refusal
        last = (said.splitlines() or ["it said nothing"])[-1]
        return TfctlError(
            f"{self.host}: tfctl-node ended with status {status}: {last}", "`journalctl -e` there says more"
        )


def _not_run(host: str, said: str, status: int) -> PreflightFailed | None:
    """Why nothing ran, from what sudo or the shell said; None: something did. sudo speaks the host's language, but
    names itself first."""
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
