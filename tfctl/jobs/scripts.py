"""Check a job's own Python code before it runs: its scripts are sent, and none of them changes TF_CONFIG."""

from __future__ import annotations

import ast
import posixpath
import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

from tfctl.errors import BadFile
from tfctl.jobs.code import Listing
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


def require_packed(slots: Iterable[Slot], listing: Listing) -> None:
    """Raise BadFile if a command is ``python SCRIPT`` and SCRIPT is not sent with the code."""
    for slot in slots:
        script = script_of(slot.command)
        if script and not _is_packed(posixpath.normpath(script), listing):
            what = f"{task(slot.role, slot.index)}: {script} is not in the code that is sent to the hosts"
            if (listing.folder / script).is_file():
                raise BadFile(
                    f"{what}: git ignores it, or it looks like a secret",
                    f"list it in the job file, code: {{include: [{script}]}}, or let git track it",
                )
            raise BadFile(
                f"{what}: {listing.folder} has no such file", "correct `command`, or name its directory in `code`"
            )


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
            return "" if word.startswith("/") or PLACEHOLDER.search(word) else word
    return ""


def remarks(folder: Path, names: Iterable[str]) -> list[str]:
    """Return a sentence for each line of these files that sets or removes TF_CONFIG, losing tfctl's value."""
    return [
        f"{name}, line {line} changes TF_CONFIG, which tfctl sets for each task: take it out"
        for name in names
        if name.endswith(".py")
        for line in _lines(folder / name)
    ]


def _is_packed(script: str, listing: Listing) -> bool:
    """Return whether the script is a packed file, a directory that has any, or behind a packed link."""
    if script == "." or script in listing.names or any(name.startswith(f"{script}/") for name in listing.names):
        return True
    above = map(str, Path(script).parents)
    return any((listing.folder / one).is_symlink() for one in above if one in listing.names)


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
