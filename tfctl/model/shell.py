"""Commands that a shell runs: which processes of such a task SIGTERM must reach.

systemd sends SIGTERM to a task's main process. If that is a shell, it ends at once and does not pass the signal on to
the program that it runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from tfctl.model.task import Slot

#: The values of KillMode= (systemd.kill(5)) that units have.
KillMode = Literal["mixed", "control-group"]

_SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh")
#: The last command of the script is `exec PROGRAM`. A redirection such as `exec 2>&1` does not replace the shell.
_ENDS_WITH_EXEC = re.compile(r"(\A|[;&|(\n]|\b(then|else|do))\s*exec\s+(?![0-9]*[<>])([<>]&|[^;&|()\n])*\Z")
_REPLACED = re.compile(r"\b(exec|trap)\b")


def kill_mode(command: Sequence[str]) -> KillMode:
    """Return how a task with this command is ended.

    mixed: the main process receives SIGTERM, and ends its child processes itself. When it has ended, they are killed.
    control-group: all processes receive SIGTERM, because a shell is the main process. When it has ended, the others
    receive SIGTERM again and have the grace period to end.
    """
    if command[0].endswith(".sh"):
        return "control-group"
    if not is_shell(command):
        return "mixed"
    script = inline_script(command)
    handles_it = script is not None and ("trap" in script or _ENDS_WITH_EXEC.search(script.rstrip()))
    return "mixed" if handles_it else "control-group"


def remarks(slots: Iterable[Slot]) -> list[str]:
    """Return a sentence for each command ``sh -c`` without ``exec``, whose exit code is the shell's."""
    shells = {slot.command[0] for slot in slots if _stays(slot.command)}
    return [
        f"`{shell} -c` without `exec`: the task ends when the shell ends, with the shell's exit code, and a stop sends "
        "SIGTERM to all of its processes, twice to some; write `exec` before the last command, so that tfctl runs the "
        "program itself"
        for shell in sorted(shells)
    ]


def is_shell(command: Sequence[str]) -> bool:
    """Return whether the program is a shell, which replaces variables and `~`."""
    return command[0].rpartition("/")[2] in _SHELLS


def inline_script(command: Sequence[str]) -> str | None:
    """Return the script of ``sh -c SCRIPT``, or None if the shell reads a file."""
    operand, is_script = _operand(command)
    return operand if is_script else None


def script_file(command: Sequence[str]) -> str:
    """Return the file that a shell reads, or "" if it reads none."""
    operand, is_script = _operand(command)
    return "" if is_script else operand or ""


def _operand(command: Sequence[str]) -> tuple[str | None, bool]:
    """Return the first word after the options of a shell, if it reads that, and whether it is a script itself: after
    `-c`, also among other options, as in `-ec`."""
    words = iter(command[1:])
    is_script = False
    for word in words:
        if word in ("--", "-"):
            return next(words, None), is_script
        if word in ("--rcfile", "--init-file"):
            next(words, None)
        elif not word.startswith(("-", "+")):
            return word, is_script
        elif not word.startswith("--"):
            if "s" in word and word.startswith("-"):  # it reads its standard input
                return None, True
            is_script |= word.startswith("-") and "c" in word
            for _ in re.findall("[oO]", word):
                next(words, None)  # the option's name, as in `-o pipefail`
    return None, is_script


def _stays(command: Sequence[str]) -> bool:
    script = inline_script(command) if is_shell(command) else None
    return script is not None and not _REPLACED.search(script)
