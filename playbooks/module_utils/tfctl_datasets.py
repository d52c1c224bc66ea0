"""Data sets on a host: parse the inventory's entry, check its files, download and unpack its archive."""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.tfctl_install import Failed, link_or_copy, make_parents
from ansible.module_utils.tfctl_share import fetch

LOCAL = "/var/lib/tfctl/datasets"
NOTE = ".tfctl-dataset.json"
FIELDS = ("name", "source", "sha256", "unpack", "files", "dest")
#: Built-in settings. Keras has the same hash of CIFAR-10, and other libraries have that of its binary form. ImageNet
#: has no URL: its owner grants access to each user.
KNOWN: dict[str, dict[str, Any]] = {
    "cifar10": {
        "source": "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        "sha256": "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        "unpack": True,
        "files": {"cifar-10-batches-py/*_batch*": 6},
    },
    "cifar10-binary": {
        "source": "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        "sha256": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        "unpack": True,
        "files": {"cifar-10-batches-bin/*_batch*.bin": 6},
    },
    "imagenet-tfrecords": {"unpack": True, "files": {"**/train-*-of-01024": 1024, "**/validation-*-of-00128": 128}},
}


class Dataset:
    """An entry of tfctl_datasets with defaults filled in. ``faults``: a (message, remedy) for each error in it."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        values: dict[str, Any] = {"source": "", "sha256": "", "unpack": False, "files": {}, "dest": LOCAL}
        values = {**values, **KNOWN.get(str(entry.get("name", "")), {}), **entry}
        self.name, self.source, self.sha256 = (str(values.get(key, "")) for key in ("name", "source", "sha256"))
        self.unpack, self.files, self.extra = bool(values["unpack"]), values["files"], sorted({*entry} - {*FIELDS})
        self.place = Path(str(values["dest"]), self.name)
        self.archive = Path(LOCAL, ".archives", self.sha256)

    def faults(self) -> Iterator[tuple[str, str]]:
        entry = f"tfctl_datasets: {self.name!r}"
        if self.extra:
            yield f"{entry}: unknown key {', '.join(self.extra)}", f"the keys are {', '.join(FIELDS)}"
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", self.name):
            yield f"{entry} is not a valid name", "use lowercase letters, digits, dots, dashes and underscores"
        if not re.fullmatch(r"(https?://|/)[^\s\x00-\x1f\x7f]+", self.source):
            yield (
                f"{entry}: source {self.source!r} is neither a URL nor an absolute path",
                "write https://HOST/PATH, or /PATH for a file on this machine",
            )
        if not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            yield f"{entry}: sha256 is not 64 lowercase hexadecimal digits", "sha256sum FILE prints it"
        if not self.place.is_absolute() or ".." in self.place.parts:
            yield f"{entry}: dest {str(self.place.parent)!r} is not an absolute path", f"use a path such as {LOCAL}"

    def difference(self) -> str:
        """Return a sentence that says what is missing or has changed, or '' if the data set is complete."""
        try:
            note = json.loads((self.place / NOTE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return f"{self.place} is missing"
        if note["sha256"] != self.sha256:
            return f"{self.place} was installed from an archive with another hash"
        found = files_in(self.place)
        differing = sorted(name for name in {*found, *note["files"]} if found.get(name) != note["files"].get(name))
        return f"{self.place}/{differing[0]} has changed since it was installed" if differing else ""

    def install(self, source: str, direct: bool = False) -> None:
        """Install the data set from a URL, ``direct`` without a proxy, or from the archive that is on the host.

        Replaces the old files only when the new ones are complete. Raises Failed.
        """
        os.umask(0o022)
        part = self.place.with_name(f".{self.name}.part")
        make_parents(part)
        make_parents(self.archive)
        if not self.archive.exists():
            scratch = self.archive.with_name(f".{self.sha256}.part")
            fetch(source, scratch, self.sha256, direct)
            scratch.replace(self.archive)
        shutil.rmtree(part, ignore_errors=True)
        try:
            self._unpack(part)
            for pattern, count in self.files.items():
                found = len([each for each in part.glob(pattern) if each.is_file()])
                if found != count:
                    message = f"the archive of {self.name} contains {found} files {pattern}, not {count}"
                    raise Failed(message, "check how the archive was made, or correct files in tfctl_datasets")
            note = {"sha256": self.sha256, "files": files_in(part)}
            (part / NOTE).write_text(json.dumps(note), encoding="utf-8")
            shutil.rmtree(self.place, ignore_errors=True)
            part.replace(self.place)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _unpack(self, part: Path) -> None:
        if not self.unpack:
            part.mkdir()
            link_or_copy(self.archive, part / Path(self.source).name)
        elif zipfile.is_zipfile(self.archive):
            with zipfile.ZipFile(self.archive) as file:
                file.extractall(part)
        else:
            unpack(self.archive, part)


def files_in(folder: Path) -> dict[str, list[int]]:
    """Return {path within the folder: [size, modification time in ns]} of all files except the note."""
    found = {}
    for each in folder.rglob("*"):
        if each.is_file() and each.name != NOTE:
            info = each.stat()
            found[str(each.relative_to(folder))] = [info.st_size, info.st_mtime_ns]
    return found


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
