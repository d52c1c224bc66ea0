"""The CPythons that uv can download, and how it downloads one to this machine.

uv contains a list of them, with a hash for each archive, which it checks. A JSON file of the user's can replace that
list, in the format of uv's option --python-downloads-json-url. uv would not check an archive that has no hash there.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict
from urllib.parse import unquote

from tfctl import schema
from tfctl.errors import BadFile, TfctlError
from tfctl.provision import uv
from tfctl.provision.wheels import alone, digest

#: The variables of uv for a mirror of its archives, and for a file that replaces its list. tfctl sets or reads them.
ARCHIVES, FILE = "UV_PYTHON_INSTALL_MIRROR", "UV_PYTHON_DOWNLOADS_JSON_URL"
#: What uv must not take from elsewhere: the list, from the variable above or a file of settings, and one build in it.
_REMOVED = {FILE, "UV_PYTHON_CPYTHON_BUILD"}
_SETTINGS = {"UV_NO_CONFIG": "1"}
_RELEASE = re.compile(r"3\.\d+\.\d+")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_GZIP = b"\x1f\x8b"
_FORMAT = "write a JSON file as uv's option --python-downloads-json-url takes it, and name it in tfctl_python_mirror"
_LIMIT_S = 1800
_REMEDY = "check the network and the proxy of this machine, or set tfctl_python_mirror to a mirror that it can reach"


@dataclass(frozen=True)
class PythonBuild:
    """A CPython that uv can download. ``key``: what uv calls it; ``release``: its exact version.

    ``mark``: tells builds of a release apart: a date, or digits of the archive's hash. ``entry``: what the user's file
    says about it, or "" if uv's own list has it. ``flaw``: why it must not be installed, or "".
    """

    key: str
    release: str
    machine: str
    mark: str
    entry: str = ""
    flaw: str = ""

    @property
    def python(self) -> str:
        return self.release.rpartition(".")[0]

    @property
    def name(self) -> str:
        """Return the name of its directory on a host."""
        return f"cpython-{self.release}-{self.mark}"


@dataclass(frozen=True)
class PythonArchive:
    path: Path
    sha256: str


class _Listed(TypedDict):
    """An element of what `uv python list` prints."""

    key: str
    version: str
    url: str
    os: str
    variant: str
    implementation: str
    arch: str
    libc: str


def offered(mirror: str) -> tuple[PythonBuild, ...]:
    """Return the newest build of each version for each machine, without prereleases and variants.

    ``mirror``: the path or URL of a JSON file, or of a directory with uv's archives; "" for what variables of uv say.
    Raise BadFile for a JSON file that cannot be used, and TfctlError if uv fails.
    """
    file = mirror if mirror.endswith(".json") else "" if mirror else os.environ.get(FILE, "")
    newest: dict[tuple[str, str], PythonBuild] = {}
    for build in sorted(_of_file(file) if file else _of_uv(), key=lambda each: _numbers(each.release)):
        newest[build.python, build.machine] = build
    return tuple(newest.values())


def choose(builds: Iterable[PythonBuild], python: str, machine: str) -> PythonBuild | None:
    """Return the build of a version of Python, such as 3.11, for a machine, as `uname -m` names it."""
    return next((each for each in builds if (each.python, each.machine) == (python, machine)), None)


def archive(build: PythonBuild, mirror: str, folder: Path) -> PythonArchive:
    """Return the archive of a build in ``folder``. uv downloads it and checks its hash, unless it is there.

    Raise TfctlError if uv fails.
    """
    path = folder / f"{build.name}-{build.machine}" / f"{build.name}.tar.gz"
    note, failure, began = path.with_name("sha256"), path.with_name("failure"), time.time()
    with alone(path):  # this is called for every host of a run
        if path.is_file() and note.is_file() and note.read_text(encoding="ascii") == (sha256 := digest(path)):
            return PythonArchive(path, sha256)
        if failure.is_file() and failure.stat().st_mtime >= began:  # for another host, while this one waited
            raise TfctlError(failure.read_text(encoding="utf-8"), _REMEDY)
        try:
            _download(build, mirror, path)
        except TfctlError as error:
            failure.write_text(error.message, encoding="utf-8")
            raise
        note.write_text(digest(path), encoding="ascii")
        return PythonArchive(path, note.read_text(encoding="ascii"))


def _download(build: PythonBuild, mirror: str, path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        downloads = Path(scratch, "downloads")
        with request(build) as words:
            variables = {**variables_of(uv.settings()[0], mirror), "UV_PYTHON_CACHE_DIR": str(downloads)}
            _run([*words, "--install-dir", str(Path(scratch, "installed"))], variables, f"CPython {build.release}")
        (downloaded,) = downloads.iterdir()
        with downloaded.open("rb") as file:
            if file.read(2) != _GZIP:
                raise TfctlError(f"the archive of CPython {build.release} is not a .tar.gz, which hosts can unpack")
        downloaded.replace(path)


@contextlib.contextmanager
def request(build: PythonBuild) -> Iterator[list[str]]:
    """Yield the arguments with which uv installs a build. uv also needs `variables_of`."""
    words = ["python", "install", "--no-bin", build.key]
    if not build.entry:
        yield words
        return
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(json.dumps({build.key: json.loads(build.entry)}))
        file.flush()
        yield [*words, "--python-downloads-json-url", file.name]


def variables_of(environ: Mapping[str, str], mirror: str = "") -> dict[str, str]:
    """Return the variables with which uv downloads Pythons. ``mirror``: see `offered`."""
    found = {name: value for name, value in environ.items() if name not in _REMOVED and value}
    if mirror and not mirror.endswith(".json"):
        found[ARCHIVES] = mirror if "://" in mirror else Path(mirror).as_uri()
    return {**found, **_SETTINGS}


def _of_uv() -> Iterator[PythonBuild]:
    words = ["python", "list", "--only-downloads", "--all-platforms", "--all-arches", "--output-format", "json"]
    for each in json.loads(_run(words, variables_of(os.environ), "the list of Pythons")):
        found = schema.parse(_Listed, each)
        kind = (found["implementation"], found["os"], found["libc"], found["variant"])
        dated = re.search(r"\+(\d+)", unquote(found["url"]).rpartition("/")[2])
        if kind == ("cpython", "linux", "gnu", "default") and _RELEASE.fullmatch(found["version"]) and dated:
            yield PythonBuild(found["key"], found["version"], found["arch"], dated[1])


def _of_file(source: str) -> Iterator[PythonBuild]:
    try:
        entries = json.loads(_read(source))
        if not isinstance(entries, dict):
            raise ValueError("it is not a JSON object")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadFile(f"the list of Pythons {source} cannot be read: {reason}", _FORMAT) from None
    for name, entry in entries.items():
        try:
            kind = [entry["name"], entry["os"], entry["libc"], entry["arch"].get("variant"), entry.get("variant")]
            release = "{major:d}.{minor:d}.{patch:d}".format_map(entry)
            machine, sha256 = str(entry["arch"]["family"]), str(entry.get("sha256"))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            message = f"the list of Pythons {source} has an entry {name} that cannot be used: {error!r}"
            raise BadFile(message, _FORMAT) from None
        if [each or "" for each in kind] == ["cpython", "linux", "gnu", "", ""] and not entry.get("prerelease"):
            flaw = "" if _SHA256.fullmatch(sha256) else f"{source}: {name} has no sha256, which uv would not miss"
            mark = "unchecked" if flaw else sha256[:12].lower()
            yield PythonBuild(f"cpython-{release}-linux-{machine}-gnu", release, machine, mark, json.dumps(entry), flaw)


def _read(source: str) -> str:
    if "://" not in source:
        return Path(source).read_text(encoding="utf-8")
    import urllib.request  # takes long to import

    with urllib.request.urlopen(source, timeout=60) as answer:
        return str(answer.read().decode())


def _run(words: list[str], variables: dict[str, str], what: str) -> str:
    """Run uv and return what it has printed. Raise TfctlError if it fails. ``what``: what it is to get."""
    # Not in the current directory, whose project may have settings of its own.
    done = subprocess.run(
        [uv.program(), *words, "--no-cache"],
        env=variables,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise TfctlError(uv.failure(what, uv.reasons(done.stderr))[0], _REMEDY)
    return done.stdout


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))
