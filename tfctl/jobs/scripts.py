"""Find lines in a job's own Python code that change TF_CONFIG, before it runs."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable
from pathlib import Path

_NAMED = re.compile(r"(\w+\.)?environ\['TF_CONFIG'\]")
_CALLED = re.compile(r"(\w+\.)?(environ\.(pop|update)|putenv|unsetenv)\([^()]*\bTF_CONFIG\b")


def remarks(folder: Path, names: Iterable[str]) -> list[str]:
    """Return a sentence for each line of these files that sets or removes TF_CONFIG, losing tfctl's value."""
    return [
        f"{name}, line {line} changes TF_CONFIG, which tfctl sets for each task: take it out"
        for name in names
        if name.endswith(".py")
        for line in _lines(folder / name)
    ]


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
