"""tfctl/node and tfctl_runtime, packed for installation on hosts. Ansible may run this on any Python 3.9 or newer."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypedDict

import tfctl

_NODE = Path(tfctl.__file__).resolve().parent / "node"
_PROGRAM = _NODE / "bin/tfctl-node"
#: The modification time of all files on hosts: an archive depends on contents alone.
_TIME = 1_000_000_000


class NodePart(TypedDict):
    """The node part in the form that the role job_host takes. Paths are on this machine.

    ``digest``: 16 hex digits that identify all files of the node part, and the name of their directory on hosts.
    ``archive``: that directory as .tar.gz. ``files``: each file and directory of the archive as "NAME MODE UID SHA256",
    with - in place of a directory's hash. ``program``: what sudo runs; the digest covers it, the archive does not
    contain it. ``drop_in``: what systemd adds to the unit of every task.
    """

    digest: str
    archive: str
    files: list[str]
    program: str
    drop_in: str


class _Entry(NamedTuple):
    """A file of the tree, or a directory, whose content is None."""

    content: bytes | None
    mode: int


def pack(folder: Path) -> NodePart:
    """Write the archive to ``folder`` unless it is there, and return the node part."""
    archive = folder / f"node-part-{version()}.tar.gz"
    entries = _entries()
    if not archive.exists():
        # Ansible runs this in several processes at the same time.
        part = archive.with_name(f"{archive.name}.{os.getpid()}")
        part.write_bytes(_archive(entries))
        part.replace(archive)
    return {
        "digest": version(),
        "archive": str(archive),
        "files": [f"{name} {entry.mode:04o} 0 {_sha256(entry.content)}" for name, entry in entries.items()],
        "program": str(_PROGRAM),
        "drop_in": str(_NODE / "10-tfctl.conf"),
    }


@cache
def version() -> str:
    """Return the version that hosts report for this node part: 16 hex digits."""
    digest = hashlib.sha256()
    # The program is installed elsewhere. A host with a different program must not count as up to date.
    installed = {**_tree(), "bin/tfctl-node": (_PROGRAM.read_bytes(), "0755")}
    for name, (content, mode) in sorted(installed.items()):
        digest.update(f"{name}\0{mode}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _entries() -> dict[str, _Entry]:
    """Return the files and directories of the archive by path within it, parents first."""
    files = {f"{version()}/{name}": _Entry(content, int(mode, 8)) for name, (content, mode) in _tree().items()}
    directories = {str(parent) for name in files for parent in PurePosixPath(name).parents} - {"."}
    return dict(sorted({**dict.fromkeys(directories, _Entry(None, 0o755)), **files}.items()))


def _archive(entries: dict[str, _Entry]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, (content, mode) in entries.items():
            member = tarfile.TarInfo(name)
            member.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
            member.mode, member.mtime, member.size = mode, _TIME, len(content or b"")
            member.uname = member.gname = "root"
            tar.addfile(member, io.BytesIO(content or b""))
    return gzip.compress(packed.getvalue(), mtime=_TIME)


def _sha256(content: bytes | None) -> str:
    return "-" if content is None else hashlib.sha256(content).hexdigest()


@cache
def _tree() -> dict[str, tuple[bytes, str]]:
    """Return content and mode by path within the tree."""
    files = {f"tfctl_node/{name}": (content, "0644") for name, content in _files(_NODE).items()}
    # In its own directory, because that is on the sys.path of training scripts.
    runtime = _NODE.parent.with_name("tfctl_runtime")
    files |= {f"runtime/tfctl_runtime/{name}": (content, "0644") for name, content in _files(runtime).items()}
    files |= {name: ((_NODE / "bin" / name).read_bytes(), "0755") for name in ("end", "guard", "note")}
    return files


def _files(folder: Path) -> dict[str, bytes]:
    """Return contents by path within the folder, without bin/, which is installed elsewhere, and __pycache__."""
    names = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(name): (folder / name).read_bytes() for name in names if not {"bin", "__pycache__"} & {*name.parts}}
