"""Load Ansible inventories. Ansible itself reads them, and its answer is cached by content.

This is the only file that runs ansible-inventory, which takes 0.4 s; a cached answer takes 2 ms. If tfctl needs a value
that is a template, it also runs ansible.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfctl.errors import BadFile, TfctlError
from tfctl.model.host import VARIABLES, Inventory
from tfctl.remote import ansible_cfg, hostvars, inventory_cache, inventory_faults, inventory_sources, inventory_values
from tfctl.remote.own_address import with_own_addresses

if TYPE_CHECKING:
    import subprocess

_MISSING = "check the path; `tfctl init DIR` writes an inventory to start from"
#: Timeout in seconds. A dynamic inventory may query a slow cloud.
LIMIT_S = 120.0


def load(path: Path) -> Inventory:
    """Load the inventory at ``path``, a file or a directory in any format that Ansible reads, or several
    (`inventory_sources.joined`), which Ansible merges: where they set the same variable of a host, the last one wins.

    Raises BadFile if it is missing, cannot be read, has no hosts, or has connection settings that tfctl cannot use.
    """
    sources = inventory_sources.split(path)
    path = Path(",".join(sources))
    require(path)
    digest = inventory_cache.digest(sources, _program)
    found = inventory_cache.get(digest, str(path))
    if found is None:
        found, computed = _read(path)
        # What a template looks up may change, and what was encrypted is not stored.
        inventory_cache.put(None if computed else digest, found)
    return with_own_addresses(found)


def if_usable(path: Path) -> Inventory | None:
    """Return the inventory, or None if tfctl cannot use it. Ansible may accept what it contains, such as a template."""
    try:
        return load(path)
    except TfctlError:
        return None


def require(path: Path) -> None:
    """Raise BadFile for an inventory that does not exist, or for the first of several."""
    for each in inventory_sources.paths(path):
        if not each.exists():
            raise missing(each)


def missing(path: Path) -> BadFile:
    """Return the error for an inventory that does not exist."""
    return BadFile(f"{path}: no such inventory", for_missing(path, _MISSING))


def for_missing(path: Path, otherwise: str) -> str:
    """Return what to do about an inventory that does not exist. That of a lab is written by the lab itself."""
    if path.parts[-2:] != ("inventory", "lab.ini"):
        return otherwise
    return f"`tfctl lab up` starts nodes on this machine and writes it (needs root on Linux); otherwise {otherwise}"


def default_path() -> Path | None:
    """Return the inventory that Ansible would use, or several: from ANSIBLE_INVENTORY, else ansible.cfg, else None."""
    found = ansible_cfg.read().get("defaults", "inventory", "ANSIBLE_INVENTORY")
    if found is None:
        return None
    return inventory_sources.of_paths(
        replace(found, value=part).path for part in found.value.split(",") if part.strip()
    )


def _read(path: Path) -> tuple[Inventory, bool]:
    """Return the inventory, and whether Ansible had to compute some of its values."""
    listing, warnings = _listing(path)
    variables = listing.get("_meta", {}).get("hostvars", {})
    order = _group_order(listing)
    names = list(dict.fromkeys(name for group in order for name in listing.get(group, {}).get("hosts", [])))
    if not names:
        raise BadFile(f"{path}: no hosts in it", "an inventory has one host a line: node1 ansible_host=10.0.0.1")
    settings = ansible_cfg.read()
    base = inventory_sources.base(path)
    adhoc = str(Path(_program()).with_name("ansible"))
    computed = inventory_values.evaluated(path, variables, lambda words: _ansible(path, adhoc, *words))
    variables = computed or variables
    hosts = tuple(hostvars.host(path, name, variables.get(name, {}), settings, base) for name in names)
    groups = {group: _members(listing, group, names) for group in order}
    found = Inventory(str(path), hosts, {**groups, "all": tuple(names)}, _unknown(variables), warnings)
    return found, computed is not None


def _unknown(variables: inventory_values.Variables) -> dict[str, tuple[str, ...]]:
    """Return the variables tfctl_* that tfctl does not read, with the hosts that have them."""
    found: dict[str, tuple[str, ...]] = {}
    for host, known in variables.items():
        for name in known:
            if name.startswith("tfctl_") and name not in VARIABLES:
                found[name] = (*found.get(name, ()), host)
    return found


def _group_order(listing: dict[str, Any]) -> list[str]:
    """Return the groups level by level from ``all`` down, in the order of Ansible's own ``all``: the listing's keys are
    sorted, its lists of children are not."""
    order = ["all"]
    for group in order:
        order.extend(child for child in listing.get(group, {}).get("children", []) if child not in order)
    return order


def _members(listing: dict[str, Any], group: str, names: list[str]) -> tuple[str, ...]:
    """Return the group's hosts in inventory order. Ansible rejects a group that is its own descendant."""
    groups = [group]
    for each in groups:
        groups.extend(listing.get(each, {}).get("children", []))
    found = {name for each in groups for name in listing.get(each, {}).get("hosts", [])}
    return tuple(name for name in names if name in found)


def _program() -> str:
    """Return the path of ansible-inventory, from this Python's environment or else from PATH."""
    beside = Path(sys.executable).parent / "ansible-inventory"
    if os.access(beside, os.X_OK):
        return str(beside)
    import shutil

    found = shutil.which("ansible-inventory")
    if found is None:
        raise TfctlError("ansible-inventory is not installed", "install ansible-core beside tfctl")
    return found


def _listing(path: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what ansible-inventory prints, and its warnings."""
    files = inventory_sources.paths(path)
    if broken := inventory_faults.broken_program(files):
        raise broken
    done = _run(path)
    # Ansible skips unreadable files of a directory with a mere warning: half a cluster could be missing.
    if done.returncode != 0 or "Unable to parse" in done.stderr:
        raise inventory_faults.refusal(path, files, done.stderr)
    try:
        listing = json.loads(done.stdout)
    except ValueError:
        raise BadFile(
            f"{path}: `ansible-inventory --list` printed no JSON", "is ansible-core completely installed?"
        ) from None
    return listing if isinstance(listing, dict) else {}, inventory_faults.warnings(path, done.stderr)


def _run(path: Path) -> subprocess.CompletedProcess[str]:
    return _ansible(path, _program(), "--list")


def _ansible(path: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program of Ansible on the inventory."""
    import subprocess

    environment = {
        **os.environ,
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_FORCE_COLOR": "0",
        "ANSIBLE_DEPRECATION_WARNINGS": "0",
        "ANSIBLE_VERBOSITY": "0",
        "ANSIBLE_ASK_VAULT_PASS": "False",  # there is no terminal
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
        "ANSIBLE_INVENTORY_UNPARSED_FAILED": "true",
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    # --playbook-dir: otherwise group_vars/ of the current directory would count too. Those of the directory that is
    # named override others, so it has none if there are several inventories.
    base = inventory_sources.base(path) or Path(sys.prefix)
    sources = [word for source in inventory_sources.split(path) for word in ("-i", source)]
    command = [program, *sources, "--playbook-dir", str(base), *words]
    try:
        # A new session has no terminal, so nothing can prompt for a password unseen.
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        what = f"{path}: {Path(program).name} ran longer than {LIMIT_S:.0f} s and was killed"
        raise BadFile(what, f"see what it waits for: ansible-inventory --list {shlex.join(sources)}") from None
