"""The entries of `tfctl_converge`: inspect each and bring it about. Standard library only, Python 3.9 or newer.

    {group: NAME, gid: N}                               without gid, any number
    {user: NAME, uid: N, home: DIR, comment: TEXT}      a system user without a shell, in the group of its name
    {members: GROUP, users: [NAME]}                     other members stay in it
    {directory: PATH, owner: root, mode: "0755", keep: false}      keep: leave an existing one as it is
    {roots: [DIR], own: DIR, owner: USER}               create missing ones; of the others, only `own` changes owner
    {file: PATH, content: TEXT or base64: TEXT, owner: root, mode: "0644", validate: [WORD]}
    {tree: PATH, files: [{name, base64, mode}]}         owned by root, no other files; Python modules are compiled
    {link: PATH, to: TARGET, keep: N}                   of the directories beside it, keep only the N newest
    {absent: PATH}                                      remove a file
    {service: UNIT, newer: [PATH]}                      restart it if it started before one of these changed
    {unit: UNIT, newer: [PATH], amiss: false}           the same, and enable it; amiss: restart in any case
    {stopped: UNIT}                                     stop and disable it
    {command: [WORD], creates: GLOB, newer: [PATH]}     run it again if one of these has changed since

The group of a file is the one with its owner's name, or else the owner's primary group.
"""

from __future__ import annotations

import base64
import contextlib
import grp
import importlib.util
import os
import pwd
import py_compile
import shutil
import stat
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from ansible.module_utils.tfctl_fault import FAILED, fault

LIMIT_S = 60
NOLOGIN = "/usr/sbin/nologin"


class Failed(Exception):
    """The machine cannot be brought to the wanted state. ``fault``: the problem and the remedy, for tfctl."""

    def __init__(self, message, remedy=""):
        super().__init__(message)
        self.fault = fault(message, remedy, FAILED)


class Change(NamedTuple):
    """A difference: its name, the current and the wanted state (text, for a diff), and the action that resolves it."""

    what: str
    before: str
    after: str
    act: object


def converge(entries, act=True):
    """Yield each change, after making it or, without ``act``, instead of making it. Raises Failed."""
    for entry in entries:
        kinds = [kind for kind in KINDS if kind in entry]
        if len(kinds) != 1:
            raise Failed(f"an entry is one of {', '.join(KINDS)}; this has {', '.join(entry)}")
        try:
            for change in KINDS[kinds[0]](**entry):
                if act:
                    change.act()
                yield change
        except OSError as error:
            raise Failed(f"{error.filename or entry[kinds[0]]}: {error.strerror}") from error


def of_group(group, gid=None):
    there = group_named(group)
    if there is None:
        words = ["--gid", gid] if gid else []
        yield Change(f"group {group}", "", f"gid {gid or 'any'}\n", lambda: run("groupadd", "--system", *words, group))
    elif gid and there.gr_gid != gid:
        raise Failed(f"the group {group} has number {there.gr_gid} here, {gid} is wanted")


def of_user(user, uid, home, comment):
    wanted = {"--home-dir": home, "--shell": NOLOGIN, "--comment": comment, "--gid": user}
    there = user_named(user)
    text = f"uid {uid}, home {home}\n"
    if there is None:
        words = [word for option, value in wanted.items() for word in (option, value)]
        make = ["useradd", "--system", "--no-create-home", "--uid", uid, *words, user]
        yield Change(f"user {user}", "", text, lambda: run(*make))
        return
    if there.pw_uid != uid:
        raise Failed(f"the user {user} has number {there.pw_uid} here, {uid} is wanted")
    seen = (there.pw_dir, there.pw_shell, there.pw_gid)
    if seen != (home, NOLOGIN, number_of_group(user)):
        change = ["usermod", "--home", home, "--shell", NOLOGIN, "--gid", user, user]
        yield Change(f"user {user}", f"home {seen[0]}, shell {seen[1]}\n", text, lambda: run(*change))


def of_members(members, users):
    there = group_named(members)
    inside = there.gr_mem if there else []
    for user in users:
        if user not in inside:
            words = ["usermod", "--append", "--groups", members, user]
            yield Change(f"{user} in {members}", "", f"{user}\n", lambda words=words: run(*words))


def of_directory(directory, owner="root", mode="0755", keep=False):
    path, wanted = Path(directory), Rights.of(owner, mode)
    seen = Rights.seen(path)
    if seen is None:
        yield Change(directory, "", f"{wanted}\n", lambda: make_directory(path, wanted))
    elif not path.is_dir():
        raise Failed(f"{directory} is there, and is no directory", f"look what it is, and move {directory} away")
    elif seen != wanted and not keep:
        yield Change(directory, f"{seen}\n", f"{wanted}\n", lambda: give(path, wanted))


def of_roots(roots, own, owner):
    for root in roots:
        yield from of_directory(root, owner, "2770", keep=root != own)


def of_file(file, content=None, owner="root", mode="0644", validate=(), **more):
    path, wanted = Path(file), Rights.of(owner, mode)
    text = base64.b64decode(more["base64"]) if content is None else content.encode()
    seen, before = Rights.seen(path), read(path)
    if (seen, before) != (wanted, text):
        shown = f"{seen}\n{printable(before)}" if seen else ""
        yield Change(file, shown, f"{wanted}\n{printable(text)}", lambda: write(path, text, wanted, validate))


def of_tree(tree, files):
    path = Path(tree)
    wanted = {each["name"]: (base64.b64decode(each["base64"]), int(each["mode"], 8)) for each in files}
    differing = sorted(differing_files(path, wanted))
    if differing:
        after = "".join(f"{name}\n" for name in differing)
        yield Change(tree, "", after, lambda: replace_tree(path, wanted))


def of_link(link, to, keep=0):
    path = Path(link)
    seen = str(path.readlink()) if path.is_symlink() else None
    if seen != to:
        yield Change(link, f"{seen}\n" if seen else "", f"{to}\n", lambda: point(path, to))
    for old in older(path, to, keep) if keep else ():
        yield Change(str(old), "there\n", "", lambda old=old: shutil.rmtree(old))


def of_absent(absent):
    path = Path(absent)
    if path.is_symlink() or path.exists():
        yield Change(absent, f"{Rights.seen(path)}\n{printable(read(path))}", "", path.unlink)


def of_service(service, newer):
    late = newer_than(began_at(service), newer)
    if late:
        yield Change(service, "", f"restarted for {', '.join(late)}\n", lambda: run("systemctl", "restart", service))


def of_unit(unit, newer=(), amiss=False):
    """Enable and start a unit. Its file may be new, so make systemd reload its files first."""
    began, enabled = began_at(unit), is_enabled(unit)
    late = newer_than(began, newer)
    if amiss or late or not began or not enabled:
        before = f"{'enabled' if enabled else 'not enabled'}, {'running' if began else 'not running'}\n"
        yield Change(unit, before, f"begun anew {' '.join(late)}".rstrip() + "\n", lambda: begin(unit))


def of_stopped(stopped):
    if began_at(stopped) or is_enabled(stopped):
        yield Change(stopped, "running\n", "", lambda: run("systemctl", "disable", "--now", stopped))


def of_command(command, creates, newer=()):
    made = [each.stat().st_mtime for each in Path("/").glob(creates.lstrip("/"))]
    if not made or newer_than(max(made), newer):
        yield Change(" ".join(command), "", f"{creates}\n", lambda: run(*command))


KINDS = {
    "group": of_group,
    "user": of_user,
    "members": of_members,
    "directory": of_directory,
    "roots": of_roots,
    "file": of_file,
    "tree": of_tree,
    "link": of_link,
    "absent": of_absent,
    "service": of_service,
    "unit": of_unit,
    "stopped": of_stopped,
    "command": of_command,
}


class Rights(NamedTuple):
    """Numeric owner, group and mode. None stands for a user or group that does not exist yet, and never matches."""

    uid: int
    gid: int
    mode: int

    @classmethod
    def of(cls, owner, mode):
        user, group = user_named(owner), number_of_group(owner)
        if group is None and user:
            group = user.pw_gid
        return cls(user.pw_uid if user else None, group, int(mode, 8))

    @classmethod
    def seen(cls, path):
        try:
            info = path.lstat()
        except FileNotFoundError:
            return None
        return cls(info.st_uid, info.st_gid, stat.S_IMODE(info.st_mode))

    def __str__(self):
        return f"mode {self.mode:04o}, owner {self.uid}:{self.gid}"


def user_named(name):
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(name)


def group_named(name):
    with contextlib.suppress(KeyError):
        return grp.getgrnam(name)


def number_of_group(name):
    there = group_named(name)
    return there.gr_gid if there else None


def run(*words):
    """Run a program. Raises Failed with its output."""
    words = [str(word) for word in words]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except FileNotFoundError:
        raise Failed(f"{words[0]} is not on this host", f"install the package that has {words[0]}") from None
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(words)}: no end within {LIMIT_S} s") from None
    if done.returncode:
        raise Failed(f"{' '.join(words)}: {(done.stderr or done.stdout).strip() or f'exit {done.returncode}'}")
    return done.stdout


def read(path):
    return path.read_bytes() if path.is_file() and not path.is_symlink() else None


def printable(content):
    return content.decode(errors="replace") if content is not None else ""


def give(path, rights):
    os.chown(path, rights.uid, rights.gid)
    path.chmod(rights.mode)


def make_directory(path, rights):
    make_parents(path)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    give(path, rights)


def make_parents(path):
    for parent in reversed(path.parents):
        if not parent.exists():
            with contextlib.suppress(FileExistsError):
                parent.mkdir()
            parent.chmod(0o755)


def write(path, content, rights, validate):
    make_parents(path)
    part = beside(path)
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        give(part, rights)
        if validate:
            run(*validate, part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def beside(path):
    """Return a temporary path in the same directory: hidden, and with a suffix that no *.d directory reads."""
    return path.with_name(f".{path.name}.tfctl")


def differing_files(path, wanted):
    """Yield the names of files in the directory that are missing, different, not compiled, or not wanted."""
    compiled = {cached(name): name for name in wanted if name.endswith(".py")}
    there = {str(each.relative_to(path)) for each in path.rglob("*") if not each.is_dir() or each.is_symlink()}
    yield from there - set(wanted) - set(compiled)
    for name, (content, mode) in wanted.items():
        if read(path / name) != content or Rights.seen(path / name) != Rights(os.geteuid(), os.getegid(), mode):
            yield name
    for name, source in compiled.items():
        if not is_compiled(path / name, wanted[source][0]):
            yield name


def cached(name):
    return str(Path(importlib.util.cache_from_source(name, optimization="")))


def is_compiled(path, source):
    """Return whether the .pyc is for this Python and this source, by the source hash in its header (PEP 552)."""
    head = (read(path) or b"")[:16]
    return head == importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(source)


def replace_tree(path, wanted):
    part, old = beside(path), path.with_name(f".{path.name}.old")
    for left in (part, old):
        shutil.rmtree(left, ignore_errors=True)
    make_parents(path)
    part.mkdir(mode=0o755)
    for name, (content, mode) in wanted.items():
        file = part / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.chmod(mode)
        if name.endswith(".py"):
            # The source under this name never changes, so Python need not check it at each start.
            unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
            py_compile.compile(str(file), dfile=str(path / name), doraise=True, invalidation_mode=unchecked)
    for each in (part, *part.rglob("*")):
        if each.is_dir():
            each.chmod(0o755)
    if path.exists():
        path.rename(old)
    part.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def point(link, to):
    part = beside(link)
    part.unlink(missing_ok=True)
    part.symlink_to(to)
    part.replace(link)


def older(link, to, keep):
    """Return the version directories beside a link that are neither its target nor among the ``keep`` newest."""
    if not link.parent.is_dir():
        return []
    versions = [each for each in link.parent.iterdir() if each.is_dir() and not each.is_symlink()]
    others = sorted((each for each in versions if each.name != to), key=lambda each: -each.stat().st_mtime)
    return [each for each in others[max(keep - 1, 0) :] if not each.name.startswith(".")]


def newer_than(began, files):
    return [each for each in files if Path(each).exists() and Path(each).stat().st_mtime > began]


def is_enabled(unit):
    return run("systemctl", "show", "--property=UnitFileState", "--value", unit).strip() == "enabled"


def begin(unit):
    for words in (("daemon-reload",), ("enable", unit), ("restart", unit)):
        run("systemctl", *words)


def began_at(service):
    """Return when the service last started, in epoch seconds, or 0 if it is not running."""
    said = run("systemctl", "show", "--property=ActiveState,ActiveEnterTimestampMonotonic", service)
    told = dict(line.split("=", 1) for line in said.splitlines())
    runs, when = told.get("ActiveState") == "active", told.get("ActiveEnterTimestampMonotonic", "0")
    return time.time() - (time.monotonic() - int(when) / 1e6) if runs and int(when) else 0.0
