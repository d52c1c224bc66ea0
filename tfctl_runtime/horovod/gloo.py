"""Run a command as a Horovod rank over Gloo: python3 -m tfctl_runtime.horovod.gloo COMMAND...

Rank 0 runs the store in which all ranks meet, as a child that ends soon after it. A rank registers there once per
start. A restarted rank waits until rank 0 has restarted too, because an earlier group's entries are useless.
"""

import http.client
import os
import subprocess
import sys
import time
from typing import List

from tfctl_runtime.horovod.peers import hosts
from tfctl_runtime.horovod.route import elsewhere, interface


def main(words: List[str]) -> None:
    """Replace this process with the command, so that its end is the task's. Does not return.

    Exit with 1 if the ranks do not meet, with 127 if the command does not exist.
    """
    rank, known = int(os.environ["HOROVOD_RANK"]), hosts()
    host, port = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    if rank == 0:
        _store_beside(port)
    _enter(rank, host, port, float(os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"]))
    found = interface(elsewhere(known, known[rank]))
    os.environ["HOROVOD_GLOO_IFACE"] = found
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "=" + found)
    try:
        os.execvp(words[0], words)
    except OSError as fault:
        _leave(f"{words[0]}: {fault.strerror}", 127)


def _store_beside(port: int) -> None:
    """Start the store. It reads from a pipe that stays open in the rank, so it notices the rank's end in any case."""
    ours, theirs = os.pipe()
    words = [sys.executable, "-m", "tfctl_runtime.horovod.store", str(port)]
    subprocess.Popen(words, stdin=ours, start_new_session=True)
    os.close(ours)
    os.set_inheritable(theirs, True)


def _enter(rank: int, host: str, port: int, seconds: float) -> None:
    """Register this rank in the store. Retry while the store is unreachable or an earlier group's entry is there."""
    deadline, path, why = time.monotonic() + seconds, f"/tfctl/{rank}", ""
    while time.monotonic() < deadline:
        try:
            if _ask(host, port, "GET", path) == 404:
                _ask(host, port, "PUT", path)
                return
            why = "rank 0 still belongs to the previous group"
        except (OSError, http.client.HTTPException) as fault:
            why = str(fault)
        time.sleep(0.2)
    _leave(f"rank {rank} could not join at {host}:{port} within {seconds:.0f} s ({why}): see worker/0", 1)


def _ask(host: str, port: int, method: str, path: str) -> int:
    connection = http.client.HTTPConnection(host, port, timeout=10)  # ignores proxies
    try:
        connection.request(method, path, body=b"1" if method == "PUT" else None)
        return connection.getresponse().status
    finally:
        connection.close()


def _leave(text: str, code: int) -> None:
    sys.stderr.write(f"tfctl: {text}\n")
    sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
