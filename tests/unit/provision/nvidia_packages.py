"""Package lists shaped like those of NVIDIA's repository for Debian: only its metapackages carry a branch.

Their dependencies name a minimal version without an upper bound, as apt shows those of cuda-drivers-580 (NVIDIA's
forum, 353805, "cuda-drivers-580 package improperly pulls in v590 components"). Those of nvidia-open-580 have the same
shape, and so have those of later branches, whose names contain no branch. Up to branch 580 the fabric manager has a
branch in its name (NVIDIA's driver installation guide).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

VERSIONS = ("580.65.06-1", "580.105.08-1", "590.48.01-1", "610.57.04-1")
_OF_BRANCH = "580.105.08-1"
_PROGRAMS = ("nvidia-settings", "nvidia-xconfig")


def write(folder: Path) -> None:
    """Write the file Packages of a repository."""
    (folder / "Packages").write_text("\n".join(_paragraphs()))


def _paragraphs() -> Iterator[str]:
    for version in VERSIONS:
        yield _package("nvidia-driver", version, f"nvidia-driver-cuda (= {version})")
        yield _package("nvidia-driver-cuda", version, f"libcuda1 (= {version}), nvidia-persistenced (= {version})")
        for name in ("libcuda1", "nvidia-persistenced", "nvidia-modprobe", *_PROGRAMS):
            yield _package(name, version)
        for name in ("nvidia-kernel-dkms", "nvidia-kernel-open-dkms"):
            yield _package(name, version, "dkms")
        named = "nvidia-fabricmanager-580" if version.startswith("580") else "nvidia-fabricmanager"
        yield _package(named, version)
    for name, module in (("cuda-drivers-580", "nvidia-kernel-dkms"), ("nvidia-open-580", "nvidia-kernel-open-dkms")):
        needed = ("nvidia-driver", "nvidia-driver-cuda", module, *_PROGRAMS)
        yield _package(name, _OF_BRANCH, ", ".join(f"{each} (>= 580.65.06)" for each in needed))
        for version in (each for each in VERSIONS if not each.startswith("580")):
            yield _package(name.removesuffix("-580"), version, ", ".join(f"{each} (>= {version})" for each in needed))
    for name in ("dkms", "linux-headers-6.1.0-18-amd64", "linux-headers-amd64"):
        yield _package(name, "6.1.76-1")


def _package(name: str, version: str, depends: str = "") -> str:
    fields = {
        "Package": name, "Version": version, "Architecture": "amd64", "Maintainer": "x", "Depends": depends,
        "Filename": f"./{name}_{version}.deb", "Size": "1", "SHA256": "0" * 64, "Description": "x",
    }  # fmt: skip
    return "".join(f"{field}: {value}\n" for field, value in fields.items() if value)
