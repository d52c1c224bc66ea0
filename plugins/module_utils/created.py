"""What roles create on this host: write their receipts, and undo them for `tfctl reset`."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

from ansible_collections.tfctl.cluster.plugins.module_utils import transaction
from ansible_collections.tfctl.cluster.plugins.module_utils.install import ModuleFailed, write
from ansible_collections.tfctl.cluster.plugins.module_utils.programs import live_units
from ansible_collections.tfctl.cluster.plugins.module_utils.receipts import (
    FOLDER,
    FORMAT,
    INSTALLED,
    Manages,
    Receipt,
    announced,
    in_use,
    installed_packages,
    observe,
    read,
)
from ansible_collections.tfctl.cluster.plugins.module_utils.transaction import Apt, Dnf, call

#: What a receipt can list as created, besides packages.
_KINDS = ("paths", "trees", "caches", "units", "users", "groups")
#: The units of a task and of the guard of a job (tfctl/node/names.py).
_UNIT = re.compile(r"tfctl-(.+)-[a-z][a-z0-9_]*-\d+\.service|tfctlguard-(.+)\.service")


class RemovalResult(NamedTuple):
    """What was removed, in words, and sentences about what was kept."""

    removed: list[str]
    kept: list[str]


def begin(role: str, manages: Manages, folder: str = FOLDER) -> None:
    """Record what exists before the role runs. Until `end`, its receipt says that it has not completed."""
    path = Path(folder, f"{role}.json")
    old = read(path)
    now = observe(manages, deep=False)
    before = {kind: {name: in_use(facts) for name, facts in now[kind].items()} for kind in _KINDS}
    directories = [Path(path).parent for kind in ("paths", "trees", "caches") for path in now[kind]]
    directories += map(Path, manages.get("directories", ()))
    before["paths"].update(dict.fromkeys(_missing(directories), False))
    for kind, names in (old["before"] if old else {}).items():
        # The first run decides what existed before tfctl.
        before[kind] = {**before.get(kind, {}), **names}
    receipt: Receipt = {
        "format": FORMAT,
        "role": role,
        "since": old["since"] if old else time.time(),
        "digest": "",
        "manages": manages,
        "before": before,
        "created": old["created"] if old else {},
        "installed": (old["installed"] if old else []) or installed_packages(),
        "fingerprint": {},
    }
    _write(path, receipt)


def end(role: str, digest: str, manages: Manages, folder: str = FOLDER) -> None:
    """Complete the receipt that `begin` has written. Raises OSError if there is none."""
    path = Path(folder, f"{role}.json")
    receipt = cast(Receipt, json.loads(path.read_text(encoding="utf-8")))
    found = created(receipt, folder)
    fingerprint = observe(manages)
    for kind, names in receipt["before"].items():
        # Forget what this run does not manage and what no longer exists.
        kept = {*found.get(kind, ()), *fingerprint.get(kind, ())}
        receipt["before"][kind] = {name: there for name, there in names.items() if there or name in kept}
    receipt["digest"], receipt["manages"], receipt["fingerprint"] = digest, manages, fingerprint
    receipt["created"], receipt["installed"] = found, []
    _write(path, receipt)


def created(receipt: Receipt, folder: str) -> dict[str, list[str]]:
    """Return what the role has created, by kind. If its last run did not complete, look for what that run has left.

    Of the packages that are new, only those count that tfctl has installed. Others may be of the owner of the host.
    """
    listed: dict[str, list[str]] = receipt["created"]
    if receipt["digest"]:
        return listed
    now = observe(cast(Manages, {kind: [*names] for kind, names in receipt["before"].items()}), deep=False)
    found = {
        kind: [name for name, there in names.items() if not there and (kind == "caches" or in_use(now[kind][name]))]
        for kind, names in receipt["before"].items()
    }
    packages, earlier = {*installed_packages()}, {*listed.get("packages", ())}
    # Without a snapshot, `end` has listed the new packages of a run that failed.
    new = packages - {*receipt["installed"]} if receipt["installed"] else set()
    ours, bare = announced(Path(folder).parent / INSTALLED.name), transaction.of_this_host().without_architecture
    return {**found, "packages": sorted(packages & earlier | {name for name in new if {name, bare(name)} & ours})}


def _missing(directories: Iterable[Path]) -> Iterator[str]:
    """Yield those of the directories, and of their parents, that do not exist."""
    for directory in directories:
        for path in (directory, *directory.parents):
            if path.exists():
                break
            yield str(path)


def _write(path: Path, receipt: Receipt) -> None:
    """Write the receipt, readable by root alone, because it contains hashes of secret files."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    write(path, json.dumps(receipt, indent=1), 0o600)


def running_jobs() -> list[str]:
    """Return the names of the jobs with a live task on this host, of those that are being started, and of those with a
    guard, which may start their tasks again. Raises ModuleFailed.
    """
    units = map(_UNIT.fullmatch, live_units())
    return sorted({unit[1] or unit[2] for unit in units if unit})


def undo(receipts: Sequence[Receipt], folder: str = FOLDER, act: bool = True) -> RemovalResult:
    """Remove what roles have created, and then their receipts; without ``act``, only return what would be removed.

    A directory stays unless it is empty, and a package stays if another one, which no role has installed, needs it.
    Raises ModuleFailed after everything else was removed. The receipts then remain, so that a second call can continue.
    """
    removal = _Removal([created(receipt, folder) for receipt in reversed(receipts)], act)
    removal.stop_units()
    removal.remove_files()
    removal.remove_packages()
    removal.forget_holds([receipt["role"] for receipt in receipts], Path(folder).parent)
    removal.remove_directories()
    removal.remove_accounts()
    removal.refresh([command for receipt in receipts for command in receipt["manages"].get("refresh", ())])
    if removal.problems:
        raise ModuleFailed("\n".join(removal.problems))
    if act:
        for receipt in receipts:
            Path(folder, f"{receipt['role']}.json").unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            Path(folder).rmdir()  # not while the driver has a receipt
            Path(folder).parent.joinpath(INSTALLED.name).unlink(missing_ok=True)
            Path(folder).parent.rmdir()
    return RemovalResult(removal.removed, removal.kept)


def removable(manager: Apt | Dnf, names: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the packages whose removal removes no other package, and for each other one the packages that need it.

    Raises ModuleFailed.
    """
    own = {*map(manager.without_architecture, names)}
    if not manager.removed_with(names) - own:
        return [*names], {}
    needed = {name: sorted(manager.removed_with([name]) - own) for name in names}
    return [name for name in names if not needed[name]], {name: others for name, others in needed.items() if others}


class _Removal:
    """Removes what is listed, the last first. ``removed``: in words; ``kept``, ``problems``: sentences."""

    def __init__(self, created: Sequence[dict[str, list[str]]], act: bool) -> None:
        self._created, self._act, self._manager = created, act, transaction.of_this_host()
        self._directories: list[Path] = []
        self._stuck: set[str] = set()
        self._gone: set[Path] = set()
        self._going: set[str] = set()
        self.removed: list[str] = []
        self.kept: list[str] = []
        self.problems: list[str] = []

    def stop_units(self) -> None:
        units = self._all("units")
        now = observe({"units": units})["units"]
        for unit in units:
            stop = partial(call, ["systemctl", "disable", "--now", unit])
            if in_use(now[unit]) and not self._remove(f"unit {unit}", stop):
                self._stuck.add(unit)

    def remove_files(self) -> None:
        """Remove files, links, and trees. Directories may contain what packages own, so they are removed later.

        The file of a unit that did not stop stays, because systemctl needs it to stop the unit in the next call.
        """
        whole = {*self._all("trees"), *self._all("caches")}
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
        for path in map(Path, sorted({*whole, *self._all("paths")}, reverse=True)):
            if path.name in self._stuck:
                continue
            # Do not look at it: a file server that does not answer would block this process.
            if str(path) in mounts:
                self._leave_mounted(path)
            elif path.is_symlink() or path.is_file():
                self._remove(str(path), path.unlink, path)
            elif path.is_dir() and str(path) not in whole:
                self._directories.append(path)
            elif path.is_dir() and any(mount.startswith(f"{path}/") for mount in mounts):
                self.kept.append(f"{path}: a file system is mounted there")
            elif path.is_dir():
                self._remove(str(path), partial(shutil.rmtree, path), path)

    def _leave_mounted(self, path: Path) -> None:
        """Keep a directory on which a file system is still mounted. A check has stopped no unit, so it may be ours."""
        if not self._act and any(unit.endswith(".mount") for unit in self._all("units")):
            self.removed.append(str(path))
        else:
            self.kept.append(f"{path}: a file system is mounted there")

    def remove_packages(self) -> None:
        names = [name for name in self._all("packages") if name in {*installed_packages()}]
        if not names:
            return
        try:
            going, needed = removable(self._manager, names)
        except ModuleFailed as failed:
            self.problems.append(str(failed))
            return
        self.kept += [f"package {name}: {', '.join(others)} need it" for name, others in needed.items()]
        if going and (not self._act or self._try("packages", partial(call, self._manager.removal_of(going)))):
            self.removed += [f"package {name}" for name in going]
            self._going.update(map(self._manager.without_architecture, going))

    def forget_holds(self, roles: Collection[str], folder: Path) -> None:
        """Release the packages that these roles have put on hold, unless another role needs the hold, and forget them.

        ``folder``: where the role nvidia_packages records them. If packages could not be removed, do nothing: the next
        call needs the records.
        """
        if self.problems:
            return
        record = transaction.recorded(folder / transaction.RECORD.name)
        needed = {name for role, packages in record.items() if role not in roles for name in packages}
        ours = {name: version for role in roles for name, version in record.get(role, {}).items() if version}
        unneeded = {name: ours[name] for name in sorted({*ours} - needed)}
        held = [name for name in self._manager.on_hold(unneeded) if self._stays(name)]
        release = partial(call, [*self._manager.unhold.split(), *held])
        if held and (not self._act or self._try("holds", release)):
            self.removed += [f"hold of package {name}" for name in held]
        for path in (folder / transaction.RECORD.name, folder / transaction.PREVIOUS.name):
            left = {role: packages for role, packages in transaction.recorded(path).items() if role not in roles}
            if path.exists() and not left:
                self._remove(str(path), path.unlink, path)
            elif self._act and left != transaction.recorded(path):
                self._try(str(path), partial(write, path, json.dumps(left, indent=1) + "\n"))

    def _stays(self, package: str) -> bool:
        """Return whether the hold of a package outlives its removal, or the package itself does."""
        return package not in self._going or self._manager.keeps_holds

    def remove_directories(self) -> None:
        for path in self._directories:
            if path.is_dir() and {*path.iterdir()} - self._gone:
                self.kept.append(f"{path}: it is not empty")
            elif path.is_dir():
                self._remove(str(path), path.rmdir, path)

    def remove_accounts(self) -> None:
        found = observe({"users": self._all("users"), "groups": self._all("groups")})
        for user in [name for name, facts in found["users"].items() if facts]:
            self._remove(f"user {user}", partial(call, ["userdel", user]))
        for group in [name for name, facts in found["groups"].items() if facts]:
            self._remove(f"group {group}", partial(_delete_group, group))

    def refresh(self, commands: Iterable[str]) -> None:
        """Make systemd and other programs read their configuration again."""
        if not self._act:
            return
        reload = ["systemctl daemon-reload"] if any(path.is_relative_to("/etc/systemd") for path in self._gone) else []
        for command in dict.fromkeys([*reload, *commands]):
            self._try(command, partial(call, shlex.split(command)))

    def _all(self, kind: str) -> list[str]:
        return [*dict.fromkeys(name for created in self._created for name in created.get(kind, ()))]

    def _remove(self, what: str, action: Callable[[], object], path: Path | None = None) -> bool:
        if not self._try(what, action if self._act else bool):
            return False
        self.removed.append(what)
        self._gone.update([path] if path else ())
        return True

    def _try(self, what: str, action: Callable[[], object]) -> bool:
        try:
            action()
        except (OSError, ModuleFailed) as error:
            self.problems.append(f"{what}: {error}")
            return False
        return True


def _delete_group(name: str) -> None:
    """Delete a group, unless userdel has deleted it with the user of this name. Raises ModuleFailed."""
    if observe({"groups": [name]})["groups"][name]:
        call(["groupdel", name])
