"""The stacks are data: the schema holds, and every lock is there, hashed and silent about where it came from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tfctl.errors import BadFile
from tfctl.model import stacks

LOCKS = [
    pytest.param(stack, edition, python, id=stack.lock(edition, python).stem)
    for stack in stacks.load().values()
    for edition in stack.editions
    for python in stack.pythons
]


BUILD_LOCKS = [
    pytest.param(stack, python, id=stack.build_lock(python).stem)
    for stack in stacks.load().values()
    for python in stack.pythons
    if stack.horovod
]


def versions_in(lock: Path) -> dict[str, str]:
    """Of a lock that holds nothing but packages with their hashes."""
    text = re.sub(r"\A--no-binary=\S+\n", "", lock.read_text())
    entries = re.findall(r"^(\S+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.MULTILINE)
    assert "".join(f"{name}=={version} \\\n{hashes}" for name, version, hashes in entries) == text
    return {name: version for name, version, _ in entries}


@pytest.mark.parametrize(("stack", "edition", "python"), LOCKS)
def test_a_lock_names_every_wheel_by_its_hash(stack: stacks.Stack, edition: str, python: str) -> None:
    versions = versions_in(stack.lock(edition, python))
    for requirement in stack.editions[edition].requirements:
        name, _, version = requirement.partition("==")
        assert stack.imports.get(name, version) == version
        assert versions[name.partition("[")[0]] == version
    for module, version in stack.imports.items():
        assert versions.get(module.replace("_", "-"), version) == version
    assert "scikit-learn" in versions
    assert len({"tensorflow", "tensorflow-cpu", "tensorflow-gpu"} & set(versions)) == 1, "they write the same files"
    assert not set(stack.editions[edition].without) & set(versions)
    if edition == "gpu" and stack.gpu and stack.gpu.wheels:
        major = stack.gpu.cuda.partition(".")[0]
        brought = {name: versions[f"nvidia-{name}-cu{major}"] for name in ("cuda-runtime", "cudnn", "nccl")}
        assert brought["cuda-runtime"].startswith(f"{stack.gpu.cuda}.")
        assert (brought["cudnn"], brought["nccl"]) == (stack.gpu.cudnn, stack.gpu.nccl)


@pytest.mark.parametrize(("stack", "python"), BUILD_LOCKS)
def test_what_builds_horovod_is_locked_and_what_it_imports_is_there(stack: stacks.Stack, python: str) -> None:
    assert {"cmake", "setuptools", "wheel"} <= set(versions_in(stack.build_lock(python)))
    for edition in stack.editions:
        assert {"cloudpickle", "psutil", "pyyaml"} <= set(versions_in(stack.lock(edition, python)))


def test_an_environment_is_named_by_its_lock() -> None:
    stack = stacks.get("tf2.15")
    names = {stack.environment("cpu", python) for python in stack.pythons}
    assert len(names) == len(stack.pythons)
    assert all(re.fullmatch(r"tf2\.15-[0-9a-f]{12}", name) for name in names)


def test_an_edition_for_gpus_says_what_it_asks_of_them() -> None:
    assert all(stack.gpu for stack in stacks.load().values() if "gpu" in stack.editions)


def test_no_lock_lies_about_that_no_stack_has() -> None:
    wanted = {stack.lock(edition, python).name for stack, edition, python in (each.values for each in LOCKS)}
    wanted |= {stack.build_lock(python).name for stack, python in (each.values for each in BUILD_LOCKS)}
    assert {path.name for path in stacks.LOCKS.iterdir()} == wanted | {stacks.TOOLS.name}


def test_an_unknown_stack_names_the_nearest() -> None:
    with pytest.raises(BadFile, match=r"--stack tf2\.51: there is no such stack") as raised:
        stacks.get("tf2.51")
    assert raised.value.remedy.startswith("did you mean tf2.")


def test_a_key_that_the_schema_does_not_know_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tf9.yaml").write_text("name: tf9\ntensorflow: 9\ncolour: red\n")
    monkeypatch.setattr(stacks, "HERE", tmp_path)
    stacks.load.cache_clear()
    try:
        with pytest.raises(BadFile, match=r"tf9\.yaml: "):
            stacks.load()
    finally:
        stacks.load.cache_clear()


def test_every_system_has_a_title() -> None:
    assert {"debian-11", "debian-12", "debian-13", "ubuntu-22.04", "el-9"} <= set(stacks.systems())
