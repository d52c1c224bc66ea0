"""A stack whose TensorFlow is one line of Python, in a fake package index, and job files for it."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest
from package_index import wheel

from tfctl.model import stacks
from tfctl.model.stacks import Stack

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
_STACK = """\
name: NAME
title: a small one
tensorflow: 2.15.1
pythons: PYTHONS
requirements: [tensorflow-cpu]
as_of: 2026-11-18
imports: {tensorflow: 2.15.1}
editions: {cpu: {machines: [x86_64, aarch64], requirements: [], disk_mb: 1}}
tested: []
"""


class Site:
    """A user's machine: an empty cache, a directory of stacks and a package index, which ``address`` names."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, address: str) -> None:
        self.folder, self.cache, self.wheels = folder, folder / "cache", folder / "index"
        (folder / "stacks/locks").mkdir(parents=True)
        for name in ("UV_INDEX", "UV_FIND_LINKS", "PIP_FIND_LINKS", "HTTP_PROXY", "http_proxy", "UV_CACHE_DIR"):
            patch.delenv(name, raising=False)
        patch.setenv("XDG_CACHE_HOME", str(self.cache))
        patch.setenv("PIP_CONFIG_FILE", "/dev/null")
        patch.setenv("UV_DEFAULT_INDEX", address)
        self.wheel = wheel(self.wheels, "tensorflow_cpu", "2.15.1", modules={
            "tensorflow/__init__.py": "__version__ = '2.15.1'\n", "tensorflow/keras.py": "",
        })  # fmt: skip

    def stack(self, name: str = "mine", python: str = PYTHON) -> Stack:
        """Write a stack with the wheel, and return it."""
        path = self.folder / f"stacks/{name}.yaml"
        path.write_text(_STACK.replace("NAME", name).replace("PYTHONS", f'["{python}"]'))
        digest = hashlib.sha256(self.wheel.read_bytes()).hexdigest()
        lock = f"tensorflow-cpu==2.15.1 \\\n    --hash=sha256:{digest}\n"
        (self.folder / f"stacks/locks/{name}-cpu-{python}.txt").write_text(lock)
        return stacks.read(path)

    def left(self) -> list[str]:
        """Return what local runs have left in the cache, without lock files and what uv keeps."""
        run = self.cache / "tfctl/run"
        paths = [path for kind in ("stacks", "requirements", "horovod") for path in (run / kind).glob("*")]
        return sorted(path.name for path in paths if not path.name.endswith(".lock"))
