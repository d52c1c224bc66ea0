"""What a Python file imports and which files of the repository it names, read without running it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from scripts.affected.files import Files

#: Directories from which Python imports, each with the package in which its modules are: the root and tests/fakes by
#: pytest's pythonpath, the third by Ansible and by pytest's pythonpath.
ROOTS = {"": "", "tests/fakes/": "", "plugins/": "ansible_collections.tfctl.cluster.plugins."}
#: Where the paths in strings begin, beside the directory of the file that contains the string.
BASES = ("", "tests", "tests/fakes")
#: A path, or a pattern below a directory; and those of several parts in a longer text.
_PATH = re.compile(r"/?[\w.-]+(?:/[\w.*-]+)*/?")
_PATHS = re.compile(r"[\w.-]+(?:/[\w.*-]+)+")
#: In a string: an import of code, a program of Python, the name of a module.
_IMPORT = re.compile(r"(?:^|[\n;])\s*(?:from ([\w.]+) import ([\w, ]+)|import ([\w.]+(?:, [\w.]+)*))")
_PROGRAM = re.compile(r"-m (\w+)")
_MODULE = re.compile(r"[a-z_]\w*(?:\.\w+)+")
#: The parts of code that are read.
_READ = (ast.Import, ast.ImportFrom, ast.Constant, ast.BinOp, ast.List, ast.Tuple)


class Modules:
    """The modules of the repository by their names."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths: dict[str, set[str]] = {}
        for path in paths:
            for root, package in ROOTS.items():
                if path.startswith(root) and path.endswith(".py"):
                    name = path.removeprefix(root).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
                    self._paths.setdefault(package + name, set()).add(path)

    def paths(self, name: str) -> set[str]:
        """Return the files that an import of this name runs: the module, and the packages that it is in."""
        parts = name.split(".")
        return {path for end, _ in enumerate(parts, 1) for path in self._paths.get(".".join(parts[:end]), ())}


class Source:
    """A Python file. ``path``: relative to the root of the repository."""

    def __init__(self, path: str, text: str) -> None:
        self._path = path
        try:
            self._nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, _READ)]
        except SyntaxError:  # it is being written
            self._nodes = []

    def imported(self, modules: Modules, *, in_strings: bool) -> set[str]:
        """Return the files that this one imports, at its beginning or in a function.

        ``in_strings``: also what code, modules and command lines in its strings import.
        """
        names = {name for node in self._nodes for name in self._names(node)}
        for text in self._texts() if in_strings else ():
            names.update(_MODULE.findall(text))
            names.update(f"{program}.__main__" for program in _PROGRAM.findall(text))
            for package, members, plain in _IMPORT.findall(text):
                names.update(plain.split(", ") if plain else [f"{package}.{name}" for name in members.split(", ")])
        return {path for name in names for path in modules.paths(name)} - {self._path}

    def named(self, files: Files) -> set[str]:
        """Return the existing files that strings name by a path, by a directory or by a pattern in one.

        Directories with tests and packages have names that are also words of tfctl, such as "ssh" and "tfctl". Such a
        word counts only if it is joined to a path.
        """
        found: set[str] = set()
        for text, joined in self._joined_strings():
            only_path = _PATH.fullmatch(text) is not None
            for path in [text.strip("/")] if only_path else _PATHS.findall(text):
                for base in {*BASES, str(PurePosixPath(self._path).parent)}:
                    found |= files.named(f"{base}/{path}".lstrip("/"), word=bool(base) or not joined)
                if only_path and "/" in path:
                    found |= files.ending(f"/{path}")
        return found - {self._path}

    def _joined_strings(self) -> Iterator[tuple[str, bool]]:
        """Yield the strings, and for each whether it is joined to a path. `ROOT / "a" / "b"` has the string "a/b"."""
        parts: set[ast.AST] = set()
        for node in self._nodes:  # the outer before the inner
            if isinstance(node, ast.BinOp) and node not in parts:
                words = []
                left: ast.expr = node
                while isinstance(left, ast.BinOp) and (word := _text(left.right)) is not None:
                    words.append(word)
                    parts |= {left, left.right}
                    left = left.left
                if words:
                    yield "/".join(reversed(words)), True
            elif (word := _text(node)) is not None and node not in parts:
                yield word, False

    def _texts(self) -> Iterator[str]:
        """Yield the strings, and as one string those that follow one another in a list, such as a command's words."""
        for node in self._nodes:
            if (word := _text(node)) is not None:
                yield word
            elif isinstance(node, (ast.List, ast.Tuple)):
                yield " ".join(_text(each) or "?" for each in node.elts)

    def _names(self, node: ast.AST) -> Iterator[str]:
        """Yield the full names of what this statement imports."""
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = [*PurePosixPath(self._path).parts[: -node.level]] if node.level else []
            name = ".".join([*package, *([node.module] if node.module else [])])
            yield from (f"{name}.{alias.name}" for alias in node.names)


def _text(node: ast.AST) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
