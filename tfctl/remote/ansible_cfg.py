"""Settings of ansible.cfg and ANSIBLE_* that decide which hosts there are and how to reach them."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tfctl.errors import BadFile


@dataclass(frozen=True)
class Setting:
    """A value, its origin for error messages, and the directory that a relative path in it is relative to."""

    value: str
    place: str
    base: Path

    @property
    def path(self) -> Path:
        return self.base / expanded(Path(os.path.expandvars(self.value)))


@dataclass(frozen=True)
class AnsibleSettings:
    """The values of ansible.cfg by section and key. The environment overrides them."""

    file: Path | None
    values: Mapping[tuple[str, str], str]

    def get(self, section: str, key: str, variable: str) -> Setting | None:
        """Return the environment's ``variable``, else ``key`` of ansible.cfg, or None if both are empty."""
        if value := os.environ.get(variable, ""):
            return Setting(value, variable, Path.cwd())
        if self.file is None or not (value := self.values.get((section, key), "")):
            return None
        return Setting(value, f"{self.file}: [{section}] {key}", self.file.parent)


def expanded(path: Path) -> Path:
    """Expand ``~`` or ``~user`` in ``path``. Raises BadFile for a user that this machine does not have."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise BadFile(f"{path}: {path.parts[0]} has no home directory here", "write the whole path") from None


def find() -> Path | None:
    """Return the ansible.cfg that Ansible would use. It ignores one in a world-writable current directory."""
    candidates = [Path("~/.ansible.cfg").expanduser(), Path("/etc/ansible/ansible.cfg")]
    here = Path.cwd()
    if not here.stat().st_mode & stat.S_IWOTH:
        candidates.insert(0, here / "ansible.cfg")
    if named := os.environ.get("ANSIBLE_CONFIG"):
        file = expanded(Path(named)).absolute()
        candidates.insert(0, file / "ansible.cfg" if file.is_dir() else file)
    return next((file for file in candidates if os.access(file, os.R_OK)), None)


def read() -> AnsibleSettings:
    """Read the settings. Raises BadFile for an ansible.cfg that is not valid."""
    file = find()
    if file is None:
        return AnsibleSettings(None, {})
    import configparser

    # Like Ansible: comments after " ;" and no interpolation.
    parser = configparser.RawConfigParser(inline_comment_prefixes=(";",))
    try:
        parser.read_string(file.read_text(encoding="utf-8"), source=str(file))
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        raise BadFile(f"{file}: {' '.join(str(error).split())}", "correct it, or move it away") from None
    return AnsibleSettings(
        file, {(name, key): value for name in parser.sections() for key, value in parser[name].items()}
    )
