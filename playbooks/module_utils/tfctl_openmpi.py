"""Open MPI built from source: one host builds a tar; every host unpacks it and links it into the environment.

The directory is the same on every host, because mpirun looks for its daemon there.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tarfile
from pathlib import Path

from ansible.module_utils.tfctl_fetch import digest
from ansible.module_utils.tfctl_horovod_build import is_made, leave, run_step
from ansible.module_utils.tfctl_machine import Failed, beside, make_parents, point
from ansible.module_utils.tfctl_pythons import listed
from ansible.module_utils.tfctl_unpacked import top, unpack
from ansible.module_utils.tfctl_venv import alone

MARKER = "tfctl-openmpi.json"
COMMANDS = ("mpirun", "mpiexec", "orted", "prted", "ompi_info", "mpicc", "mpicxx")
# Without Fortran, which TensorFlow does not use, and with a prefix, as a rank's loader is not told where Open MPI is.
# Built with its bundled libraries: a host that receives the build may lack those that the builder happens to have.
CONFIGURE = (
    "--disable-mpi-fortran", "--enable-mpirun-prefix-by-default", "--disable-dependency-tracking",
    "--with-libevent=internal", "--with-hwloc=internal", "--with-pmix=internal",
)  # fmt: skip


class OpenMpi:
    """``prefix`` empty: the environment has no links to an Open MPI. ``archive``: a tar of the prefix's contents."""

    def __init__(self, prefix, environment, archive=None):
        self.prefix = Path(prefix) if prefix else None
        self.bin = Path(environment, "bin")
        self.archive = Path(archive) if archive else None

    def whole(self):
        """Return whether all files are unchanged since they were unpacked."""
        with contextlib.suppress(OSError, ValueError):
            return self.prefix is None or _noted(self.prefix) == listed(self.prefix, MARKER)
        return False

    def linked(self):
        return {link.name: str(link.readlink()) for link in self._links()} == self._wanted()

    def unpack(self):
        """Unpack the archive; ``prefix`` exists only once it is complete. Raises Failed."""
        os.umask(0o022)
        part = beside(self.prefix)
        make_parents(part)
        with alone(self.prefix.with_name(".lock"), "installs Open MPI"):
            shutil.rmtree(part, ignore_errors=True)
            try:
                unpack(self.archive, part)
                (part / MARKER).write_text(json.dumps(listed(part, MARKER)), encoding="utf-8")
                shutil.rmtree(self.prefix, ignore_errors=True)
                part.rename(self.prefix)
            finally:
                shutil.rmtree(part, ignore_errors=True)

    def link(self):
        wanted = self._wanted()
        for link in self._links():
            if link.name not in wanted:
                link.unlink()
        for name, target in wanted.items():
            point(self.bin / name, target)

    def _links(self):
        return [link for link in (self.bin / name for name in COMMANDS) if link.is_symlink()]

    def _wanted(self):
        places = {name: self.prefix / "bin" / name for name in COMMANDS} if self.prefix else {}
        return {name: str(path) for name, path in places.items() if path.exists()}


def build(source, sha256, prefix, cc, cxx, made):
    """Build Open MPI and write a tar, at ``made``, of what it installs below ``prefix``. Leaves nothing else. Raises
    Failed with the compiler's messages."""
    os.umask(0o022)
    found = digest(source)
    if found != sha256:
        raise Failed(f"{source} has sha256 {found}; {sha256} was asked for, so it was not built", "see who changed it")
    work = Path(prefix).with_name(".build")
    make_parents(work)
    with alone(work.with_name(".lock"), "builds Open MPI"):
        if is_made(made):
            return
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(0o700)
        try:
            unpack(source, work / "source")
            tree, root = top(work / "source"), work / "root"
            jobs = f"-j{len(os.sched_getaffinity(0))}"
            _run(["./configure", f"--prefix={prefix}", *CONFIGURE, f"CC={cc}", f"CXX={cxx}"], tree, "configured")
            _run(["make", "-s", jobs], tree, "built")
            _run(["make", "-s", "install", f"DESTDIR={root}"], tree, "installed")
            with tarfile.open(work / "made", "w:gz", compresslevel=6) as tar:
                for path in sorted((root / str(prefix).lstrip("/")).iterdir()):
                    tar.add(path, arcname=path.name)
            leave(work / "made", made)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _noted(prefix):
    return json.loads((prefix / MARKER).read_text(encoding="utf-8"))


def _run(words, folder, done):
    variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(folder), "LC_ALL": "C.UTF-8"}
    run_step(words, folder, variables, f"Open MPI could not be {done}")
