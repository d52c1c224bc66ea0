"""A minimal Debian 12 that has git and certificates and nothing else: a control machine on which nothing is cached.

It shares this machine's network and nothing else of it: Python, packages and caches are its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tfctl.lab import egress, host, image, node, seed

ROOT = Path(__file__).parents[2]
#: Where the checkout is within the system.
CHECKOUT = "/root/tfctl"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Minimal:
    """A running system. ``root`` is its file system; ``leader`` the process ID of its first process."""

    root: Path
    leader: int

    def run(
        self, command: str, timeout: float, user: str = "root", network: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command with stdout and stderr in one stream: as root in the checkout, as another user in its
        home directory. Without a ``network``, there is only the loopback interface."""
        home = "/root" if user == "root" else f"/home/{user}"
        script = f"cd {CHECKOUT if user == 'root' else home} && {command}"
        alone = [] if network else ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
        inside = ["nsenter", "-t", str(self.leader), "-m", "-u", "-i", "-p", "--root", "--wd"]
        clean = ["env", "-i", f"PATH={home}/.local/bin:{PATH}", f"HOME={home}", "LANG=C.UTF-8"]
        become = [] if user == "root" else ["setpriv", "--init-groups", f"--reuid={user}", f"--regid={user}"]
        return subprocess.run(
            [*alone, *inside, *clean, *become, "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
        )


def recipe() -> image.Recipe:
    """Return what `mmdebstrap --variant=minbase --include=git,ca-certificates` makes of this machine's apt sources."""
    return replace(
        image.recipe("bookworm"),
        variant="minbase",
        packages=("git", "ca-certificates"),
        masked=(),
        files=(),
        hooks=(),
        apt_options=(),
        dpkg_options=("force-unsafe-io",),
    )


@contextmanager
def system(folder: Path, bind: Sequence[Path] = ()) -> Iterator[Minimal]:
    """Start a fresh system with a copy of this checkout. ``folder``: an empty directory on a disk.

    ``bind``: directories of this machine that it can read at the same path.
    """
    key = image.ensure(recipe(), print)
    root = folder / "root"
    # A copy, because an overlay cannot have its upper directory on another overlay, as the /tmp of a container is.
    subprocess.run(["cp", "-a", "--reflink=auto", str(image.path(key)), str(root)], check=True, timeout=120)
    for name, file in seed.egress_seeds(egress.read(print)).items():
        host.write(root / name, file.text, file.mode)
    _copy_checkout(root / CHECKOUT.lstrip("/"))
    words = ["systemd-nspawn", "--quiet", "--as-pid2", f"--directory={root}", "--register=no", "--keep-unit"]
    words += ["--resolv-conf=off", "--timezone=off", "--link-journal=no", "--capability=all"]
    machine = f"minimal{os.getpid()}"
    words += [f"--machine={machine}", *(f"--bind-ro={each}" for each in bind)]
    nspawn = subprocess.Popen(
        [*words, "sleep", "infinity"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield Minimal(root, _first_process(nspawn))
    finally:
        nspawn.send_signal(signal.SIGTERM)
        nspawn.wait(20)
        node.clear(machine)
        shutil.rmtree(root)


def _first_process(nspawn: subprocess.Popen[bytes]) -> int:
    """Wait until the process that systemd-nspawn makes the first one of the system has started its command."""
    children = Path(f"/proc/{nspawn.pid}/task/{nspawn.pid}/children")

    def found() -> list[str]:
        assert nspawn.poll() is None, f"systemd-nspawn ended with {nspawn.returncode}"
        return [each for each in children.read_text().split() if _name(each) == "(sd-stubinit)"]

    assert host.wait_for(lambda: bool(found()), limit=20.0), "systemd-nspawn has not started its first process"
    return int(found()[0])


def _name(process: str) -> str:
    with suppress(FileNotFoundError, ProcessLookupError):  # systemd-nspawn has children that soon end
        return Path("/proc", process, "comm").read_text().strip()
    return ""


def _copy_checkout(target: Path) -> None:
    """Clone the repository, then copy what git sees of the working tree over it."""
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(ROOT), str(target)], check=True, timeout=60)
    listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, check=True, capture_output=True, text=True, timeout=60).stdout.split("\0")
    for name in filter(None, names):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            (target / name).unlink(missing_ok=True)  # shutil.copy does not replace links
            shutil.copy(ROOT / name, target / name, follow_symlinks=False)
        else:
            (target / name).unlink(missing_ok=True)
