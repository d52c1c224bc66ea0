"""Write files of this machine."""

from __future__ import annotations

import os
from pathlib import Path


def replace(path: Path, text: str, mode: int | None = None) -> None:
    """Create or replace a file atomically, so that a reader never finds half of it. Raise OSError.

    ``mode``: its permissions; by default, those that the umask leaves.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    if mode is not None:
        part.chmod(mode)
    part.replace(path)
