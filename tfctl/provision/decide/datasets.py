"""The data sets of an inventory: complete the entries of tfctl_datasets, and find what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from tfctl.provision.decide.fault import fault
from tfctl.provision.faults import ModuleFault
from tfctl.schema import Plain

#: Below this directory are data sets, unless dest is set, and all archives.
LOCAL = "/var/lib/tfctl/datasets"
DEFAULTS: Plain = {"source": "", "sha256": "", "unpack": False, "files": {}, "dest": LOCAL}
FIELDS = ("name", *DEFAULTS)
#: Built-in settings. Keras has the same hash of CIFAR-10, and other libraries have that of its binary form. ImageNet
#: has no URL: its owner grants access to each user.
KNOWN: Mapping[str, Plain] = {
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


def completed(entry: Plain) -> Plain:
    """Return the entry with its built-in settings and defaults. The values are as the user wrote them."""
    name = str(entry.get("name", ""))
    return {**DEFAULTS, **KNOWN.get(name, {}), **entry, "name": name}


def faults(entry: Plain) -> list[ModuleFault]:
    """Return what is wrong with an entry of the inventory."""
    return [fault(message, remedy, "inventory") for message, remedy in _faults(completed(entry))]


def _faults(entry: Plain) -> Iterator[tuple[str, str]]:
    name, source, dest = str(entry["name"]), str(entry["source"]), PurePosixPath(str(entry["dest"]))
    here, extra = f"tfctl_datasets: {name!r}", sorted({*entry} - {*FIELDS})
    if extra:
        yield f"{here}: unknown key {', '.join(extra)}", f"the keys are {', '.join(FIELDS)}"
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", name):
        yield f"{here} is not a valid name", "use lowercase letters, digits, dots, dashes and underscores"
    if not re.fullmatch(r"(https?://|/)[^\s\x00-\x1f\x7f]+", source):
        yield (
            f"{here}: source {source!r} is neither a URL nor an absolute path",
            "write https://HOST/PATH, or /PATH for a file on this machine",
        )
    if not re.fullmatch(r"[0-9a-f]{64}", str(entry["sha256"])):
        yield f"{here}: sha256 is not 64 lowercase hexadecimal digits", "sha256sum FILE prints it"
    if not dest.is_absolute() or ".." in dest.parts:
        yield f"{here}: dest {str(dest)!r} is not an absolute path", f"use a path such as {LOCAL}"
