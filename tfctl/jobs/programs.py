"""Which programs a command runs: behind `env`, `nice` and the like, and in the script of `sh -c`."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tfctl.jobs import shell_code
from tfctl.model import shell
from tfctl.model.text import PLACEHOLDER

_PYTHON = re.compile(r"python[0-9.]*")
#: Options of python that take the next word as their value (python -h).
_WITH_VALUE = ("W", "X")
#: Options of python, perhaps several in one word (-um), and the first one that has a value: a program (-c), a module
#: (-m), or what concerns Python itself.
_OPTIONS = re.compile(r"-[A-VY-Zabd-ln-z?]*([cmWX])(.*)", re.DOTALL)
#: How deep scripts of `sh -c` and `eval` are read.
_DEPTH = 4


@dataclass(frozen=True)
class _Wrapper:
    """A program whose arguments are a command. ``short`` and ``long``: its options that take the next word as their
    value. ``operands``: how many words precede the command."""

    short: str = ""
    long: tuple[str, ...] = ()
    operands: int = 0


_WRAPPERS = {
    "env": _Wrapper("uCS", ("--unset", "--chdir", "--split-string")),
    "nice": _Wrapper("n", ("--adjustment",)),
    "ionice": _Wrapper("cnp", ("--class", "--classdata", "--pid")),
    "nohup": _Wrapper(),
    "time": _Wrapper("fo", ("--format", "--output")),
    "timeout": _Wrapper("ks", ("--kill-after", "--signal"), operands=1),
    "numactl": _Wrapper(
        "iwNmCpP",
        ("--interleave", "--weighted-interleave", "--cpunodebind", "--membind", "--physcpubind", "--preferred",
         "--preferred-many"),
    ),
    "taskset": _Wrapper(operands=1),
    "chrt": _Wrapper("TPD", operands=1),
    "stdbuf": _Wrapper("ioe", ("--input", "--output", "--error")),
    "setsid": _Wrapper(),
}  # fmt: skip
#: Builtins of shells that run the rest of the command.
_SHELL_WRAPPERS = {"exec": _Wrapper("a"), "command": _Wrapper(), "builtin": _Wrapper(), "time": _Wrapper()}


@dataclass(frozen=True)
class Program:
    """A program that a command runs, with its arguments: ``words``, perhaps none.

    ``changes``: the variables that are set for it, with their values; None for one that is removed. ``emptied``: it
    gets no other variables. ``folder``: the directory in which it runs, relative to the code; None if only the host
    knows. ``line``: that of the script, 0 if the command names the program itself. ``certain``: it runs, whatever the
    programs before it do. ``prepared``: one of these may have made its files.
    """

    words: tuple[str, ...]
    changes: tuple[tuple[str, str | None], ...] = ()
    emptied: bool = False
    folder: str | None = ""
    line: int = 0
    certain: bool = True
    prepared: bool = False

    @property
    def name(self) -> str:
        """The name of the program without its directory; "" if there is none."""
        return self.words[0].rpartition("/")[2] if self.words else ""

    @property
    def is_python(self) -> bool:
        """Whether it is Python."""
        return _PYTHON.fullmatch(self.name) is not None


@dataclass(frozen=True)
class PythonStart:
    """What Python is to run, of which one is not "": a script, a module, or the text of a program."""

    script: str = ""
    module: str = ""
    text: str = ""


def of_command(command: Sequence[str]) -> list[Program]:
    """Return the programs that a task's command runs."""
    return [*_expanded(_unwrapped(Program(tuple(command)), _WRAPPERS), _DEPTH)]


def of_script(text: str, own: str, folder: str | None) -> list[Program]:
    """Return the programs that a shell script runs. ``own``: its directory. ``folder``: the one in which it runs."""
    return [*_of_shell(text, Program(("sh",), folder=folder), _DEPTH, own)]


def python_start(words: Sequence[str]) -> PythonStart:
    """Return what Python runs, from its command line. Words after it are its arguments."""
    rest = iter(words[1:])
    for word in rest:
        if word == "--check-hash-based-pycs":
            next(rest, None)
        elif match := _OPTIONS.fullmatch(word):
            value = match[2] or next(rest, "")
            if match[1] in _WITH_VALUE:
                continue
            return PythonStart(module=value) if match[1] == "m" else PythonStart(text=value)
        elif word == "-":
            return PythonStart()
        elif not word.startswith("-"):
            return PythonStart(script=word)
    return PythonStart()


def only_hosts_know(path: str) -> bool:
    """Return whether a path depends on the host, or on the shell that expands it."""
    return path.startswith("/") or PLACEHOLDER.search(path) is not None or re.search(r"[$`*?]", path) is not None


def _unwrapped(found: Program, wrappers: dict[str, _Wrapper]) -> Program:
    """Return the program that is run in the end, with the variables that those before it set."""
    while found.name in wrappers and len(found.words) > 1:
        wrapper, rest, found = wrappers[found.name], [*found.words[1:]], replace(found, words=(found.name,))
        is_env = found.words[0] == "env"
        while rest and rest[0].startswith("-"):
            option = rest.pop(0)
            if option == "--":
                break
            value = ""
            name, equals, given = option.partition("=")
            if option in wrapper.long or (option[1:2] != "-" and option[-1] in wrapper.short and len(option) == 2):
                value = rest.pop(0) if rest else ""
            elif equals and name in wrapper.long:
                value = given
            elif option[1:2] in wrapper.short and option[1:2] != "-":
                option, value = option[:2], option[2:]
            if is_env:
                found, more = _env_option(found, option.partition("=")[0], value)
                rest = [*more, *rest]
        if is_env:
            changed, left = shell_code.assignments(tuple(rest))
            found, rest = replace(found, changes=(*found.changes, *changed)), [*left]
        found = replace(found, words=tuple(rest[wrapper.operands :]))
    return found


def _env_option(found: Program, option: str, value: str) -> tuple[Program, list[str]]:
    """Return what an option of env(1) changes, and words that it adds to the command."""
    if option in ("-", "-i", "--ignore-environment"):
        return replace(found, emptied=True), []
    if option in ("-u", "--unset"):
        return replace(found, changes=(*found.changes, (value, None))), []
    if option in ("-C", "--chdir"):
        return replace(found, folder=_entered(found.folder, value)), []
    if option in ("-S", "--split-string"):
        try:
            return found, shlex.split(value)
        except ValueError:
            return found, []
    return found, []


def _expanded(found: Program, depth: int) -> Iterator[Program]:
    """Yield the program or, if it is a shell with a script in its command, those of the script."""
    script = shell.inline_script(found.words) if found.words and shell.is_shell(found.words) else None
    if script is None or not depth:
        yield found
        return
    yield from _of_shell(script, found, depth - 1)


#: How scripts write their own directory.
_OWN_FOLDER = re.compile(r"dirname\b.*(\$\{?0|BASH_SOURCE)|\$\{0%/\*\}|\$\{BASH_SOURCE(\[0\])?%/\*\}")
#: Commands of shells that make no files and end no script, so that what follows them runs in the code as it is sent.
_HARMLESS = (
    "", "cd", "declare", "echo", "export", "hash", "local", "printf", "readonly", "set", "shopt", "test", "trap",
    "true", "typeset", "ulimit", "umask", "unset", "[", ":",
)  # fmt: skip


def _of_shell(text: str, outer: Program, depth: int, own: str | None = None) -> Iterator[Program]:
    """Yield the programs of a script. A directory that it enters is that of the programs after it. ``own``: that of the
    script, if it is a file."""
    folder, prepared, changes = outer.folder, outer.prepared, outer.changes
    entered_at = 0
    for command in shell_code.commands(text):
        if command.level < entered_at:  # the condition or the group in which the directory was entered has ended
            folder, entered_at = None, command.level
        changed, words = shell_code.assignments(command.words)
        found = replace(
            outer, words=words, changes=(*changes, *changed), folder=folder, line=outer.line or command.line,
            certain=outer.certain and command.certain, prepared=prepared,
        )  # fmt: skip
        found = _unwrapped(found, _WRAPPERS | _SHELL_WRAPPERS)
        if found.name in ("export", "declare", "typeset", "readonly", "local"):
            named = [word for word in found.words[1:] if "=" in word]
            found = replace(found, changes=(*found.changes, *shell_code.assignments(tuple(named))[0]))
        elif found.name in ("unset", "read"):
            gone = [(word, None) for word in found.words[1:] if not word.startswith("-")]
            found = replace(found, changes=(*found.changes, *gone))
        if found.name == "eval" and depth:
            yield from _of_shell(" ".join(found.words[1:]), replace(found, words=()), depth - 1)
        else:
            yield from _expanded(found, depth)
        if found.name in ("cd", "pushd"):
            where = next((word for word in found.words[1:] if not word.startswith("-")), "~")
            folder = own if _OWN_FOLDER.search(where) else _entered(folder, where)
            entered_at = command.level
        elif found.name == "popd":
            folder = None
        prepared = prepared or found.name not in _HARMLESS


def _entered(folder: str | None, path: str) -> str | None:
    """Return the directory that a path means in another one, or None if only the host knows."""
    if folder is None or only_hosts_know(path) or path.startswith(("~", "-")):
        return None
    found = posixpath.normpath(posixpath.join(folder, path))
    return None if found.startswith("..") else "" if found == "." else found
