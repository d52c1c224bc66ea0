"""Check a job before any host is asked: what its commands name, and words that mean something else on hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tfctl.errors import BadFile, together
from tfctl.jobs import scripts
from tfctl.jobs.code import CodeListing
from tfctl.model import assign, masking, shell, stacks
from tfctl.model.host import stack_dirs
from tfctl.model.job import Layout
from tfctl.model.task import Slot
from tfctl.model.text import Verbatim
from tfctl.node.names import HIDDEN

#: A variable of the shell, as `$NAME` or, in commands, as `${NAME}`. In `env`, `${` is refused unless it is meant.
_VARIABLE = re.compile(r"(?<!\$)\$([A-Za-z_]\w*)", re.ASCII)
_VARIABLE_IN_COMMAND = re.compile(r"(?<!\$)\$\{?([A-Za-z_]\w*)", re.ASCII)


@dataclass(frozen=True)
class Checked:
    """``errors`` would make the job fail on its hosts. ``warnings`` are sentences about what is probably a mistake."""

    errors: tuple[BadFile, ...]
    warnings: tuple[str, ...]

    def require(self) -> None:
        """Raise the errors together as BadFile, if there are any."""
        if self.errors:
            raise together(self.errors)


def check(layout: Layout, sent: CodeListing | None) -> Checked:
    """Check the commands and variables of a job, and the code that the commands run.

    ``sent``: the files that are sent to the hosts; None for a job on this machine, which uses all that are there.
    """
    first = {(slot.role, slot.command): slot for slot in reversed(layout.slots)}
    slots = [*reversed(first.values())]
    return Checked(
        tuple(error for slot in slots for error in scripts.faults(slot, layout.strategy, layout.code, sent)),
        (
            *layout.notes,
            *dict.fromkeys(warning for slot in slots for warning in (*_odd_words(slot), *_references(slot))),
            *shell.remarks(slots),
            *scripts.remarks(slots, layout, sent),
        ),
    )


def without_hosts(layout: Layout) -> list[str]:
    """Return sentences about what hosts say better: `start` asks them."""
    return [*_unknown_stacks(layout), *assign.outgoing_ports(layout)]


def _unknown_stacks(layout: Layout) -> list[str]:
    """Return a sentence for each stack that neither tfctl nor the inventory has. The hosts may have it."""
    named = dict.fromkeys(slot.stack for slot in layout.slots)
    directories = stack_dirs((*layout.hosts, *layout.others))
    return [
        f"stack {name}: tfctl has none of this name, so the hosts must have their own in /opt/tfctl/stacks; "
        f"{stacks.others(name, directories)}"
        for name in named
        if name != stacks.NONE and name not in stacks.load(directories)
    ]


def _odd_words(slot: Slot) -> Iterator[str]:
    """Yield a sentence for each word or variable with a path that means something else on hosts, or nothing."""
    texts = {f"`{word}`": word.rpartition("=")[2] for word in slot.command[1:] if not re.search(r"\s", word)}
    texts |= {name: value for name, value in slot.env.items() if name not in ("HOME", "PATH", "PYTHONPATH")}
    if masking.command(slot.command) != [*slot.command]:
        yield (
            f"{slot.role}: the command contains a secret, which all users of a host can see in its list of processes; "
            "set it in `env` or `env_file`"
        )
    for name, value in texts.items():
        where = f"{slot.role}: {name}"
        if value.startswith("~/"):
            yield f"{where}: `~` is not expanded, because no shell runs the command; write the full path"
        elif hidden := next((root for root in HIDDEN if Path(value).is_relative_to(root)), None):
            yield f"{where}: tasks cannot see {hidden} of the hosts; use a directory such as /srv/tfctl"


def _references(slot: Slot) -> Iterator[str]:
    """Yield a sentence for each variable that a shell would replace, and tfctl does not.

    A value from outside the job file, such as a password, counts only if it is nothing but a variable.
    """
    for name, value in slot.env.items():
        if found := _VARIABLE.fullmatch(value) if isinstance(value, Verbatim) else _VARIABLE.search(value):
            yield (
                f"{slot.role}: {name}: tfctl does not replace `${found[1]}`; to take a variable from the shell, write "
                "its name without a value in `env` of the job file"
            )
    if not shell.is_shell(slot.command):
        for reference in dict.fromkeys(_VARIABLE_IN_COMMAND.findall(" ".join(slot.command))):
            yield (
                f"{slot.role}: `${reference}` in the command is not replaced, because no shell runs the command; use "
                "[sh, -c, 'exec …']"
            )
