"""The program behind `/usr/local/sbin/tfctl-node`: read one request from stdin, answer on stdout (tfctl.node.wire).

On a node this directory is /usr/local/lib/tfctl/DIGEST/tfctl_node; /usr/local/lib/tfctl/current links to DIGEST:

    bin/tfctl-node   as /usr/local/sbin/tfctl-node                              root 0755
    bin/end          as /usr/local/lib/tfctl/DIGEST/end                         root 0755
    10-tfctl.conf    as /etc/systemd/system/tfctl-.service.d/10-tfctl.conf      root 0644, then daemon-reload

Each verb is imported on request, because imports are most of what a short verb costs.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from . import names, wire
from .talk import Gone, Refused, Talk
from .world import PROVISION, World, host

_ENVIRONMENT = {
    "PATH": names.PATH,
    "LANG": "C.UTF-8",
    "SYSTEMD_COLORS": "0",
}


class Terminated(BaseException):
    """A signal asked the process to end. Unfinished work is undone as this propagates."""


def main(world: World = World()) -> int:  # noqa: B008  a value
    """Serve one request and return the exit status: 0, or 1 after an error or if the client is gone."""
    behind = {name: os.environ[name] for name in ("SUDO_USER",) if name in os.environ}
    os.environ.clear()
    os.environ.update({**_ENVIRONMENT, **behind})
    os.chdir("/")
    os.umask(0o022)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _terminate)
    talk = Talk(silence=world.silence)
    try:
        return _serve(world, talk)
    except (Gone, Terminated):
        return 1


def _serve(world: World, talk: Talk) -> int:
    """Hold one conversation. Report any failure to the client as an ERROR."""
    try:
        _verb(world, talk, talk.request())
    except Refused as refused:
        talk.send("error", refused.error)
    except Gone:
        raise
    except Exception as error:
        _tell_journal(error)
        talk.send("error", _internal(error))
    else:
        return 0
    return 1


def _verb(world: World, talk: Talk, request: dict[str, Any]) -> None:
    theirs = request.get("protocol")
    if theirs != wire.PROTOCOL:
        what = f"{host()} speaks protocol {wire.PROTOCOL} of tfctl's node part, this tfctl speaks {theirs!r:.20}"
        raise Refused(8, what, PROVISION)
    verb = request.get("verb")
    if verb == "start":
        from .start import run
    elif verb == "show":
        from .show import run
    elif verb == "stop":
        from .stop import run
    elif verb == "restart":
        from .restart import run
    elif verb == "events":
        from .events import run
    elif verb == "nodes":
        from .nodes import run
    elif verb == "logs":
        from .logs import run
    else:
        raise Refused(8, f"the node part of {host()} knows no verb {verb!r:.40}", PROVISION)
    run(world, talk, request)


def _internal(error: Exception) -> dict[str, Any]:
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    where = f" ({trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno})" if trace else ""
    message = f"tfctl's node part failed on {host()}: {type(error).__name__}: {error}{where}"
    return wire.error(1, message, "see the traceback there: journalctl -t tfctl-node")


def _tell_journal(error: BaseException) -> None:
    import syslog
    import traceback

    syslog.openlog("tfctl-node")
    for line in "".join(traceback.format_exception(type(error), error, error.__traceback__)).splitlines():
        syslog.syslog(syslog.LOG_ERR, line)


def _terminate(number: int, _frame: object) -> None:
    raise Terminated(number)


if __name__ == "__main__":
    sys.exit(main())
