"""Open MPI from source: built with a fake configure script and Makefile, unpacked, linked and repaired."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from ansible.module_utils.tfctl_fetch import digest
from ansible.module_utils.tfctl_machine import Failed
from ansible.module_utils.tfctl_openmpi import OpenMpi, build

CONFIGURE = """#!/bin/sh
echo "checking for $1 in $PWD"
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


def source(folder: Path, rule: str = "true") -> Path:
    tree = folder / "openmpi-4"
    tree.mkdir()
    (tree / "configure").write_text(CONFIGURE)
    (tree / "configure").chmod(0o755)
    (tree / "Makefile.in").write_text(MAKEFILE.replace("RULE", rule))
    with tarfile.open(folder / "openmpi.tar.bz2", "w:bz2") as tar:
        tar.add(tree, arcname=tree.name)
    return folder / "openmpi.tar.bz2"


def built(folder: Path, **more: str) -> Path:
    path, made = source(folder, **more), folder / "made.tar.gz"
    build(str(path), digest(path), str(folder / "openmpi/4-0"), "gcc", "g++", str(made))
    return made


@pytest.fixture
def installed(tmp_path: Path) -> OpenMpi:
    (tmp_path / "environment/bin").mkdir(parents=True)
    openmpi = OpenMpi(str(tmp_path / "openmpi/4-0"), str(tmp_path / "environment"), str(built(tmp_path)))
    assert (openmpi.whole(), openmpi.linked()) == (False, True)
    openmpi.unpack()
    assert not openmpi.linked()
    openmpi.link()
    return openmpi


def test_openmpi_is_built_unpacked_and_linked(installed: OpenMpi, tmp_path: Path) -> None:
    assert (installed.whole(), installed.linked()) == (True, True)
    assert (tmp_path / "environment/bin/mpirun").readlink() == tmp_path / "openmpi/4-0/bin/mpirun"
    assert sorted(path.name for path in (tmp_path / "openmpi").iterdir()) == [".lock", "4-0"]


def test_openmpi_is_repaired_when_a_file_is_missing(installed: OpenMpi, tmp_path: Path) -> None:
    (tmp_path / "openmpi/4-0/bin/mpirun").unlink()
    assert not installed.whole()
    installed.unpack()
    assert installed.whole()
    (tmp_path / "environment/bin/mpirun").unlink()
    assert not installed.linked()


def test_openmpi_links_are_removed_when_it_is_no_longer_wanted(installed: OpenMpi, tmp_path: Path) -> None:
    assert installed.linked()
    other = OpenMpi("", str(tmp_path / "environment"))
    assert (other.whole(), other.linked()) == (True, False)
    other.link()
    assert list((tmp_path / "environment/bin").iterdir()) == []


def test_failed_openmpi_build_quotes_the_compiler(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"Open MPI could not be built\n(.*\n)*x.c:1:1: error: nonsense"):
        built(tmp_path, rule="sh -c 'echo x.c:1:1: error: nonsense; exit 1'")
    assert [path.name for path in (tmp_path / "openmpi").iterdir()] == [".lock"]


def test_openmpi_build_uses_an_archive_that_an_earlier_run_finished(tmp_path: Path) -> None:
    """The earlier run was interrupted on the control machine, and its build continued."""
    (tmp_path / "made.tar.gz").write_text("made by the first")
    assert built(tmp_path, rule="false").read_text() == "made by the first"


def test_openmpi_source_with_a_wrong_hash_is_not_built(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="so it was not built"):
        build(str(source(tmp_path)), "0" * 64, str(tmp_path / "openmpi/4-0"), "gcc", "g++", str(tmp_path / "made"))
    assert not (tmp_path / "openmpi").exists()
