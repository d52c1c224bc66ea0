"""Build the faults that decisions find: what is wrong, and what a user can do about it."""

from __future__ import annotations

from dataclasses import dataclass, field

from tfctl.provision.faults import Kind, ModuleFault


def fault(message: str, remedy: str, kind: Kind = "unfit") -> ModuleFault:
    """Return a fault. The remedy may contain {host}, which stands for the host's name in the inventory."""
    return {"message": message, "remedy": remedy, "kind": kind}


@dataclass
class Findings:
    """What decisions about one host report beside their results: its faults, and notices for the user."""

    faults: list[ModuleFault] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def refuse(self, message: str, remedy: str, kind: Kind = "unfit") -> None:
        """Add a fault, unless it was found before."""
        found = fault(message, remedy, kind)
        if found not in self.faults:
            self.faults.append(found)
