"""Listen on the loopback address, and serve the page until Ctrl-C."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import TYPE_CHECKING

import uvicorn

from tfctl.errors import Busy
from tfctl.ui.access import Access, Keys
from tfctl.ui.app import application

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfctl.remote.fleet import Fleet

ADDRESS = "127.0.0.1"
#: The port, if it is free and no other is given.
USUAL_PORT = 8470
#: How long (s) requests may go on after Ctrl-C.
_GRACE_S = 1


def serve(fleet: Fleet, job: str | None, port: int | None, ready: Callable[[str, str], object]) -> None:
    """Serve the page about the hosts of ``fleet`` until Ctrl-C, which raises KeyboardInterrupt.

    ``job``: the one that the page shows first. ``ready`` is called once connections are accepted, with the URL and with
    one that is valid once. Raise Busy if ``port`` is taken; without a port, another one is used.
    """
    keys = Keys()
    with closing(_listen(port)) as listener:
        number = listener.getsockname()[1]
        # Browsers send cookies to all ports of a machine: without its port in the name, a second page would replace it.
        app = Access(application(fleet, job), keys, f"tfctl-{number}")
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=_GRACE_S,
        )
        url = f"http://{ADDRESS}:{number}/?token="
        ready(url + keys.token, url + keys.once())
        uvicorn.Server(config).run(sockets=[listener])


def _listen(port: int | None) -> socket.socket:
    for number in [port] if port else [USUAL_PORT, 0]:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((ADDRESS, number))
            listener.listen(128)  # connections wait here until the server accepts them
        except OSError as error:
            listener.close()
            if number:
                failure = f"cannot listen on {ADDRESS}:{number}: {error.strerror}"
        else:
            return listener
    raise Busy(failure, "choose another port: --port N")
