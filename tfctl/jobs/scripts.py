"""Check a job's own code before it runs: its programs are sent, and no script changes TF_CONFIG."""

from __future__ import annotations

import ast
import os
import posixpath
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from tfctl.errors import BadFile
from tfctl.model.task import Slot
from tfctl.model.text import PLACEHOLDER
from tfctl.node.names import task

_PYTHON = re.compile(r"python[0-9.]*")
#: Options of python that take the next word as their value (python -h).
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
#: Options after which no script follows: a program (-c) or a module (-m), also after others (-um).
_NO_SCRIPT = re.compile(r"-[A-Za-z]*[cm]|-$")
_NAMED = re.compile(r"(\w+\.)?environ\['TF_CONFIG'\]")
_CALLED = re.compile(r"(\w+\.)?(environ\.(pop|update)|putenv|unsetenv)\([^()]*\bTF_CONFIG\b")


def faults(slot: Slot, folder: Path, sent: Collection[str] | None) -> Iterator[BadFile]:
    """Yield an error if the command runs a file of the code that is not there, not sent or not executable.

    ``sent``: the names of the files that are sent, relative to ``folder``; None if the job runs in the folder itself.
    """
    program, script = slot.command[0], script_of(slot.command)
    place = task(slot.role, slot.index)
    if script.startswith("~") or program.startswith("~"):
        remedy = "give its path in `code`, or the full path of a file that the hosts have"
        message = f"{place}: the `~` in {script or program} is not expanded, because no shell runs the command"
        yield BadFile(message, remedy)
        return
    if script:
        yield from _not_there(place, script, folder, sent)
    if "/" in program and not _only_hosts_know(program):
        yield from _not_there(place, program, folder, sent)
        if (folder / program).is_file() and not os.access(folder / program, os.X_OK):
            yield BadFile(f"{place}: {program} is not executable", f"run: chmod +x {folder / program}")
    elif program.endswith((".py", ".sh")) and (folder / program).is_file():
        runner = "python" if program.endswith(".py") else "sh"
        yield BadFile(f"{place}: {program} is not on the PATH", f"write `{runner} {program}` or `./{program}`")


def script_of(command: Sequence[str]) -> str:
    """Return the script that a command gives to Python, relative to the code. Return "" if there is none, and for an
    absolute path or a placeholder, which only the host can check."""
    if not _PYTHON.fullmatch(command[0].rpartition("/")[2]):
        return ""
    words = iter(command[1:])
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif _NO_SCRIPT.match(word):
            return ""
        elif not word.startswith("-"):
            return "" if _only_hosts_know(word) else word
    return ""


def remarks(folder: Path, names: Iterable[str]) -> list[str]:
    """Return a sentence for each line of these files that sets or removes TF_CONFIG, losing tfctl's value."""
    return [
        f"{name}, line {line} changes TF_CONFIG, which tfctl sets for each task: remove that line"
        for name in names
        if name.endswith(".py")
        for line in _lines(folder / name)
    ]


def _not_there(place: str, name: str, folder: Path, sent: Collection[str] | None) -> Iterator[BadFile]:
    there = (folder / name).exists()
    if there and (sent is None or _is_sent(posixpath.normpath(name), folder, sent)):
        return
    what = f"{place}: {name} is not in the code that is sent to the hosts"
    if there:
        yield BadFile(
            f"{what}: git ignores it, or it looks like a secret",
            f"list it in the job file, code: {{include: [{name}]}}, or let git track it",
        )
    else:
        yield BadFile(f"{what}: {folder} has no such file", "correct `command`, or name its directory in `code`")


def _only_hosts_know(path: str) -> bool:
    return path.startswith("/") or PLACEHOLDER.search(path) is not None


def _is_sent(name: str, folder: Path, sent: Collection[str]) -> bool:
    """Return whether the file is sent, or is a directory of which a file is, or is behind a link that is sent."""
    if name == "." or name in sent or any(other.startswith(f"{name}/") for other in sent):
        return True
    above = map(str, Path(name).parents)
    return any((folder / one).is_symlink() for one in above if one in sent)


def _lines(path: Path) -> list[int]:
    try:
        text = path.read_bytes()
        if b"TF_CONFIG" not in text:
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # syntax warnings appear when the script runs
            tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    return sorted({node.lineno for node in ast.walk(tree) if isinstance(node, ast.expr) and _changes(node)})


def _changes(node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        return bool(_NAMED.fullmatch(ast.unparse(node)))
    return isinstance(node, ast.Call) and bool(_CALLED.match(ast.unparse(node)))
