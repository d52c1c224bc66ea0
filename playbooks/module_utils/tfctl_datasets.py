"""Data sets on a host: check their files, download and unpack their archives."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.tfctl_install import ModuleFailed, link_or_copy, make_parents, unpack
from ansible.module_utils.tfctl_programs import read_json
from ansible.module_utils.tfctl_records import stamps
from ansible.module_utils.tfctl_share import fetch

ARCHIVES = Path("/var/lib/tfctl/datasets/.archives")
NOTE = ".tfctl-dataset.json"


class Dataset:
    """A data set of the inventory, complete and checked: see tfctl/provision/decide/datasets.py."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self.name, self.source, self.sha256 = (str(entry[key]) for key in ("name", "source", "sha256"))
        self.unpack, self.files = bool(entry["unpack"]), entry["files"]
        self.place, self.archive = Path(str(entry["dest"]), self.name), ARCHIVES / self.sha256

    def difference(self) -> str:
        """Return a sentence that says what is missing or has changed, or '' if the data set is complete."""
        note = read_json(self.place / NOTE)
        if not note:
            return f"{self.place} is missing"
        if note["sha256"] != self.sha256:
            return f"{self.place} was installed from an archive with another hash"
        found = files_in(self.place)
        differing = sorted(name for name in {*found, *note["files"]} if found.get(name) != note["files"].get(name))
        return f"{self.place}/{differing[0]} has changed since it was installed" if differing else ""

    def install(self, source: str) -> None:
        """Install the data set from a URL, or from the archive that is on the host.

        Replaces the old files only when the new ones are complete. Raises ModuleFailed.
        """
        os.umask(0o022)
        part = self.place.with_name(f".{self.name}.part")
        make_parents(part)
        make_parents(self.archive)
        if not self.archive.exists():
            scratch = self.archive.with_name(f".{self.sha256}.part")
            fetch(source, scratch, self.sha256)
            scratch.replace(self.archive)
        shutil.rmtree(part, ignore_errors=True)
        try:
            self._unpack(part)
            for pattern, count in self.files.items():
                found = len([each for each in part.glob(pattern) if each.is_file()])
                if found != count:
                    message = f"the archive of {self.name} contains {found} files {pattern}, not {count}"
                    raise ModuleFailed(message, "check how the archive was made, or correct files in tfctl_datasets")
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
        elif zipfile.is_zipfile(self.archive) and not tarfile.is_tarfile(self.archive):  # a tar may end with a zip
            with zipfile.ZipFile(self.archive) as file:
                file.extractall(part)
        else:
            unpack(self.archive, part)


def files_in(folder: Path) -> dict[str, list[int]]:
    """Return {path within the folder: [size, modification time in ns]} of all files except the note."""
    return {path: [*stamp] for path, stamp in stamps(folder).items() if path != NOTE}
