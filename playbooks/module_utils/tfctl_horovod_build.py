"""Build a Horovod wheel against a stack's TensorFlow and an MPI, from a source and tools sent to the host."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import tarfile
import zipfile
from pathlib import Path

from ansible.module_utils.tfctl_machine import Failed, beside
from ansible.module_utils.tfctl_venv import alone

LIMIT_S = 3600
LAST_LINES = 8
NICENESS = 10
ERROR = re.compile(r"\b(fatal )?error:|CMake Error|No space left|: \*\*\* ", re.IGNORECASE)
MB_A_COMPILER = 1500  # memory that g++ needs for a file that includes TensorFlow's headers
BUILD = """
import os, sys
from setuptools.build_meta import __legacy__ as backend
print("made", backend.build_wheel(sys.argv[1]))
"""
# A wrapper of cmake, because Horovod's setup.py offers no place for these options. It omits debugging symbols, which
# would double compile time and wheel, and builds only TensorFlow's target with its Gloo. It patches 0.28.1, whose
# list of ranks stays empty under Gloo, so that its check for stalled ranks (HOROVOD_STALL_*) never finds any. It also
# patches the older Gloo: the way it reads a network card's speed does not compile with the headers of Linux 5.16.
CMAKE = """\
#!/bin/sh
if [ "$1" = --build ]; then
    folder=$2; shift 2
    {cmake} --build "$folder" --target help | grep -qx '[.][.][.] tensorflow' && set -- --target tensorflow "$@"
    exec {cmake} --build "$folder" "$@"
fi
gloo=$1/horovod/common/gloo/gloo_controller.cc
if [ -f "$gloo" ]; then
    sed -i 's/global_ranks_[.]reserve(size_)/global_ranks_.resize(size_)/' "$gloo"
fi
cards=$1/gloo/common/linux.cc
if [ -f "$cards" ]; then
    sed -i 's/^#if LINUX_VERSION_CODE .*/#if 0/' "$cards"
fi
exec {cmake} -DCMAKE_CXX_FLAGS_RELWITHDEBINFO='-O2 -DNDEBUG' -DCMAKE_C_FLAGS_RELWITHDEBINFO='-O2 -DNDEBUG' "$@"
"""


class Build:
    """``wheel``: the result's path. ``archive``: a tar of the source and the tools' wheels. ``mpi``: a prefix, or "".

    ``folder``: the build directory, not mounted noexec. ``gpu``: None, or the paths of "cuda" and "nccl", the latter ""
    for the environment's own wheel.
    """

    def __init__(self, wheel, folder, environment, archive, cc, cxx, mpi, gloo, gpu=None):
        self.wheel, self.environment, self.archive = Path(wheel), Path(environment), Path(archive)
        self.cc, self.cxx, self.mpi, self.gloo, self.gpu = cc, cxx, mpi, gloo, gpu
        self.part = Path(folder, ".build")

    def run(self):
        """Build the wheel and remove everything else. Raises Failed with the compiler's messages."""
        with alone(self.part.with_name(".lock"), "builds Horovod"):
            try:
                if not is_made(self.wheel):
                    shutil.rmtree(self.part, ignore_errors=True)
                    self._build()
            finally:
                shutil.rmtree(self.part, ignore_errors=True)
                self.archive.unlink(missing_ok=True)

    def _build(self):
        sent, tools, out = (self.part / name for name in ("sent", "tools", "out"))
        for folder in (sent, tools, out):
            folder.mkdir(parents=True)
        extract(self.archive, sent)
        for wheel in sent.glob("*.whl"):
            take_apart(wheel, tools)
        source = self._source(sent)
        cmake = tools / "bin" / "cmake"
        cmake.parent.mkdir(exist_ok=True)
        cmake.write_text(CMAKE.format(cmake=tools / "cmake/data/bin/cmake"), encoding="utf-8")
        cmake.chmod(0o755)
        self._compile(source, tools, out)
        made = list(out.glob("*.whl"))
        if len(made) != 1:
            raise Failed(f"the build of Horovod left {len(made)} wheels, not one")
        leave(made[0], self.wheel)

    def _source(self, sent):
        """Unpack the source and return its directory."""
        (archive,) = sent.glob("horovod-*.tar.gz")
        extract(archive, self.part)
        return self.part / archive.name.removesuffix(".tar.gz")

    def _compile(self, source, tools, out):
        words = [str(self.environment / "bin/python"), "-c", BUILD, str(out)]
        run_step(words, source, surroundings(self, tools), "Horovod could not be built")


def surroundings(build, tools):
    """Return the build's environment variables, none of them the caller's."""
    memory_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024**2
    jobs = max(1, min(len(os.sched_getaffinity(0)), memory_mb // MB_A_COMPILER))
    folders = [str(tools / "bin"), *([f"{build.mpi}/bin"] if build.mpi else [])]
    python = (build.environment / "bin/python").resolve()
    return {
        "PATH": ":".join([*folders, str(build.environment / "bin"), "/usr/sbin:/usr/bin:/sbin:/bin"]),
        "PYTHONPATH": str(tools),
        "TMPDIR": str(build.part),
        "HOME": str(build.part),
        "LC_ALL": "C.UTF-8",
        "CC": build.cc,
        "CXX": build.cxx,
        # Since GCC 13, <string> no longer includes <cstdint>, which Horovod 0.28.1 and its Gloo rely on.
        "CXXFLAGS": "-include cstdint",
        "CFLAGS": "-g0",  # Horovod before 0.20 compiles C++ with these, after Python's own -g
        # A Python sent to this host still names the directory where it was built.
        "LIBRARY_PATH": str(python.parents[1] / "lib"),
        "LDFLAGS": f"-Wl,-rpath,{build.mpi}/lib" if build.mpi not in ("", "/usr") else "",
        "MAKEFLAGS": f"-j{jobs}",
        **({"MPI_HOME": build.mpi} if build.mpi else {}),
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
        "HOROVOD_WITH_TENSORFLOW": "1",
        "HOROVOD_WITHOUT_PYTORCH": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_WITH_MPI" if build.mpi else "HOROVOD_WITHOUT_MPI": "1",
        "HOROVOD_WITH_GLOO" if build.gloo else "HOROVOD_WITHOUT_GLOO": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **(nccl(build) if build.gpu else {}),
    }


def nccl(build):
    """Return the variables for NCCL: of the host, else of the stack's wheel, whose library name has a version."""
    values = {
        "HOROVOD_GPU": "CUDA",
        "HOROVOD_GPU_OPERATIONS": "NCCL",
        "HOROVOD_CUDA_HOME": build.gpu["cuda"],
        "HOROVOD_NCCL_LINK": "SHARED",
    }
    if build.gpu["nccl"]:
        return {**values, "HOROVOD_NCCL_HOME": build.gpu["nccl"]}
    home = next(build.environment.glob("lib/python3.*/site-packages/nvidia/nccl"), None)
    library = next(home.glob("lib/libnccl.so*"), None) if home else None
    if library is None:
        raise Failed("there is no NCCL to build Horovod with", "set tfctl_nccl_method")
    link = build.part / "nccl" / "libnccl.so"
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(library)
    return {**values, "HOROVOD_NCCL_INCLUDE": str(home / "include"), "HOROVOD_NCCL_LIB": str(link.parent)}


def is_made(path):
    """Return whether an earlier build, which continues here if the control machine leaves, has made the file."""
    with contextlib.suppress(FileNotFoundError):
        info = os.lstat(path)
        return stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid()  # the directory is world-writable
    return False


def leave(made, path):
    """Move the result into place atomically."""
    part = beside(Path(path))
    shutil.move(made, part)
    part.replace(path)


def extract(archive, folder):
    """Unpack a tar whose hash the control machine has checked. Raises Failed if it did not arrive completely."""
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder)
    except (tarfile.TarError, EOFError) as error:
        raise Failed(f"{archive} cannot be unpacked: {error}", "provision this host again") from None


def take_apart(wheel, folder):
    """Unpack a wheel and keep executable files executable."""
    with zipfile.ZipFile(wheel) as file:
        for entry in file.infolist():
            path = Path(file.extract(entry, folder))
            if entry.external_attr >> 16 & 0o111:
                path.chmod(0o755)


def run_step(words, folder, variables, failure):
    """Run one step of a build. Raises Failed with ``failure`` and the compilers' messages."""
    nothing, merged = subprocess.DEVNULL, {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    try:
        done = subprocess.run(
            words, cwd=folder, env=variables, stdin=nothing, text=True, errors="replace", timeout=LIMIT_S, check=False,
            preexec_fn=give_way, **merged,
        )  # fmt: skip
    except OSError as fault:
        raise Failed(f"{failure}: {words[0]}: {fault.strerror}") from None
    except subprocess.TimeoutExpired:
        raise Failed(f"{failure}: no end within {LIMIT_S} s") from None
    if done.returncode:
        raise Failed("\n".join([failure, *telling(done.stdout)]))


def give_way():
    """Lower this process's priority below that of jobs. With autogroups (sched(7)), nice(2) counts only within one."""
    os.setsid()
    os.nice(NICENESS)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(NICENESS), encoding="utf-8")


def telling(said):
    """Return the compilers' errors from a build's output, else its last lines."""
    lines = [line.rstrip() for line in said.splitlines() if line.strip()]
    errors = []
    for line, after in zip(lines, [*lines[1:], ""]):
        if ERROR.search(line):
            # CMake prints the message below the location.
            errors += [line, after] if line.startswith("CMake Error at ") else [line]
    return (errors or lines)[-LAST_LINES:]
