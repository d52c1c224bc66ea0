"""The HTTP key-value store in which Gloo's ranks find each other: python3 -m … PORT

It answers like horovod.runner.http.http_server of Horovod 0.18 to 0.28. GET /SCOPE/KEY returns the value or 404, PUT
stores it, and DELETE /SCOPE/RANK says that a rank has left the scope, which is emptied when all have left. The store
ends 5 s after its stdin closes, so that it can still answer the other ranks' last requests.
"""

import sys
import threading
import time
from collections import Counter, defaultdict
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Dict, List

from tfctl_runtime.horovod import peers

#: Time (s) for a request to arrive completely, and for requests after rank 0 has ended.
_REQUEST_S, _AFTER_S = 10, 5


class RendezvousStore(ThreadingMixIn, TCPServer):
    """``sizes`` maps scopes to their number of ranks. Not an HTTPServer, which would look up its own name in DNS."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, port: int, sizes: Dict[str, int]) -> None:
        self.lock = threading.Lock()
        self.scopes: Dict[str, Dict[str, bytes]] = {}
        self.left: Dict[str, int] = defaultdict(int)
        self.sizes = sizes
        super().__init__(("", port), Handler)


class Handler(BaseHTTPRequestHandler):
    server: RendezvousStore
    timeout = _REQUEST_S

    def do_GET(self) -> None:
        scope, key = self._place()
        with self.server.lock:
            value = self.server.scopes.get(scope, {}).get(key)
        self._answer(404 if value is None else 200, value or b"")

    def do_PUT(self) -> None:
        scope, key = self._place()
        value = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        with self.server.lock:
            self.server.scopes.setdefault(scope, {})[key] = value
        self._answer(200)

    def do_DELETE(self) -> None:
        scope, key = self._place()
        with self.server.lock:
            self.server.left[scope] += 1
            if scope not in self.server.sizes:
                self.server.scopes.get(scope, {}).pop(key, None)
            elif self.server.left[scope] >= self.server.sizes[scope]:
                self.server.scopes.pop(scope, None)
                self.server.left[scope] = 0
        self._answer(200)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: requests would only clutter the rank's log."""

    def _place(self) -> List[str]:
        return [*self.path.split("/", 2)[1:], "", ""][:2]

    def _answer(self, status: int, value: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(value)))
        self.end_headers()
        self.wfile.write(value)


def sizes(hosts: List[str]) -> Dict[str, int]:
    """Return the scopes of Horovod's three communicators, including their names before 0.20. ``hosts`` is by rank."""
    before = [hosts[:rank].count(host) for rank, host in enumerate(hosts)]
    found = {f"cross_{local}": count for local, count in Counter(before).items()}
    for number, (host, count) in enumerate(Counter(hosts).items()):
        found.update({f"local_{host}": count, f"local_{number}": count})
    return {**found, "global": len(hosts), "global_": len(hosts)}


def _bound(port: int, hosts: List[str]) -> RendezvousStore:
    """Return the store, retrying while one from an earlier start still holds the port."""
    deadline = time.monotonic() + 4 * _AFTER_S
    while True:
        try:
            return RendezvousStore(port, sizes(hosts))
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.2)


def main(port: int, hosts: List[str]) -> None:
    store = _bound(port, hosts)
    threading.Thread(target=store.serve_forever, daemon=True).start()
    sys.stdin.buffer.read()
    time.sleep(_AFTER_S)


if __name__ == "__main__":
    main(int(sys.argv[1]), peers.hosts())
