"""What the tasks of each role run with: the environment of a stack, or a Python that is on this machine already."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tfctl.errors import BadFile, Exit, PreflightFailed, TfctlError, UsageError
from tfctl.jobs.new_job import STACK
from tfctl.local import horovod, machine
from tfctl.local.environments import Environment, Environments, python_of
from tfctl.model import pattern, stacks
from tfctl.model.host import Inventory
from tfctl.model.jobfile import JobFile
from tfctl.model.stacks import Stack
from tfctl.model.strategies import STRATEGIES
from tfctl.model.strategies.base import Strategy

OWN, ACTIVE = "stack", "active"
#: Where the active Python does not do.
_ADD = "add `stack:` to the job file, for example `stack: tf2.15`; `tfctl stacks` lists them"


@dataclass(frozen=True)
class Runtime:
    """``stack``: what tfctl knows about it, or None. ``programs``: directories that come first on PATH. ``packages``:
    the directory of the job's requirements, or "". ``modules``: directories for PYTHONPATH."""

    stack: Stack | None = None
    programs: tuple[str, ...] = ()
    packages: str = ""
    modules: tuple[str, ...] = ()
    environment: Environment | None = None

    @property
    def name(self) -> str:
        return self.stack.name if self.stack else stacks.NONE


#: By role.
Runtimes = Mapping[str, Runtime]


class Chooser:
    """Finds the runtime of each role of a job, and makes what is missing.

    ``inventory``: returns the job's inventory, or None if it cannot be read. ``bin``: a new directory, in which
    programs can be put. ``say`` is called with messages.
    """

    def __init__(
        self,
        job: JobFile,
        environ: Mapping[str, str],
        inventory: Callable[[], Inventory | None],
        environments: Environments,
        bin: Path,
        say: Callable[[str], None],
    ) -> None:
        self._job, self._environ, self._read_inventory = job, environ, inventory
        self._environments, self._bin, self._say = environments, bin, say
        self._lacks_stack = False

    def choose(self, python: str | None) -> Runtimes:
        """Return the runtime of each role, before anything is made. ``python``: OWN, ACTIVE or the path of a Python;
        None for the default. Raise UsageError, BadFile or PreflightFailed.
        """
        if python is None:
            python = OWN
            if not _machine_has_stacks():
                self._say(
                    f"using the active Python: there are no stacks for {platform.system()} on {platform.machine()}"
                )
                python = ACTIVE
        if python != OWN:
            return dict.fromkeys(self._job.roles, self._active(self._programs(python)))
        wanted, unnamed = self._stacks()
        active = self._active((), unnamed) if None in wanted.values() else Runtime()
        return {role: Runtime(stack) if stack else active for role, stack in wanted.items()}

    def make(self, chosen: Runtimes) -> Runtimes:
        """Return these runtimes with the environments of their stacks, once they are there.

        Raise UsageError if nothing says which TensorFlow the job needs, BadFile if its requirements do not fit a stack,
        PreflightFailed if an environment cannot be made.
        """
        if self._lacks_stack:
            raise UsageError(f"{self._job.name} names no stack, and the active Python has no TensorFlow", _ADD)
        try:
            made = {name: self._made(stack) for name, stack in _to_make(chosen).items()}
        except TfctlError as error:
            if error.exit is not Exit.FAILED:
                raise
            raise PreflightFailed(error.message, error.remedy) from None  # uv is missing, or cannot resolve anything
        return {role: made.get(runtime.name, runtime) for role, runtime in chosen.items()}

    def _stacks(self) -> tuple[dict[str, Stack | None], bool]:
        """Return the stack of each role, or None for the active Python; and whether nothing names that of some role."""
        named = {role: spec.stack or self._job.stack for role, spec in self._job.roles.items()}
        known = stacks.load()
        if not all(name in known or name == stacks.NONE for name in named.values()):
            inventory = self._read_inventory()
            if inventory is not None:
                known = stacks.load(inventory.stack_dirs)
                named = {role: name or _stack_of_hosts(inventory, self._job, role) for role, name in named.items()}
        return {role: self._known(name, known) for role, name in named.items()}, None in named.values()

    def _known(self, name: str | None, known: Mapping[str, Stack]) -> Stack | None:
        if name is None or name == stacks.NONE:
            return None
        if name not in known:
            raise BadFile(f"stack: tfctl has no {name}", stacks.others(name))
        return known[name]

    def _made(self, stack: Stack) -> Runtime:
        edition, why = machine.edition(stack, self._environ)
        if why:
            self._say(f"{why}: the tasks run on the CPU")
        environment = self._environments.environment(stack, edition)
        packages, modules = "", tuple[str, ...]()
        if self._job.requirements:
            packages = str(self._environments.packages(self._job.requirements, environment))
        if STRATEGIES[self._job.strategy].needs_horovod:
            modules = (str(horovod.built_for(environment, self._environments, self._say)),)
        programs = (str(environment.path / "bin"), *([f"{packages}/bin"] if packages else []))
        return Runtime(stack, programs, packages, modules, environment)

    def _active(self, programs: tuple[str, ...], unnamed: bool = False) -> Runtime:
        """Return the active Python, or with ``programs`` another one. ``unnamed``: it stands in for a stack."""
        path = os.pathsep.join([*programs, self._environ.get("PATH", os.defpath)])
        environ = {**self._environ, "PATH": path}
        stack = machine.python_stack(environ)
        if unnamed and stack is not None:
            self._say(f"no `stack:` is given: using the active Python, which has TensorFlow {stack.tensorflow}")
        elif unnamed:
            self._lacks_stack = self._job.strategy != "custom"  # which may need no TensorFlow
        if self._job.requirements:
            machine.require_packages(self._job.requirements, environ)
        return Runtime(stack, programs)

    def _programs(self, python: str) -> tuple[str, ...]:
        """Return a directory whose `python` is the given one, or none for the active Python."""
        if python == ACTIVE:
            return ()
        path = Path(os.path.expanduser(python)).absolute()  # noqa: PTH111  # the other one fails for unknown users
        if path.is_dir():
            path = path / "bin/python"
        if not (path.is_file() and os.access(path, os.X_OK)):
            raise UsageError(f"--python: {python} is not a program", "write `stack`, `active` or the path of a Python")
        for name in ("python", "python3"):
            # A link would lose the environment that a Python belongs to.
            (self._bin / name).write_text(f'#!/bin/sh\nexec {shlex.quote(str(path))} "$@"\n')
            (self._bin / name).chmod(0o755)
        return (str(self._bin),)


def stack_here(strategy: Strategy) -> str:
    """Return a stack that this machine can have, with which the strategy can be tried: the usual one if this machine
    has a Python for it, else the newest one with a Python that is here, else the usual one, for which uv gets one."""
    known = [stack for stack in stacks.load().values() if not strategy.lacking(stack)]
    newest_first = [stack for stack in reversed(known) if stack.horovod or not strategy.needs_horovod]
    order = sorted(newest_first, key=lambda stack: stack.name != STACK)
    with suppress(TfctlError):  # uv is missing
        return next((stack.name for stack in order if any(map(python_of, stack.pythons))), STACK)
    return STACK


def _to_make(chosen: Runtimes) -> dict[str, Stack]:
    """Return the stacks with lock files by name; the active Python has none."""
    return {runtime.name: runtime.stack for runtime in chosen.values() if runtime.stack and runtime.stack.file}


def _machine_has_stacks() -> bool:
    machines = {name for stack in stacks.load().values() for own in stack.editions.values() for name in own.machines}
    return sys.platform == "linux" and platform.machine() in machines


def _stack_of_hosts(inventory: Inventory, job: JobFile, role: str) -> str | None:
    """Return the stack of the hosts that the role would run on."""
    try:
        hosts = pattern.select(inventory, job.roles[role].hosts)
    except BadFile:
        return None
    return next((host.stack for host in hosts if host.stack), None)
