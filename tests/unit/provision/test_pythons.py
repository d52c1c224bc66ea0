"""Which Python a stack gets on a host, and from where it is installed."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.tfctl.cluster.plugins.module_utils import pythons as node_pythons
from ansible_collections.tfctl.cluster.plugins.modules.python_tree import install
from python_mirror import archive

from tests.unit.provision.fresh_host import facts, wanted
from tfctl.model import stacks
from tfctl.provision.decide import pythons
from tfctl.provision.decide.fault import Findings
from tfctl.provision.faults import ModuleFault
from tfctl.provision.python_tree import PythonTree
from tfctl.provision.uv_pythons import PythonBuild
from tfctl.provision.wheels import digest

OFFERS = {"new": ("3.11", "3.10"), "old": ("3.7", "3.6")}
NONE: dict[str, Any] = {"pythons": {}, "given": {}, "trees": {}, "in_use": {}, "libc": [2, 36], "lacking": []}
SENT = "/opt/tfctl/pythons/cpython-3.10.16-0123456789ab/bin/python3.10"


def tree(python: str, **changes: Any) -> PythonTree:
    found = PythonTree(
        name=f"cpython-{python}.16-0123456789ab", python=python, version=f"{python}.16", machine="x86_64",
        glibc=(2, 35), needs=("libssl.so.3",), megabytes=43, archive="/a.tar.gz", sha256="00",
    )  # fmt: skip
    return replace(found, **changes)


def build(release: str, **changes: Any) -> PythonBuild:
    return replace(PythonBuild(f"cpython-{release}-linux-x86_64-gnu", release, "x86_64", "20261110"), **changes)


def choose(
    name: str, *trees: PythonTree, system: str = "debian-12", builds: Sequence[PythonBuild] = (), **python: Any
) -> tuple[Any, list[ModuleFault]]:
    """Return the decision and the faults. ``trees``: the Python trees that the control machine can send. ``builds``:
    what uv can download."""
    seen = facts(system=system, title="Debian GNU/Linux 12", python={**NONE, **python})
    stack = replace(stacks.get("tf2.15"), name=name, pythons=OFFERS[name])
    findings = Findings()
    return pythons.choose(seen, wanted(trees=trees, builds=builds), stack, findings), findings.faults


@pytest.mark.parametrize(
    ("system", "seen", "trees", "path"),
    [
        # In order of preference: each row lacks what the row before it chose.
        ("debian-12", {"given": {"/p/python3": "3.10"}, "pythons": {"3.11": "/u/python3.11"}}, ["3.10"], "/p/python3"),
        ("debian-12", {"pythons": {"3.10": "/u/python3.10"}}, ["3.10"], "/u/python3.10"),
        ("debian-12", {}, ["3.10"], "/usr/bin/python3.11"),
        ("other-1", {}, ["3.10"], SENT),
        (
            "other-1",
            {"trees": {"cpython-3.10.1-aa": "3.10"}},
            [],
            "/opt/tfctl/pythons/cpython-3.10.1-aa/bin/python3.10",
        ),
        ("other-1", {}, [], "/opt/tfctl/pythons/cpython-3.11.18-20261110/bin/python3.11"),
    ],
)
def test_python_is_chosen_in_the_documented_order(
    system: str, seen: dict[str, Any], trees: list[str], path: str
) -> None:
    decision, faults = choose("new", *map(tree, trees), system=system, builds=[build("3.11.18")], **seen)
    assert (decision.path, faults) == (path, [])


def test_decision_names_the_release_that_uv_gets_for_the_machine() -> None:
    builds = [build("3.10.22"), build("3.11.19", machine="aarch64"), build("3.11.18"), build("3.12.1")]
    decision, faults = choose("new", system="other-1", builds=builds)
    assert (decision.tree.release, decision.tree.key, faults) == ("3.11.18", "cpython-3.11.18-linux-x86_64-gnu", [])
    assert (decision.from_, decision.packages) == ("uv, as 3.11.18", ())
    decision, _ = choose("new", system="other-1", builds=builds[:2])
    assert decision.tree.release == "3.10.22"


def test_cpython_in_use_is_kept_when_uv_has_a_newer_release() -> None:
    used = "/opt/tfctl/pythons/cpython-3.11.17-20260101/bin/python3.11"
    trees = {"cpython-3.11.17-20260101": "3.11"}
    decision, _ = choose("new", system="other-1", builds=[build("3.11.18")], trees=trees, in_use={"new": used})
    assert (decision.path, decision.tree) == (used, None)


def test_cpython_without_a_hash_is_refused() -> None:
    _, (fault,) = choose("new", system="other-1", builds=[build("3.11.18", flaw="list.json: it has no sha256")])
    assert (fault["message"], fault["kind"]) == ("list.json: it has no sha256", "inventory")


def test_fault_says_why_the_pythons_of_uv_are_not_known() -> None:
    findings, seen = Findings(), facts(system="other-1", python=NONE)
    pythons.choose(seen, wanted(no_builds="uv is not installed on this machine"), stacks.get("tf2.15"), findings)
    (fault,) = findings.faults
    assert fault["message"].endswith("has none, and uv has none of them: uv is not installed on this machine")
    assert "`uv python list`" in fault["remedy"]


def test_uv_is_asked_only_for_a_host_that_has_no_python() -> None:
    for stack, there, asked in (("tf2.15", "3.11", False), ("tf2.15", "3.13", True), ("none", "3.13", False)):
        seen = facts(system="debian-13", python={**NONE, "pythons": {there: f"/usr/bin/python{there}"}})
        assert pythons.needs_uv(seen, wanted(stack=stack)) == asked


def test_python_tree_is_sent_only_when_the_host_lacks_it() -> None:
    decision, faults = choose("old", tree("3.6"), tree("3.7"))
    assert (decision.version, decision.tree.name, faults) == ("3.7", tree("3.7").name, [])
    decision, _ = choose("old", tree("3.7"), trees={tree("3.7").name: "3.7"})
    assert (decision.version, decision.tree) == ("3.7", None)


def test_python_tree_in_use_is_kept_when_a_preferred_one_exists() -> None:
    both = {f"cpython-{python}.9-aa": python for python in ("3.6", "3.7")}
    used = "/opt/tfctl/pythons/cpython-3.6.9-aa/bin/python3.6"
    assert choose("old", trees=both)[0].version == "3.7"
    assert choose("old", trees=both, in_use={"old": used})[0].path == used


@pytest.mark.parametrize(
    ("trees", "seen", "message"),
    [
        ([], {"pythons": {"3.11": "/usr/bin/python3.11"}}, "old takes Python 3.7, 3.6; Debian GNU/Linux 12 has 3.11"),
        ([tree("3.7", machine="aarch64")], {}, "is built for aarch64; this is x86_64"),
        ([tree("3.7")], {"libc": [2, 31]}, "needs the C library 2.35; Debian GNU/Linux 12 has 2.31"),
        ([tree("3.7")], {"lacking": ["libssl.so.3"]}, "needs libssl.so.3, which this host lacks"),
        ([tree("3.7")], {"given": {"/opt/py": ""}}, "tfctl_pythons: /opt/py does not exist, or cannot import"),
    ],
)
def test_python_choice_reports_why_nothing_fits_the_host(trees: list[Any], seen: dict[str, Any], message: str) -> None:
    (fault,) = choose("old", *trees, **seen)[1]
    assert message in fault["message"] and fault["remedy"]


def test_interpreter_version_is_empty_when_it_does_not_run() -> None:
    assert node_pythons.asked(sys.executable) == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert node_pythons.asked("/nowhere/python") == "" == node_pythons.asked(shutil.which("false") or "")


def test_python_tree_with_a_missing_file_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/os.py").write_text("import sys\n")
    note = tmp_path / node_pythons.MARKER
    note.write_text(json.dumps({"python": "3.7", "files": node_pythons.listed(tmp_path)}))
    assert node_pythons.whole(tmp_path) == "3.7"
    (tmp_path / "lib/os.py").unlink()
    assert node_pythons.whole(tmp_path) == ""


def test_damaged_python_tree_is_replaced_without_a_time_in_which_tasks_find_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks run with it, and import some modules late."""
    packed, path, archive = tmp_path / "packed", tmp_path / "pythons/cpython-3.7.16-aa", tmp_path / "tree.tar.gz"
    for name, text in {"bin/python3.7": "#!/bin/sh\necho 3.7\n", "lib/os.py": "import sys\n"}.items():
        (packed / name).parent.mkdir(parents=True)
        (packed / name).write_text(text)
        (packed / name).chmod(0o755)
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(packed, ".")
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    wanted = {"path": str(path), "archive": str(archive), "python": "3.7", "sha256": sha256}
    assert install(wanted, act=True)["changed"]
    (path / "lib/os.py").unlink()
    deleted: list[tuple[str, bool]] = []
    delete = shutil.rmtree

    def watched(folder: Path, **options: Any) -> None:
        deleted.append((str(folder), (path / "bin/python3.7").exists()))
        delete(folder, **options)

    monkeypatch.setattr(shutil, "rmtree", watched)
    assert install(wanted, act=True)["changed"]
    assert str(path) not in dict(deleted) and all(there for _, there in deleted)
    assert node_pythons.whole(path) == "3.7"
    assert sorted(each.name for each in path.parent.iterdir()) == [".lock", path.name]


def test_archive_of_uv_is_installed_with_its_own_path_and_the_compilers_of_a_host(tmp_path: Path) -> None:
    path = tmp_path / "pythons/cpython-3.11.7-aa"
    values = "lib/python3.11/_sysconfigdata__linux_x86_64-linux-gnu.py"
    text = b"v = {'prefix': '/install', 'I': '/usr/bin/install -c', 'L': '-L/install/lib', 'CC': 'clang -pthread',\n"
    text += b"'CXX': 'clang++', 'AR': 'llvm-ar'}\n"
    file = archive(tmp_path / "x", {"bin/python3.11": b"#!/bin/sh\necho 3.11\n", values: text})
    wanted = {"path": str(path), "archive": str(file), "python": "3.11", "sha256": digest(file)}
    assert install(wanted, act=True)["changed"]
    found = (path / values).read_text()
    assert found == (
        f"v = {{'prefix': '{path}', 'I': '/usr/bin/install -c', 'L': '-L{path}/lib', 'CC': 'cc -pthread',\n"
        "'CXX': 'c++', 'AR': 'ar'}\n"
    )
    assert file.exists(), "other hosts fetch it"
    assert node_pythons.whole(path) == "3.11" and not install(wanted, act=True)["changed"]


def test_library_facts_of_this_machine_are_plausible() -> None:
    assert "libc.so.6" in node_pythons.loadable()
    major, minor = node_pythons.libc()
    assert (major, minor) >= (2, 17)
