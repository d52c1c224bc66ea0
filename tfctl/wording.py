"""Wording shared by several commands: counts, times, dry runs, and the safe display of text from hosts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

#: What a terminal obeys or hides instead of showing it: control characters except tab, and Unicode's categories Cs, Zl,
#: Zp and Cf, such as characters without width and those that reverse the direction of text.
_UNSEEN = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f\ud800-\udfff]"
)
#: What separates words, or looks like it: two spaces in a cell would look like the beginning of the next column.
_SPACES = re.compile("[\\s\u115f\u1160\u2800\u3164\uffa0]+")
#: Arrows and parts of boxes, with which only tfctl's own lines may begin.
_MARKS = re.compile("^(\\s*)[\u2190-\u21ff\u2500-\u257f\u2794\u2798-\u27be\u27f0-\u27ff\u2900-\u297f\u2b00-\u2bff]+")

#: The remedy for ports and GPUs that other jobs hold.
QUEUE = "wait for other jobs: tfctl start JOBFILE --queue"


class Lines(str):
    """Text of several lines. In all other text, a host or a program may have chosen the newlines: `shown` marks them.

    `+` keeps the lines: the last one of the left text and the first one of the right text become one. In an f-string
    they are newlines like all others.
    """

    parts: tuple[str, ...]

    def __new__(cls, *lines: str) -> Lines:
        parts = tuple(part for line in lines for part in lines_of(line))
        made = super().__new__(cls, "\n".join(parts))
        made.parts = parts
        return made

    def __add__(self, other: str) -> Lines:
        return _joined(self, other)

    def __radd__(self, other: str) -> Lines:
        return _joined(other, self)


def lines_of(text: str) -> tuple[str, ...]:
    """Return the lines of `Lines`. All other text is one."""
    return text.parts if isinstance(text, Lines) else (text,)


def _joined(left: str, right: str) -> Lines:
    *before, last = lines_of(left)
    first, *after = lines_of(right)
    return Lines(*before, str.__add__(last, first), *after)


def plain(text: str) -> str:
    """Return text that a host or a program has chosen as one line that a terminal shows as it is: `?` replaces newlines
    and whatever a terminal obeys or hides."""
    return text if text.isprintable() else _UNSEEN.sub("?", text)


def plain_lines(text: str) -> str:
    """Return text of which only the newlines are kept, such as a file: the rest of each line as `plain` returns it."""
    return "\n".join(map(plain, text.split("\n")))


def cell(text: str) -> str:
    """Return text as `plain` does, with single spaces only, so that it does not look like several cells of a table."""
    return _SPACES.sub(" ", plain(text)).strip()


def unmarked(text: str) -> str:
    """Return a line without arrows and parts of boxes at its beginning, so that it does not look like tfctl's own."""
    return _MARKS.sub(r"\1?", text)


def printed(text: str) -> list[str]:
    """Return what a task has printed as the lines to show, each as `plain` returns it. A progress bar, which overwrites
    itself with \\r, is shown in its last state."""
    return [plain(line.rstrip("\r").rpartition("\r")[2]) for line in text.removesuffix("\n").split("\n")]


def shown(text: str) -> str:
    """Return a message as it is printed: each line as `plain` returns it. Where a line contains newlines, its further
    lines begin with a bar, so that they do not look like lines of tfctl."""
    lines: list[str] = []
    for part in lines_of(text):
        first, *rest = part.splitlines() or [""]
        lines += [plain(first), *(f"  │ {plain(line)}" for line in rest)]
    return "\n".join(lines)


def with_remedy(message: str, remedy: str) -> Lines:
    """Return a message and, below it, each line of its remedy behind an arrow."""
    first, *rest = lines_of(message)
    remedies = lines_of(remedy) if remedy else ()
    return Lines(first, *(f"  {unmarked(line)}" for line in rest), *(f"  → {line}" for line in remedies))


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun: ``1 host``, ``3 hosts``; ``1 task runs``, ``3 tasks run``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def consecutive(numbers: Iterable[int]) -> list[list[int]]:
    """Return the first and the last of each run of consecutive numbers, or the only one, in ascending order."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][-1] + 1:
            found[-1][1:] = [number]
        else:
            found.append([number])
    return found


def listed(names: Sequence[str], conjunction: str = "and") -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    *most, last = names
    return f"{', '.join(most)} {conjunction} {last}" if most else last


def abbreviated(names: Sequence[str]) -> str:
    """Return up to five names as ``listed`` does, or three and how many more there are: ``a, b, c and 5 others``."""
    rest = len(names) - 3
    return listed([*names[:3], counted(rest, "other")] if rest > 2 else names)


def running(tasks: int, hosts: int) -> str:
    """Return, for example, ``6 tasks run on 3 hosts``."""
    return f"{counted(tasks, 'task runs', 'tasks run')} on {counted(hosts, 'host')}"


def outline(head: str, output: str, hosts: Iterable[str], tasks: Sequence[tuple[str, str]]) -> Lines:
    """Return a dry run's text: ``head`` with counts, then each host with its tasks. ``tasks`` holds (host, line).

    ``output`` is "" for a job without a directory on its hosts.
    """
    names = list(hosts)
    lines = [f"{head}, {counted(len(tasks), 'task')} on {counted(len(names), 'host')}"]
    for name in names:
        lines += [f"{name}: output {output or 'none'}", *(f"  {line}" for host, line in tasks if host == name)]
    return Lines(*lines)


def devices(gpus: Sequence[str]) -> str:
    """Return ``, GPUs GPU-1 GPU-2``, or an empty string."""
    return f", GPUs {' '.join(gpus)}" if gpus else ""


def rfc3339(time: float | None) -> str | None:
    """Format an epoch time as RFC 3339, in UTC, in whole seconds."""
    return None if time is None else datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_ms(time: float) -> str:
    """Format an epoch time as RFC 3339, in UTC, to the millisecond."""
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
