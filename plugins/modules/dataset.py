#!/usr/bin/python
"""Check data sets on a host, and install one.

<dest>/<name>                                       a data set; the .tfctl-dataset.json in it lists its files
/var/lib/tfctl/datasets/.archives/<SHA-256>         its archive, which other hosts may copy
/var/lib/tfctl/datasets/.archives/.<SHA-256>.part   one that is being downloaded
"""

from __future__ import annotations

DOCUMENTATION = """
module: dataset
short_description: Check and install data sets
author: [the tfctl authors (!UNKNOWN)]
description:
  - C(checked) changes nothing. It finds the data sets that are missing, or whose files have changed.
  - C(installed) downloads a data set from O(source), unless its archive is on the host, compares its hash, unpacks it
    beside its final place and moves it there. It refuses a place below a directory in which jobs may replace files.
options:
  datasets:
    description: Data sets, as the filter C(datasets) completes them. C(installed) takes one.
    type: list
    elements: dict
    required: true
  state: {type: str, required: true, choices: [checked, installed], description: What to do.}
  source:
    description: 'For C(installed): a URL, also file://. If it is empty, that of the data set.'
    type: str
    default: ''
  server:
    description: 'For C(installed): the host from which the archive has been copied. Without the archive, it fails.'
    type: str
    default: ''
  reason: {type: str, default: '', description: 'For C(installed): why it could not be copied.'}
"""

EXAMPLES = """
- name: Look for the data sets of the cluster
  tfctl.cluster.dataset:
    datasets: "{{ cluster_datasets | tfctl.cluster.datasets }}"
    state: checked
  register: found

- name: Install those that are missing
  tfctl.cluster.dataset:
    datasets: ["{{ item }}"]
    state: installed
  loop: "{{ cluster_datasets | tfctl.cluster.datasets }}"
  when: item.name in found.missing
"""

RETURN = """
missing: {type: list, elements: str, returned: 'with C(checked)', description: Data sets to install.}
archived: {type: list, elements: str, returned: 'with C(checked)', description: Those whose archive is on the host.}
faults:
  description:
    - Why it failed. Each has C(message), C(remedy) and C(kind).
    - If one has C(patience_s), another run is at work on the host. Call the module again, for at most so many seconds.
  type: list
  elements: dict
  returned: failure
"""

import json
import os
import pwd
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.tfctl.cluster.plugins.module_utils.install import (
    ModuleFailed,
    alone,
    finish,
    link_or_copy,
    make_parents,
    unpack,
)
from ansible_collections.tfctl.cluster.plugins.module_utils.programs import read_json
from ansible_collections.tfctl.cluster.plugins.module_utils.records import stamps
from ansible_collections.tfctl.cluster.plugins.module_utils.share import fetch

ARCHIVES = Path("/var/lib/tfctl/datasets/.archives")
NOTE = ".tfctl-dataset.json"


def main() -> None:
    text = {"type": "str", "default": ""}
    module = AnsibleModule(
        argument_spec={
            "datasets": {"type": "list", "elements": "dict", "required": True},
            "state": {"type": "str", "required": True, "choices": ["checked", "installed"]},
            "source": text,
            "server": text,
            "reason": text,
        },
        supports_check_mode=True,
    )
    given = module.params
    datasets = [Dataset(entry) for entry in given["datasets"]]
    if given["state"] == "checked":
        finish(module, lambda: checked(datasets, module.check_mode))
    finish(module, lambda: installed(datasets[0], given))


def checked(datasets: list[Dataset], check_mode: bool) -> dict[str, object]:
    differences = {dataset.name: dataset.difference() for dataset in datasets}
    archived = [dataset.name for dataset in datasets if dataset.archive.exists()]
    shown = "".join(f"{sentence}\n" for sentence in differences.values() if sentence)
    diff = [{"before_header": "found", "after_header": "wanted", "before": shown, "after": ""}] if shown else []
    missing = [name for name, sentence in differences.items() if sentence]
    return {"changed": bool(shown) and check_mode, "missing": missing, "archived": archived, "diff": diff}


def installed(dataset: Dataset, given: dict[str, Any]) -> dict[str, object]:
    server = given["server"]
    if server and not dataset.archive.exists():
        if given["reason"]:
            raise ModuleFailed(given["reason"], f"check that {{host}} reaches {server} at tfctl_ports, then try again")
        message = f"{server}, from which {dataset.name} is copied, does not have it"
        raise ModuleFailed(message, f"correct the error of {server} first")
    unsafe = unsafe_parent(dataset.place)
    if unsafe:
        raise ModuleFailed(
            f"{dataset.name} cannot be installed below {unsafe}, in which jobs may replace files",
            "use another dest in datasets, such as /srv/data, or do not let jobs write there on {host}",
        )
    with alone(dataset.archive.with_name(f".{dataset.name}.lock"), f"installs the data set {dataset.name}"):
        if dataset.difference():  # another run may have installed it meanwhile
            dataset.install(given["source"] or dataset.source)
    return {"changed": True}


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
                    raise ModuleFailed(message, "check how the archive was made, or correct files in datasets")
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


def unsafe_parent(place: Path) -> Path | None:
    """Return a directory above the place in which jobs may replace what root creates, or None.

    Otherwise, a job could redirect root by a link. In a directory with the sticky bit, as /tmp, what belongs to root
    stays.
    """
    uid, groups = _jobs_user()
    for path in (place, Path(os.path.realpath(place.parent), place.name)):
        nearest = True
        for parent in path.parents:
            try:
                found = parent.stat()
            except FileNotFoundError:
                continue
            is_open = found.st_mode & stat.S_IWOTH or (found.st_gid in groups and found.st_mode & stat.S_IWGRP)
            if found.st_uid == uid or (is_open and (nearest or not found.st_mode & stat.S_ISVTX)):
                return parent
            nearest = False
    return None


def _jobs_user() -> tuple[int | None, list[int]]:
    """Return the UID and the groups of the user tfctl, as which jobs run."""
    try:
        user = pwd.getpwnam("tfctl")
    except KeyError:
        return None, []
    return user.pw_uid, os.getgrouplist(user.pw_name, user.pw_gid)


if __name__ == "__main__":
    main()
