#!/usr/bin/python
"""Keep files on a host by their hashes, and copy them from the control machine and from host to host.

<folder>/<SHA-256>                 a file: a wheel, or the archive of a data set
<folder>/.<SHA-256>                one that is being copied from another host
<folder>/.upload/<SHA-256>.<N>     a piece of one that the control machine sends
"""

from __future__ import annotations

DOCUMENTATION = """
module: store
short_description: Keep files on a host by their hashes, and copy them from host to host
author: [the tfctl authors (!UNKNOWN)]
description:
  - C(checked) finds out which of O(files) are missing. It deletes other files, those that were used least recently
    first, until they take at most O(limit_mb).
  - C(prepared) creates a directory of the login user for the files. C(received) puts the pieces in it together, and
    compares the hashes.
  - C(served) serves the files until C(stopped), or for an hour. It fails without all of O(files).
  - C(fetched) downloads the missing files from O(url), and compares their hashes. An interrupted download is continued
    the next time. It does not fail if the other host cannot be reached.
  - In check mode, C(checked) deletes nothing, and the other states do nothing.
options:
  state:
    type: str
    required: true
    choices: [checked, prepared, received, served, fetched, stopped]
    description: What to do.
  files: {type: list, elements: dict, default: [], description: 'C(name), C(sha256), and C(size) if it is known.'}
  folder: {type: path, default: /var/cache/tfctl/wheels, description: The store.}
  unit: {type: str, default: tfctl_wheels.service, description: 'For C(served) and C(stopped): the service.'}
  limit_mb: {type: int, default: 10000, description: How much to keep besides O(files).}
  url: {type: str, default: '', description: 'For C(fetched): what C(served) returned on another host.'}
  server: {type: str, default: '', description: 'For C(fetched): the name of that host.'}
  host: {type: str, default: '', description: 'For C(served): the name or address of this host in the C(url).'}
  ports: {type: list, elements: int, default: [2222, 2299], description: 'For C(served): the first and the last port.'}
  patience_s: {type: int, default: 10, description: 'For C(fetched): seconds without a byte.'}
"""

EXAMPLES = """
- name: Look for the files on the host
  tfctl.cluster.store:
    state: checked
    folder: /var/cache/models
    files: [{name: model.tar, sha256: "{{ model_sha256 }}"}]
  register: models
"""

RETURN = """
missing: {type: list, elements: str, returned: 'with C(checked) and C(prepared)', description: Hashes to send or fetch.}
missing_size: {type: int, returned: 'with C(checked)', description: Their size in bytes.}
key: {type: str, returned: 'with C(checked)', description: The same on hosts with the same files.}
upload: {type: str, returned: 'with C(prepared)', description: A directory of the login user for the files.}
pieces: {type: dict, returned: 'with C(prepared)', description: The sizes of the pieces that are in it.}
url: {type: str, returned: 'with C(served)', description: Where other hosts fetch the files.}
reason: {type: str, returned: 'with C(fetched)', description: Why the other host could not be reached. Or empty.}
faults: {type: list, elements: dict, returned: failure, description: 'Why it failed: C(message), C(remedy), C(kind).'}
"""

import contextlib
import hashlib
import os
import pwd
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.tfctl.cluster.plugins.module_utils.install import ModuleFailed, NoSpace, finish, make_parents
from ansible_collections.tfctl.cluster.plugins.module_utils.share import fetch, serve, stop

STATES = ["checked", "prepared", "received", "served", "fetched", "stopped"]
UPLOAD = ".upload"
#: Seconds without a byte after which another host counts as unreachable.
PATIENCE_S = 10
_SHA256 = re.compile(r"[0-9a-f]{64}")


class StoredFile(NamedTuple):
    """A file. ``size``: in bytes, or None if it is not known."""

    name: str
    sha256: str
    size: int | None


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "required": True, "choices": STATES},
            "files": {"type": "list", "elements": "dict", "default": []},
            "folder": {"type": "path", "default": "/var/cache/tfctl/wheels"},
            "unit": {"type": "str", "default": "tfctl_wheels.service"},  # tfctl-*.service are the units of jobs
            "limit_mb": {"type": "int", "default": 10_000},
            "url": {"type": "str", "default": ""},
            "server": {"type": "str", "default": ""},
            "host": {"type": "str", "default": ""},
            "ports": {"type": "list", "elements": "int", "default": [2222, 2299]},
            "patience_s": {"type": "int", "default": PATIENCE_S},
        },
        supports_check_mode=True,
    )
    finish(module, lambda: result_of(module.params, module.check_mode))


def result_of(given: dict[str, Any], check: bool) -> dict[str, object]:
    """Do what O(state) says. With ``check``, change nothing."""
    files = [StoredFile(each["name"], each["sha256"], each.get("size")) for each in given["files"]]
    store, state = FileStore(Path(given["folder"]), files), given["state"]
    if state == "checked":
        if not check:
            store.trim(given["limit_mb"] * 1000**2)
        missing = [file.sha256 for file in store.missing()]
        return {"missing": missing, "missing_size": store.missing_size(), "key": store.key()}
    if check:
        return {}
    if state == "prepared":
        pieces = store.prepare()
        return {"missing": [file.sha256 for file in store.missing()], "upload": str(store.upload), "pieces": pieces}
    if state == "served":
        if store.missing():
            raise ModuleFailed(f"{store.missing()[0].name} is missing on this host itself")
        return {"url": serve(given["unit"], store.folder, given["host"], given["ports"])}
    if state == "fetched":
        if not given["url"]:
            return {"reason": f"{given['server']} cannot serve them"}
        return {"reason": store.fetch(given["url"], given["patience_s"])}
    if state == "received":
        store.receive()
    else:
        stop(given["unit"])
    return {}


class FileStore:
    """The store of a host, and the files that it must have."""

    def __init__(self, folder: Path, files: list[StoredFile]) -> None:
        self.folder, self.upload = folder, folder / UPLOAD
        self.files = {file.sha256: file for file in files}.values()
        for file in files:
            if not _SHA256.fullmatch(file.sha256):
                raise ModuleFailed(f"{file.name}: {file.sha256!r} is not a SHA-256")

    def missing(self) -> list[StoredFile]:
        return [file for file in self.files if not self._has(file)]

    def missing_size(self) -> int:
        return sum(file.size or 0 for file in self.missing())

    def key(self) -> str:
        return hashlib.sha256("\0".join(sorted(file.sha256 for file in self.files)).encode()).hexdigest()

    def trim(self, limit: int) -> None:
        """Delete files that are not wanted, the least recently used first, until they take at most ``limit`` bytes."""
        wanted = {file.sha256 for file in self.files}
        others = []
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if path.name in wanted:
                os.utime(path)
            elif path.is_file() and path.name.lstrip(".") not in wanted:
                others.append((path.stat().st_mtime, path.stat().st_size, path))
        kept = 0
        for _, size, path in sorted(others, reverse=True):
            kept += size
            if kept > limit:
                path.unlink()

    def prepare(self) -> dict[str, int]:
        """Create the directory for pieces, and return the sizes of those of the missing files. Delete all others.

        Raises NoSpace if there is too little space for the rest.
        """
        self._create()
        self.upload.mkdir(0o700, exist_ok=True)
        login = os.environ.get("SUDO_USER") or pwd.getpwuid(os.geteuid()).pw_name
        if os.geteuid() == 0:
            account = pwd.getpwnam(login)
            os.chown(self.upload, account.pw_uid, account.pw_gid)
        missing = {file.sha256 for file in self.missing()}
        found = {}
        for path in self.upload.iterdir():
            if path.name.partition(".")[0] in missing:
                found[path.name] = path.lstat().st_size
            else:
                path.unlink()
        # The pieces, and the files that are put together from them.
        needed, info = 2 * self.missing_size() - sum(found.values()), os.statvfs(self.folder)
        if info.f_bavail * info.f_frsize < needed:
            raise NoSpace(self.folder)
        return found

    def receive(self) -> None:
        """Put the pieces of the missing files together. Raises ModuleFailed for one that does not match its hash."""
        for file in self.missing():
            pieces = sorted(self.upload.glob(f"{file.sha256}.*"), key=lambda path: int(path.suffix[1:]))
            part, value = self._part(file), hashlib.sha256()
            with part.open("wb") as target:
                for piece in pieces:
                    # The login user, who owns the piece, could have made a link of it.
                    with os.fdopen(os.open(piece, os.O_RDONLY | os.O_NOFOLLOW), "rb") as source:
                        while block := source.read(1 << 20):
                            value.update(block)
                            target.write(block)
            for piece in pieces:
                piece.unlink()
            if value.hexdigest() != file.sha256:
                part.unlink()
                raise ModuleFailed(f"{file.name} does not match its hash after it was sent", "run it again")
            self._keep(file)
        shutil.rmtree(self.upload, ignore_errors=True)

    def fetch(self, url: str, patience_s: float = PATIENCE_S) -> str:
        """Download the missing files from another host. Return why one could not be downloaded, or "".

        Raises NoSpace.
        """
        self._create()
        for file in self.missing():
            try:
                fetch(f"{url}/{file.sha256}", self._part(file), file.sha256, direct=True, patience_s=patience_s)
            except NoSpace:
                raise
            except ModuleFailed as failed:
                return str(failed)
            self._keep(file)
        return ""

    def _has(self, file: StoredFile) -> bool:
        with contextlib.suppress(OSError):
            return (self.folder / file.sha256).stat().st_size == file.size or file.size is None
        return False

    def _create(self) -> None:
        os.umask(0o022)  # the server of the files is not root
        make_parents(self.folder / "x")

    def _part(self, file: StoredFile) -> Path:
        return self.folder / f".{file.sha256}"

    def _keep(self, file: StoredFile) -> None:
        self._part(file).chmod(0o644)
        self._part(file).replace(self.folder / file.sha256)


if __name__ == "__main__":
    main()
