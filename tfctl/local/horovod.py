"""Build Horovod for a stack's environment on this machine, with the script with which hosts build it."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

from tfctl.errors import BadFile, PreflightFailed
from tfctl.local.child import Supervised
from tfctl.local.environments import Environment, Environments
from tfctl.model import stacks
from tfctl.model.stacks import HorovodSource, Stack
from tfctl.provision import wheels
from tfctl.provision.ansible import data_dir
from tfctl.provision.control import cache
from tfctl.wording import listed

#: Programs that the script needs, each in a package of its name on Debian and Ubuntu.
_PROGRAMS = ("gcc", "g++", "make")
#: Lines of the output of a failed build that are shown.
_REPORTED = 5
_ERROR = re.compile(r"\b(fatal )?error:|CMake Error|No space left|: \*\*\* ", re.IGNORECASE)


def built_for(environment: Environment, environments: Environments, say: Callable[[str], None]) -> Path:
    """Return the directory of Horovod for an environment, which is built if there is none: with Gloo, without MPI and
    NCCL. Raise BadFile for a stack without Horovod, PreflightFailed if it cannot be built here."""
    stack, source = environment.stack, environment.stack.horovod
    if source is None:
        fitting = [name for name, each in stacks.load().items() if each.horovod]
        raise BadFile(
            f"no release of Horovod builds for {stack.name}", f"set `stack:` in the job file to {listed(fitting, 'or')}"
        )
    script = _script(environment, source)
    tools = stack.build_lock(environment.python).read_text()
    made_of = [environment.path.name, source.version, source.sha256, script, tools]
    key = hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:16]

    def make(part: Path) -> None:
        _require_compiler(stack)
        say(f"building Horovod {source.version} for {stack.name}, for this run and later ones: this takes some minutes")
        part.mkdir()
        _build(environment, source, script, part)

    return environments.store.take("horovod", key, f"is building Horovod for {stack.name}", make)


def _script(environment: Environment, source: HorovodSource) -> str:
    """Return the build script of the role horovod for this machine."""
    import jinja2

    role = data_dir() / "roles/horovod"
    # As Ansible renders templates.
    rendering = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined)
    rendering.filters["quote"] = shlex.quote
    template = rendering.from_string((role / "templates/build.sh.j2").read_text(encoding="utf-8"))
    return template.render(
        lookup=lambda _plugin, name: (role / "files" / name).read_text(encoding="utf-8").rstrip(),
        horovod_environment=str(environment.path),
        horovod_mpi_prefix="",
        horovod_compiler_suffix="",
        horovod_gloo=source.gloo,
        horovod_cuda_home="",
        horovod_nccl_home="",
    )


def _require_compiler(stack: Stack) -> None:
    """Raise PreflightFailed if this machine lacks what the script needs."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        raise PreflightFailed(
            f"Horovod has to be built for {stack.name}, and this machine has no {listed(missing, 'or')}",
            f"install {'them' if missing[1:] else 'it'} (on Debian and Ubuntu: sudo apt-get install "
            f"{' '.join(missing)}); or try another strategy, which needs no compiler",
        )
    shown = subprocess.run(["g++", "-dumpversion"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"\d+", shown)
    if stack.gcc and version and int(version[0]) < stack.gcc.min:
        raise PreflightFailed(
            f"Horovod for {stack.name} needs g++ {stack.gcc.min} or newer, and this machine has g++ {version[0]}",
            "install a newer g++, or try another strategy, which needs no compiler",
        )


def _build(environment: Environment, source: HorovodSource, script: str, part: Path) -> None:
    """Fill a directory with the modules of Horovod."""
    wanted = wheels.Download(
        [environment.stack.build_lock(environment.python)], environment.python, platform.machine(), ""
    )
    requirement = f"horovod=={source.version} --hash=sha256:{source.sha256}\n"
    try:
        archive = wheels.archive_of(wanted, requirement, cache() / "wheels")
    except wheels.DownloadFailed as error:
        raise PreflightFailed(
            f"the source of Horovod cannot be downloaded: {error}", "check the network, then run it again"
        ) from None
    work, result = part / "work", part / f"horovod-{source.version}-py3-none-any.whl"
    work.mkdir()
    given = {"ARCHIVE": str(archive), "RESULT": str(result), "TMPDIR": str(work)}
    words = ["nice", "sh", "-eu", "-c", script]
    with Supervised(words, {**os.environ, **given}, work) as started:
        assert started.process.stdout is not None
        output = started.process.stdout.read().decode(errors="replace")
        code = started.code()
    if code:
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        errors = [line for line in lines if _ERROR.search(line)] or lines
        log = part.parent / "failed-build.log"
        log.write_text(output, encoding="utf-8")
        raise PreflightFailed(
            f"Horovod cannot be built for {environment.stack.name}: {'; '.join(errors[-_REPORTED:])}",
            f"read the whole output: less {log}",
        )
    with zipfile.ZipFile(result) as file:
        file.extractall(part)
    shutil.rmtree(work)
    result.unlink()
