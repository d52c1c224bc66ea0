"""The stack files match their schema, and every lock exists and contains only packages with hashes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tfctl.errors import BadFile
from tfctl.model import stacks

LOCKS = [
    (stack, edition, python)
    for stack in stacks.load().values()
    for edition in stack.editions
    for python in stack.pythons
]
BUILD_LOCKS = [(stack, python) for stack in stacks.load().values() for python in stack.pythons if stack.horovod]


def versions_in(lock: Path) -> dict[str, str]:
    """Return {package: version} of a lock, which may contain nothing but packages with hashes."""
    text = re.sub(r"\A--no-binary=\S+\n", "", lock.read_text())
    entries = re.findall(r"^(\S+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.MULTILINE)
    assert "".join(f"{name}=={version} \\\n{hashes}" for name, version, hashes in entries) == text
    return {name: version for name, version, _ in entries}


@pytest.mark.parametrize(("stack", "edition", "python"), LOCKS, ids=[stack.lock(*of).stem for stack, *of in LOCKS])
def test_lock_pins_every_requirement_of_its_stack_by_hash(stack: stacks.Stack, edition: str, python: str) -> None:
    versions = versions_in(stack.lock(edition, python))
    for requirement in stack.editions[edition].requirements:
        name, _, version = requirement.partition("==")
        assert stack.imports.get(name, version) == version
        assert versions[name.partition("[")[0]] == version
    for module, version in stack.imports.items():
        assert versions.get(module.replace("_", "-"), version) == version
    assert {"scikit-learn", "tensorboard"} <= set(versions)
    assert len({"tensorflow", "tensorflow-cpu", "tensorflow-gpu"} & set(versions)) == 1, "they install the same files"
    assert not set(stack.editions[edition].without) & set(versions)
    if edition == "gpu" and stack.gpu and stack.gpu.wheels:
        major = stack.gpu.cuda.partition(".")[0]
        brought = {name: versions[f"nvidia-{name}-cu{major}"] for name in ("cuda-runtime", "cudnn", "nccl")}
        assert brought["cuda-runtime"].startswith(f"{stack.gpu.cuda}.")
        assert (brought["cudnn"], brought["nccl"]) == (stack.gpu.cudnn, stack.gpu.nccl)


@pytest.mark.parametrize(
    ("stack", "python"), BUILD_LOCKS, ids=[stack.build_lock(python).stem for stack, python in BUILD_LOCKS]
)
def test_locks_contain_the_build_tools_and_imports_of_horovod(stack: stacks.Stack, python: str) -> None:
    assert {"cmake", "setuptools", "wheel"} <= set(versions_in(stack.build_lock(python)))
    for edition in stack.editions:
        assert {"cloudpickle", "psutil", "pyyaml"} <= set(versions_in(stack.lock(edition, python)))


def test_environment_name_ends_with_the_digest_of_its_lock() -> None:
    stack = stacks.get("tf2.15")
    names = {stack.environment("cpu", python) for python in stack.pythons}
    assert len(names) == len(stack.pythons)
    assert all(re.fullmatch(r"tf2\.15-[0-9a-f]{12}", name) for name in names)


def test_stack_with_a_gpu_edition_states_its_gpu_requirements() -> None:
    assert all(stack.gpu for stack in stacks.load().values() if "gpu" in stack.editions)


def test_every_lock_file_belongs_to_a_stack() -> None:
    wanted = {stack.lock(edition, python).name for stack, edition, python in LOCKS}
    wanted |= {stack.build_lock(python).name for stack, python in BUILD_LOCKS}
    assert {path.name for path in stacks.LOCKS.iterdir()} == wanted | {stacks.TOOLS.name}


def test_unknown_stack_suggests_the_nearest_name() -> None:
    with pytest.raises(BadFile, match=r"--stack tf2\.51: there is no such stack") as raised:
        stacks.get("tf2.51")
    assert raised.value.remedy.startswith("did you mean tf2.")


def test_stack_file_with_an_unknown_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tf9.yaml").write_text("name: tf9\ntensorflow: 9\ncolour: red\n")
    monkeypatch.setattr(stacks, "HERE", tmp_path)
    stacks.load.cache_clear()
    try:
        with pytest.raises(BadFile, match=r"^tf9\.yaml: colour: unknown key$"):
            stacks.load()
    finally:
        stacks.load.cache_clear()


def test_supported_systems_have_titles() -> None:
    assert {"debian-11", "debian-12", "debian-13", "ubuntu-22.04", "el-9"} <= set(stacks.systems())
