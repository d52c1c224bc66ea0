"""What the modules that install software share: errors, a lock that says who holds it, and files replaced at once."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

#: Seconds that a module waits for a lock before it reports the holder. The task then calls the module again.
TURN_S = 3
#: Seconds that a task waits for another run: its `retries` times TURN_S.
PATIENCE_S = 900
LIMIT_S = 900
NOBODY = 65534


#: Kinds of faults, as tfctl/provision/faults.py describes them: a job runs on the host; the work itself failed.
BUSY, FAILED = "busy", "failed"


class ModuleFailed(Exception):
    """The work failed. ``remedy``: what a user can do about it. {host} in it stands for the host's name."""

    def __init__(self, message: str, remedy: str = "", kind: str = FAILED) -> None:
        super().__init__(message)
        self.fault: dict[str, object] = {"message": message, "remedy": remedy, "kind": kind}


class Locked(ModuleFailed):
    """Another run holds the lock. A task with ``until: … patience_s is not defined`` calls the module again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "wait until it ends")
        self.fault["patience_s"] = PATIENCE_S


class NoSpace(ModuleFailed):
    """There is no space left for a file or directory."""

    def __init__(self, path: Path) -> None:
        remedy = "free space on {host} (df -h shows where), then try again"
        super().__init__(f"no space left on device for {path}", remedy)


def finish(module: Any, work: Callable[[], dict[str, object]], sent: Path | None = None) -> None:
    """Do the work and end the module with its result, or with its fault.

    ``sent``: a file that was sent for this work. It is deleted, unless the module is to be called again.
    """
    keep = False
    try:
        result = work()
    except ModuleFailed as failed:
        keep = isinstance(failed, Locked)
        module.fail_json(msg=str(failed), faults=[failed.fault], invocation={})
    except OSError as error:
        module.fail_json(msg=f"{error.filename or 'the host'}: {error.strerror or error}", invocation={})
    finally:
        if sent and not keep:
            sent.unlink(missing_ok=True)
    module.exit_json(**{"changed": False, **result}, invocation={})


@contextlib.contextmanager
def alone(path: Path, work: str) -> Iterator[None]:
    """Hold the lock file, in which ``work`` tells other runs what this one does. Raises Locked after TURN_S."""
    make_parents(path)
    ends = time.monotonic() + TURN_S
    with path.open("a+") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > ends:
                    raise Locked(_holder(file)) from None
                time.sleep(0.5)
        file.truncate(0)
        print(os.getpid(), work, end="", flush=True, file=file)
        yield


@contextlib.contextmanager
def scratch(lock: Path, work: str, *folders: Path) -> Iterator[None]:
    """Hold the lock (see `alone`), without these temporary directories before and after the work.

    Jobs can read what is created meanwhile, whatever the umask of root is.
    """
    os.umask(0o022)
    with alone(lock, work):
        try:
            remove(*folders)
            yield
        finally:
            remove(*folders)


def remove(*folders: Path) -> None:
    """Delete directories that may not exist."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def replace_tree(new: Path, path: Path, old: Path) -> None:
    """Move the directory ``new`` to ``path``. What is there becomes ``old``: a running task may import from it.

    overlayfs does not rename a directory of a lower layer, such as one of an image. Such a directory is deleted.
    """
    with contextlib.suppress(OSError):
        path.rename(old)
    if path.exists():
        remove(path)
    new.rename(path)


def _holder(file: IO[str]) -> str:
    file.seek(0)
    process, _, work = file.read().partition(" ")
    seconds = int(time.time() - os.fstat(file.fileno()).st_mtime)
    return f"another run {work or 'is at work'} on this host, for {seconds} s now (process {process or 'unknown'})"


def make_parents(path: Path) -> None:
    """Create missing parents with mode 0755, whatever the umask is: jobs must be able to enter them."""
    for parent in reversed(path.parents):
        if not parent.exists():
            with contextlib.suppress(FileExistsError):
                parent.mkdir()
            parent.chmod(0o755)


def link_or_copy(file: Path, path: Path) -> None:
    """Hard-link a file, to save space, or copy it to another file system."""
    try:
        os.link(file, path)
    except OSError:
        shutil.copyfile(file, path)


def unpack(file: Path, folder: Path) -> None:
    """Unpack a tar.

    Raises ModuleFailed if it is none or would write outside ``folder``, although its hash is known.
    """
    folder.mkdir()
    try:
        with tarfile.open(file) as archive:
            # is_inside checks each member below, so no filter is needed.
            archive.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
            for member in archive.getmembers():
                if not is_inside(folder, member):
                    raise ModuleFailed(f"{member.name} in the archive would lie outside its directory")
                member.uid = member.gid = 0
                member.uname = member.gname = "root"
                member.mode = member.mode & 0o755 | (0o555 if member.isdir() else 0o444)  # jobs read it
                archive.extract(member, folder)
    except tarfile.TarError as fault:
        raise ModuleFailed(f"the archive cannot be unpacked: {fault}") from fault


def is_inside(folder: Path, member: tarfile.TarInfo) -> bool:
    if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
        return False
    places = [folder / member.name]
    if member.issym():
        places.append((folder / member.name).parent / member.linkname)
    elif member.islnk():
        places.append(folder / member.linkname)
    root = os.path.realpath(folder)
    reals = [os.path.realpath(place) for place in places]
    # `tar -C DIR .` makes a member for the directory itself.
    return all(real == root or real.startswith(root + os.sep) for real in reals)


def temporary_path(path: Path) -> Path:
    """Return a temporary path in the same directory."""
    return path.with_name(f".{path.name}.tfctl")


def point(link: Path, target: str) -> None:
    """Create or replace a link in one step."""
    part = temporary_path(link)
    part.unlink(missing_ok=True)
    part.symlink_to(target)
    part.replace(link)


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Create or replace a file in one step."""
    part = temporary_path(path)
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.chmod(mode)  # whatever the umask is
    part.replace(path)


def read(path: Path) -> str | None:
    """Return the text of a file, or None if there is none."""
    return path.read_text(encoding="utf-8") if path.is_file() and not path.is_symlink() else None


def run(words: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a program and return its exit code and output. Raises ModuleFailed after LIMIT_S."""
    empty = subprocess.DEVNULL
    try:
        return subprocess.run(words, stdin=empty, capture_output=True, text=True, timeout=LIMIT_S, check=False, **more)
    except subprocess.TimeoutExpired:
        raise ModuleFailed(f"`{' '.join(words[:3])}` ran longer than {LIMIT_S} s and was killed") from None


def as_nobody() -> dict[str, Any]:
    """Return the arguments of `run` for a program that runs as the user nobody, or none if this process is not root."""
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


def directory_for_nobody(folder: Path) -> Path:
    """Create a directory in which only the user nobody can write, besides root."""
    folder.mkdir(0o700)
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    return folder


def compared(differences: list[str]) -> dict[str, object]:
    """Return the result of a module that has found differences, or none. With --diff, Ansible shows them."""
    diff = {"before_header": "differs", "after_header": "matches", "before": "\n".join([*differences, ""]), "after": ""}
    return {"changed": bool(differences), "differs": bool(differences), "diff": diff if differences else []}


def unprivileged(words: list[str], failure: str) -> dict[str, Any]:
    """Run a program as the user nobody, who can read what a job can, and return the JSON of its last line.

    Raises ModuleFailed, which begins with ``failure``.
    """
    variables = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = run(words, env=variables, cwd="/", **as_nobody())
    if done.returncode:
        raise ModuleFailed(f"{failure}: {last_lines(done.stderr)}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def last_lines(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-12:]) or "it printed nothing"
