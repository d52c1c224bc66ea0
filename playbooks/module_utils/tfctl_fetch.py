"""Download a file and keep it only if its hash matches."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import urllib.request
from http.client import HTTPException
from pathlib import Path

from ansible.module_utils.tfctl_install import Failed

PATIENCE_S = 60  # without receiving a byte
PROXIES = Path("/etc/tfctl/proxy.env")


def fetch(url: str, path: Path, sha256: str, direct: bool = False) -> None:
    """Download ``url`` (https, http, file) to ``path``. On error raise Failed, which names the URL, and leave no file.

    It uses the proxies that the role proxy has set, else those of the environment, or with ``direct`` none.
    """
    with contextlib.suppress(OSError):
        lines = PROXIES.read_text(encoding="utf-8").splitlines()
        os.environ.update(dict(line.split("=", 1) for line in lines if "=" in line))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({} if direct else None))
    try:
        with opener.open(url, timeout=PATIENCE_S) as source, path.open("wb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
        found = digest(path)
    except (OSError, ValueError, HTTPException) as fault:
        path.unlink(missing_ok=True)
        if getattr(fault, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            raise Failed(f"no space left on device for {path}") from fault  # the wording selects the remedy
        reason = getattr(fault, "reason", None) or getattr(fault, "strerror", None) or fault
        raise Failed(f"{url} cannot be fetched: {reason}", "check that the host reaches it, or set a mirror") from fault
    if found != sha256:
        path.unlink()
        raise Failed(f"{url} has the SHA-256 {found}, not {sha256}, and was not installed", "find out who changed it")


def digest(path: Path) -> str:
    value = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            value.update(block)
    return value.hexdigest()
