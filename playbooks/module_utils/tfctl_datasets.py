"""Data sets on a host: parse the inventory's entry, check the files, fetch and unpack them. Python 3.9 or newer."""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
from pathlib import Path

from ansible.module_utils.tfctl_fetch import fetch
from ansible.module_utils.tfctl_machine import Failed, make_parents
from ansible.module_utils.tfctl_unpacked import unpack

LOCAL = "/var/lib/tfctl/datasets"
NOTE = ".tfctl-dataset.json"
FIELDS = ("name", "source", "sha256", "unpack", "files", "dest")
#: The hash is also in keras/datasets/cifar10.py. ImageNet has no URL: its owner grants access to each user.
KNOWN = {
    "cifar10": {
        "source": "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        "sha256": "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        "unpack": True,
        "files": {"cifar-10-batches-py/*_batch*": 6},
    },
    "imagenet-tfrecords": {"unpack": True, "files": {"**/train-*-of-01024": 1024, "**/validation-*-of-00128": 128}},
}


class Dataset:
    """An entry of tfctl_datasets with defaults filled in. ``faults``: a (message, remedy) for each error in it."""

    def __init__(self, entry):
        told = {"source": "", "sha256": "", "unpack": False, "files": {}, "dest": LOCAL}
        told = {**told, **KNOWN.get(str(entry.get("name", "")), {}), **entry}
        self.name, self.source, self.sha256 = (str(told.get(key, "")) for key in ("name", "source", "sha256"))
        self.unpack, self.files, self.extra = bool(told["unpack"]), told["files"], sorted({*entry} - {*FIELDS})
        self.place = Path(str(told["dest"]), self.name)
        self.archive = Path(LOCAL, ".archives", self.sha256)

    def faults(self):
        place = f"tfctl_datasets: {self.name!r}"
        if self.extra:
            yield f"{place}: {', '.join(self.extra)} is not known", f"there are {', '.join(FIELDS)}"
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", self.name):
            yield f"{place} is no name", "take small letters, digits, dots and dashes"
        if not re.fullmatch(r"(https?://|/)[^\s\x00-\x1f\x7f]+", self.source):
            yield f"{place}: source {self.source!r} is neither an address nor a path", "https://… or /… on this machine"
        if not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            yield f"{place}: sha256 is not 64 hexadecimal digits", "sha256sum FILE prints it"
        if not self.place.is_absolute() or ".." in self.place.parts:
            yield f"{place}: dest {str(self.place.parent)!r} is not an absolute path", f"such as {LOCAL}"

    def wrong(self):
        """Return a sentence if the files are missing or changed, else ''."""
        try:
            note = json.loads((self.place / NOTE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return f"{self.place} is not there"
        if note["sha256"] != self.sha256:
            return f"{self.place} is of other bytes"
        seen = seen_in(self.place)
        differing = sorted(name for name in {*seen, *note["files"]} if seen.get(name) != note["files"].get(name))
        return f"{self.place}/{differing[0]} is not as it was brought" if differing else ""

    def bring(self, source, direct=False):
        """Fetch the set from a URL, ``direct`` without a proxy, and move it into place once complete. Raises Failed."""
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
            self._open(part)
            for pattern, count in self.files.items():
                found = len([each for each in part.glob(pattern) if each.is_file()])
                if found != count:
                    raise Failed(f"{self.name} has {found} files {pattern}; {count} are wanted", "see what was packed")
            note = {"sha256": self.sha256, "files": seen_in(part)}
            (part / NOTE).write_text(json.dumps(note), encoding="utf-8")
            shutil.rmtree(self.place, ignore_errors=True)
            part.replace(self.place)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _open(self, part):
        if not self.unpack:
            part.mkdir()
            link_or_copy(self.archive, part / Path(self.source).name)
        elif zipfile.is_zipfile(self.archive):
            with zipfile.ZipFile(self.archive) as file:
                file.extractall(part)
        else:
            unpack(self.archive, part)


def seen_in(folder):
    """Return {path within the folder: [size, time in ns]} of all files except the note."""
    found = {}
    for each in folder.rglob("*"):
        if each.is_file() and each.name != NOTE:
            info = each.stat()
            found[str(each.relative_to(folder))] = [info.st_size, info.st_mtime_ns]
    return found


def link_or_copy(archive, path):
    """Hard-link a file that is not unpacked, to save space, or copy it."""
    try:
        os.link(archive, path)
    except OSError:
        shutil.copyfile(archive, path)
