"""The base image of a suite: built once by mmdebstrap and cached under a digest of its recipe.

mmdebstrap builds the same tree as debootstrap in half the time, and in its own mount namespace, so an interrupted
build leaves no mount behind.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from tfctl.errors import TfctlError
from tfctl.lab import apt
from tfctl.lab.host import locked, run, wait_for, write
from tfctl.lab.spec import CACHE, USER, Progress

PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "libpam-systemd", "openssh-server", "python3", "python3-venv", "python3-apt",
    "iproute2", "sudo", "ca-certificates", "nftables", "procps", "zstd",
)  # fmt: skip

# Not needed in a node, slow to start, or failing in a container (systemd-update-utmp makes the system "degraded").
MASKED = (
    "systemd-update-utmp.service", "systemd-update-utmp-runlevel.service", "console-getty.service", "getty.target",
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "fstrim.timer", "e2scrub_all.timer",
    "e2scrub_reap.service", "motd-news.timer", "systemd-firstboot.service", "systemd-hwdb-update.service",
    "systemd-journal-catalog-update.service", "systemd-update-done.service", "ldconfig.service", "tmp.mount",
)  # fmt: skip

FILES = {
    "etc/ssh/sshd_config.d/10-tfctl-lab.conf": (
        "HostKey /etc/ssh/ssh_host_ed25519_key\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        "PermitRootLogin no\nUseDNS no\nMaxStartups 40:30:100\n"
        # OpenSSH's post-quantum default costs each end 0.2 s of CPU per connection.
        "KexAlgorithms curve25519-sha256,curve25519-sha256@libssh.org\n"
    ),
    # pam_env(8) reads it at every login; since trixie one is a link to the other.
    "etc/default/locale": "LANG=C.UTF-8\n",
    "etc/locale.conf": "LANG=C.UTF-8\n",
    f"etc/sudoers.d/{USER}": f"{USER} ALL=(ALL:ALL) NOPASSWD: ALL\n",
    "etc/apt/apt.conf.d/20tfctl-lab": 'Acquire::Languages "none";\n',
}

# Leave out manual pages and translations, also of packages that provisioning installs later.
_DPKG_OPTIONS = (
    "force-unsafe-io", "path-exclude=/usr/share/man/*", "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*", "path-exclude=/usr/share/doc/*", "path-include=/usr/share/doc/*/copyright",
)  # fmt: skip
_APT_OPTIONS = ('APT::Install-Recommends "false"', 'Acquire::Languages "none"')
# Constant shell commands for mmdebstrap, which passes the tree's path as $1.
_HOOKS = (
    f'chroot "$1" useradd --create-home --shell /bin/bash --uid 1000 {USER}',
    'chroot "$1" systemctl --quiet enable systemd-networkd.service ssh.service',
    'rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/hostname "$1"/etc/resolv.conf "$1"/etc/machine-id',
    'mkdir -p "$1"/srv/tfctl',
)
# Run in a process namespace that ends with us, so that a killed `up` leaves no mmdebstrap running.
_TIED = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child=KILL")
_BUILD_LIMIT_S = 900.0


@dataclass(frozen=True)
class Recipe:
    """Everything that an image is made from. Equal recipes give equivalent images."""

    suite: str
    sources: tuple[str, ...]
    variant: str = "apt"  # of mmdebstrap(1)
    packages: tuple[str, ...] = PACKAGES
    masked: tuple[str, ...] = MASKED
    files: tuple[tuple[str, str], ...] = tuple(FILES.items())
    hooks: tuple[str, ...] = _HOOKS
    apt_options: tuple[str, ...] = _APT_OPTIONS
    dpkg_options: tuple[str, ...] = _DPKG_OPTIONS

    @property
    def key(self) -> str:
        """The name of the image's directory in the cache: ``<suite>-<12 hex digits>``."""
        text = json.dumps(vars(self), sort_keys=True)
        return f"{self.suite}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def recipe(suite: str) -> Recipe:
    """Return the recipe of a suite on this machine, whose apt sources are part of it."""
    return Recipe(suite, tuple(str(source) for source in apt.sources(suite)))


def ensure(recipe: Recipe, progress: Progress) -> str:
    """Build the image unless it is cached, and return its key. Of concurrent callers one builds, the others wait."""
    folder = path(recipe.key)
    if folder.is_dir():
        return recipe.key
    with locked(f"image-{recipe.suite}", progress):
        if not folder.is_dir():
            progress(f"{recipe.suite}: building the base image, which is then cached")
            _build(recipe, folder)
    return recipe.key


def path(key: str) -> Path:
    return CACHE / "images" / key


def _build(recipe: Recipe, folder: Path) -> None:
    part = folder.with_name(f".{recipe.suite}.part")  # one name per suite, so the next build removes a broken one
    _remove(part)
    part.mkdir(parents=True, mode=0o755)
    sources = part.with_suffix(".list")
    write(sources, "".join(f"{line}\n" for line in recipe.sources))
    try:
        run(_mmdebstrap(recipe, part, sources), timeout=_BUILD_LIMIT_S)
        _finish(recipe, part)
    except BaseException as fault:
        _remove(part)
        if isinstance(fault, TfctlError):
            fault.remedy = f"Check that its mirror answers (`apt-get update`) and has {recipe.suite}."
        raise
    finally:
        sources.unlink(missing_ok=True)
    part.rename(folder)


def _mmdebstrap(recipe: Recipe, tree: Path, sources: Path) -> list[str]:
    command = [*_TIED, "mmdebstrap", "--mode=root", "--format=directory", f"--variant={recipe.variant}"]
    command += [f"--dpkgopt={option}" for option in recipe.dpkg_options]
    # Keep the package lists, so that the first `apt-get install` in a node needs no update, and keep them unpacked:
    # each lookup in compressed lists takes apt seconds.
    command += ["--skip=cleanup/apt/lists", f"--include={','.join(recipe.packages)}"]
    command += [f"--aptopt={option}" for option in recipe.apt_options]
    command += [f"--aptopt={line.rstrip(';')}" for line in apt.settings().splitlines()]
    command += [f"--customize-hook={hook}" for hook in recipe.hooks]
    return [*command, recipe.suite, str(tree), *([str(sources)] if recipe.sources else [])]


def _finish(recipe: Recipe, tree: Path) -> None:
    for name, text in recipe.files:
        write(tree / name, text, mode=0o440 if "sudoers" in name else 0o644)
    units = tree / "etc/systemd/system"
    for unit in recipe.masked:
        (units / unit).unlink(missing_ok=True)
        (units / unit).symlink_to("/dev/null")
    (tree / "etc/apt/apt.conf.d/99mmdebstrap").unlink(missing_ok=True)
    run(["chroot", str(tree), "apt-cache", "gencaches"])
    for source in apt.sources(recipe.suite):
        keyring = Path(source.signed_by or "/")
        if keyring.is_file() and not (tree / keyring.relative_to("/")).exists():
            (tree / keyring.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(keyring, tree / keyring.relative_to("/"))


def _remove(tree: Path) -> None:
    """Remove a tree. Retry, because the processes of a killed build may still write for a moment."""

    def gone() -> bool:
        shutil.rmtree(tree, ignore_errors=True)
        return not tree.exists()

    if not wait_for(gone, limit=10.0):
        raise TfctlError(f"{tree}: cannot be deleted", f"Find the processes that use it: fuser -vm {tree}")
