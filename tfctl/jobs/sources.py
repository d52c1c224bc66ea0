"""Find the code that a command runs: its scripts, and the modules beside them that these import."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from tfctl.jobs import programs, python_code
from tfctl.jobs.programs import Program
from tfctl.jobs.python_code import Import, PythonFile
from tfctl.model import shell
from tfctl.model.task import Slot

#: A larger file is data.
_LARGEST = 2**20
#: More modules than any script imports; reading them takes seconds.
_MOST = 1000


@dataclass(frozen=True)
class Source:
    """A file that a command runs, by its name relative to the code; "" is the command itself, as in `python -c`.

    ``python``: what it does, if it is one of Python. ``programs``: what it runs, if it is one of a shell. ``certain``:
    it is run or imported in any case.
    """

    name: str
    python: PythonFile | None = None
    programs: tuple[Program, ...] = ()
    certain: bool = True


def of_slot(slot: Slot, folder: Path) -> list[Source]:
    """Return the code that a task's command runs, beginning with the command itself."""
    found = programs.of_command(slot.command)
    walk = _Walk(folder, slot.env.get("PYTHONPATH", ""))
    walk.run(found, certain=True)
    return [Source("", programs=tuple(found)), *walk.found.values()]


def script_path(program: Program, folder: Path) -> str:
    """Return the file that Python or a shell reads, relative to the code; "" if there is none or only hosts know it."""
    if program.folder is None or not program.words:
        return ""
    if program.is_python:
        start = programs.python_start(program.words)
        if start.module:
            return _module_of(program, start.module, folder)
        name = start.script
    elif shell.is_shell(program.words):
        name = shell.script_file(program.words)
    elif program.name in ("source", ".") and program.line:
        name = program.words[1] if len(program.words) > 1 else ""
    else:
        name = program.words[0] if "/" in program.words[0] else ""
    return "" if not name or programs.only_hosts_know(name) else posixpath.join(program.folder, name)


def _module_of(program: Program, module: str, folder: Path) -> str:
    """Return the file of a module of the code that `python -m` runs, whether or not it is there; "" for others."""
    assert program.folder is not None
    top, path = module.partition(".")[0], module.replace(".", "/")
    root = folder / program.folder
    package = any((root / top).glob("**/*.py")) if (root / top).is_dir() else False
    if not module.replace(".", "").isidentifier() or not (package or (root / f"{top}.py").is_file()):
        return ""
    main = f"{path}/__main__.py"
    return posixpath.join(program.folder, main if (root / path).is_dir() and package else f"{path}.py")


@dataclass
class _Walk:
    """Follows what commands run. ``python_path``: the variable PYTHONPATH of the
    programs, as it was last set."""

    folder: Path
    python_path: str
    found: dict[str, Source] = field(default_factory=dict)

    def run(self, found: Sequence[Program], certain: bool) -> None:
        for program in found:
            name = script_path(program, self.folder)
            self.python_path = dict(program.changes).get("PYTHONPATH") or self.python_path
            if program.is_python:
                self._python(program, name, certain)
            elif name:
                self._file(program, posixpath.normpath(name), certain)

    def _python(self, program: Program, name: str, certain: bool) -> None:
        start = programs.python_start(program.words)
        if start.text and program.folder is not None:
            source = Source("", python_code.read(start.text.encode(errors="replace")), certain=certain)
            self.found[f"{len(self.found)} of -c"] = source
            self._imports(source, [program.folder])
        elif start.module and program.folder is not None:
            for module in (start.module, f"{start.module}.__main__"):
                for file in [*self._files(Import(module, 0), "", [program.folder])]:
                    self._module(file, [program.folder], certain)
        elif name:
            if (self.folder / name).is_dir():
                name = f"{name}/__main__.py"
            self._module(posixpath.normpath(name), [posixpath.dirname(name)], certain)

    def _file(self, program: Program, name: str, certain: bool) -> None:
        """Read a file that a shell reads, or that is a program itself."""
        data = _content(self.folder / name)
        first = data.split(b"\n", 1)[0] if data.startswith(b"#!") else b""
        is_shell = shell.is_shell(program.words) or program.name in ("source", ".")
        if not is_shell and (b"python" in first or name.endswith(".py")):
            self._module(name, [posixpath.dirname(name)], certain)
        elif (
            (is_shell or b"sh" in first or name.endswith(".sh")) and name not in self.found and len(self.found) < _MOST
        ):
            text = data.decode(errors="replace")
            inner = tuple(programs.of_script(text, posixpath.dirname(name), program.folder))
            self.found[name] = Source(name, programs=inner, certain=certain)
            self.run(inner, certain)

    def _module(self, name: str, roots: list[str], certain: bool) -> None:
        """Read a Python file and the modules that it imports. ``roots``: where Python looks for them."""
        waiting = [(name, certain)]
        while waiting and len(self.found) < _MOST:
            name, certain = waiting.pop()
            known = self.found.get(name)
            if name.startswith("../") or (known and (known.certain or not certain)):
                continue
            path = self.folder / name
            if not path.is_file():
                continue
            source = Source(name, _python_file(path, path.stat().st_mtime_ns), certain=certain)
            self.found[name] = source
            waiting += self._imported(source, roots)

    def _imports(self, source: Source, roots: list[str]) -> None:
        for name, certain in self._imported(source, roots):
            self._module(name, roots, certain)

    def _imported(self, source: Source, roots: list[str]) -> Iterator[tuple[str, bool]]:
        """Yield the files that a file imports, and whether it does so in any case."""
        assert source.python is not None
        for each in source.python.imports:
            for name in self._files(each, posixpath.dirname(source.name), roots):
                yield name, source.certain and each.certain

    def _files(self, each: Import, here: str, roots: list[str]) -> Iterator[str]:
        """Yield the files of an imported module and of the packages around it."""
        own = [path for path in self.python_path.split(":") if path and not programs.only_hosts_know(path)]
        places = [*roots, *own]
        if each.level:
            places = [posixpath.normpath(posixpath.join(here, *[".."] * (each.level - 1)))]
        parts = each.name.split(".") if each.name else []
        for place in places:
            found = [*self._in(place, parts)]
            yield from found
            if found:
                return

    def _in(self, place: str, parts: list[str]) -> Iterator[str]:
        for count in range(len(parts) + 1):
            path = posixpath.normpath(posixpath.join(place, *parts[:count]))
            names = [f"{path}/__init__.py"] if count else []
            for name in (*names, *([f"{path}.py"] if count else [])):
                if (self.folder / name).is_file():
                    yield posixpath.normpath(name)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes() if path.stat().st_size <= _LARGEST else b""
    except OSError:
        return b""


@lru_cache(maxsize=_MOST)
def _python_file(path: Path, _changed: int) -> PythonFile:
    return python_code.read(_content(path))
