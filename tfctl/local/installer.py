"""Run uv, show what it downloads, and say in a sentence why it has failed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import subprocess
import termios
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from tfctl.errors import PreflightFailed
from tfctl.local.cached import unwritable
from tfctl.local.child import Supervised
from tfctl.provision import uv, uv_pythons

#: A line such as `Downloading tensorflow-cpu (197.6MiB)`, which uv prints where it does not draw.
_DOWNLOADING = re.compile(r"^Downloading (\S+) \(([\d.]+)\s?([KMG]iB)\)$")
#: A line that names the directory of an environment that is not finished, and the first one of the list of packages.
_PLACE = re.compile(rb".*environment at: .*\n")
_PACKAGE = re.compile(rb"\n(?:\x1b\[\d*m)* (?:\x1b\[\d*m)*\+")
#: What can be wrong, by what uv prints.
_NO_SPACE = re.compile(r"No space left|os error 28|Disk quota exceeded", re.IGNORECASE)
_NO_RIGHTS = re.compile(r"Read-only file system|Permission denied", re.IGNORECASE)
#: Variables of uv that change what is installed, and where: lock files say what, and tfctl where. Links into the cache
#: of uv would break when that is deleted.
_CHANGES = re.compile(
    "UV_(?:(?:BUILD_)?CONSTRAINT|OVERRIDE|EXCLUDE(?:_NEWER.*)?|NO_VERIFY_HASHES|TARGET|PREFIX|DRY_RUN|VENV_.*|LINK_MODE|"
    "TORCH_BACKEND|PROJECT|WORKING_DIR(?:ECTORY)?|RESOLUTION|PRERELEASE|NO_BINARY.*|NO_BUILD.*|PYTHON|SYSTEM_PYTHON)"
)
_ACTIVE = "or use the active Python if it has TensorFlow: --python active"
_INDEX = "check the network, the proxy and pip's index (python -m pip config list), then run it again"


class Installer:
    """``downloads``: returns the directory for the cache of uv, if its user has not set UV_CACHE_DIR. ``say`` is called
    with messages. ``terminal``: the file descriptor of a terminal on which uv draws its progress, or None."""

    def __init__(self, downloads: Callable[[], Path], say: Callable[[str], None], terminal: int | None) -> None:
        self._downloads, self._say, self._terminal = downloads, say, terminal
        self._settings: tuple[dict[str, str], list[str]] | None = None

    def run(self, *words: str, what: str) -> None:
        """Run uv with pip's settings. Raise PreflightFailed if it fails. ``what``: what it is to install."""
        if self._settings is None:
            given, options = uv.settings()
            made = variables_of(given)
            if "UV_CACHE_DIR" not in made:
                made["UV_CACHE_DIR"] = str(self._downloads())
            self._settings = made, options
        variables, options = self._settings
        if words[0] == "python":
            variables = uv_pythons.variables_of(variables)
        command = [uv.program(), *words, *(options if words[0] == "pip" else ())]
        shown = self._piped if self._terminal is None else self._drawn
        code, output = shown(command, variables)
        if code:
            raise self._failed(what, output, Path(variables["UV_CACHE_DIR"]))

    def _piped(self, command: list[str], variables: dict[str, str]) -> tuple[int, str]:
        """Run a command and say what it downloads. Return its exit code and what it has printed."""
        lines: list[str] = []
        with _started(command, variables, subprocess.PIPE) as started:
            assert started.process.stderr is not None
            for data in started.process.stderr:
                lines.append(data.decode(errors="replace"))
                if match := _DOWNLOADING.match(lines[-1].strip()):
                    self._say(f"downloading {match[1]} ({match[2]} {match[3]})")
            return started.code(), "".join(lines)

    def _drawn(self, command: list[str], variables: dict[str, str]) -> tuple[int, str]:
        """Run a command on a terminal of its own, which is shown on ours up to the list of packages."""
        assert self._terminal is not None
        try:
            ours, its = pty.openpty()
        except OSError:  # the system has no more of them
            return self._piped(command, variables)
        with suppress(OSError):
            size = fcntl.ioctl(self._terminal, termios.TIOCGWINSZ, b"\0" * 8)
            fcntl.ioctl(its, termios.TIOCSWINSZ, size)
        seen, drawn, over = bytearray(), 0, False
        try:
            with _started(command, variables, its) as started:
                os.close(its)
                for data in _read(ours):
                    seen += data
                    if over or b"\n" not in seen:
                        continue
                    place, packages = _PLACE.match(seen), _PACKAGE.search(seen, max(0, drawn - 20))
                    begin = max(drawn, place.end() if place else 0)
                    drawn, over = packages.start() + 1 if packages else len(seen), bool(packages)
                    with suppress(OSError):
                        os.write(self._terminal, seen[begin:drawn])
                return started.code(), seen.decode(errors="replace")
        finally:
            os.close(ours)

    def _failed(self, what: str, output: str, downloads: Path) -> PreflightFailed:
        """Return the error for what uv has printed."""
        reasons = uv.reasons(output)
        text = " ".join(reasons)
        if _NO_SPACE.search(text):
            return unwritable(downloads.parent, "", full=True)
        if match := _NO_RIGHTS.search(text):
            return unwritable(downloads.parent, match[0], full=False)
        message, network = uv.failure(what, reasons)
        return PreflightFailed(message, f"{_INDEX}; {_ACTIVE}" if network else _INDEX)


def variables_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which uv runs: those that are set, without those of uv that tfctl cannot use."""
    found = {
        name: value
        for name, value in environ.items()
        if not (name.startswith("UV_") and not value) and not _CHANGES.fullmatch(name)
    }
    if "UV_CACHE_DIR" in found:  # uv runs in another directory
        found["UV_CACHE_DIR"] = str(Path(found["UV_CACHE_DIR"]).absolute())
    return found


def _started(command: list[str], variables: dict[str, str], stderr: int) -> Supervised:
    # Not in the current directory, whose project may have settings of its own.
    return Supervised(command, variables, Path("/"), stdout=subprocess.DEVNULL, stderr=stderr)


def _read(terminal: int) -> Iterator[bytes]:
    """Yield what is written to the other end of a terminal, until that is closed."""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # Linux; macOS reports the end as no data
            return
        if not data:
            return
        yield data
