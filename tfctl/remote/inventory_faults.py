"""Why Ansible cannot read an inventory, and what it warns of, from the messages of ansible-inventory."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tfctl.errors import BadFile

#: A file that configures an inventory plugin has this key.
PLUGIN = re.compile(rb"^[\"']?plugin[\"']?\s*:", re.MULTILINE)
_YAML = (".yml", ".yaml", ".json")
_STATIC = (*_YAML, ".ini", ".cfg", ".toml")
_UNREAD = re.compile(r"Unable to parse (.+?) as an inventory source|Completely failed to parse inventory source (.+)")
_SKIPPED = re.compile(r"Skipping (?:unexpected )?key \(((?:tfctl|ansible)_\w+)\) in group \((.+?)\)")
#: Of a file that another plugin can read, and of Ansible itself.
_NOT_FOR_USERS = re.compile(
    r"Failed to parse inventory with|Unable to parse|Error loading plugin|DEPRECAT", re.IGNORECASE
)
_ENCRYPTED = re.compile(r"no vault secrets found|\(ctrl-d\) on prompt")
_VAULT_PASSWORD = (
    "write the vault's password into a file, and name it: ANSIBLE_VAULT_PASSWORD_FILE, or vault_password_file in "
    "ansible.cfg"
)


def is_of_inventory(output: str) -> bool:
    """Return whether Ansible ended because of an inventory that it cannot read, or cannot decrypt."""
    return _UNREAD.search(output) is not None or _ENCRYPTED.search(output) is not None


def refusal(inventory: Path, sources: Sequence[Path], stderr: str) -> BadFile:
    """Return the error for an inventory that Ansible cannot read. ``sources``: its files and directories."""
    unread = _UNREAD.search(stderr)
    path = Path(unread[1] or unread[2]) if unread else (sources[0] if len(sources) == 1 else inventory)
    return _of_vault(path, stderr) or _of_program(path, stderr) or _of_plugin(path, stderr) or _of_syntax(path, stderr)


def broken_program(sources: Sequence[Path]) -> BadFile | None:
    """Return the error for a program that cannot be started, or None. Ansible would read it as if it were a list of
    hosts, and may find none in it without a word."""
    return next((fault for path in sources if (fault := _not_started(path))), None)


def warnings(inventory: Path, stderr: str) -> tuple[str, ...]:
    """Return what Ansible warns of, in sentences. Raises BadFile for a skipped variable of tfctl or Ansible."""
    if skipped := _SKIPPED.search(stderr):
        raise BadFile(
            f"{inventory}: group {skipped[2]}: {skipped[1]} is a key of the group itself, so Ansible skips it",
            f"write it below `vars:` of {skipped[2]}",
        )
    found = [line.removeprefix("[WARNING]: ") for line in stderr.splitlines() if line.startswith("[WARNING]: ")]
    kept = [re.sub(r", it is a <class .*|, use -v+ to see details", "", line) for line in found]
    return tuple(f"{inventory}: {line}" for line in dict.fromkeys(kept) if not _NOT_FOR_USERS.search(line))


def _of_vault(path: Path, stderr: str) -> BadFile | None:
    if _ENCRYPTED.search(stderr):
        return BadFile(f"{path}: it is encrypted with ansible-vault, and there is no password for it", _VAULT_PASSWORD)
    if re.search(r"vault secrets were found that could decrypt|Decryption failed|HMAC verification failed", stderr):
        return BadFile(
            f"{path}: it is encrypted with ansible-vault, with another password than the one that is given",
            "name a file with the right one: ANSIBLE_VAULT_PASSWORD_FILE, or vault_password_file in ansible.cfg",
        )
    if found := re.search(r"^.*(vault password file|password script|vault password).*$", stderr, re.MULTILINE):
        return BadFile(f"{path}: {_plain(found[0])}", "correct ANSIBLE_VAULT_PASSWORD_FILE or vault_password_file")
    return None


def _of_program(path: Path, stderr: str) -> BadFile | None:
    """Return the error for a program: what it has printed last says why it failed."""
    cause = _cause("script", stderr)
    if (fault := _not_started(path)) or not cause or _interpreter(path) is None:
        return fault
    printed = re.search(r"Standard error from inventory script:\n(.+?)(?:\n\n|\n?\Z|\n\[)", stderr, re.DOTALL)
    last = f" ({printed[1].strip().splitlines()[-1].strip()})" if printed and printed[1].strip() else ""
    return BadFile(f"{path}: {cause.rstrip('.')}{last}", f"run it, and correct what it prints: {path} --list")


def _not_started(path: Path) -> BadFile | None:
    """Return the error for a program that cannot be started, or None for others and for other files."""
    interpreter = _interpreter(path)
    if interpreter is None:
        return None
    if not os.access(path, os.X_OK):
        return (
            None
            if path.suffix in _STATIC
            else BadFile(f"{path}: it is a program, but not executable", f"chmod +x {path}")
        )
    if interpreter.endswith("\r"):
        return BadFile(f"{path}: its lines end as on Windows, so it cannot be started", f"dos2unix {path}")
    if not Path(interpreter).exists():
        return BadFile(
            f"{path}: its first line names {interpreter}, which this machine does not have",
            "correct the line, such as #!/usr/bin/env python3",
        )
    return None


def _of_plugin(path: Path, stderr: str) -> BadFile | None:
    """Return the error for a file that configures a plugin: what `auto` says, which calls it."""
    if not (path.suffix in _YAML and path.is_file() and PLUGIN.search(path.read_bytes())):
        return None
    cause = _cause("auto", stderr) or "no inventory plugin accepts it"
    unknown = re.search(r"unknown plugin '([^']+)'", cause)
    if unknown and unknown[1].count(".") >= 2:
        collection = ".".join(unknown[1].split(".")[:2])
        remedy = (
            f"install the collection for the Ansible of tfctl: ansible-galaxy collection install {collection} "
            f"(and the Python libraries that it needs in {sys.prefix})"
        )
    elif unknown:
        remedy = "correct `plugin:`; `ansible-doc -t inventory -l` lists those that are installed"
    elif re.search(r"python (library|module)|No module named|librar(y|ies)", cause, re.IGNORECASE):
        remedy = f"install what it names in the Python environment of tfctl: {sys.prefix}"
    elif "could not be verified by inventory plugin" in cause or "accepts it" in cause:
        remedy = (
            "the name of the file must end as the plugin requires, such as .aws_ec2.yml: see ansible-doc -t inventory"
        )
    else:
        remedy = _by_hand(path)
    return BadFile(f"{path}: {cause}", remedy)


def _of_syntax(path: Path, stderr: str) -> BadFile:
    plugin = "yaml" if path.suffix in _YAML else "ini"
    places = re.findall(rf"Origin: ({re.escape(str(path))}\S*)", stderr)
    return BadFile(f"{max(places, key=len, default=path)}: {_cause(plugin, stderr) or _last(stderr)}", _by_hand(path))


def _by_hand(path: Path) -> str:
    return f"run `ansible-inventory --list -i {path}`"


def _interpreter(path: Path) -> str | None:
    """Return what the first line of a program names, or None for other files."""
    try:
        with path.open("rb") as file:
            line = file.readline(500).decode(errors="replace")
    except OSError:
        return None
    words = line.removeprefix("#!").rstrip("\n").split(" ")
    return next(filter(None, words), "") if line.startswith("#!") else None


def _cause(plugin: str, stderr: str) -> str | None:
    """Return the cause that Ansible gives for this plugin, in one line."""
    found = re.search(rf"Failed to parse inventory with '{plugin}' plugin: (.+)", stderr)
    return found[1] if found else None


def _last(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("[ERROR]", "ERROR!"))]
    return _plain((errors or lines or ["Ansible gave no reason"])[-1])


def _plain(line: str) -> str:
    return re.sub(r"^(\[ERROR\]:|ERROR!|\[WARNING\]:)\s*", "", line)
