"""Decisions report all faults of a host, each with its remedy, and decide what a host without faults gets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.tfctl.cluster.plugins.module_utils.facts import gather, system_key
from ansible_collections.tfctl.cluster.plugins.module_utils.versions import os_release

from tests.unit.provision.fresh_host import FREE, GPU, HOST, PYTHON, facts, wanted
from tfctl import schema
from tfctl.model import stacks
from tfctl.provision.decide import space
from tfctl.provision.decide.decision import Python
from tfctl.provision.decide.facts import Facts
from tfctl.provision.decide.fault import Findings
from tfctl.provision.decide.host import decide
from tfctl.provision.decide.toolchain import toolchain
from tfctl.provision.decide.wanted import Preferences
from tfctl.provision.faults import ModuleFault


def faults(seen: dict[str, Any], **more: Any) -> list[ModuleFault]:
    return decide(facts(**seen), wanted(**more))[1]


def test_fit_host_gets_the_decision_of_its_stack() -> None:
    decision, found = decide(facts(), wanted())
    assert found == []
    assert (decision.operators, decision.output_roots) == (("ops",), ("/srv/tfctl",))
    stack = decision.stack
    assert stack
    assert stack.python == Python("3.11", "/usr/bin/python3.11", "this host")
    assert stack.link == "/opt/tfctl/stacks/tf2.15"
    assert stack.path.startswith("/opt/tfctl/stacks/tf2.15-") and stack.lock.endswith("tf2.15-cpu-3.11.txt")
    assert not stack.there


def test_decision_reaches_the_roles_as_plain_data() -> None:
    decision = schema.plain(decide(facts(), wanted())[0])
    assert (decision["operators"], decision["gpu"]) == (["ops"], None)
    assert decision["stack"]["python"] == {  # type: ignore[index]
        "version": "3.11", "path": "/usr/bin/python3.11", "packages": [], "from": "this host", "tree": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("seen", "more", "message", "remedy"),
    [
        ({"root": False}, {}, "the login user ops cannot become root", "sudo"),
        ({"system": "arch-", "title": "Arch Linux"}, {}, "Arch Linux is not supported", "Debian 12"),
        ({"init": "tini"}, {}, "PID 1 is tini, not systemd", "boot it with systemd"),
        ({"systemd": 245}, {}, "systemd 245; 247 or newer", "upgrade"),
        ({"own_python": [3, 8]}, {}, "/usr/bin/python3 is 3.8; 3.9 or newer", "install a newer python3"),
        ({"sudo": False}, {}, "sudo is not installed", "install the package sudo"),
        ({"uid_owner": "backup2"}, {}, "the ID 880 belongs to the user backup2", "tfctl_uid"),
        ({"gid_owner": "render"}, {}, "the ID 880 belongs to the group render", "tfctl_uid"),
        ({"user": 700}, {}, "the user tfctl has the ID 700 here", "tfctl_uid=700"),
        ({}, {"uid": 1200}, "tfctl_uid 1200 is not the ID of a system user", "from 1 to 999"),
        ({}, {"operators": ("%all",)}, "'%all' is not a user name", "plain user names"),
        ({}, {"operators": ("ops", "tfctl")}, "tfctl_operators: tfctl is a user of tfctl itself", "who start jobs"),
        ({"login": "tfctl"}, {}, "the login user is tfctl, the user of the jobs", "log in as another user"),
        ({}, {"stack": ""}, "no stack is named for this host", "--stack none"),
        ({}, {"stack": "tf9"}, "no stack is called 'tf9'", "choose from tf1.15, tf2.0, tf2.4"),
        ({"machine": "riscv64"}, {}, "made for x86_64; this is riscv64", "no stack of tfctl is made for it"),
        ({"wsl": True, "init": "init"}, {}, "PID 1 is init, not systemd", "wsl --shutdown"),
        (
            {"python": {**PYTHON, "pythons": {"3.13": "/usr/bin/python3.13"}}, "system": "debian-13"},
            {},
            "tf2.15 takes Python 3.11, 3.10, 3.9; Debian GNU/Linux 12 (bookworm) has 3.13, and uv has none of them",
            "tfctl_python_mirror",
        ),
    ],
)
def test_decisions_report_each_fault_with_its_remedy_and_exit_code(
    seen: dict[str, Any], more: dict[str, Any], message: str, remedy: str
) -> None:
    (found,) = faults(seen, **more)
    assert message in found["message"]
    assert remedy in found["remedy"]
    about_files = ("tfctl_uid", "tfctl_operators", "stack")
    assert found["kind"] == ("inventory" if more and any(word in found["message"] for word in about_files) else "unfit")


def test_decisions_report_all_faults_at_once() -> None:
    found = faults({"systemd": 241, "sudo": False, "uid_owner": "x", "init": "systemd"}, stack="tf9")
    assert len(found) == 4


def test_an_unsupported_system_has_no_faults_whose_remedies_cannot_help() -> None:
    old = {"own_python": [3, 8], "systemd": 245, "python": {**PYTHON, "pythons": {}}}
    (found,) = faults({"system": "none-", **old}, stack="tf9")
    assert "is not supported" in found["message"]


@pytest.mark.parametrize("stack", ["tf2.0", "tf2.21"])
def test_an_arm_server_has_one_fault_whose_remedy_is_a_stack_of_ones_own(stack: str) -> None:
    """GH200: its GPU is too new for the older stacks, and tfctl has no CUDA for its processor."""
    gpu = {**GPU, "devices": [{"slot": "", "id": "2342"}]}
    (found,) = faults({"machine": "aarch64", "gpu": gpu, "python": {**PYTHON, "pythons": {}}}, stack=stack)
    assert found["message"] == f"{stack} is made for x86_64; this is aarch64"
    assert found["remedy"].startswith("no stack of tfctl is made for it: add one of your own (tfctl_stack_dirs); or")


@pytest.mark.parametrize(("edition", "notices"), [("auto", 1), ("cpu", 0)])
def test_wsl2_gets_the_cpu_edition_and_is_told_why(edition: str, notices: int) -> None:
    decision, found = decide(facts(wsl=True), wanted(preferences=Preferences(edition=edition)))
    assert found == [] and decision.stack and decision.stack.edition == "cpu"
    assert [text for text in decision.notices if "WSL2" in text and "Windows" in text] == [*decision.notices]
    assert len(decision.notices) == notices


def test_wsl2_is_refused_if_it_is_to_use_its_gpu() -> None:
    (found,) = faults({"wsl": True}, preferences=Preferences(edition="gpu"))
    assert found["message"].startswith("tfctl_edition is gpu, and this is WSL2, whose driver is that of Windows")
    assert "tfctl_edition: cpu" in found["remedy"]


def test_decisions_need_no_space_for_an_existing_environment() -> None:
    disks = {path: {**FREE, "free_mb": 2700} for path in HOST["disks"]}
    (found,) = faults({"disks": disks})
    assert found["message"].startswith("2700 MB are free for /opt/tfctl, ")
    assert faults({"disks": disks}, stack="none") == []
    name = stacks.get("tf2.15").environment("cpu", "3.11")
    assert faults({"disks": disks, "environments": [name]}) == []


def test_missing_python_is_installed_from_the_distribution() -> None:
    python = {**PYTHON, "pythons": {"3.12": "/usr/local/bin/python3.12"}}
    decision, found = decide(facts(system="ubuntu-22.04", python=python), wanted())
    assert found == []
    assert decision.stack
    chosen = decision.stack.python
    assert (chosen.path, chosen.packages) == ("/usr/bin/python3.11", ("python3.11",))


@pytest.mark.parametrize(
    ("system", "packager", "edition", "command", "packages"),
    [
        ("debian-12", "apt-get", "cpu", "g++-12", ["g++-12", "make", "g++"]),
        ("debian-13", "apt-get", "cpu", "g++-14", ["g++-14", "make", "g++"]),
        ("debian-13", "apt-get", "gpu", "g++-12", ["g++-12", "make"]),
        ("ubuntu-24.04", "apt-get", "gpu", "g++-12", ["g++-12", "make"]),
        ("el-9", "dnf", "gpu", "g++", ["gcc-c++", "make"]),
    ],
)
def test_toolchain_picks_a_compiler_that_the_stack_and_nvcc_support(
    system: str, packager: str, edition: str, command: str, packages: list[str]
) -> None:
    findings, stack = Findings(), stacks.get("tf2.15")
    seen = facts(system=system, packager=packager)
    decision = toolchain(seen, wanted(), stack, edition == "gpu", findings)
    assert decision
    assert (decision.cxx, [*decision.packages], findings.faults) == (command, packages, [])


def test_distribution_without_a_supported_compiler_is_refused() -> None:
    asked = wanted(preferences=Preferences(toolchain=True))
    decision, _ = decide(facts(), asked)
    assert decision.toolchain and decision.toolchain.gcc == 12
    stack = replace(stacks.get("tf2.15"), gcc=stacks.Gcc(15, 16))
    (found,) = decide(facts(), replace(asked, stacks={"tf2.15": stack}))[1]
    assert found["message"] == "Debian 12 has gcc 12, 11; extensions of tf2.15 are built with 15 or later"


def test_system_key_joins_distribution_and_version() -> None:
    assert system_key({"ID": "debian", "VERSION_ID": "12"}) == "debian-12"
    assert system_key({"ID": "ubuntu", "VERSION_ID": "22.04", "ID_LIKE": "debian"}) == "ubuntu-22.04"
    assert system_key({"ID": "rocky", "VERSION_ID": "9.4", "ID_LIKE": "rhel centos fedora"}) == "el-9"


def test_facts_of_this_machine_match_their_schema() -> None:
    seen = gather(880, space.directories(("/srv/tfctl",), "~/.ansible/tmp"), address="127.0.0.1", peers=["localhost"])
    found = schema.parse(Facts, seen)
    assert found.system == system_key(os_release())
    assert found.identity.boot_id and found.addresses and found.clock.begun <= found.clock.ended
    decide(found, wanted())


def test_facts_that_do_not_match_their_schema_are_refused_with_the_place() -> None:
    seen = gather(880, space.directories(("/srv/tfctl",), "~/.ansible/tmp"), address="localhost")
    with pytest.raises(schema.SchemaError, match=r"^python/libc: missing$"):
        schema.parse(Facts, {**seen, "python": {key: value for key, value in PYTHON.items() if key != "libc"}})
    with pytest.raises(schema.SchemaError, match=r"^systemd: expected a whole number, not '252'$"):
        schema.parse(Facts, {**seen, "systemd": "252"})
