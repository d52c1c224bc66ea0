"""Convert one host's variables, as Ansible lists them, to a Host."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfctl.errors import BadFile
from tfctl.model.addresses import fault
from tfctl.model.host import DEFAULT_OUTPUT_ROOTS, DEFAULT_PORTS, LOCAL, TRANSPORTS, Host, Ssh, is_loopback, local_paths
from tfctl.model.ports import port_range
from tfctl.model.text import stack_name
from tfctl.node.names import ADDRESS, HOST
from tfctl.remote.ansible_cfg import AnsibleSettings, Setting

#: A template of Jinja, or its beginning.
TEMPLATE = re.compile(r"\{[{%].*?(?:[%}]\}|$)", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CONNECTIONS = ("ssh", "smart", "paramiko", "paramiko_ssh", LOCAL)
_PASSWORDS = ("ansible_password", "ansible_ssh_password", "ansible_ssh_pass")
#: Where a port and further words belong, which an address does not hold.
_INSTEAD = {
    "ansible_host": (
        "write the port as ansible_port",
        "write one address; the one for other hosts is tfctl_address, options of ssh are ansible_ssh_common_args",
    ),
    "tfctl_address": (
        "the ports of jobs are tfctl_ports; that of ssh is ansible_port",
        "write one address, at which all other hosts reach this one",
    ),
}
_SSH_ARGS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")

#: The variables that are read here, except passwords, of which only their existence matters.
READ = (
    "ansible_connection", "ansible_host", "ansible_ssh_host", "ansible_port", "ansible_ssh_port", "ansible_user",
    "ansible_ssh_user", "ansible_ssh_private_key_file", "ansible_private_key_file", *_SSH_ARGS, "tfctl_address",
    "tfctl_gpus_expected", "tfctl_output_roots", "tfctl_ports", "tfctl_ssh", "tfctl_stack", "tfctl_stack_dirs",
)  # fmt: skip


def host(
    inventory: Path, name: str, variables: Mapping[str, Any], settings: AnsibleSettings, base: Path | None = None
) -> Host:
    """Return the Host ``name``. As in Ansible, ansible.cfg and the environment give the defaults. Raises BadFile.

    ``base``: where relative paths of tfctl begin; None if the inventory has files in several directories.
    """
    if not HOST.fullmatch(name):
        raise BadFile(
            f"{inventory}: no host can be called {name!r}", "give it another name, and its address as ansible_host"
        )
    known = _Variables(f"{inventory}: host {name}", variables, settings)
    address = known.address("ansible_host", "ansible_ssh_host")
    if known.is_local():
        ssh = Ssh(name, transport=LOCAL)
        if address and is_loopback(address):
            address = None  # Ansible does not use it, and the other hosts cannot
    else:
        ssh = Ssh(
            host=address or known.address_of(name),
            port=known.port("ansible_port", "ansible_ssh_port"),
            user=known.text(
                "ansible_user", "ansible_ssh_user", default=("defaults", "remote_user", "ANSIBLE_REMOTE_USER")
            ),
            key=known.key(),
            args=tuple(word for variable in _SSH_ARGS for word in known.words(variable)),
            transport=known.transport("tfctl_ssh"),
            password=any(variables.get(variable) not in (None, "") for variable in _PASSWORDS),
        )
    return Host(
        name=name,
        ssh=ssh,
        address=known.address("tfctl_address") or address,
        stack=known.stack("tfctl_stack"),
        ports=known.port_range("tfctl_ports"),
        output_roots=known.paths("tfctl_output_roots"),
        gpus_expected=known.count("tfctl_gpus_expected"),
        stack_dirs=known.local_paths("tfctl_stack_dirs", base),
    )


class _Variables:
    """Typed access to a host's variables. An unusable value raises a BadFile that names host and variable."""

    def __init__(self, place: str, variables: Mapping[str, Any], settings: AnsibleSettings) -> None:
        self._place = place
        self._variables = variables
        self._settings = settings

    def is_local(self) -> bool:
        """Return whether the host is this machine. Otherwise it is reached by ssh."""
        connection = self.text("ansible_connection") or "ssh"
        plugin = connection.removeprefix("ansible.builtin.")
        if plugin not in _CONNECTIONS:
            raise self._bad(
                "ansible_connection",
                f"{connection!r} is neither ssh nor local",
                "remove it: tfctl connects to hosts by ssh; local is for the machine that it runs on",
            )
        return plugin == LOCAL

    def text(self, *names: str, default: tuple[str, str, str] | None = None) -> str | None:
        """Return the first of ``names`` that is set, else the setting ``default``."""
        for name in names:
            value = self._variables.get(name)
            if value not in (None, ""):
                return self._plain(name, value)
        setting = self._settings.get(*default) if default else None
        return setting.value if setting else None

    def address(self, *names: str) -> str | None:
        """Return a host name or IP address."""
        text = self.text(*names)
        what, remedy = fault(text, *_INSTEAD[names[0]]) if text is not None else ("", "")
        if what:
            raise self._bad(names[0], f"{text!r} {what}", remedy)
        return text

    def stack(self, name: str) -> str | None:
        """Return the name of a stack, whether or not tfctl ships it."""
        text = self.text(name)
        try:
            return None if text is None else stack_name(text)
        except ValueError as error:
            raise self._bad(name, str(error)) from None

    def transport(self, name: str) -> str | None:
        """Return the name of a transport."""
        text = self.text(name)
        if text is not None and text not in TRANSPORTS:
            raise self._bad(name, f"{text!r} is not a transport", f"set it to {' or '.join(TRANSPORTS)}")
        return text

    def address_of(self, name: str) -> str:
        if not ADDRESS.fullmatch(name):
            raise self._bad("ansible_host", f"is missing, and {name!r} is not the address of a host")
        return name

    def port(self, *names: str) -> int | None:
        text = self.text(*names, default=("defaults", "remote_port", "ANSIBLE_REMOTE_PORT"))
        return None if text is None else self._port_number(names[0], text)

    def count(self, name: str) -> int:
        """Return a number from 0 up; 0 if it is not set."""
        text = self.text(name) or "0"
        if not text.isdecimal():
            raise self._bad(name, f"{text!r} is not a number from 0 up")
        return int(text)

    def port_range(self, name: str) -> tuple[int, int]:
        """Return the first and the last port of a range such as ``2222-2299``."""
        text = self.text(name)
        if text is None:
            return DEFAULT_PORTS
        try:
            return port_range(text)
        except ValueError as error:
            raise self._bad(name, str(error)) from None

    def paths(self, name: str) -> tuple[str, ...]:
        """Parse a list of absolute paths, or a string of them separated by commas."""
        paths = tuple(path.rstrip("/") for path in self._list(name))
        for path in paths:
            if not path.startswith("/") or ".." in path.split("/"):
                raise self._bad(name, f"{path!r} is not an absolute path below /")
        return paths or DEFAULT_OUTPUT_ROOTS

    def local_paths(self, name: str, base: Path | None) -> tuple[str, ...]:
        """Return paths on this machine as absolute paths. ``base``: where relative ones begin, or None."""
        paths = self._list(name)
        for path in paths if base is None else ():
            if not path.startswith(("/", "~")):
                raise self._bad(
                    name,
                    f"{path!r} is relative, and the inventories are in several directories",
                    "write the whole path",
                )
        try:
            return local_paths(paths, base or Path("/"))
        except RuntimeError as error:
            raise self._bad(name, str(error)) from None

    def _list(self, name: str) -> list[str]:
        """Parse a list, or a string whose parts are separated by commas."""
        value = self._variables.get(name)
        if value in (None, "", []):
            return []
        texts = [self._plain(name, each) for each in (value if isinstance(value, list) else [value])]
        return [part.strip() for text in texts for part in text.split(",")]

    def key(self) -> str | None:
        """Return the path of the private key. A relative path counts from the current directory, as for Ansible; one
        in ansible.cfg counts from that file."""
        named = self.text("ansible_ssh_private_key_file", "ansible_private_key_file")
        if named is not None:
            return str(Setting(named, "", Path.cwd()).path)
        setting = self._settings.get("defaults", "private_key_file", "ANSIBLE_PRIVATE_KEY_FILE")
        return str(setting.path) if setting else None

    def words(self, variable: str) -> list[str]:
        """Return arguments for ssh. In ansible.cfg they are in [ssh_connection], named without ansible_."""
        key = variable.removeprefix("ansible_")
        text = self.text(variable, default=("ssh_connection", key, variable.upper())) or ""
        try:
            return shlex.split(text)
        except ValueError as error:
            raise self._bad(variable, str(error).lower()) from None

    def _plain(self, name: str, value: Any) -> str:
        if isinstance(value, dict) and set(value) == {"__ansible_unsafe"}:
            value = value["__ansible_unsafe"]
        if isinstance(value, dict) and "__ansible_vault" in value:
            raise self._bad(
                name,
                "is encrypted",
                "write the value itself, or give the vault's password (ANSIBLE_VAULT_PASSWORD_FILE)",
            )
        if isinstance(value, dict | list):
            raise self._bad(name, "is not one value")
        text = str(value)
        # The rest of the value may hold a password, as in a proxy command.
        if template := TEMPLATE.search(text):
            raise self._bad(
                name, f"{template[0]!r} is a template", "Ansible has not evaluated it (!unsafe): write the value itself"
            )
        if control := _CONTROL.search(text):
            raise self._bad(name, f"control character {control[0]!a} at position {control.start()}")
        return text

    def _port_number(self, name: str, text: str) -> int:
        if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 65535):
            raise self._bad(name, f"{text!r} is not a port from 1 to 65535")
        return int(text)

    def _bad(self, name: str, what: str, remedy: str = "correct it in the inventory") -> BadFile:
        return BadFile(f"{self._place}: {name}: {what}", remedy)
