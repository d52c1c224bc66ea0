"""Remove from hosts what provisioning has created there, by the receipts that its roles have written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tfctl.provision import ansible
from tfctl.provision.events import Event
from tfctl.provision.results import PlayResult
from tfctl.provision.run import check_inventory


@dataclass(frozen=True)
class ResetRequest:
    """``driver``: also remove the NVIDIA driver. ``check``: only report what would be removed.

    ``become_password``: what sudo asks for on the hosts.
    """

    inventory: Path
    limit: str | None = None
    driver: bool = False
    check: bool = False
    become_password: str | None = field(default=None, repr=False)


def reset(request: ResetRequest, listen: Callable[[Event], None]) -> PlayResult:
    """Reset the hosts. A host that runs a job is left alone; like any failure of a host, this is part of the result.

    Raises what `check_inventory` and ansible.run raise.
    """
    known = check_inventory(request.inventory, request.limit, listen)
    variables = {"tfctl_reset_driver": request.driver}
    play = ansible.Play(
        "reset",
        request.inventory,
        request.limit,
        check=request.check,
        variables=variables,
        become_password=request.become_password,
        known=known,
    )
    return ansible.run(play, listen)
