"""The program behind `/usr/local/sbin/tfctl-node`: read requests from stdin, answer on stdout (tfctl.node.wire).

With arguments, which sudoers does not allow, systemd runs it at the deadline of a task (tfctl.node.verbs.deadline).

On a node this directory is /usr/local/lib/tfctl/DIGEST/tfctl_node; /usr/local/lib/tfctl/current links to DIGEST:

    bin/tfctl-node   as /usr/local/sbin/tfctl-node                              root 0755
    bin/end          as /usr/local/lib/tfctl/DIGEST/end                         root 0755
    bin/note         as /usr/local/lib/tfctl/DIGEST/note                        root 0755
    10-tfctl.conf    as /etc/systemd/system/tfctl-.service.d/10-tfctl.conf      root 0644, then daemon-reload

The verbs are the keys of wire.REQUESTS. Each is the module of that name in tfctl.node.verbs, imported on request,
because imports are most of what a short verb costs.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, Callable

from . import names, wire
from .exits import Exit
from .session import Gone, NodeSession, NotDone, RequestRefused
from .system import PROVISION, System, host

_ENVIRONMENT = {
    "PATH": names.PATH,
    "LANG": "C.UTF-8",
    "SYSTEMD_COLORS": "0",
}


class Terminated(BaseException):
    """A signal asked the process to end. Unfinished work is undone as this propagates."""


def main(system: System = System(), words: Sequence[str] = ()) -> int:  # noqa: B008  a value
    """Serve a session and return the exit status: 0, or 1 if a request was not carried out or if the client is gone.

    ``words``: the arguments, if systemd and not a client has started the program.
    """
    if not words:
        return serve(system, os.environ.get("SUDO_USER"))
    _prepare(None)
    try:
        return _obey(system, words)
    except Terminated:
        return 1


def serve(system: System, caller: str | None, allow: Callable[[wire.Request], object] = lambda _: None) -> int:
    """Serve requests from stdin, usually one, and return the exit status. ``caller``: for whom.

    ``allow`` may raise RequestRefused.
    """
    _prepare(caller)
    try:
        return _serve(system, NodeSession(silence=system.silence), allow)
    except (Gone, NotDone, Terminated):
        return 1


def _prepare(caller: str | None) -> None:
    os.environ.clear()
    os.environ.update({**_ENVIRONMENT, **({"SUDO_USER": caller} if caller else {})})
    os.chdir("/")
    os.umask(0o022)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _terminate)


def _obey(system: System, words: Sequence[str]) -> int:
    """End a task at its deadline. Errors are for the journal."""
    from .verbs import deadline

    verb, *rest = words
    if verb != "deadline" or len(rest) != 4:
        print("usage: tfctl-node [deadline JOB RUN ROLE INDEX]", file=sys.stderr)
        return 1
    try:
        deadline.run(system, rest)
    except (RequestRefused, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _serve(system: System, session: NodeSession, allow: Callable[[wire.Request], object]) -> int:
    """Hold one session. Report any failure to the client as an error."""
    try:
        line: dict[str, Any] | None = session.request()
        while line is not None:
            verb, request = _request(line)
            allow(request)
            importlib.import_module(f".verbs.{verb}", __package__).run(system, session, request)
            line = _next(session) if line.get("more") is True else None
    except RequestRefused as refused:
        session.send(refused.error)
    except (Gone, NotDone):
        raise
    except Exception as error:
        _log_traceback(error)
        session.send(_internal(error))
    else:
        return 0
    return 1


def _next(session: NodeSession) -> dict[str, Any] | None:
    """Return the next request, or None if the client has no more. Raises RequestRefused."""
    try:
        return session.request()
    except Gone:
        return None


def _request(line: dict[str, Any]) -> tuple[str, wire.Request]:
    theirs, verb = line.get("protocol"), line.get("verb")
    if theirs != wire.PROTOCOL:
        what = f"{host()} uses protocol {wire.PROTOCOL} of tfctl's node part, this tfctl uses {theirs!r:.20}"
        raise RequestRefused(Exit.PREFLIGHT, what, PROVISION)
    if not isinstance(verb, str) or verb not in wire.REQUESTS:
        raise RequestRefused(
            Exit.PREFLIGHT, f"the node part of {host()} does not have the verb {verb!r:.40}", PROVISION
        )
    try:
        return verb, wire.decode(wire.REQUESTS[verb], line)
    except wire.Malformed as error:
        raise RequestRefused(Exit.USAGE, f"the request is malformed: {error}") from None


def _internal(error: Exception) -> wire.Error:
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    where = f" ({trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno})" if trace else ""
    message = f"tfctl's node part failed on {host()}: {type(error).__name__}: {error}{where}"
    return wire.Error(Exit.FAILED, message, "see the traceback there: journalctl -t tfctl-node")


def _log_traceback(error: BaseException) -> None:
    import syslog
    import traceback

    syslog.openlog("tfctl-node")
    for line in "".join(traceback.format_exception(type(error), error, error.__traceback__)).splitlines():
        syslog.syslog(syslog.LOG_ERR, line)


def _terminate(number: int, _frame: object) -> None:
    raise Terminated(number)


if __name__ == "__main__":
    sys.exit(main())
