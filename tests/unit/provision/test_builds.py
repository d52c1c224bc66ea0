"""Builds of Horovod and Open MPI: the scripts of the roles with fake sources, and builds that are interrupted."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jinja2
import pytest
from ansible_collections.tfctl.cluster.plugins.module_utils import install
from ansible_collections.tfctl.cluster.plugins.module_utils.install import Locked, ModuleFailed, alone
from ansible_collections.tfctl.cluster.plugins.modules.build import NICENESS, build, errors_of, run_script

from tests.unit.provision.test_venv import wheel as make_wheel
from tfctl.provision.ansible import data_dir
from tfctl.provision.remedies import remedy_for

# The user nobody could not enter the directories of the tests.
install.NOBODY = os.geteuid()
#: A fake of setuptools that writes its environment variables into a wheel, or fails with the messages of a compiler.
BACKEND = """
import os, pathlib
class __legacy__:
    @staticmethod
    def build_wheel(folder):
        if os.environ["CC"] == "gcc-7":
            print("x.cc:3:1: error: no member named 'y'\\nmake: *** [x.o] Error 1", flush=True)
            raise SystemExit(1)
        if os.environ.get("HOROVOD_NCCL_LIB"):
            os.environ["NCCL"] = os.readlink(os.environ["HOROVOD_NCCL_LIB"] + "/libnccl.so")
        name = "horovod-0.28.1-any.whl"
        text = "".join(f"{key}={value}\\n" for key, value in os.environ.items())
        pathlib.Path(folder, name).write_text(pathlib.Path("setup.py").read_text() + text)
        return name
"""
CONFIGURE = """#!/bin/sh
sed "s,@PREFIX@,${1#--prefix=},g" Makefile.in > Makefile
"""
MAKEFILE = """
all:
\t@RULE
install:
\tmkdir -p $(DESTDIR)@PREFIX@/bin
\tprintf '#!/bin/sh\\necho @PREFIX@\\n' > $(DESTDIR)@PREFIX@/bin/mpirun
\tchmod 755 $(DESTDIR)@PREFIX@/bin/mpirun
\tln -s mpirun $(DESTDIR)@PREFIX@/bin/mpiexec
"""


def script(role: str, **variables: object) -> str:
    """Return the build script of a role, filled in as Ansible does."""
    folder = data_dir() / "roles" / role
    jinja = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)
    jinja.filters["quote"] = shlex.quote
    jinja.globals["lookup"] = lambda _, name: (folder / "files" / name).read_text()
    return jinja.from_string((folder / "templates/build.sh.j2").read_text()).render(variables)


def horovod(folder: Path, **more: object) -> dict[str, str]:
    """Return the arguments of a build of a fake source with the fake setuptools, without CUDA."""
    tools = make_wheel(folder, "setuptools", "1.0", **{"__init__.py": "", "build_meta.py": BACKEND})
    source = folder / "horovod-0.28.1"
    source.mkdir()
    (source / "setup.py").write_text("the source\n")
    with tarfile.open(folder / "horovod-0.28.1.tar.gz", "w:gz") as tar:
        tar.add(source, arcname=source.name)
    with tarfile.open(folder / "sent.tar", "w") as tar:
        for path in (tools, folder / "horovod-0.28.1.tar.gz"):
            tar.add(path, arcname=path.name)
    environment = folder / "environment"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin/python").symlink_to(sys.executable)
    variables = {
        "horovod_environment": str(environment), "horovod_mpi_prefix": "/usr", "horovod_gloo": True,
        "horovod_compiler_suffix": "-12", "horovod_cuda_home": "", "horovod_nccl_home": "",
    }  # fmt: skip
    return arguments(folder, "Horovod", script("horovod", **{**variables, **more}), folder / "sent.tar")


def openmpi(folder: Path, rule: str = "true", sha256: str = "") -> dict[str, str]:
    """Return the arguments of a build of a fake source; ``rule``: what make runs."""
    tree = folder / "openmpi-4"
    tree.mkdir()
    (tree / "configure").write_text(CONFIGURE)
    (tree / "configure").chmod(0o755)
    (tree / "Makefile.in").write_text(MAKEFILE.replace("RULE", rule))
    archive = folder / "openmpi.tar.bz2"
    with tarfile.open(archive, "w:bz2") as tar:
        tar.add(tree, arcname=tree.name)
    found = subprocess.run(["sha256sum", archive], capture_output=True, text=True, check=True, timeout=30).stdout[:64]
    variables = {"openmpi_source_sha256": sha256 or found, "openmpi_path": "/opt/mpi", "openmpi_compiler_suffix": ""}
    return arguments(folder, "Open MPI", script("openmpi", **variables), archive)


def arguments(folder: Path, name: str, text: str, archive: Path) -> dict[str, str]:
    directory, result = folder / "builds/.build", folder / "result"
    return {"name": name, "script": text, "directory": str(directory), "archive": str(archive), "result": str(result)}


def test_horovod_build_leaves_only_its_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "of the caller")
    build(**horovod(tmp_path))
    first, *lines = (tmp_path / "result").read_text().splitlines()
    variables = dict(line.split("=", 1) for line in lines)
    assert first == "the source" and "SECRET" not in variables
    assert (variables["CC"], variables["CXX"], variables["MPI_HOME"]) == ("gcc-12", "g++-12", "/usr")
    assert {"HOROVOD_WITH_MPI", "HOROVOD_WITH_GLOO"} <= {*variables}
    assert not {"HOROVOD_GPU", "LDFLAGS"} & {*variables}
    assert int(variables["MAKEFLAGS"].removeprefix("-j")) >= 1
    assert [path.name for path in (tmp_path / "builds").iterdir()] == [".lock"]


def test_horovod_build_without_mpi_says_so(tmp_path: Path) -> None:
    build(**horovod(tmp_path, horovod_mpi_prefix=""))
    text = (tmp_path / "result").read_text()
    assert "HOROVOD_WITHOUT_MPI=1" in text and "MPI_HOME" not in text


def test_horovod_build_uses_nccl_of_the_environment_when_there_is_no_other(tmp_path: Path) -> None:
    given = horovod(tmp_path, horovod_cuda_home="/usr/local/cuda-12.2")
    with pytest.raises(ModuleFailed, match=r"there is no NCCL in .*environment"):
        build(**given)
    library = tmp_path / "environment/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2"
    library.parent.mkdir(parents=True)
    library.touch()
    build(**given)
    assert f"NCCL={library}\n" in (tmp_path / "result").read_text()


def test_failed_horovod_build_quotes_the_compiler(tmp_path: Path) -> None:
    with pytest.raises(ModuleFailed) as caught:
        build(**horovod(tmp_path, horovod_compiler_suffix="-7"))
    lines = str(caught.value).splitlines()
    assert lines == ["Horovod could not be built", "x.cc:3:1: error: no member named 'y'", "make: *** [x.o] Error 1"]
    remedy = remedy_for(str(caught.value))
    assert remedy and "tfctl_horovod=false" in remedy.text
    assert not (tmp_path / "result").exists()
    assert [path.name for path in (tmp_path / "builds").iterdir()] == [".lock"]


def test_horovod_build_fails_when_its_archive_is_incomplete(tmp_path: Path) -> None:
    given = horovod(tmp_path)
    archive = tmp_path / "sent.tar"
    archive.write_bytes(archive.read_bytes()[:1000])
    with pytest.raises(ModuleFailed, match=r"Horovod could not be built\n.*Unexpected EOF"):
        build(**given)


def test_openmpi_build_leaves_an_archive_with_checksums(tmp_path: Path) -> None:
    build(**openmpi(tmp_path))
    place = tmp_path / "host"
    place.mkdir()
    subprocess.run(["tar", "-xzf", tmp_path / "result", "-C", place], check=True, timeout=30)
    assert (place / "bin/mpirun").read_text().endswith("echo /opt/mpi\n")
    compare = ["sha256sum", "--check", "--quiet", "tfctl.sha256"]
    assert subprocess.run(compare, cwd=place, timeout=30).returncode == 0
    for harm in (lambda: (place / "bin/mpirun").write_text("other"), (place / "bin/mpiexec").unlink):
        harm()
        assert subprocess.run(compare, cwd=place, capture_output=True, timeout=30).returncode == 1


def test_failed_openmpi_build_quotes_the_compiler(tmp_path: Path) -> None:
    with pytest.raises(ModuleFailed, match=r"Open MPI could not be built\n(.*\n)*x.c:1:1: error: nonsense"):
        build(**openmpi(tmp_path, rule="sh -c 'echo x.c:1:1: error: nonsense; exit 1'"))
    assert [path.name for path in (tmp_path / "builds").iterdir()] == [".lock"]


def test_openmpi_source_with_a_wrong_hash_is_not_built(tmp_path: Path) -> None:
    with pytest.raises(ModuleFailed, match=r"Open MPI could not be built\n.*/openmpi\.tar\.bz2: FAILED"):
        build(**openmpi(tmp_path, sha256="0" * 64))


def test_build_uses_the_result_that_an_interrupted_run_finished(tmp_path: Path) -> None:
    """The control machine was interrupted, and the build on the host continued."""
    given = arguments(tmp_path, "it", "false", tmp_path / "none")
    work = Path(given["directory"])
    with ThreadPoolExecutor(1) as pool, alone(work.with_name(".lock"), "builds"):
        later = pool.submit(build, **given)
        work.mkdir()
        time.sleep(0.1)
        assert work.exists(), "a waiting build must not touch the files of the other"
        (tmp_path / "result").write_text("made by the first")
        work.rmdir()
    later.result(10)
    assert (tmp_path / "result").read_text() == "made by the first"


def test_build_gives_up_waiting_without_touching_the_other_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "TURN_S", 0)
    given = arguments(tmp_path, "it", "false", tmp_path / "none")
    message = rf"another run builds all day on this host, for \d+ s now \(process {os.getpid()}\)"
    with alone(tmp_path / "builds/.lock", "builds all day"):
        Path(given["directory"]).mkdir()
        with pytest.raises(Locked, match=message):
            build(**given)
        assert Path(given["directory"]).exists()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A directory that every user can enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_build_runs_as_nobody_and_leaves_a_file_of_the_caller(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "NOBODY", 65534)
    source = open_folder / "source"
    source.write_text("secret")
    source.chmod(0o600)
    build(**arguments(open_folder, "it", '{ cat "$ARCHIVE"; id -u; id -G; } > "$RESULT"', source))
    user = "65534" if os.geteuid() == 0 else str(os.geteuid())
    text, result = (open_folder / "result").read_text(), (open_folder / "result").stat()
    assert text.startswith(f"secret{user}\n")
    assert (result.st_uid, result.st_mode & 0o777) == (os.geteuid(), 0o644)
    if os.geteuid() == 0:
        assert text.endswith("65534\n65534\n"), "no groups of root are left"


def test_build_refuses_a_link_as_its_result(tmp_path: Path) -> None:
    """Root would copy a file that the user nobody cannot read."""
    (tmp_path / "foreign").write_text("secret")
    with pytest.raises(OSError, match="symbolic link"):
        build(**arguments(tmp_path, "it", f'ln -s {tmp_path}/foreign "$RESULT"', tmp_path / "foreign"))
    assert not (tmp_path / "result").exists()


def test_build_replaces_a_symlink_at_the_path_of_its_result(tmp_path: Path) -> None:
    (tmp_path / "foreign").write_text("anything")
    (tmp_path / "result").symlink_to(tmp_path / "foreign")
    build(**arguments(tmp_path, "it", 'echo built > "$RESULT"', tmp_path / "foreign"))
    assert not (tmp_path / "result").is_symlink()
    assert [(tmp_path / name).read_text() for name in ("result", "foreign")] == ["built\n", "anything"]


def test_build_runs_at_low_priority(tmp_path: Path) -> None:
    run_script("nice > nice; cp /proc/self/autogroup . || echo nice 10 > autogroup", tmp_path, {}, "no")
    assert (tmp_path / "nice").read_text() == f"{min(19, os.nice(0) + NICENESS)}\n"
    assert (tmp_path / "autogroup").read_text().endswith("nice 10\n")


def test_excerpt_of_a_build_log_keeps_cmake_errors_with_their_location() -> None:
    place = "CMake Error at Modules/FindPackageHandleStandardArgs.cmake:233 (message):"
    missing = "  Could NOT find MPI (missing: MPI_CXX_FOUND)"
    log = f"{'*' * 80}\nuses deprecated\n{'*' * 80}\n-- checking\n{place}\n{missing}\n\nCall Stack:\n"
    assert errors_of(f"{log}make: *** [all] Error 2\nbye\n") == [place, missing, "make: *** [all] Error 2"]
    assert errors_of("one\n\ntwo\n") == ["one", "two"]
