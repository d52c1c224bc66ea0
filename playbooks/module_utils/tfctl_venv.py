"""A stack's environment on a host: verify it file by file, build it next to its final path, switch to it atomically.

/opt/tfctl/stacks/tf2.15                    a link to one of
/opt/tfctl/stacks/tf2.15-<digest>           an environment; its time of completion is that of tfctl-stack.json in it
/opt/tfctl/stacks/.tf2.15-<digest>.part     one that is being built
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import hashlib
import itertools
import json
import os
import re
import shutil
import struct
import subprocess
import tarfile
import time
import zipfile
from pathlib import Path

from ansible.module_utils import tfctl_links
from ansible.module_utils.tfctl_links import MARKER, site_of
from ansible.module_utils.tfctl_machine import Failed, make_parents

BYTECODE = "bytecode.zip"
#: Seconds to wait for an earlier run whose client has gone, and for one call of the module, which then reports that it
#: is waiting. The task calls it again.
PATIENCE_S = 900
TURN_S = 3
LIMIT_S = 900
NOBODY = 65534
TOLD = 10
PROBE = """
import importlib, json, sys
print(json.dumps({name: importlib.import_module(name).__version__ for name in sys.argv[1:]}))
"""


class Environment:
    def __init__(self, path, link, python, lock, tools, imports, archive=None):
        self.path, self.link, self.python = Path(path), Path(link), python
        self.lock, self.tools, self.imports = lock, tools, imports
        self.archive = Path(archive) if archive else None
        self.part = self.path.with_name(f".{self.path.name}.part")

    def wrong(self):
        """Return sentences about the first few differences from the lock, or []."""
        return list(itertools.islice(self._wrong(), TOLD))

    def linked(self):
        """Return whether the stack's name links here and scripts find tfctl_runtime."""
        return tfctl_links.in_order(self.link, self.path)

    def build(self):
        """Build the environment; ``path`` exists only once it is complete and verified. Raises Failed."""
        if self.archive is None:
            raise Failed(f"{self.path}: there are no wheels to build it from")
        os.umask(0o022)  # the job user must be able to read the files, whatever root's umask is
        with alone(self.link.with_name(f".{self.link.name}.lock"), f"installs {self.link.name}"):
            try:
                if self.wrong():
                    if tfctl_links.current(self.link) is not None:
                        tfctl_links.refuse_under_a_job(self.link)
                    self._build()
            finally:
                shutil.rmtree(self.part, ignore_errors=True)

    def switch(self):
        """Point the link to it. Raises Failed; see tfctl_links."""
        tfctl_links.switch(self.link, self.path)

    def _wrong(self):
        if not (self.path / MARKER).is_file():
            yield f"{self.path} is not there"
            return
        if os.path.realpath(self.path / "bin/python") != os.path.realpath(self.python):
            yield f"{self.path}/bin/python is not {self.python}"
            return
        yield from self._differing(self.path)

    def _differing(self, path):
        marker = json.loads((path / MARKER).read_text(encoding="utf-8"))
        completed = (path / MARKER).stat().st_mtime
        modules = site_of(path)
        there = sizes_and_times(modules)
        for name, version in pinned(self.lock).items():
            record = record_of(modules, name, version)
            if record is None:
                yield f"{name} {version} is not in {path}"
                continue
            yield from differing(modules, record, there, completed)
        if marker["modules"] != compiled_modules(there):
            yield f"{path}: compiled modules are missing"

    def _build(self):
        shutil.rmtree(self.part, ignore_errors=True)
        make_parents(self.part / "wheels")
        wheels, new = self.part / "wheels", self.part / "new"
        wheels.mkdir()
        unpack(self.archive, wheels)
        # A file deleted early is never written to disk.
        self.archive.unlink()
        uv = self._uv(wheels)
        self._run(uv, "venv", "--relocatable", "--python", self.python, new)
        install = [uv, "pip", "install", "--python", new / "bin/python", "--no-index", "--find-links", wheels]
        # Install sources last: their build tools are in the environment by then, checked by hash like all else.
        for name, text in zip(("wheels.txt", "sources.txt"), parted(self.lock)):
            if text:
                (self.part / name).write_text(text, encoding="utf-8")
                more = ["--no-deps", "--no-build-isolation", "--require-hashes", "--requirement", self.part / name]
                self._run(*install, *more)
        self._compile(new)
        for done in (wheels, self.part / "cache"):
            shutil.rmtree(done, ignore_errors=True)
        self._probe(new)
        self._mark(new)
        # Check it as the next run will: otherwise every run would rebuild it.
        wrong = next(self._differing(new), None)
        if wrong:
            raise Failed(
                f"two packages of the lock have the same file, or a wheel is not what its RECORD says: {wrong}"
            )
        old = self.part / "old"
        if self.path.exists():
            self.path.rename(old)
        new.rename(self.path)

    def _uv(self, wheels):
        """Return the uv program, taken from its wheel, whose hash is in the lock of tools."""
        wheel = next(wheels.glob("uv-*.whl"), None)
        if wheel is None or hashlib.sha256(wheel.read_bytes()).hexdigest() not in self.tools:
            raise Failed(f"{self.archive}: uv in it is not the one that the lock names")
        uv = self.part / "uv"
        with zipfile.ZipFile(wheel) as file:
            name = next(name for name in file.namelist() if name.endswith(".data/scripts/uv"))
            uv.write_bytes(file.read(name))
        uv.chmod(0o755)
        return uv

    def _run(self, *words):
        variables = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.part),
            "TMPDIR": str(self.part),
            "UV_CACHE_DIR": str(self.part / "cache"),
            # Link from the cache, which is removed afterwards, so each file is written once.
            "UV_LINK_MODE": "hardlink",
            "UV_NO_CONFIG": "1",
            "UV_OFFLINE": "1",
            "UV_NO_PROGRESS": "1",
            "UV_PYTHON_DOWNLOADS": "never",
        }
        done = run([str(word) for word in words], env=variables)
        if done.returncode:
            raise Failed(f"uv {words[1]}: {last_lines(done.stderr)}")

    def _compile(self, new):
        """Compile modules without bytecode now, because no job can write to the environment later."""
        modules = site_of(new)
        if (self.part / "wheels" / BYTECODE).is_file():
            take_bytecode(self.part / "wheels" / BYTECODE, modules)
        # Ignore the exit status: some packages contain templates that cannot be compiled.
        run([str(new / "bin/python"), "-I", "-m", "compileall", "-q", "-q", "-j", "0", str(modules)])

    def _probe(self, new):
        words = [str(new / "bin/python"), "-I", "-c", PROBE, *self.imports]
        found = told_to_nobody(words, f"the new environment does not import {', '.join(self.imports)}")
        for name, version in self.imports.items():
            if found[name] != version:
                raise Failed(f"{name} is {found[name]} in the new environment, {version} is wanted")

    def _mark(self, new):
        """Write the marker file last, so that any later change is newer."""
        modules = compiled_modules(sizes_and_times(site_of(new)))
        text = json.dumps({"packages": pinned(self.lock), "modules": modules}, indent=1)
        (new / MARKER).write_text(text + "\n", encoding="utf-8")


class Busy(Failed):
    """Another run holds the lock. A task with ``until: … patience_s is not defined`` retries."""

    def __init__(self, message):
        super().__init__(message, "wait for its end")
        self.fault["patience_s"] = PATIENCE_S


@contextlib.contextmanager
def alone(path, work):
    """Hold the lock file, in which ``work`` describes the work for others. Raises Busy after TURN_S."""
    make_parents(path)
    ends = time.monotonic() + TURN_S
    with path.open("a+") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > ends:
                    raise Busy(told_of(file)) from None
                time.sleep(0.5)
        file.truncate(0)
        file.write(f"{os.getpid()} {work}")
        file.flush()
        yield


def told_of(file):
    """Describe the lock's holder: its work, since when, and its process."""
    file.seek(0)
    process, _, work = file.read().partition(" ")
    seconds = int(time.time() - os.fstat(file.fileno()).st_mtime)
    return f"another run {work or 'is at work'} on this host, for {seconds} s now (process {process or 'unknown'})"


@contextlib.contextmanager
def spent(path):
    """Delete a file sent for one run at the end of the block, but keep it if the run still waits for its turn."""
    waits = False
    try:
        yield
    except Busy:
        waits = True
        raise
    finally:
        if path and not waits:
            Path(path).unlink(missing_ok=True)


def pinned(lock):
    """Return {name: version} of each line NAME==VERSION."""
    return dict(re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;]+)", lock, re.MULTILINE))


def parted(lock):
    """Return (wheel entries, source entries) as texts. The line --no-binary=NAME,NAME names the sources."""
    named = re.match(r"--no-binary=(.+)\n", lock)
    sources = named[1].split(",") if named else []
    texts = ["", ""]
    for entry in re.findall(r"^[^\s-].*(?:\n    .*)*", lock, re.MULTILINE):
        texts[entry.partition("==")[0] in sources] += f"{entry}\n"
    return texts


def record_of(site, name, version):
    """Return the path of a package's RECORD, or None. Its directory may use any spelling that PEP 503 normalizes."""
    wanted = normal(f"{name}-{version}")
    found = (each for each in site.glob("*.dist-info") if normal(each.name[: -len(".dist-info")]) == wanted)
    return next((each / "RECORD" for each in found if (each / "RECORD").is_file()), None)


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def sizes_and_times(folder):
    """Return {path within the folder: (size, time of change)} of every file."""
    found, left = {}, [(str(folder), "")] if folder.is_dir() else []
    while left:
        here, prefix = left.pop()
        with os.scandir(here) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    left.append((entry.path, f"{prefix}{entry.name}/"))
                else:
                    info = entry.stat(follow_symlinks=False)
                    found[f"{prefix}{entry.name}"] = (info.st_size, info.st_mtime)
    return found


def differing(site, record, there, completed):
    """Yield sentences about files that differ from a wheel's RECORD (PEP 376) or were written later."""
    with record.open(encoding="utf-8", newline="") as file:
        for name, _, size in csv.reader(file):
            if "__pycache__/" in name:  # some wheels contain bytecode, which was compiled again
                continue
            seen = there.get(name) or beyond(site, name)
            if seen is None:
                yield f"{site / name} is missing"
            elif (size and seen[0] != int(size)) or seen[1] > completed:
                yield f"{site / name} was changed"


def beyond(site, name):
    """Return size and time of a file outside site-packages, such as a script in bin, or None."""
    with contextlib.suppress(FileNotFoundError):
        info = os.lstat(os.path.normpath(site / name))
        return info.st_size, info.st_mtime
    return None


def compiled_modules(there):
    """Return the number of compiled modules. It is not the number of modules: some packages contain templates."""
    return sum(name.endswith(".pyc") for name in there)


def take_bytecode(archive, site):
    """Unpack each .pyc next to its module, and write the module's time and size to its header (PEP 552)."""
    with zipfile.ZipFile(archive) as file:
        for name in file.namelist():
            path = site / name
            module = path.parent.with_name(f"{path.name.partition('.')[0]}.py")
            if re.search(r"(^|/)__pycache__/[^/]+\.pyc$", name) and ".." not in name.split("/") and module.is_file():
                info, content = module.stat(), file.read(name)
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(content[:8] + struct.pack("<LL", int(info.st_mtime), info.st_size) + content[16:])


def unpack(archive, folder):
    with tarfile.open(archive) as tar:
        for member in tar:
            known = re.fullmatch(r"[A-Za-z0-9_.+-]+\.(whl|tar\.gz)", member.name) or member.name == BYTECODE
            if not member.isfile() or not known:
                raise Failed(f"{archive}: {member.name} is neither a wheel nor a source")
            with (folder / member.name).open("wb") as file:
                shutil.copyfileobj(tar.extractfile(member), file, 2**20)


def run(words, **more):
    nothing = subprocess.DEVNULL
    try:
        return subprocess.run(
            words, stdin=nothing, capture_output=True, text=True, timeout=LIMIT_S, check=False, **more
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(words[:3])}: no end within {LIMIT_S} s") from None


def told_to_nobody(words, otherwise):
    """Run a program as an unprivileged user, so that it can read only what a job can. Return its last line of JSON."""
    variables = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "TF_CPP_MIN_LOG_LEVEL": "3"}
    who = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    done = run(words, env=variables, cwd="/", **who)
    if done.returncode:
        raise Failed(f"{otherwise}: {last_lines(done.stderr)}")
    return json.loads(done.stdout.splitlines()[-1])


def last_lines(text):
    return "\n".join(text.strip().splitlines()[-12:]) or "it says nothing"
