"""Unpack an archive with a known hash."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

from ansible.module_utils.tfctl_install import Failed


def unpack(file: Path, folder: Path) -> None:
    """Unpack a tar. Raises Failed if it is not one or would write outside ``folder``, in spite of its known hash."""
    folder.mkdir()
    try:
        with tarfile.open(file) as archive:
            archive.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)  # is_inside judges
            for member in archive.getmembers():
                if not is_inside(folder, member):
                    raise Failed(f"{member.name} in the archive would lie outside its directory")
                member.uid = member.gid = 0
                member.uname = member.gname = "root"
                member.mode = member.mode & 0o755 | 0o400
                archive.extract(member, folder)
    except tarfile.TarError as fault:
        raise Failed(f"the archive cannot be unpacked: {fault}") from fault


def is_inside(folder: Path, member: tarfile.TarInfo) -> bool:
    if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
        return False
    places = [folder / member.name]
    if member.issym():
        places.append((folder / member.name).parent / member.linkname)
    elif member.islnk():
        places.append(folder / member.linkname)
    root = os.path.realpath(folder)
    return all(os.path.realpath(place).startswith(root + os.sep) for place in places)
