"""Unpack an archive with a known hash, or CUDA's installer, into its own directory, outside any package database."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from pathlib import Path

from ansible.module_utils.tfctl_fetch import digest, fetch
from ansible.module_utils.tfctl_machine import Failed, make_parents
from ansible.module_utils.tfctl_packages import call

NOTE = ".tfctl-archive.json"


class Unpacked:
    """``library``: the file that must be in its lib. ``kind``: tar or runfile."""

    def __init__(self, url, sha256, path, kind, library):
        self.url, self.sha256, self.path, self.kind, self.library = url, sha256, Path(path), kind, library

    def done(self):
        """Return whether the note in the directory names this archive and the library is unchanged."""
        try:
            return json.loads((self.path / NOTE).read_text(encoding="utf-8")) == self._note(self.path)
        except (OSError, ValueError):
            return False

    def bring(self):
        """Unpack the archive. Replace the old directory only once the new one is complete. Raises Failed, OSError."""
        os.umask(0o022)
        part, scratch = (self.path.with_name(f".{self.path.name}.{end}") for end in ("part", "scratch"))
        make_parents(self.path)
        for leftover in (part, scratch):
            shutil.rmtree(leftover, ignore_errors=True)
        scratch.mkdir(0o700)
        try:
            fetch(self.url, scratch / "archive", self.sha256)
            if self.kind == "tar":
                unpack(scratch / "archive", scratch / "tree")
                top(scratch / "tree").rename(part)
            else:
                self._run_installer(scratch, part)
            self._give_lib(part)
            (part / NOTE).write_text(json.dumps(self._note(part)), encoding="utf-8")
            self._clear()
            part.rename(self.path)
        finally:
            for leftover in (part, scratch):
                shutil.rmtree(leftover, ignore_errors=True)

    def _note(self, folder):
        return {"sha256": self.sha256, self.library: digest(folder / "lib" / self.library)}

    def _run_installer(self, scratch, part):
        """Run CUDA's installer for the toolkit only, not the driver. Older ones need --override with a newer gcc.

        It writes its target path into files, so give it the final path, which is a link while it runs.
        """
        part.mkdir()
        self._clear()
        self.path.symlink_to(part.name)
        words = ["env", f"TMPDIR={scratch}", f"HOME={scratch}", "sh", scratch / "archive", "--silent", "--toolkit"]
        call([*map(str, words), f"--toolkitpath={self.path}", "--override"], "CUDA's installer failed")

    def _clear(self):
        if self.path.is_symlink():
            self.path.unlink()
        shutil.rmtree(self.path, ignore_errors=True)

    def _give_lib(self, folder):
        """Make the libraries available in lib. cuDNN before 8.3 and every toolkit use lib64."""
        if not (folder / "lib").exists() and (folder / "lib64").is_dir():
            (folder / "lib").symlink_to("lib64")
        if not (folder / "lib" / self.library).exists():
            raise Failed(f"{self.url} has no {self.library} in its lib or lib64")


def unpack(file, folder):
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


def is_inside(folder, member):
    if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
        return False
    places = [folder / member.name]
    if member.issym():
        places.append((folder / member.name).parent / member.linkname)
    elif member.islnk():
        places.append(folder / member.linkname)
    root = os.path.realpath(folder)
    return all(os.path.realpath(place).startswith(root + os.sep) for place in places)


def top(folder):
    """Return the archive's single top-level directory, or the folder itself."""
    inside = list(folder.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder
