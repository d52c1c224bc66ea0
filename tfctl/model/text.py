"""Rules for the strings a job file may hold, and their quoting in systemd's two file formats.

A string that cannot be passed on byte for byte is rejected here, never altered later.
"""

from __future__ import annotations

import difflib
import re
import shlex
import unicodedata
from collections.abc import Iterable, Sequence

from tfctl.node.names import HIDDEN, OUTPUT, ROLE, STACK

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = ("TF_CONFIG", "TFCTL_")
#: From these, tfctl learns how a task ended (systemd.exec(5)); the job's own values would take their place.
_OF_SYSTEMD = ("EXIT_CODE", "EXIT_STATUS", "INVOCATION_ID", "MAINPID", "SERVICE_RESULT")
#: Linux's MAX_ARG_STRLEN is 128 KiB, for a word and for NAME=VALUE alike (linux/binfmts.h).
LONGEST = 128 * 1024 - 256

#: Placeholders for commands and variables. Braces around anything but a lowercase name, and `${name}`, are plain text.
#: The first two differ between the tasks of a job.
PLACEHOLDERS_OF_TASK = ("role", "index")
PLACEHOLDERS_OF_JOB = ("ps_hosts", "worker_hosts", "chief_hosts", "output")
PLACEHOLDERS = (*PLACEHOLDERS_OF_TASK, *PLACEHOLDERS_OF_JOB)
PLACEHOLDER = re.compile(r"(?<!\$)\{([a-z][a-z0-9_]*)\}")
#: The placeholder for the hosts of a role. Three roles have theirs in every job, empty if the job lacks the role.
_HOSTS_OF_ROLE = re.compile(rf"(?:{ROLE.pattern})_hosts")

_DURATION = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,7})h)?(?:(\d{1,8})m)?(?:(\d{1,9})s)?", re.ASCII)
_MEMORY = re.compile(r"([1-9][0-9]{0,17})([KMGT]?)")
_QUOTED = re.compile(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
_REFERENCE = re.compile(r"\$\$\{|\$\{(\w*)")
_SHELL = re.compile(r"\n|&&|\|\|?|;|>>?|<|&|`|\$(?=[A-Za-z_{(?*@#0-9])")


class Verbatim(str):
    """Text that reaches a task as it is: nothing in it is a placeholder."""

    __slots__ = ()


def clean(value: str) -> str:
    """Return the value. Raise ValueError if it cannot reach a process unchanged: for control characters except tab and
    newline, lone surrogates, noncharacters (systemd ignores the whole line), or more bytes than Linux takes."""
    for position, char in enumerate(value):
        if char not in "\t\n" and unicodedata.category(char) in ("Cc", "Cs"):
            raise ValueError(f"control character {char!a} at position {position}; remove it")
        if char in "\u2028\u2029" or 0xFDD0 <= ord(char) <= 0xFDEF or ord(char) & 0xFFFE == 0xFFFE:
            raise ValueError(
                f"character {char!a} at position {position} is not allowed in a unit; put the text in a file"
            )
    if len(value.encode()) > LONGEST:
        raise ValueError(f"longer than {LONGEST} bytes; put it in a file")
    return value


def known_placeholders(value: str) -> str:
    """Return the value. Raise ValueError if it holds an unknown placeholder. `require_roles` checks those of roles."""
    for name in PLACEHOLDER.findall(value):
        if name not in PLACEHOLDERS and not _HOSTS_OF_ROLE.fullmatch(name):
            raise ValueError(_no_placeholder(name, PLACEHOLDERS))
    return value


def require_roles(value: str, roles: Iterable[str]) -> None:
    """Raise ValueError if the value has a placeholder for the hosts of a role that the job lacks."""
    known = (*PLACEHOLDERS, *(f"{role}_hosts" for role in roles))
    for name in PLACEHOLDER.findall(value):
        if name not in known:
            raise ValueError(_no_placeholder(name, tuple(dict.fromkeys(known))))


def _no_placeholder(name: str, known: Iterable[str]) -> str:
    return f"{{{name}}} is not a placeholder; choose from {' '.join(f'{{{each}}}' for each in known)}"


def without_task(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a command that runs once for the job. Raise ValueError for a placeholder of a task."""
    for name in PLACEHOLDER.findall(" ".join(words)):
        if name in PLACEHOLDERS_OF_TASK:
            there = " ".join(f"{{{known}}}" for known in PLACEHOLDERS_OF_JOB)
            raise ValueError(
                f"{{{name}}} belongs to a task, and this command runs once for the job; choose from {there}"
            )
    return words


def env_name(value: object) -> str:
    """Return the name of a variable that a job may set. Raise ValueError for any other."""
    if not isinstance(value, str) or not _ENV_NAME.fullmatch(value):
        raise ValueError(f"{quoted(value)} is not a variable name: letters, digits and _, not starting with a digit")
    if value.startswith(_OURS):
        raise ValueError(f"{value} is set by tfctl itself; remove it")
    if value in _OF_SYSTEMD:
        raise ValueError(f"{value} is reserved: systemd sets it to report how a task ended; use another name")
    return value


def without_references(value: str) -> str:
    """Return the value with `$${` as `${`. Raise ValueError for `${`, since tfctl does not replace variables."""

    def one(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        name = match[1] or "NAME"
        raise ValueError(
            f"tfctl does not replace `${{{name}}}`: to take a variable from the shell, write `{name}:` without a "
            "value in `env` of the job file; for the characters themselves, write `$${`"
        )

    return _REFERENCE.sub(one, value)


def split(command: str) -> tuple[str, ...]:
    """Split a command line into words as a shell would. Raise ValueError for anything that needs a shell."""
    command = _joined(command).strip()
    found = _SHELL.search(_unquoted(command))
    if found:
        what = "a new line" if found[0] == "\n" else repr(found[0])
        remedy = "quote it, or use [sh, -c, 'exec …']"
        raise ValueError(f"only a shell interprets {what}, and no shell runs the command: {remedy}")
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise ValueError(f"{quoted(command)}: {str(error).lower()}") from None


def absolute_path(value: str) -> str:
    """Return a plain absolute path without trailing or doubled slashes. Raise ValueError for any other."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", value):
        raise ValueError(
            f"{quoted(value)} is a URL, and this is a directory of the hosts: give the URL to the program itself, in "
            "`command` or `env`, and write `output: none` if the job needs no directory of the hosts"
        )
    plain = "/" + "/".join(part for part in value.split("/") if part not in ("", "."))
    if not value.startswith("/") or not OUTPUT.fullmatch(plain) or ".." in value.split("/"):
        raise ValueError(
            f"{quoted(value)} is not a plain absolute path (letters, digits and ._/@+=:,- without '..', at most 201)"
        )
    return plain


def output_path(value: str) -> str:
    """Return a plain absolute path that the tasks' units can see. Raise ValueError for any other."""
    path = absolute_path(value)
    hidden = next((root for root in HIDDEN if f"{path}/".startswith(f"{root}/")), None)
    if hidden:
        raise ValueError(f"{path} is in {hidden}, which tasks cannot see; choose a directory such as /srv/tfctl/NAME")
    return path


def stack_name(value: str) -> str:
    """Return the name of a stack, whether or not tfctl ships it. Raise ValueError for what cannot be one."""
    if not STACK.fullmatch(value):
        raise ValueError(f"{quoted(value)} is not the name of a stack, such as tf2.15, or none")
    return value


def seconds(value: object) -> int:
    """Return ``90``, ``"90s"``, ``"30m"``, ``"1h30m"`` or ``"2d"`` as seconds. Raise ValueError otherwise or for 0."""
    total = 0
    if isinstance(value, int) and not isinstance(value, bool):
        total = value
    elif isinstance(value, str) and value and (match := _DURATION.fullmatch(value)):
        total = sum(int(n or 0) * unit for n, unit in zip(match.groups(), (86400, 3600, 60, 1), strict=True))
    if not 0 < total <= 10 * 365 * 86400:
        raise ValueError(f"{quoted(value)} is not a duration such as 90s, 30m or 1h30m")
    return total


def memory_size(value: object) -> str:
    """Return ``16G``, ``512M`` or a number of bytes as systemd reads it. Raise ValueError for anything else.

    A value below 1 MiB is a mistake, such as a number without its unit.
    """
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise ValueError(f"{quoted(value)} is not an amount of memory such as 16G, 512M or a number of bytes")
    size = int(match[1]) * 1024 ** " KMGT".index(match[2] or " ")
    if size < 2**20:
        raise ValueError(f"{quoted(value)} should be at least 1M: add the unit, as in 16G")
    if size >= 2**60:
        raise ValueError(f"{quoted(value)} is more than any host has; leave the key out if there is no limit")
    return text


def cpu_count(value: object) -> float:
    """Return ``4`` or ``0.5`` as a number of CPUs. Raise ValueError unless it is a multiple of 0.01 above 0."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0.01 <= value <= 10_000:
        raise ValueError(f"{quoted(value)} is not a number of CPUs above 0, such as 4 or 0.5")
    if round(value * 100) != round(value * 100, 6):
        raise ValueError(f"{quoted(value)} has more than two decimals; write {value:.2f}")
    return value


def quoted(value: object) -> str:
    """Return the value as errors quote it: null as YAML writes it, others as Python does."""
    text = "null" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:76]} ..."


def near(name: str, known: Sequence[str]) -> str:
    """Suggest a known name for an unknown one."""
    found = difflib.get_close_matches(name, known, n=1)
    return f"did you mean `{found[0]}`?" if found else f"choose from {', '.join(known)}"


def unit_word(word: str) -> str:
    """Quote one word of ``ExecStart=:`` (systemd.service(5), COMMAND LINES): the colon makes ``$`` literal, ``%`` is
    doubled, and double quotes take C escapes."""
    for char, escaped in (("\\", r"\\"), ('"', r"\""), ("\n", r"\n"), ("\t", r"\t"), ("%", "%%")):
        word = word.replace(char, escaped)
    return f'"{word}"'


def env_line(name: str, value: str) -> str:
    r"""Return one line of an EnvironmentFile= (systemd.exec(5)): in double quotes only ``\ " ` $`` are special."""
    for char in '\\"`$':  # the backslash first; a regular expression takes 50 times as long for a long TF_CONFIG
        value = value.replace(char, f"\\{char}")
    return f'{name}="{value}"\n'


def _unquoted(command: str) -> str:
    """Return the command with quoted and backslash-escaped text blanked out."""
    return _QUOTED.sub(lambda match: " " * len(match[0]), command)


def _joined(command: str) -> str:
    """Return the command without backslash-newline pairs, which a shell drops."""

    def one(match: re.Match[str]) -> str:
        text = match[0]
        return text if text.startswith("'") else re.sub(r"\\(.)", _pair, text, flags=re.DOTALL)

    return _QUOTED.sub(one, command)


def _pair(match: re.Match[str]) -> str:
    return "" if match[1] == "\n" else match[0]
