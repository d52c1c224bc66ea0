"""Check what a job's commands run: its programs are sent and can run, and its code leaves to tfctl what tfctl does."""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tfctl.errors import BadFile
from tfctl.jobs import sources
from tfctl.jobs.code import CodeListing
from tfctl.jobs.programs import Program, only_hosts_know, python_start
from tfctl.jobs.sources import Source
from tfctl.model import placing
from tfctl.model.job import Layout
from tfctl.model.strategies.base import Strategy
from tfctl.model.task import Slot
from tfctl.model.text import PLACEHOLDER
from tfctl.node.names import task

#: Programs that start the processes of a job themselves, and modules of Python that do.
_LAUNCHERS = (
    "horovodrun", "mpirun", "mpiexec", "mpiexec.hydra", "mpiexec.openmpi", "mpirun.openmpi", "orterun", "prterun",
    "srun", "torchrun",
)  # fmt: skip
_LAUNCHER_MODULES = ("horovod.runner", "horovod.runner.launch", "torch.distributed.launch", "torch.distributed.run")
#: Programs that give other rights.
_OTHER_RIGHTS = ("sudo", "su", "doas", "pkexec", "runuser")
#: Builtins of shells that no program of the same name replaces.
_BUILTINS = (
    ".", "alias", "bg", "builtin", "cd", "command", "declare", "disown", "eval", "exec", "exit", "export", "fg",
    "function", "hash", "jobs", "let", "local", "popd", "pushd", "read", "readonly", "return", "set", "shift", "shopt",
    "source", "trap", "type", "typeset", "ulimit", "umask", "unalias", "unset", "wait",
)  # fmt: skip
_REFERENCE = re.compile(r"\$(\{)?(?P<name>[A-Za-z_]\w*)(?(1)(:?-.*)?\})", re.DOTALL)


def faults(slot: Slot, strategy: Strategy, folder: Path, sent: CodeListing | None) -> Iterator[BadFile]:
    """Yield an error for each program of a command that cannot run, or whose file is not there, not sent or not
    executable. ``sent``: the files that are sent; None if the job runs in the folder itself."""
    place = task(slot.role, slot.index)
    for program in sources.of_slot(slot, folder)[0].programs:
        if not program.words or not program.certain:
            continue
        found = [*_cannot_run(place, program, strategy)]
        yield from found
        if not found and not program.prepared and program.name not in ("source", "."):
            yield from _missing(place, program, folder, sent)


def remarks(slots: Sequence[Slot], layout: Layout, sent: CodeListing | None) -> list[str]:
    """Return a sentence for each line of the code that the commands run, and for each command, that is probably a
    mistake: it changes what tfctl sets, starts what tfctl starts, or finds its tasks in another way.
    ``sent``: the files that are sent, as for `faults`; modules that are not are named."""
    found: dict[str, None] = {}
    for slot in slots:
        code = sources.of_slot(slot, layout.code)
        found |= dict.fromkeys(_unsent(slot, code, sent) if sent else ())
        found |= dict.fromkeys(_changes(slot, layout.strategy, code))
        found |= dict.fromkeys(_programs(slot, layout.strategy, code))
        found |= dict.fromkeys(_clusters(slot, layout, code))
        found |= dict.fromkeys(_horovod(layout.strategy, code))
    return [*found]


def _cannot_run(place: str, program: Program, strategy: Strategy) -> Iterator[BadFile]:
    """Yield an error for a program that no task can run."""
    name = program.name
    if program.words[0].startswith("~") and not program.line:
        yield _tilde(place, program.words[0])
    elif name in _OTHER_RIGHTS:
        message = f"{place}: `{name}` in the command: tasks run as the user tfctl, and cannot get other rights"
        yield BadFile(message, _without(program.words, "remove it"))
    elif strategy.needs_horovod and (launcher := _launcher(program)):
        message = f"{place}: `{launcher}` in the command starts ranks, and tfctl starts them itself"
        yield BadFile(message, f"{_without(program.words, 'remove it')} (docs/howto/from-horovodrun.md)")
    elif program.line:
        return  # a shell runs it
    elif name in _BUILTINS and program.words[0] == name:
        message = f"{place}: `{name}` is a builtin of shells, and no shell runs the command"
        yield BadFile(message, _instead_of(name))
    elif name in ("conda", "mamba", "micromamba") and program.words[1:2] == ("activate",):
        message = f"{place}: `{name} activate` changes the shell that runs it, and no shell runs the command"
        yield BadFile(message, _instead_of("source"))


def _instead_of(builtin: str) -> str:
    if builtin in ("source", "."):
        return (
            "remove it: the programs of the stack are first on the PATH, and `requirements` adds packages; or use "
            "[bash, -c, 'source …; exec python train.py']"
        )
    if builtin in ("cd", "pushd", "popd"):
        return "name the directory in `code`, or use [sh, -c, 'cd …; exec python train.py']"
    if builtin in ("export", "declare", "typeset", "set", "unset", "readonly"):
        return "set variables in `env` of the job file"
    return f"use [sh, -c, '{builtin} …; exec python train.py']"


def _without(words: Sequence[str], otherwise: str) -> str:
    """Return the remedy for a program that runs another one: to write only the latter, if the command names it."""
    for at, word in enumerate(words[1:], 1):
        name = word.rpartition("/")[2]
        if re.fullmatch(r"python[0-9.]*", name) or name.endswith((".py", ".sh")):
            runner = "python " if name.endswith(".py") and words[0] != word and "/" not in word[:2] else ""
            return f"write `command: {runner}{shlex.join(words[at:])}`"
    return otherwise


def _launcher(program: Program) -> str:
    """Return the name of the launcher that a program is, or ""."""
    if program.is_python:
        module = python_start(program.words).module
        return f"python -m {module}" if module in _LAUNCHER_MODULES else ""
    return program.name if program.name in _LAUNCHERS else ""


def _missing(place: str, program: Program, folder: Path, sent: CodeListing | None) -> Iterator[BadFile]:
    """Yield an error for a file that is not there, or not executable."""
    path, first = sources.script_path(program, folder), program.words[0]
    start = python_start(program.words).script if program.is_python else ""
    if start.startswith("~") or path.startswith("~"):
        if not program.line:
            yield _tilde(place, start or path)
        return
    if path:
        yield from _not_there(place, path, folder, sent)
    if "/" in first and not only_hosts_know(first) and program.folder is not None:
        own = posixpath.join(program.folder, first)
        if own != path:
            yield from _not_there(place, own, folder, sent)
        if (folder / own).is_file() and not os.access(folder / own, os.X_OK):
            yield BadFile(f"{place}: {own} is not executable", f"run: chmod +x {folder / own}")
    elif first.endswith((".py", ".sh")) and (folder / first).is_file():
        runner = "python" if first.endswith(".py") else "sh"
        yield BadFile(f"{place}: {first} is not on the PATH", f"write `{runner} {first}` or `./{first}`")


def _tilde(place: str, name: str) -> BadFile:
    return BadFile(
        f"{place}: the `~` in {name} is not expanded, because no shell runs the command",
        "give its path in `code`, or the full path of a file that the hosts have",
    )


def _not_there(place: str, name: str, folder: Path, sent: CodeListing | None) -> Iterator[BadFile]:
    there = (folder / name).exists()
    if there and (sent is None or _is_sent(posixpath.normpath(name), sent)):
        return
    what = f"{place}: {name} is not in the code that is sent to the hosts"
    if there and sent is not None:
        reason, remedy = sent.reason(posixpath.normpath(name))
        yield BadFile(f"{what}: {reason}", remedy)
    else:
        yield BadFile(f"{what}: {folder} has no such file", "correct `command`, or name its directory in `code`")


def _is_sent(name: str, sent: CodeListing) -> bool:
    """Return whether the file is sent, or is a directory of which a file is, or is behind a link that is sent."""
    names = sent.all_names
    if name == "." or name in names or any(other.startswith(f"{name}/") for other in names):
        return True
    above = map(str, Path(name).parents)
    return any((sent.folder / one).is_symlink() for one in above if one in names)


def _unsent(slot: Slot, code: Sequence[Source], sent: CodeListing) -> Iterator[str]:
    """Yield a sentence for each file that is run or imported and not sent, besides those that are errors."""
    own = {posixpath.normpath(sources.script_path(program, sent.folder)) for program in code[0].programs}
    for source in code:
        if source.name and source.name not in own and not _is_sent(source.name, sent):
            reason, remedy = sent.reason(source.name)
            yield f"{slot.role}: {source.name} is not sent to the hosts, and its command uses it: {reason}; {remedy}"


def _changes(slot: Slot, strategy: Strategy, code: Iterable[Source]) -> Iterator[str]:
    """Yield a sentence for each line, and for a command, that changes a variable by which tfctl places tasks."""
    for source in code:
        for change in source.python.changes if source.python else ():
            # What is not set otherwise: tfctl sets all of them, except TF_CONFIG where tasks must not have it.
            harmless = change.default and (strategy.clustered or change.name != placing.CONFIG)
            if not harmless and _matters(slot, strategy, change.name, change.value):
                yield f"{_line(slot, source, change.line)} changes {_is_set(change.name, strategy)}"
        for program in source.programs:
            where = _line(slot, source, program.line)
            for name, value in program.changes:
                if _matters(slot, strategy, name, _literal(value)) and not _is_default(name, value):
                    yield f"{where} changes {_is_set(name, strategy)}"
            if program.emptied:
                yield f"{where} removes the variables that tfctl sets for each task: remove `-i` of env"


def _line(slot: Slot, source: Source, line: int) -> str:
    return f"{source.name}, line {line}" if source.name else f"{slot.role}: the command"


def _matters(slot: Slot, strategy: Strategy, name: str, value: str | None) -> bool:
    """Return whether a new value of a variable loses what tfctl has set."""
    if name == placing.DEVICES:
        return bool(slot.gpus) or not placing.hides_gpus(value)
    return placing.is_placing(strategy, name)


def _is_set(name: str, strategy: Strategy) -> str:
    if name == placing.DEVICES:
        return f"{name}, which tfctl sets for each task: remove that, and set `gpus` of the role"
    if name == placing.CONFIG and not strategy.clustered:
        return f"{name}, which tasks of {strategy.name} must not have: remove that line"
    return f"{name}, which tfctl sets for each task: remove that line"


def _literal(value: str | None) -> str | None:
    return None if value is None or re.search(r"[$`]", value) else value


def _is_default(name: str, value: str | None) -> bool:
    """Return whether a shell keeps the value that the variable has, as in `X=${X:-1}`."""
    match = _REFERENCE.fullmatch(value or "")
    return match is not None and match["name"] == name


def _programs(slot: Slot, strategy: Strategy, code: Iterable[Source]) -> Iterator[str]:
    """Yield a sentence for each program that cannot do in a task what it is for."""
    for source in code:
        for program in source.programs:
            is_error = not source.name and program.certain
            where = f"{source.name}, line {program.line}" if source.name else f"{slot.role}"
            in_command = "" if source.name else " in the command"
            if program.name in _OTHER_RIGHTS and not is_error:
                yield f"{where}: `{program.name}`{in_command} fails: tasks run as the user tfctl, without other rights"
            launcher = _launcher(program)
            if not launcher or (strategy.needs_horovod and is_error):
                continue
            if strategy.needs_horovod or (strategy.clustered and not strategy.any_program):
                yield (
                    f"{where}: `{launcher}`{in_command} starts processes, and tfctl starts every task of the job "
                    f"itself: {_without(program.words, 'remove it')}"
                )


def _clusters(slot: Slot, layout: Layout, code: Sequence[Source]) -> Iterator[str]:
    """Yield a sentence for each line that makes a cluster which is not the job's."""
    files = [(source, source.python) for source in code if source.python]
    if not layout.strategy.clustered or any(python.reads_config for _, python in files):
        return
    for source, python in files:
        for line, name in python.foreign:
            yield (
                f"{_line(slot, source, line)}: {name} does not read TF_CONFIG: use "
                "tf.distribute.cluster_resolver.TFConfigClusterResolver()"
            )
    texts = (*slot.command, *slot.env.values())
    filled = any(name.endswith("_hosts") for text in texts for name in PLACEHOLDER.findall(text))
    # With `ports` and one host, a program may contain the addresses of its tasks (docs/strategies.md).
    if filled or (layout.ports and len(layout.hosts) == 1):
        return
    for source, python in files:
        for line in python.specs[:1]:
            example = f"{{{slot.role}_hosts}}"
            yield (
                f"{_line(slot, source, line)}: this cluster is not that of the job: read TF_CONFIG, or let the command "
                f"pass the addresses with placeholders such as {example}"
            )


def _horovod(strategy: Strategy, code: Sequence[Source]) -> Iterator[str]:
    """Yield a sentence for each file that imports Horovod in a job without ranks."""
    if strategy.needs_horovod or any(_launcher(program) for source in code for program in source.programs):
        return
    for source in code:
        for each in source.python.imports if source.python and source.certain else ():
            if each.certain and not each.level and each.name.partition(".")[0] == "horovod":
                where = f"{source.name}, line {each.line}" if source.name else "the command"
                yield (
                    f"{where} imports horovod, and {strategy.name} starts no ranks, so that hvd.size() is 1: use "
                    "`strategy: horovod`"
                )
                break
