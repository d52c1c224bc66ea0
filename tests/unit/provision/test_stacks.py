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


#: The major version of protoc that generated the code in the wheels of TensorFlow that accept later ones of protobuf.
GENERATED_BY = {"tf2.20": 5, "tf2.21": 6}


@pytest.mark.parametrize(("name", "generated_by"), GENERATED_BY.items())
def test_protobuf_of_a_lock_is_at_most_one_major_version_later_than_the_code_that_it_runs(
    name: str, generated_by: int
) -> None:
    """Later ones need not run it: protobuf.dev/support/cross-version-runtime-guarantee."""
    locks = [stack.lock(edition, python) for stack, edition, python in LOCKS if stack.name == name]
    found = {lock.name: int(versions_in(lock)["protobuf"].partition(".")[0]) for lock in locks}
    assert found and {lock: major for lock, major in found.items() if major > generated_by + 1} == {}


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
    with pytest.raises(BadFile, match=r"there is no stack tf2\.51") as raised:
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


OWN = """name: mine
title: ours
tensorflow: 2.15.1
pythons: ["3.11"]
requirements: [six]
as_of: 2026-11-18
imports: {tensorflow: 2.15.1}
editions:
  cpu: {machines: [x86_64], requirements: [tensorflow-cpu==2.15.1], disk_mb: 2600}
tested: []
"""


def own_stack(folder: Path, text: str = OWN) -> Path:
    """Write a stack of one's own, with a lock, and return its file."""
    (folder / "locks").mkdir(parents=True, exist_ok=True)
    (folder / "locks/mine-cpu-3.11.txt").write_text(f"six==1.17.0 \\\n    --hash=sha256:{'0' * 64}\n")
    (folder / "mine.yaml").write_text(text)
    return folder / "mine.yaml"


def test_stacks_of_a_directory_are_listed_behind_those_of_tfctl(tmp_path: Path) -> None:
    path = own_stack(tmp_path)
    (tmp_path / "README.md").write_text("not a stack")
    known = stacks.load((str(tmp_path), str(tmp_path)))
    assert [*known] == [*stacks.load(), "mine"]
    mine = stacks.get("mine", (str(tmp_path),))
    assert (mine.file, mine.shipped, known["tf2.15"].shipped) == (str(path), False, True)
    assert mine.lock("cpu", "3.11") == tmp_path / "locks/mine-cpu-3.11.txt"
    assert re.fullmatch(r"mine-[0-9a-f]{12}", mine.environment("cpu", "3.11"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("imports", "colour: red\nimports"), "mine.yaml: colour: unknown key"),
        (("imports", "file: /x\nimports"), "mine.yaml: file: unknown key"),
        (("as_of: 2026-11-18", "as_of: today"), "mine.yaml: as_of: expected a date, not 'today'"),
        (("name: mine", "name: Mine"), "mine.yaml: name: 'Mine' does not match"),
        (("name: mine", "name: tf2.15"), "mine.yaml: name: tf2.15 is the name of /"),
        (("cpu: {", "tpu: {"), "mine.yaml: editions: expected cpu and perhaps gpu, not tpu"),
        (("[x86_64]", "[sparc]"), "mine.yaml: editions/cpu/machines: expected x86_64 or aarch64, not sparc"),
        (('["3.11"]', "[]"), "mine.yaml: pythons: the list is empty"),
        (('["3.11"]', '["3.11", "3.10"]'), "mine.yaml: there is no lock file /"),
        (("title: ours", "title: [ours"), "mine.yaml: while parsing"),
    ],
)
def test_faulty_stack_of_a_directory_is_refused_with_its_file_and_key(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    own_stack(tmp_path, OWN.replace(*change, 1))
    with pytest.raises(BadFile) as raised:
        stacks.load((str(tmp_path),))
    assert f"{tmp_path}/{message}" in raised.value.message


def test_stack_directory_that_does_not_exist_is_refused() -> None:
    with pytest.raises(BadFile, match="tfctl_stack_dirs: /nowhere is not a directory"):
        stacks.load(("/nowhere",))


def test_supported_systems_have_titles() -> None:
    assert {"debian-11", "debian-12", "debian-13", "ubuntu-22.04", "el-9"} <= set(stacks.systems())
