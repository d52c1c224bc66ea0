"""Copy files from host to host: serve a directory whose files are named by their SHA-256, and download from it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import sys
import time
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path

from ansible_collections.tfctl.cluster.plugins.module_utils.install import ModuleFailed, NoSpace, last_lines, run
from ansible_collections.tfctl.cluster.plugins.module_utils.receipts import digest

PATIENCE_S = 60  # without receiving a byte
PROXIES = Path("/etc/tfctl/proxy.env")
#: A program that serves the files of one directory, from the byte at which a request wants them to begin.
SERVER = """
import http.server, os, re, shutil, sys
port, folder = int(sys.argv[1]), sys.argv[2]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = os.path.join(folder, self.path[1:])
        if not re.fullmatch("/[0-9a-f]{64}", self.path) or not os.path.isfile(path):
            return self.send_error(404)
        begin = re.fullmatch("bytes=([0-9]+)-", self.headers.get("Range", ""))
        with open(path, "rb") as source:
            size = os.fstat(source.fileno()).st_size
            first = min(int(begin[1]), size) if begin else 0
            source.seek(first)
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str(size - first))
            self.end_headers()
            shutil.copyfileobj(source, self.wfile, 1 << 20)
http.server.ThreadingHTTPServer(("", port), Handler).serve_forever()
"""


def serve(unit: str, folder: Path, host: str, ports: Sequence[int]) -> str:
    """Serve the directory as an unprivileged user on the last free port, and return the URL. Raises ModuleFailed.

    ``unit``: the name of the service, which ends after an hour; one that an earlier run has left is stopped. ``host``:
    the name or address of this host in the URL. ``ports``: the first and the last one.
    """
    stop(unit)
    port = free_port(ports[0], ports[1])
    words = ["systemd-run", "--quiet", "--collect", f"--unit={unit}", "--property=DynamicUser=yes"]
    words += ["--property=RuntimeMaxSec=3600", sys.executable, "-I", "-c", SERVER, str(port), str(folder)]
    done = run(words)
    if done.returncode:
        raise ModuleFailed(f"systemd-run: {last_lines(done.stderr)}")
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            time.sleep(0.1)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def stop(unit: str) -> None:
    run(["systemctl", "stop", unit])


def free_port(first: int, last: int) -> int:
    """Return the last free port of a range. Raises ModuleFailed."""
    for port in range(last, first - 1, -1):
        with contextlib.suppress(OSError), socket.socket() as tried:
            tried.bind(("", port))
            return port
    raise ModuleFailed(f"no port of {first}-{last} is free to serve files to other hosts", "wait until a job ends")


def fetch(url: str, path: Path, sha256: str, direct: bool = False, patience_s: float = PATIENCE_S) -> None:
    """Download ``url`` (https, http, file) to ``path``, or continue a download that was interrupted.

    It uses the proxies that the role proxy has set, else those of the environment, or with ``direct`` none. Raises
    ModuleFailed, which names the URL, also if the file has another hash. Then only what may be continued stays at
    ``path``.
    """
    with contextlib.suppress(OSError):
        lines = PROXIES.read_text(encoding="utf-8").splitlines()
        os.environ.update(dict(line.split("=", 1) for line in lines if "=" in line))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({} if direct else None))
    there = path.stat().st_size if direct and path.exists() else 0
    headers = {"User-Agent": "tfctl", **({"Range": f"bytes={there}-"} if there else {})}
    request = urllib.request.Request(url, headers=headers)
    try:
        with opener.open(request, timeout=patience_s) as source:
            expected = source.headers.get("Content-Length")
            begin = there if getattr(source, "status", 200) == 206 else 0
            with path.open("ab" if begin else "wb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
                size = file.tell()
        if expected and size != begin + int(expected):
            raise OSError("the connection was closed")
        found = digest(path)
    except (OSError, ValueError, HTTPException) as fault:
        full = getattr(fault, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        if full or not direct:
            path.unlink(missing_ok=True)
        if full:
            raise NoSpace(path) from fault
        reason = getattr(fault, "reason", None) or getattr(fault, "strerror", None) or fault
        raise ModuleFailed(
            f"{url} cannot be fetched: {reason}", "check that the host reaches it, or set a mirror"
        ) from fault
    if found != sha256:
        path.unlink()
        raise ModuleFailed(
            f"{url} has the SHA-256 {found}, not {sha256}, and was not installed", "find out who changed it"
        )
