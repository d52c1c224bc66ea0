"""A fake of a package index (PEP 691) on loopback, and of packages: wheels with a module of a few lines."""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path


def wheel(folder: Path, name: str, version: str, needs: str = "", modules: Mapping[str, str] | None = None) -> Path:
    """Write a wheel into a directory. ``modules``: the text of each file in it."""
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += f"Requires-Dist: {needs}\n" if needs else ""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{info}/METADATA", metadata)
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        for place, text in (modules or {}).items():
            file.writestr(place, text)
        file.writestr(f"{info}/RECORD", "")
    return path


class PackageIndex(http.server.SimpleHTTPRequestHandler):
    """An index of the wheels in its directory. All of them were uploaded in 2020."""

    def do_GET(self) -> None:
        found = re.fullmatch(r"/simple/([a-z-]+)/", self.path)
        if found is None:
            super().do_GET()
            return
        paths = [*Path(self.directory).glob(f"{found[1].replace('-', '_')}-*.whl")]
        files = [
            {
                "filename": path.name,
                "url": f"/{path.name}",
                "hashes": {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()},
                "upload-time": "2020-01-01T00:00:00Z",
            }
            for path in paths
        ]
        text = json.dumps({"meta": {"api-version": "1.1"}, "name": found[1], "files": files}).encode()
        self.send_response(200 if paths else 404)
        self.send_header("Content-Type", "application/vnd.pypi.simple.v1+json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve the wheels in a directory, and yield the address of the index."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(PackageIndex, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()
