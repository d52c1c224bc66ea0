"""Load Ansible inventories. Ansible itself reads them, and its answer is cached by content.

This is the only file that runs ansible-inventory, which takes 0.4 s; a cached answer takes 2 ms.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfctl.errors import BadFile, TfctlError
from tfctl.model.host import VARIABLES, Inventory
from tfctl.remote import ansible_cfg, hostvars, inventory_cache
from tfctl.remote.own_address import with_own_addresses

if TYPE_CHECKING:
    import subprocess

_MISSING = "check the path; `tfctl init DIR` writes an inventory to start from"
#: Timeout in seconds. A dynamic inventory may query a slow cloud.
LIMIT_S = 120.0


def load(path: Path) -> Inventory:
    """Load the inventory at ``path``, a file or a directory in any format that Ansible reads.

    Raises BadFile if it is missing, cannot be read, has no hosts, or has connection settings that tfctl cannot use.
    """
    path = Path(os.path.normpath(ansible_cfg.expanded(path).absolute()))
    if not path.exists():
        raise missing(path)
    digest = inventory_cache.digest(path, _program)
    found = inventory_cache.get(digest, str(path))
    if found is None:
        found = _read(path)
        inventory_cache.put(digest, found)
    return with_own_addresses(found)


def if_usable(path: Path) -> Inventory | None:
    """Return the inventory, or None if tfctl cannot use it. Ansible may accept what it contains, such as a template."""
    try:
        return load(path)
    except TfctlError:
        return None


def missing(path: Path) -> BadFile:
    """Return the error for an inventory that does not exist."""
    return BadFile(f"{path}: no such inventory", for_missing(path, _MISSING))


def for_missing(path: Path, otherwise: str) -> str:
    """Return what to do about an inventory that does not exist. That of a lab is written by the lab itself."""
    if path.parts[-2:] != ("inventory", "lab.ini"):
        return otherwise
    return f"`tfctl lab up` starts nodes on this machine and writes it (needs root on Linux); otherwise {otherwise}"


def default_path() -> Path | None:
    """Return the inventory that Ansible would use: from ANSIBLE_INVENTORY, else from ansible.cfg, else None."""
    found = ansible_cfg.read().get("defaults", "inventory", "ANSIBLE_INVENTORY")
    if found is None:
        return None
    if "," in found.value:
        raise BadFile(f"{found.place} names several inventories", "name one with -i")
    return found.path


def _read(path: Path) -> Inventory:
    listing = _listing(path)
    variables = listing.get("_meta", {}).get("hostvars", {})
    order = _group_order(listing)
    names = list(dict.fromkeys(name for group in order for name in listing.get(group, {}).get("hosts", [])))
    if not names:
        raise BadFile(f"{path}: no hosts in it", "an inventory has one host a line: node1 ansible_host=10.0.0.1")
    settings = ansible_cfg.read()
    hosts = tuple(hostvars.host(path, name, variables.get(name, {}), settings) for name in names)
    groups = {group: _members(listing, group, names) for group in order}
    return Inventory(str(path), hosts, {**groups, "all": tuple(names)}, _unknown(variables))


def _unknown(variables: dict[str, dict[str, Any]]) -> dict[str, tuple[str, ...]]:
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


def _listing(path: Path) -> dict[str, Any]:
    done = _run(path)
    # Ansible skips unreadable files of a directory with a mere warning: half a cluster could be missing.
    unread = re.search(r"Unable to parse (.+?) as an inventory source", done.stderr)
    if done.returncode != 0 or unread:
        raise BadFile(
            _cause(Path(unread[1]) if unread else path, done.stderr), f"run `ansible-inventory --list -i {path}`"
        )
    try:
        listing = json.loads(done.stdout)
    except ValueError:
        raise BadFile(
            f"{path}: `ansible-inventory --list` printed no JSON", "is ansible-core completely installed?"
        ) from None
    return listing if isinstance(listing, dict) else {}


def _run(path: Path) -> subprocess.CompletedProcess[str]:
    import subprocess

    environment = {
        **os.environ,
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_FORCE_COLOR": "0",
        "ANSIBLE_DEPRECATION_WARNINGS": "0",
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
        "ANSIBLE_INVENTORY_UNPARSED_FAILED": "true",
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    # --playbook-dir: otherwise group_vars/ of the current directory would count too.
    base = path if path.is_dir() else path.parent
    command = [_program(), "--list", "-i", str(path), "--playbook-dir", str(base)]
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
        what = f"{path}: ansible-inventory ran longer than {LIMIT_S:.0f} s and was killed"
        raise BadFile(what, f"see what it waits for: ansible-inventory --list -i {path}") from None


def _cause(path: Path, stderr: str) -> str:
    """Return the cause that Ansible gives for ``path``, in one line, preferring the plugin meant for such a file."""
    plugin = "yaml" if path.suffix in (".yml", ".yaml", ".json") else "script" if os.access(path, os.X_OK) else "ini"
    causes = re.findall(rf"Failed to parse inventory with '{plugin}' plugin: (.+)", stderr)
    places = re.findall(rf"Origin: ({re.escape(str(path))}\S*)", stderr)
    own = re.search(r"Standard error from inventory script:\n(.+)", stderr) if plugin == "script" else None
    message = f" ({own[1]})" if own else ""
    return f"{max(places, key=len, default=path)}: {causes[0] if causes else _last_error(stderr)}{message}"


def _last_error(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("[ERROR]", "ERROR!"))]
    line = (errors or lines or ["Ansible gave no reason"])[-1]
    return re.sub(r"^(\[ERROR\]:|ERROR!|\[WARNING\]:)\s*", "", line)
