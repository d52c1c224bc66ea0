"""Make what tasks run with on this machine: the environments of stacks, from the stacks' lock files, and the packages
of requirements files. uv installs them, in the directories of `tfctl.local.cached`."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tfctl.errors import PreflightFailed, TfctlError
from tfctl.local import cached
from tfctl.local.installer import Installer, variables_of
from tfctl.model.stacks import Stack
from tfctl.provision import locks, requirements, uv, uv_pythons
from tfctl.wording import listed

#: Prints the version of each module that it is given.
_PROBE = """
import importlib, sys
for name in sys.argv[1:]:
    print(name, importlib.import_module(name).__version__)
"""
#: Adds the packages of a job behind those of the stack, as on hosts.
_PTH = "import os, site; 'TFCTL_REQUIREMENTS' in os.environ and site.addsitedir(os.environ['TFCTL_REQUIREMENTS'])\n"
#: CUDA's assembler in NVIDIA's wheel, which XLA looks for on the PATH.
_PTXAS = "nvidia/cuda_nvcc/bin/ptxas"
_IMPORT_LIMIT_S = 300
_INSTALL = ("pip", "install", "--no-deps", "--require-hashes", "--compile-bytecode", "--python")


@dataclass(frozen=True)
class Environment:
    """A stack's environment on this machine. ``python``: the version of its Python."""

    stack: Stack
    edition: str
    python: str
    path: Path

    @property
    def interpreter(self) -> Path:
        return self.path / "bin/python"


class Environments:
    """Makes what is not there. ``say`` is called with messages. ``terminal``: the file descriptor of a terminal on
    which to draw progress, or None."""

    def __init__(self, say: Callable[[str], None], terminal: int | None) -> None:
        self._say, self.store = say, cached.Store(say)
        self._installer = Installer(self.store.use_downloads, say, terminal)

    def environment(self, stack: Stack, edition: str) -> Environment:
        """Return the environment of a stack, with a Python of this machine or else one that uv gets.

        Raise PreflightFailed if it cannot be made.
        """
        version = next((each for each in stack.pythons if _usable(_folder(stack, edition, each))), None)
        interpreter = ""
        if version is None:
            version, interpreter = _interpreter(stack)
        new = Environment(stack, edition, version, _folder(stack, edition, version))
        self.store.take(
            "stacks",
            new.path.name,
            f"is installing {stack.name}",
            lambda part: self._make(replace(new, path=part), new.path, interpreter or python_of(version)),
            _usable,
        )
        return new

    def packages(self, file: Path, into: Environment) -> Path:
        """Return the directory of a requirements file's packages for an environment.

        Resolve the file if it has no lock for the stack, as `tfctl provision` does. Raise BadFile if it does not fit
        the stack, PreflightFailed if the packages cannot be installed.
        """
        lock = requirements.locked(
            file, into.stack, into.edition, into.python, platform.machine(), write=True, index=""
        )
        what = f"the packages of {file.name}"

        def make(part: Path) -> None:
            part.mkdir()
            self._say(f"installing {what} for {into.stack.name}")
            text = part / cached.MARKER
            text.write_text(lock.packages, encoding="utf-8")
            self._installer.run(*_INSTALL, str(into.interpreter), "--target", str(part), "-r", str(text), what=what)

        return self.store.take("requirements", Path(lock.directory).name, f"is installing {what}", make)

    def _make(self, new: Environment, place: Path, interpreter: str) -> None:
        """Make an environment that is to be moved to ``place``."""
        stack = new.stack
        self._say(
            f"installing {stack.name} (TensorFlow {stack.tensorflow}, edition {new.edition}, Python {new.python}) in "
            f"{place}, for this run and later ones"
        )
        what = f"an environment with Python {new.python}"
        python = interpreter or self._downloaded(stack, new.python)
        self._installer.run("venv", "--quiet", "--relocatable", "--python", python, str(new.path), what=what)
        self._install(new)
        self._say(f"importing {listed([*stack.imports])}, to test them")
        _import(new)

    def _downloaded(self, stack: Stack, version: str) -> str:
        """Return the path of a Python that uv downloads to where its user has uv's Pythons."""
        try:
            build = uv_pythons.choose(uv_pythons.offered(""), version, platform.machine())
            if build is None or build.flaw:
                raise PreflightFailed(build.flaw if build else f"uv has no Python {version} for this machine")
            self._say(f"downloading CPython {build.release}, because this machine has no Python {_versions(stack)}")
            with uv_pythons.request(build) as words:
                self._installer.run(*words, what=f"CPython {build.release}")
        except TfctlError as error:
            raise PreflightFailed(
                f"{stack.name} needs Python {_versions(stack)}: this machine has none, and uv cannot download one: "
                f"{error.message}",
                f"install one of them, set {uv_pythons.FILE} or {uv_pythons.ARCHIVES} to a mirror, or set `stack:` in "
                "the job file to one for a Python that this machine has: `tfctl stacks` lists them",
            ) from None
        return python_of(version) or f"cpython@{version}"

    def _install(self, new: Environment) -> None:
        """Install what is in the lock, and what makes it equal to the environment of a host."""
        lock, what = new.stack.lock(new.edition, new.python), f"the packages of {new.stack.name}"
        words = (*_INSTALL, str(new.interpreter), "-r")
        if new.stack.sources:  # their build tools are other packages of the lock
            wheels = new.path / "wheels.txt"
            known = locks.entries(lock.read_text(encoding="utf-8"))
            wheels.write_text("".join(text for name, (_, text) in known.items() if name not in new.stack.sources))
            self._installer.run(*words, str(wheels), what=what)
        self._installer.run(*words, str(lock), "--no-build-isolation", what=what)
        (site,) = new.path.glob("lib/python*/site-packages")
        (site / "tfctl-run.pth").write_text(_PTH, encoding="utf-8")
        if (site / _PTXAS).exists():
            (new.path / "bin/ptxas").symlink_to(f"../{site.relative_to(new.path)}/{_PTXAS}")


def python_of(version: str) -> str:
    """Return the path of a CPython of this machine outside of environments, or "" if there is none."""
    words = [uv.program(), "python", "find", "--no-python-downloads", "--system", "--no-project", f"cpython@{version}"]
    variables = variables_of(os.environ)
    done = subprocess.run(words, env=variables, cwd="/", capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _interpreter(stack: Stack) -> tuple[str, str]:
    """Return the version and the path of a Python of this machine that the stack accepts, or else the version that uv
    is to download, and ""."""
    for version in stack.pythons:
        path = python_of(version)
        if path:
            return version, path
    with suppress(TfctlError):  # `_downloaded` reports it
        known = {(build.python, build.machine) for build in uv_pythons.offered("")}
        return next((each for each in stack.pythons if (each, platform.machine()) in known), stack.pythons[0]), ""
    return stack.pythons[0], ""


def _folder(stack: Stack, edition: str, python: str) -> Path:
    return cached.folder() / "stacks" / stack.environment(edition, python)


def _usable(path: Path) -> bool:
    """Return whether an environment is complete, and the Python that it was made with is still there."""
    return cached.is_complete(path) and os.access(path / "bin/python", os.X_OK)


def _import(new: Environment) -> None:
    """Raise PreflightFailed if a module of the stack cannot be imported, for example on an old processor."""
    words = [str(new.interpreter), "-I", "-c", _PROBE, *new.stack.imports]
    variables = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        done = subprocess.run(
            words, env=variables, capture_output=True, text=True, errors="replace", timeout=_IMPORT_LIMIT_S
        )
        code, printed = done.returncode, done.stderr.strip()
    except subprocess.TimeoutExpired:
        code, printed = 1, f"it has not ended after {_IMPORT_LIMIT_S} s"
    if code:
        last = printed.rpartition("\n")[2] or f"Python exited with code {code}"
        raise PreflightFailed(
            f"{new.stack.name} does not work on this machine: importing {listed([*new.stack.imports])} fails: {last}",
            "use another stack (tfctl stacks lists them), or the active Python if it has TensorFlow: --python active",
        )


def _versions(stack: Stack) -> str:
    return listed(stack.pythons, "or")
