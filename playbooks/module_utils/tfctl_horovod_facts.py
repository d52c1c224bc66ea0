"""Facts about Open MPI and Horovod on a host."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

STACKS = Path("/opt/tfctl/stacks")
PTH = "tfctl-horovod.pth"
LIMIT_S = 20


def horovods(stacks: Path = STACKS) -> list[str]:
    """Return the names of the environments that use a Horovod."""
    return sorted({path.parents[3].name for path in stacks.glob(f"*-*/lib/python3.*/site-packages/{PTH}")})


def linked(stacks: Path = STACKS) -> list[str]:
    """Return the names of the environments that link to an Open MPI built by tfctl."""
    return sorted({path.parents[1].name for path in stacks.glob("*-*/bin/mpirun") if path.is_symlink()})


def mpiruns(prefixes: Iterable[str] = ("/usr", "/usr/lib64/openmpi")) -> dict[str, str]:
    """Return {prefix: version of its mpirun}; the version is "" if it does not run."""
    return {prefix: version(prefix) for prefix in prefixes if os.path.lexists(f"{prefix}/bin/mpirun")}


def version(prefix: str) -> str:
    try:
        done = subprocess.run(
            [f"{prefix}/bin/mpirun", "--version"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"\d+\.\d+\.\d+\S*", done.stdout)
    return found[0] if found and not done.returncode else ""
