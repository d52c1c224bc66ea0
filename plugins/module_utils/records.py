"""Compare the files of installed wheels with the wheels' RECORD (PEP 376).

A *marker* is a file of JSON in the directory of an installation, which is complete since the time of its marker.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

#: The number of differences that are reported.
REPORTED = 10


class Stamp(NamedTuple):
    """Size in bytes, and time of the last change in nanoseconds."""

    size: int
    mtime_ns: int


def differences(marker: Path, site: Path, lock: str, hashes: bool = False) -> list[str]:
    """Return a sentence for each of the first differences of an installation from its lock. ``site``: its packages.

    ``hashes``: whether to read every file and compare its hash, too.
    """
    if not marker.is_file():
        return [f"{marker.parent} does not exist"]
    there = stamps(site)
    found = [*itertools.islice(_changes(site, lock, there, marker.stat().st_mtime_ns, hashes), REPORTED)]
    if json.loads(marker.read_text(encoding="utf-8"))["modules"] != _compiled_modules(there):
        found.append(f"{marker.parent}: compiled modules are missing")
    return found


def complete(marker: Path, site: Path, lock: str, more: Mapping[str, object] = {}, hashes: bool = False) -> list[str]:
    """Write the marker, last, so that any later change is newer. ``more``: what else it says.

    Return the differences that the next run would find. Then every run would install it again.
    """
    note = {**more, "packages": pinned(lock), "modules": _compiled_modules(stamps(site))}
    marker.write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")
    return differences(marker, site, lock, hashes)


def pinned(lock: str) -> dict[str, str]:
    """Return {name: version} of each line NAME==VERSION."""
    return dict(re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;]+)", lock, re.MULTILINE))


def _changes(site: Path, lock: str, there: Mapping[str, Stamp], completed: int, hashes: bool) -> Iterator[str]:
    """Yield a sentence for each package and file that differs from the lock. ``there``: the files of ``site``."""
    for name, version in pinned(lock).items():
        record = _record_of(site, name, version)
        if record is None:
            yield f"{name} {version} is not in {site}"
        else:
            yield from _differing(site, record, there, completed, hashes)


def stamps(folder: Path) -> dict[str, Stamp]:
    """Return size and time of every file, by its path within the folder."""
    start = len(f"{folder}/")
    paths = (f"{here}/{name}" for here, _, names in os.walk(folder) for name in names)
    return {path[start:]: _stamp(path) for path in paths}


def _stamp(path: str) -> Stamp:
    info = os.lstat(path)
    return Stamp(info.st_size, info.st_mtime_ns)


def _compiled_modules(names: Mapping[str, Stamp]) -> int:
    """Return the number of compiled modules. It is not the number of modules: some packages contain templates."""
    return sum(name.endswith(".pyc") for name in names)


def _record_of(site: Path, name: str, version: str) -> Path | None:
    """Return the path of a package's RECORD, or None. Its directory may have any spelling that PEP 503 normalizes."""
    wanted = _normal(f"{name}-{version}")
    found = (each for each in site.glob("*.dist-info") if _normal(each.name[: -len(".dist-info")]) == wanted)
    return next((each / "RECORD" for each in found if (each / "RECORD").is_file()), None)


def _differing(site: Path, record: Path, there: Mapping[str, Stamp], completed: int, hashes: bool) -> Iterator[str]:
    """Yield a sentence for each file that is missing, differs from the RECORD in size (or hash), or was written after
    ``completed``. ``there``: the files of ``site``, as ``stamps`` returns them."""
    with record.open(encoding="utf-8", newline="") as file:
        for name, digest, size in csv.reader(file):
            if "__pycache__/" in name:  # some wheels contain bytecode, which was compiled again
                continue
            seen = there.get(name) or _outside(site, name)
            if seen is None:
                yield f"{site / name} is missing"
            elif (size and seen.size != int(size)) or seen.mtime_ns > completed:
                yield f"{site / name} was changed"
            elif hashes and digest and digest != _digest(site / name, digest.partition("=")[0]):
                yield f"{site / name} has another hash than in {record}"


def _digest(file: Path, method: str) -> str:
    """Return the hash of a file as RECORD states it. Methods that wheels may not use have none (PEP 427)."""
    found = hashlib.new(method, file.read_bytes()).digest() if method in {"sha256", "sha384", "sha512"} else b""
    return f"{method}={base64.urlsafe_b64encode(found).decode().rstrip('=')}"


def _outside(site: Path, name: str) -> Stamp | None:
    """Return size and time of a file outside site-packages, such as a script in bin."""
    with contextlib.suppress(FileNotFoundError):
        return _stamp(os.path.normpath(site / name))
    return None


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
