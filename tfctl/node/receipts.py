"""Receipts: what a role of `tfctl provision` found on this host, what it created and left, and what changed since.

A receipt is the file /var/lib/tfctl/provision/ROLE.json. No role runs while all receipts hold, and `tfctl reset`
removes what receipts list as created. plugins/module_utils/receipts.py is a link to this file, which therefore imports
nothing of tfctl.
"""

from __future__ import annotations

import fnmatch
import grp
import hashlib
import json
import os
import pwd
import re
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Optional, TypedDict, cast

FOLDER = "/var/lib/tfctl/provision"
#: The names of the packages that tfctl itself has installed, one a line; see `announce`.
INSTALLED = Path("/var/lib/tfctl/installed")
FORMAT = 1  # receipts of other formats are ignored, so their roles run again
_LIMIT_S = 60  # seconds for one call of dpkg-query, rpm or systemctl
#: Facts about a file that are compared first. If they differ, its hash decides.
_TIMES = ("size", "mtime_ns", "ctime_ns")
_SOFT = {"mtime_ns", "ctime_ns", "newest", "missing"}  # a difference of these alone is no drift
#: Kinds that are observed for all receipts at once, because each call of a program takes time.
_TOGETHER = ("packages", "units")
#: What is asked about a package: name, status, version, and the name as the package manager takes it.
_DPKG = ("${Package}\t${db:Status-Abbrev}\t${Version}\t${binary:Package}\n", "${db-fsys:Files}\n")
_RPM = ("%{NAME}\tii\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\t%{NAME}.%{ARCH}\n", "[ %{FILENAMES}\n]")

#: What is known about one thing, such as the mode and hash of a file. None: it does not exist.
Facts = Optional[dict[str, object]]
#: Facts by kind (a key of Manages), then by name.
State = dict[str, dict[str, Facts]]


class Manages(TypedDict, total=False):
    """What a role manages.

    ``paths``: files, links, and directories without their content. ``directories``: those that are not compared,
    because others change their mode and owner; `tfctl reset` removes them if they are empty. ``trees``: directories
    with their content, except the paths that match ``ignore`` (fnmatch), which belong to other roles. ``caches``:
    directories that change while tfctl is used; they are not compared, and `tfctl reset` removes them with their
    content. ``refresh``: commands that a reset runs at its end, such as a restart of a service whose configuration was
    removed.
    """

    paths: list[str]
    directories: list[str]
    trees: list[str]
    ignore: list[str]
    caches: list[str]
    packages: list[str]
    units: list[str]
    users: list[str]
    groups: list[str]
    refresh: list[str]


class Receipt(TypedDict):
    """``since``: when the role first ran here, in epoch seconds. ``digest``: of its inputs; "" until it has completed.

    ``before``: whether a thing existed when the role first managed it, by kind and name. ``created``: what did not
    exist before and did after a run; its packages are those that tfctl has installed, with dependencies. ``installed``:
    all packages of the host before a run that has not completed. ``fingerprint``: how the role left the host.
    """

    format: int
    role: str
    since: float
    digest: str
    manages: Manages
    before: dict[str, dict[str, bool]]
    created: dict[str, list[str]]
    installed: list[str]
    fingerprint: State


@dataclass(frozen=True)
class CheckedReceipt:
    """A receipt that was compared with the host, which decides whether its role runs again.

    ``digest``: of the inputs of the role; "" if its last run did not complete. ``drifts``: what differs from its
    fingerprint, in sentences.
    """

    role: str
    digest: str
    drifts: tuple[str, ...] = ()


def read_all(folder: str = FOLDER) -> list[Receipt]:
    """Return the receipts in the order in which their roles first ran."""
    found = [receipt for path in Path(folder).glob("*.json") if (receipt := read(path)) is not None]
    return sorted(found, key=lambda receipt: receipt["since"])


def check_all(folder: str = FOLDER) -> list[CheckedReceipt]:
    """Compare all receipts with the host."""
    receipts = read_all(folder)
    found = drifts(receipts)
    return [CheckedReceipt(each["role"], each["digest"], tuple(found[each["role"]])) for each in receipts]


def drifts(receipts: Sequence[Receipt]) -> dict[str, list[str]]:
    """Return what differs from the fingerprints: sentences, by role."""
    names = {kind: [name for each in receipts for name in each["fingerprint"].get(kind, ())] for kind in _TOGETHER}
    together = observe(cast(Manages, names))
    return {each["role"]: [*_drifts(each, together)] for each in receipts}


def announce(packages: Iterable[str], path: Path = INSTALLED) -> None:
    """Record packages immediately before tfctl installs them.

    A receipt lists only recorded packages as created: whatever else appears on the host while a role runs, which may
    take hours with reboots, belongs to somebody else. Recorded later, they would be missing after an interrupted run.
    """
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{package}\n" for package in packages)


def announced(path: Path) -> set[str]:
    """Return the names of the packages that tfctl has installed."""
    return {*path.read_text(encoding="utf-8").split()} if path.exists() else set()


def installed_packages() -> list[str]:
    """Return the names of all installed packages as the package manager takes them."""
    return sorted({package.full for package in query_packages() if package.name != "gpg-pubkey"})


def _drifts(receipt: Receipt, together: State) -> Iterator[str]:
    then = receipt["fingerprint"]
    alone = {kind: value for kind, value in receipt["manages"].items() if kind not in _TOGETHER}
    now = {**observe(cast(Manages, alone), then), **{kind: together[kind] for kind in _TOGETHER}}
    for kind in (kind for kind in then if kind != "caches"):
        for name, facts in then[kind].items():
            yield from _differences(kind, name, facts, now[kind].get(name))


def _differences(kind: str, name: str, then: Facts, now: Facts) -> Iterator[str]:
    one = {"packages": "package ", "units": "unit ", "users": "user ", "groups": "group "}.get(kind, "") + name
    if then is None or now is None:
        if then is not now:
            yield f"{one} was {'created' if then is None else 'removed'} since it was provisioned"
        return
    if kind == "packages":
        for path in _added(then["missing"], now["missing"]):
            yield f"{path} of {one} was removed since it was provisioned"
        version = str(now["version"])
        if ":" not in str(then["version"]):  # earlier receipts contain rpm's versions without the epoch
            now = {**now, "version": version.partition(":")[2] or version}
    elif kind == "trees" and then.get("digest") != now.get("digest"):
        one = _newer(then, now) or one
    elif kind == "groups" and not _added(now["members"], then["members"]):
        now = {**now, "members": then["members"]}
    if any(then.get(key) != now.get(key) for key in {*then, *now} - _SOFT):
        yield f"{one} changed since it was provisioned"


def _added(before: object, after: object) -> list[str]:
    """Return the strings that only the second of two lists contains."""
    return [name for name in cast("list[str]", after) if name not in cast("list[str]", before)]


def _newer(then: Mapping[str, object], now: Mapping[str, object]) -> str:
    """Return the path in a tree that changed last, or "" if no path changed after the fingerprint was taken."""
    before, after = (cast("tuple[int, str]", each.get("newest", (0, ""))) for each in (then, now))
    return after[1] if after[0] > before[0] else ""


def observe(manages: Manages, known: State | None = None, deep: bool = True) -> State:
    """Return the state of what is managed. ``known``: an earlier state; its hashes hold for files whose size and times
    are still the same. Without ``deep``, omit hashes and the content of trees."""
    ignore = re.compile("|".join(map(fnmatch.translate, manages.get("ignore", ()))) or r"(?!)")
    files = (known or {}).get("paths", {})
    return {
        "paths": {path: _path(path, files.get(path), deep) for path in manages.get("paths", ())},
        "trees": {path: _tree(path, ignore) if deep else _path(path) for path in manages.get("trees", ())},
        "caches": {path: _path(path) for path in manages.get("caches", ())},
        "packages": _installed(manages.get("packages", ())),
        "units": _units(manages.get("units", ())),
        "users": {name: _user(name) for name in manages.get("users", ())},
        "groups": {name: _group(name) for name in manages.get("groups", ())},
    }


def in_use(facts: Facts) -> bool:
    """Return whether a thing exists and, if it is a unit, whether it is active or enabled."""
    return facts is not None and ("active" not in facts or bool(facts["active"] or facts["enabled"]))


def _path(path: str, known: Facts = None, deep: bool = False) -> Facts:
    """Return what is known about a path itself."""
    try:
        info = os.lstat(path)
    except OSError:
        return None
    facts: dict[str, object] = {"mode": stat.S_IMODE(info.st_mode), "uid": info.st_uid, "gid": info.st_gid}
    if stat.S_ISLNK(info.st_mode):
        return {**facts, "kind": "link", "target": str(Path(path).readlink())}
    if not stat.S_ISREG(info.st_mode):
        return {**facts, "kind": "directory" if stat.S_ISDIR(info.st_mode) else "other"}
    facts.update(kind="file", size=info.st_size, mtime_ns=info.st_mtime_ns, ctime_ns=info.st_ctime_ns)
    if known and all(known.get(key) == facts[key] for key in _TIMES):
        return {**facts, "sha256": known["sha256"]}
    return {**facts, "sha256": _sha256(path)} if deep else facts


def _sha256(path: str) -> str:
    """Return the hash of a file, or "" if it cannot be read."""
    try:
        return digest(Path(path))
    except OSError:
        return ""


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    value = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            value.update(block)
    return value.hexdigest()


def _tree(path: str, ignore: re.Pattern[str]) -> Facts:
    """Return what is known about a directory with its content. ``newest``: time and path of its last change."""
    facts = _path(path)
    if facts is None or facts["kind"] != "directory":
        return facts
    digest, newest, folders = hashlib.sha256(), (0, path), [path]
    while folders:
        for entry, info in _entries(folders.pop()):
            if ignore.match(entry.path):
                continue
            newest = max(newest, (info.st_ctime_ns, entry.path))
            line = f"{entry.path}\0{info.st_mode} {info.st_uid} {info.st_gid}"
            if entry.is_dir(follow_symlinks=False):
                # Without its times: they also change with files that are ignored.
                folders.append(entry.path)
            else:
                line += f" {info.st_size} {info.st_mtime_ns} {info.st_ctime_ns}"
            digest.update(line.encode("utf-8", "surrogateescape"))
    return {**facts, "digest": digest.hexdigest(), "newest": list(newest)}


def _entries(folder: str) -> list[tuple[os.DirEntry[str], os.stat_result]]:
    """Return what is in a directory, sorted; nothing if that changes meanwhile or cannot be read."""
    try:
        with os.scandir(folder) as found:
            return [(entry, entry.stat(follow_symlinks=False)) for entry in sorted(found, key=lambda each: each.name)]
    except OSError:
        return []


def _run(*words: str) -> str:
    """Return what a program prints, or "" if it cannot be run. An unknown package is no error."""
    variables = {**os.environ, "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT_S, check=False, env=variables
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")


class Package(NamedTuple):
    """An installed package. ``full``: the name as the package manager takes it. ``version``: with the epoch; without
    one, rpm's begins with 0. ``missing``: its files that do not exist, if asked for."""

    name: str
    full: str
    version: str
    held: bool
    missing: list[str]

    def names(self) -> set[str]:
        """Return the names by which a role can mean it."""
        versioned = f"{self.name}-{self.version.partition(':')[2]}"
        return {self.name, self.full, versioned, f"{versioned}.{self.full.rpartition('.')[2]}"}


def uses_apt() -> bool:
    """Return whether this host uses apt rather than dnf. A host with dnf may have dpkg, too."""
    return shutil.which("apt-get") is not None


def query_packages(
    names: Iterable[str] = (), run: Callable[..., str] = _run, apt: bool | None = None
) -> Iterator[Package]:
    """Yield the installed packages of these names. Without names, yield all, but do not look for missing files.

    ``run``: returns what a program prints. ``apt``: whether to ask dpkg instead of rpm; None: if this host uses apt.
    """
    wanted = sorted({*names})
    apt = uses_apt() if apt is None else apt
    words = ["dpkg-query", "-W", "-f"] if apt else ["rpm", "-q" if wanted else "-qa", "--qf"]
    output = run(*words, "".join((_DPKG if apt else _RPM)[: 2 if wanted else 1]), *wanted)
    found: Package | None = None
    for line in (*output.splitlines(), "\t\t\t"):
        if line.count("\t") == 3:
            if found:
                yield found
            name, status, version, full = line.split("\t")
            found = Package(name, full, version, status[:1] == "h", []) if status[1:2] == "i" else None
        # Documentation may be left out, and configuration belongs to the host.
        elif found and line.startswith(" /") and not line.startswith((" /usr/share/", " /etc/")):
            found.missing.extend([] if os.path.lexists(line[1:]) else [line[1:]])


def _installed(names: Iterable[str]) -> dict[str, Facts]:
    """Return what is known about packages. A name may include ``=VERSION``."""
    wanted = {name: name.partition("=")[0] for name in names}
    found: dict[str, Facts] = dict.fromkeys(wanted)
    for package in query_packages(wanted.values()) if wanted else ():
        for name in [name for name, bare in wanted.items() if bare in package.names() and found[name] is None]:
            found[name] = {"version": package.version, "held": package.held, "missing": package.missing}
    return found


def _units(names: Iterable[str]) -> dict[str, Facts]:
    wanted = sorted({*names})
    found: dict[str, Facts] = dict.fromkeys(wanted)
    words = ("systemctl", "show", "--property=LoadState,ActiveState,UnitFileState", "--", *wanted)
    for name, block in zip(wanted, _run(*words).split("\n\n") if wanted else ()):
        known = dict(line.partition("=")[::2] for line in block.splitlines())
        if known.get("LoadState") not in (None, "not-found"):
            running = known["ActiveState"] in ("active", "activating", "reloading")
            found[name] = {"active": running, "enabled": known["UnitFileState"] in ("enabled", "enabled-runtime")}
    return found


def _user(name: str) -> Facts:
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        return None
    return {"uid": found.pw_uid, "gid": found.pw_gid, "home": found.pw_dir, "shell": found.pw_shell}


def _group(name: str) -> Facts:
    try:
        found = grp.getgrnam(name)
    except KeyError:
        return None
    return {"gid": found.gr_gid, "members": sorted(found.gr_mem)}


def read(path: Path) -> Receipt | None:
    """Return the receipt, or None if there is none that can be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return cast(Receipt, found) if isinstance(found, dict) and found.get("format") == FORMAT else None
