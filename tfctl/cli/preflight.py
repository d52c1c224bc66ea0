"""`tfctl preflight`: report what would prevent provisioning, without changing anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import typer

from tfctl.cli import text
from tfctl.cli.common import (
    AskBecomePassOption,
    InventoryArgument,
    LimitOption,
    OutputFormat,
    OutputOption,
    PythonTreeOption,
    SameInventoryOption,
    StackOption,
    named_inventory,
    say,
)
from tfctl.cli.host_results import ask_become_password, host_lines, run_shown
from tfctl.errors import Exit, first_of

if TYPE_CHECKING:
    from tfctl.cli.objects import ExaminedHostObject, PreflightObject
    from tfctl.provision.results import HostResult

_JOBS_NEED_NO_PASSWORD = (
    "The password is for provisioning alone. Jobs need sudo without a password for one program, tfctl-node: provision "
    "permits this to the group tfctl-admin, and adds the operators to it."
)


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: tfctl preflight inventory/lab.ini --stack tf2.15")(preflight)


def preflight(
    inventory: InventoryArgument = None,
    inventory_option: SameInventoryOption = None,
    stack: StackOption = None,
    limit: LimitOption = None,
    python_tree: PythonTreeOption = None,
    ask_become_pass: AskBecomePassOption = False,
    output: OutputOption = OutputFormat.text,
) -> int:
    """Report what would prevent provisioning; change nothing. Examines every host and lists all its faults.

    Exit code: 0 all hosts are fit, 8 one is not, 4 one cannot be reached, 3 the inventory is invalid.
    """
    from tfctl.provision import run as use_cases

    source = named_inventory(inventory, inventory_option)
    password = ask_become_password() if ask_become_pass else None
    trees = tuple(python_tree or ())
    request = use_cases.ProvisionRequest(source, stack, limit, python_trees=trees, become_password=password)
    result = run_shown(use_cases.preflight, request)
    if password:
        say(_JOBS_NEED_NO_PASSWORD)
    code = first_of(code for host in result.hosts if (code := exit_of(host)))
    if output is OutputFormat.json:
        found: PreflightObject = {"exit": int(code), "hosts": [as_object(host) for host in result.hosts]}
        text.print_json(found)
    else:
        typer.echo("\n".join(host_lines(result, lambda host: text.state_word(_state(host)), lambda host: host.drifts)))
    return code


def exit_of(host: HostResult) -> Exit:
    """Return a host's exit code. A host that cannot be examined counts as unfit."""
    return Exit.PREFLIGHT if host.exit is Exit.FAILED else host.exit


def as_object(host: HostResult) -> ExaminedHostObject:
    """Return an element of what -o json prints."""
    faults = [fault.json() for fault in host.faults]
    return {
        "host": host.host,
        "state": _state(host),
        "exit": int(exit_of(host)),
        "faults": faults,
        "drifts": [*host.drifts],
        "warnings": [*host.warnings],
    }


def _state(host: HostResult) -> Literal["fit", "unfit", "unreachable"]:
    return "unreachable" if host.unreachable else "unfit" if host.failed else "fit"
