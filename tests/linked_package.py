"""A copy of tfctl, of links, that has other files beside it or more files in it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import tfctl

PACKAGE = Path(tfctl.__file__).parent


def link_package(folder: Path, more: Mapping[str, str] | None = None) -> None:
    """Create the directory tfctl in ``folder``, which a Python with this folder in PYTHONPATH imports.

    It uses the playbooks, roles and examples that are in ``folder``, as a checkout does. ``more``: the texts of
    additional files by their paths in the package.
    """
    more = more or {}
    own = {parent for name in more for parent in PurePosixPath(name).parents} | {PurePosixPath()}
    for place in sorted(own):
        (folder / "tfctl" / place).mkdir()
        for entry in (PACKAGE / place).iterdir():
            if place / entry.name not in own and entry.name not in ("__pycache__", "__init__.py"):
                (folder / "tfctl" / place / entry.name).symlink_to(entry)
        shutil.copy(PACKAGE / place / "__init__.py", folder / "tfctl" / place)
    for name, text in more.items():
        (folder / "tfctl" / name).write_text(text)
