"""The ranks of this job, and how one asks another: a JSON message each way, on the port of the rank that is asked.

Both sides prove that they know the secret of this start (multiprocessing's HMAC handshake).
"""

import json
import os
import socket
import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge
from typing import Any, Dict, List, Tuple

#: Exceptions of a connection whose peer goes away or is not a rank of this job.
FAULTS = (OSError, EOFError, AuthenticationError)
#: Longest message in bytes: an environment or a command line.
_LONGEST = 1 << 20
#: Silence (s) before the first keep-alive probe, time (s) between probes, and probes allowed to fail: a host that loses
#: power ends a connection after three minutes.
_KEEP_ALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 8))


def peers() -> List[Tuple[str, int]]:
    """Return the (address, port) of every rank, by rank."""
    found = (text.rpartition(":") for text in json.loads(os.environ["TFCTL_RANKS"]))
    return [(address, int(port)) for address, _, port in found]


def hosts() -> List[str]:
    """Return the address of every rank's host, by rank."""
    return [address for address, _ in peers()]


def ask(peer: Tuple[str, int], **message: Any) -> Connection:
    """Send a message and return the connection; `answer` reads the reply. Raise one of FAULTS."""
    connection = Client(peer, "AF_INET", authkey=secret())
    _keep_alive(connection)
    tell(connection, **message)
    return connection


def admit(connection: Connection, key: bytes) -> Dict[str, Any]:
    """Return the message on an incoming connection. Raise one of FAULTS if the caller does not know the secret."""
    deliver_challenge(connection, key)
    answer_challenge(connection, key)
    _keep_alive(connection)
    return answer(connection)


def tell(connection: Connection, **message: Any) -> None:
    connection.send_bytes(json.dumps(message).encode())


def answer(connection: Connection) -> Dict[str, Any]:
    return dict(json.loads(connection.recv_bytes(_LONGEST).decode()))


def await_free(seconds: float) -> List[int]:
    """Wait up to ``seconds`` for all ranks to be up and idle. Return the ranks that are not."""
    known, missing = peers(), list(range(len(peers())))
    deadline = time.monotonic() + seconds
    while missing and time.monotonic() < deadline:
        missing = [rank for rank in missing if not _is_free(known[rank])]
        if missing:
            time.sleep(0.3)
    return missing


def _is_free(peer: Tuple[str, int]) -> bool:
    try:
        with ask(peer, do="ping") as connection:
            return bool(connection.poll(10) and answer(connection)["free"])
    except FAULTS:
        return False


def _keep_alive(connection: Connection) -> None:
    with socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE:
            if hasattr(socket, name):  # on Linux
                line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def secret() -> bytes:
    return os.environ["TFCTL_SECRET"].encode()
