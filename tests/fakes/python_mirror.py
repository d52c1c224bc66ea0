"""Not a fake: archives of CPythons as uv downloads them, and a JSON file that lists them for uv."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def archive(path: Path, files: Mapping[str, bytes]) -> Path:
    """Write an archive with these files in the directory python, all of them executable. The same files give the same
    archive."""
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", 1, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name, data in files.items():
            info = tarfile.TarInfo(f"python/{name}")
            info.size, info.mode = len(data), 0o755
            tar.addfile(info, io.BytesIO(data))
    return path


def entry(path: Path, release: str, **changes: Any) -> dict[str, Any]:
    """Return what the file says about an archive."""
    major, minor, patch = map(int, release.split("."))
    found = {
        "name": "cpython", "arch": {"family": "x86_64", "variant": None}, "os": "linux", "libc": "gnu", "major": major,
        "minor": minor, "patch": patch, "prerelease": "", "variant": None, "url": path.as_uri(),
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }  # fmt: skip
    return {**found, **changes}


def listing(path: Path, *entries: Mapping[str, Any]) -> Path:
    """Write the JSON file. uv calls an entry cpython-3.11.7-linux-x86_64-gnu, for example."""
    names = ["cpython-{major}.{minor}.{patch}-linux-{arch[family]}-gnu".format_map(each) for each in entries]
    path.write_text(json.dumps(dict(zip(names, entries, strict=True))))
    return path
