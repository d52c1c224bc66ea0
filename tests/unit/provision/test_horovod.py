"""Horovod: which hosts share a build, how a wheel is installed, and which changes are noticed."""

from __future__ import annotations

import os
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.tfctl.cluster.plugins.module_utils import install
from ansible_collections.tfctl.cluster.plugins.module_utils.facts import horovods, mpiruns
from ansible_collections.tfctl.cluster.plugins.module_utils.install import ModuleFailed
from ansible_collections.tfctl.cluster.plugins.modules.horovod import HorovodInstallation

from tests.unit.provision.fresh_host import PYTHON, facts, wanted
from tests.unit.provision.test_venv import wheel as make_wheel
from tfctl import schema
from tfctl.model import stacks
from tfctl.provision.decide import decision
from tfctl.provision.decide import horovod as horovod_decision
from tfctl.provision.decide.fault import Findings
from tfctl.provision.decide.host import decide
from tfctl.provision.decide.wanted import Preferences

# The user nobody could not enter the directories of the tests.
install.NOBODY = os.geteuid()

VERSION = "__version__ = '0.28.1'\n"
BUILT = "def mpi_built(): return {mpi}\ndef gloo_built(): return 1\n"


def decided(seen: dict[str, Any] | None = None, stack: str = "tf2.15", **preferences: Any) -> tuple[Any, Any, Any]:
    """Return the decisions about Open MPI and Horovod as plain data, and the faults, of an otherwise fit host."""
    asked = wanted(stack=stack, preferences=Preferences(**{"horovod": True, **preferences}))
    decision, faults = decide(facts(**(seen or {})), asked)
    plain = schema.plain(decision)
    return plain["openmpi"], plain["horovod"], faults


def test_decision_has_no_horovod_or_openmpi_when_not_requested() -> None:
    assert decided(horovod=False) == (None, None, [])


def test_decision_removes_horovod_when_it_is_no_longer_requested() -> None:
    name = decided()[1]["environment"].rpartition("/")[2]
    _, horovod, faults = decided({"horovods": [name]}, horovod=False)
    assert (horovod["home"], horovod["environment"].rpartition("/")[2], faults) == ("", name, [])


def test_decision_names_exact_build_inputs() -> None:
    openmpi, horovod, faults = decided()
    assert faults == []
    assert (openmpi["version"], openmpi["packages"]) == ("4.1.4", ["openmpi-bin"])
    assert horovod["source"].startswith("horovod==0.28.1 --hash=sha256:92a43f5a")
    assert Path(horovod["tools"]).name == "tf2.15-build-3.11.txt"
    assert horovod["compiler"]["cxx"] == "g++-12"
    assert horovod["compiler"]["packages"] == ["g++-12", "make", "g++"]
    assert (horovod["home"], horovod["mpi"], horovod["gloo"]) == (f"/opt/tfctl/horovod/{horovod['key']}", "/usr", True)


def test_decision_builds_openmpi_from_source_in_a_directory_named_by_its_inputs() -> None:
    (fault,) = decided(openmpi="source")[2]
    assert "the hash of Open MPI 4.1.8" in fault["message"]
    assert "set tfctl_allow_unverified: [openmpi-4.1.8]" in fault["remedy"]
    mirror = "file:///mirror/o.tar.bz2"
    openmpi, horovod, faults = decided(openmpi="source", openmpi_url=mirror, allow_unverified=("openmpi-4.1.8",))
    assert faults == []
    assert openmpi["prefix"].startswith("/opt/tfctl/openmpi/4.1.8-")
    assert openmpi["source"]["url"] == "file:///mirror/o.tar.bz2"
    assert (horovod["mpi"], horovod["compiler"]["packages"]) == (openmpi["prefix"], ["g++-12", "make", "g++"])
    assert horovod["key"] != decided()[1]["key"]


def test_decision_removes_openmpi_links_when_it_is_no_longer_requested() -> None:
    name = decided()[1]["environment"].rpartition("/")[2]
    for preferences in ({"horovod": False}, {"openmpi": "none"}):
        openmpi = decided({"openmpis": [name]}, **preferences)[0]
        assert (openmpi["method"], openmpi["prefix"]) == ("none", "")


@pytest.mark.parametrize(
    ("seen", "preferences", "same"),
    [
        ({"mpiruns": {"/usr": "4.1.4"}, "login": "alice"}, {}, True),
        ({"python": {**PYTHON, "given": {"/usr/local/bin/python3.10": "3.10"}}}, {}, False),
        ({"system": "debian-11"}, {}, False),
        ({}, {"openmpi": "none"}, False),
    ],
    ids=["more-there", "python", "system", "without-mpi"],
)
def test_build_key_is_shared_only_by_hosts_with_equal_inputs(
    seen: dict[str, Any], preferences: dict[str, Any], same: bool
) -> None:
    assert (decided(seen, **preferences)[1]["key"] == decided()[1]["key"]) is same


def test_decision_builds_horovod_with_gloo_alone_when_openmpi_is_none() -> None:
    openmpi, horovod, _ = decided(openmpi="none")
    assert openmpi is None
    assert (horovod["mpi"], horovod["gloo"]) == ("", True)


def test_decision_reports_a_broken_openmpi_only_when_mpirun_fails() -> None:
    assert [decided({"mpiruns": found})[0]["broken"] for found in ({}, {"/usr": "4.1.4"}, {"/usr": ""})] == [
        False, False, True
    ]  # fmt: skip


def test_decision_is_the_same_before_and_after_its_packages_are_installed() -> None:
    """Otherwise the digests of the roles would differ, and a second run would run them again."""
    asked = wanted(preferences=Preferences(toolchain=True, horovod=True))
    assert decide(facts(), asked) == decide(facts(mpiruns={"/usr": "4.1.4"}), asked)


def test_decision_refuses_an_unknown_openmpi_and_a_stack_without_horovod() -> None:
    (fault,) = decided(openmpi="mpich")[2]
    assert fault["message"] == "tfctl_openmpi is 'mpich'" and fault["kind"] == "inventory"
    without = replace(stacks.get("tf2.15"), name="tf9", horovod=None)
    asked = wanted(stack="tf9", stacks={**stacks.load(), "tf9": without}, preferences=Preferences(horovod=True))
    found, _ = decide(facts(), wanted())
    assert found.stack
    findings = Findings()
    assert horovod_decision.decide(facts(), asked, without, found.stack, None, findings) == (None, None)
    (fault,) = findings.faults
    assert fault["message"] == "no release of Horovod builds for tf9"
    assert "tf2.15" in fault["remedy"]


def decision_with_gpus(cuda: str) -> tuple[decision.HorovodBuild, list[str]]:
    """Return the decision about Horovod and the notices of a host with GPUs on which CUDA is in this directory, or in
    wheels."""
    found, _ = decide(facts(), wanted())
    assert found.stack
    toolkit = decision.Library("repo", "12.2", True, (), None, (), cuda, "libcudart.so.12") if cuda else None
    gpu, findings = decision.GpuSoftware(None, toolkit, None, None, None), Findings()
    asked, stack = wanted(preferences=Preferences(horovod=True)), replace(found.stack, edition="gpu")
    _, horovod = horovod_decision.decide(facts(), asked, stacks.get("tf2.15"), stack, gpu, findings)
    assert isinstance(horovod, decision.HorovodBuild)
    return horovod, findings.notices


def test_decision_builds_horovod_with_nccl_only_when_cuda_has_nvcc() -> None:
    horovod, notices = decision_with_gpus("/usr/local/cuda-12.2")
    assert (horovod.gpu, notices) == (decision.CudaHomes("/usr/local/cuda-12.2", ""), [])
    without, notices = decision_with_gpus("")
    assert without.gpu is None and "without NCCL" in notices[0]
    assert len({horovod.key, without.key, decided()[1]["key"]}) == 3


def environment_and_wheel(folder: Path, mpi: str = "1") -> tuple[Path, Path]:
    """Return an environment and a wheel of Horovod; ``mpi``: whether the wheel claims to have MPI."""
    environment = folder / "stacks/tf9-0123456789ab"
    (environment / "lib/python3.11/site-packages").mkdir(parents=True)
    (environment / "bin").mkdir()
    (environment / "bin/python").symlink_to(sys.executable)
    files = {"__init__.py": VERSION, "tensorflow/__init__.py": BUILT.format(mpi=mpi)}
    return environment, make_wheel(folder, "horovod", "0.28.1", **files)


def horovod(
    environment: Path, wheel: Path | None = None, home: str = "0123456789abcdef", **more: Any
) -> HorovodInstallation:
    place = str(environment.parents[1] / "horovod" / home) if home else ""
    sent = str(wheel) if wheel else None
    return HorovodInstallation(
        str(environment), place, **{"version": "0.28.1", "mpi": True, "gloo": True, "wheel": sent, **more}
    )


@pytest.fixture
def installed(tmp_path: Path) -> HorovodInstallation:
    made = horovod(*environment_and_wheel(tmp_path))
    assert made.differences() == [f"{made.home} does not exist"]
    made.unpack()
    made.link()
    return made


def test_horovod_is_unpacked_compiled_and_linked_into_the_environment(installed: HorovodInstallation) -> None:
    assert (installed.differences(), installed.linked()) == ([], True)
    assert installed.home is not None
    assert installed.pth.read_text() == f"{installed.home}\n"
    assert horovods(installed.environment.parent) == ["tf9-0123456789ab"]
    assert list(installed.home.rglob("*.pyc"))
    assert [path.name for path in installed.home.parent.iterdir() if path.name != ".lock"] == [installed.home.name]


def test_horovod_names_a_missing_file_and_is_repaired_from_its_wheel(installed: HorovodInstallation) -> None:
    assert installed.home is not None
    (installed.home / "horovod/tensorflow/__init__.py").unlink()
    assert installed.differences() == [f"{installed.home}/horovod/tensorflow/__init__.py is missing"]
    installed.unpack()
    assert installed.differences() == []
    installed.pth.unlink()
    assert not installed.linked()


def test_horovod_deletes_the_old_build_when_another_is_linked(installed: HorovodInstallation) -> None:
    other = horovod(installed.environment, installed.wheel, home="f" * 16)
    other.unpack()
    assert installed.linked(), "the old build stays until the new one is linked"
    other.link()
    assert installed.home is not None and not installed.home.exists()


def test_horovod_is_removed_when_it_is_not_wanted(installed: HorovodInstallation) -> None:
    without = horovod(installed.environment, home="")
    assert (without.differences(), without.linked()) == ([], False)
    without.link()
    assert without.linked()
    assert installed.home is not None and not installed.home.exists()


def test_horovod_keeps_directories_that_are_not_of_tfctl(installed: HorovodInstallation) -> None:
    """The role can be used alone, with any environment. A clone of Horovod may be beside it."""
    assert installed.home is not None
    clone = installed.home.with_name("horovod-src")
    for path in (clone, installed.home.with_name("a" * 16)):
        path.mkdir()
        (path / "mine").touch()
    installed.home.with_name("notes.txt").touch()
    horovod(installed.environment, home="").link()
    left = sorted(path.name for path in installed.home.parent.iterdir() if path.name != ".lock")
    assert left == ["a" * 16, "horovod-src", "notes.txt"]


def test_horovod_stays_in_an_environment_of_any_name(installed: HorovodInstallation) -> None:
    mine = installed.environment.with_name("mine")
    installed.environment.rename(mine)
    other = horovod(mine, installed.wheel)
    other.link()
    assert (other.differences(), other.linked()) == ([], True)


def test_horovod_wheel_is_refused_when_it_differs_from_its_record_or_is_damaged(tmp_path: Path) -> None:
    environment, wheel = environment_and_wheel(tmp_path)
    made = horovod(environment, wheel)
    content = wheel.read_bytes()
    header = content.index(b"PK\x01\x02")  # of the first file, in the directory at the end
    for damaged in (
        content.replace(VERSION.encode(), VERSION.encode().upper()),
        content[:300],
        content[: header + 6] + b"\xff" + content[header + 7 :],  # the version of the format
        content[: header + 8] + b"\x01" + content[header + 9 :],  # encrypted
        content[: header + 20] + b"\xff\xff\xff\x00" * 2 + content[header + 28 :],  # the sizes
    ):
        wheel.write_bytes(damaged)
        with pytest.raises(ModuleFailed, match=r"0\.28\.1-py3-none-any\.whl is damaged"):
            made.unpack()
    wheel.write_bytes(content)
    with zipfile.ZipFile(wheel) as file:
        files = {name: file.read(name) for name in file.namelist()}
    for other, difference in ((b"import os\n", "was changed"), (VERSION.encode().swapcase(), "has another hash")):
        with zipfile.ZipFile(wheel, "w") as file:
            for name, text in files.items():
                file.writestr(name, other if name == "horovod/__init__.py" else text)
        expected = rf"differs from its RECORD: .*/horovod/__init__\.py {difference}"
        with pytest.raises(ModuleFailed, match=expected) as refused:
            made.unpack()
        assert "delete this wheel from tfctl's cache" in str(refused.value.fault["remedy"])
    for method in (b"shake_128", b"no_hash"):
        with zipfile.ZipFile(wheel, "w") as file:
            for name, text in files.items():
                file.writestr(name, text.replace(b"sha256=", method + b"=") if name.endswith("/RECORD") else text)
        with pytest.raises(ModuleFailed, match="has another hash"):
            made.unpack()
    assert made.home is not None and not made.home.exists()


def test_horovod_wheel_is_refused_when_it_lacks_a_requested_feature(tmp_path: Path) -> None:
    environment, wheel = environment_and_wheel(tmp_path, mpi="0")
    made = horovod(environment, wheel)
    with pytest.raises(ModuleFailed, match="the wheel of Horovod has mpi False instead of True"):
        made.unpack()
    broken = horovod(environment, make_wheel(tmp_path, "horovod", "0.28.1", **{"__init__.py": VERSION}))
    with pytest.raises(ModuleFailed, match=r"cannot be imported[\s\S]*No module named 'horovod.tensorflow'"):
        broken.unpack()


def test_mpirun_facts_hold_the_version_or_nothing_when_it_fails(tmp_path: Path) -> None:
    for name, words in (("good", "echo 'mpirun (Open MPI) 4.1.4'"), ("bad", "exit 127")):
        program = tmp_path / name / "bin/mpirun"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{words}\n")
        program.chmod(0o755)
    found = mpiruns([f"{tmp_path}/{name}" for name in ("good", "bad", "none")])
    assert found == {f"{tmp_path}/good": "4.1.4", f"{tmp_path}/bad": ""}
