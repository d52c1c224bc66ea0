"""Run the provisioning playbooks, with the user's options as their variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict

from tfctl.errors import BadFile, ErrorObject, TfctlError, Unreachable, UsageError
from tfctl.model import stacks
from tfctl.model.host import Host, Inventory, check_logins, check_variables
from tfctl.model.pattern import select
from tfctl.provision import ansible, control, python_tree
from tfctl.provision.events import Event, Warned
from tfctl.provision.explanation import Explanation
from tfctl.provision.parts import PARTS
from tfctl.provision.results import PlayResult
from tfctl.remote import inventory
from tfctl.remote.ansible_cfg import expanded


class Variables(TypedDict, total=False):
    """The user's options for one run, as variables of the playbooks."""

    tfctl_more_trees: list[str]
    tfctl_requirements: list[str]
    tfctl_reboot: bool
    tfctl_upgrade_driver: bool
    tfctl_full: bool
    tfctl_stack: str


#: What `rollback` can return to an earlier version. Without tags, only the first.
ROLLED_BACK = ("tensorflow", "nvidia_driver")


@dataclass(frozen=True)
class ProvisionRequest:
    """``stack`` None: each host's stack of the inventory. ``reboot``: reboot hosts whose driver needs it, in batches.

    ``python_trees``: CPython trees of this machine, for hosts without a Python that their stack accepts.
    ``rollback``: install nothing new, but switch each host's stack back to its previous environment, or with the tag
    nvidia_driver its driver to the previous version.
    ``become_password``: what sudo asks for on the hosts.
    ``full``: run all roles, also those whose receipts hold. ``requirements``: files whose packages to install.
    ``upgrade_driver``: move drivers that tfctl has installed to the newest version of their branch.
    """

    inventory: Path
    stack: str | None = None
    limit: str | None = None
    tags: tuple[str, ...] = ()
    check: bool = False
    diff: bool = False
    reboot: bool = False
    python_trees: tuple[Path, ...] = ()
    rollback: bool = False
    become_password: str | None = field(default=None, repr=False)
    full: bool = False
    requirements: tuple[Path, ...] = ()
    upgrade_driver: bool = False


def provision(request: ProvisionRequest, listen: Callable[[Event], None]) -> PlayResult:
    """Provision the hosts, or with ``check`` report what would change. A host's failure is part of the result.

    Raises BadFile for an unknown stack or a misspelt variable of the inventory, UsageError for an unknown tag, and
    whatever ansible.run raises.
    """
    known = check_inventory(request.inventory, request.limit, listen)
    if request.stack not in (None, stacks.NONE) and request.stack not in stacks.load():
        stacks.get(request.stack, inventory.load(request.inventory).stack_dirs)
    for tag in request.tags:
        if tag not in PARTS:
            raise UsageError(f"--tags {tag}: there is no such part", f"choose from {', '.join(PARTS)}")
    for file in request.requirements:
        if not file.is_file():
            raise BadFile(f"--requirements {file}: no such file")
    others = (request.reboot, request.python_trees, request.full, request.requirements, request.upgrade_driver)
    if request.rollback and (any(others) or not {*request.tags} <= {*ROLLED_BACK}):
        allowed = f"--stack, --limit, --check, --diff and --tags {','.join(ROLLED_BACK)}"
        raise UsageError(f"--rollback can only be combined with {allowed}")
    play = ansible.Play(
        "rollback" if request.rollback else "provision",
        request.inventory,
        request.limit,
        request.tags,
        request.check,
        request.diff,
        _variables(request),
        request.become_password,
        known=known,
    )
    return ansible.run(play, listen)


def preflight(request: ProvisionRequest, listen: Callable[[Event], None]) -> PlayResult:
    """Inspect the hosts without changing them, and report everything that would make `provision` fail.

    Raises what `provision` raises.
    """
    return provision(replace(request, tags=("preflight",), check=True), listen)


def explain(
    source: Path, host: str, python_trees: tuple[Path, ...] = (), become_password: str | None = None
) -> Explanation[ErrorObject]:
    """Inspect one host and return what each stack would be on it. The arguments are those of ProvisionRequest.

    Raises UsageError for a pattern that matches several hosts, Unreachable or TfctlError for a host that cannot be
    inspected, and whatever ansible.run raises.
    """
    known = check_inventory(source, host, lambda _: None)
    given: Variables = {"tfctl_more_trees": _packed(python_trees)}
    play = ansible.Play("explain", source, host, variables=given, become_password=become_password, known=known)
    (found, *more) = ansible.run(play, lambda _: None).hosts
    if more:
        raise UsageError(f"--host {host} matches several hosts", "name one")
    if found.explained is None:
        kind = Unreachable if found.unreachable else TfctlError
        raise kind(f"{found.host}: " + found.reason, found.remedy)
    return found.explained


def check_inventory(source: Path, limit: str | None, listen: Callable[[Event], None]) -> Inventory | None:
    """Report what Ansible warns of, and return the inventory, or None if tfctl cannot use it. What it contains, such as
    a template, Ansible may accept.

    Raises BadFile for a misspelt variable, and for a password of ssh."""
    found = inventory.if_usable(source)
    if found is None:
        return None
    check_variables(found)
    check_logins(_limited(found, limit))
    for warning in found.warnings:
        place, _, text = warning.partition(": ")
        listen(Warned(place, text))
    return found


def _limited(found: Inventory, limit: str | None) -> Sequence[Host]:
    """Return the hosts that match, or none if only Ansible understands the pattern."""
    try:
        return select(found, limit) if limit else found.hosts
    except TfctlError:
        return ()


def _variables(request: ProvisionRequest) -> Variables:
    given: Variables = {"tfctl_more_trees": _packed(request.python_trees)} if request.python_trees else {}
    if request.requirements:
        given["tfctl_requirements"] = [str(file.absolute()) for file in request.requirements]
    if request.reboot:
        given["tfctl_reboot"] = True
    if request.upgrade_driver:
        given["tfctl_upgrade_driver"] = True
    if request.full:
        given["tfctl_full"] = True
    if request.stack:
        given["tfctl_stack"] = request.stack
    return given


def _packed(trees: Sequence[Path]) -> list[str]:
    """Return the absolute paths of CPython trees. Raises BadFile for one that cannot be packed."""
    paths = [expanded(tree).absolute() for tree in trees]
    for path in paths:
        python_tree.pack(path, control.cache() / "pythons")
    return [str(path) for path in paths]
