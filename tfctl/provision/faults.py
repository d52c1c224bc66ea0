"""Faults: what is wrong on a host, and what a user can do about it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypedDict

from tfctl.errors import ErrorObject, Exit, error_json
from tfctl.provision.remedies import remedy_for
from tfctl.remedies import Remedy

#: inventory: a variable of the inventory has a value that cannot be used; busy: a job runs; unfit: the host lacks what
#: tfctl requires; failed: the work itself failed. Modules report two of them (plugins/module_utils/install.py).
Kind = Literal["inventory", "busy", "unfit", "failed"]
KINDS: dict[Kind, Exit] = {
    "inventory": Exit.BAD_FILE,
    "busy": Exit.BUSY,
    "unfit": Exit.PREFLIGHT,
    "failed": Exit.FAILED,
}
_PASSWORD = re.compile(r"(//[^/\s:@]*):[^/\s@]+@")


class ModuleFault(TypedDict):
    """A fault as the modules and plugins in playbooks/ report it."""

    message: str
    remedy: str
    kind: Kind


@dataclass(frozen=True)
class Fault:
    """Something that is wrong on a host, with a remedy, or "" if none is known, and the exit code for it."""

    message: str
    remedy: str = ""
    exit: Exit = Exit.FAILED

    def json(self) -> ErrorObject:
        """Return the object that `-o json` prints for it."""
        return error_json(self.exit, self.message, self.remedy)


def reported(faults: Iterable[ModuleFault], host: str) -> tuple[Fault, ...]:
    """Return a module's faults with the exit codes of their kinds, and with remedies that name the host."""
    return tuple(_reported(fault, host) for fault in faults)


def without_passwords(text: str) -> str:
    """Mask passwords in URLs. User and host stay, to show which URL failed."""
    return _PASSWORD.sub(r"\1:***@", text)


def _reported(fault: ModuleFault, host: str) -> Fault:
    remedy = Remedy("", fault["remedy"]) if fault["remedy"] else remedy_for(fault["message"])
    return Fault(without_passwords(fault["message"]), remedy.naming(host) if remedy else "", KINDS[fault["kind"]])
