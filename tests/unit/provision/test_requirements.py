"""tfctl_requirements installs the packages of a lock beside an environment, whose Python finds them behind its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.tfctl.cluster.plugins.module_utils import links
from ansible_collections.tfctl.cluster.plugins.module_utils.install import ModuleFailed
from ansible_collections.tfctl.cluster.plugins.modules.requirements import RequirementsInstallation

from tests.unit.provision.test_venv import new_environment, pinned, stored, uv_wheel, wheel

NAME = "0123456789ab"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels of a stack and of uv, and an environment made from them."""
    folder = tmp_path_factory.mktemp("house")
    stack = folder / "stack"
    stack.mkdir()
    wheel(stack, "big_one", "1.2.0", **{"__init__.py": "__version__ = '1.2.0'\n"})
    uv_wheel(stack)
    environment = new_environment(stack, folder)
    environment.build()
    environment.switch()
    return folder


def new_packages(house: Path, folder: Path, **files: str) -> RequirementsInstallation:
    wheels = folder / "wheels"
    wheels.mkdir(exist_ok=True)
    extra = wheel(wheels, "extra", "1.0", **{"__init__.py": "x = 1\ndef main(): print('ran')\n", **files})
    uv = house / "stack/uv-0.0-py3-none-any.whl"
    sent = [stored(path, folder / "store") for path in (uv, extra)]
    lock = "# Written by tfctl\n" + pinned(extra)
    return RequirementsInstallation(
        f"{house}/stacks/tf9-{NAME}",
        path=str(folder / "requirements" / NAME),
        lock=lock,
        uv_lock=pinned(uv),
        wheels=sent,
        store=f"{folder}/store",
    )


def output(house: Path, program: str, packages: Path) -> str:
    words = [str(house / "stacks/tf9/bin/python"), "-c", program]
    environment = {**os.environ, "TFCTL_REQUIREMENTS": str(packages)}
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True, env=environment)
    return str(done.stdout.strip())


def test_packages_come_behind_those_of_the_stack(house: Path, tmp_path: Path) -> None:
    packages = new_packages(house, tmp_path, **{"/big_one/__init__.py": "__version__ = 'mine'\n"})
    assert packages.differences() == [f"{packages.path} does not exist"]
    packages.build()
    assert packages.differences() == []
    found = output(house, "import big_one, extra; print(big_one.__version__, extra.x)", packages.path)
    assert found == "1.2.0 1"
    words = [packages.path / "bin/extra"]
    variables = {"TFCTL_REQUIREMENTS": str(packages.path), "PATH": os.defpath}
    assert subprocess.run(words, capture_output=True, text=True, timeout=30, env=variables).stdout == "ran\n"
    assert list(packages.path.glob("extra/__pycache__/__init__.*.pyc"))
    assert sorted(path.name for path in packages.path.parent.iterdir()) == [".lock", NAME]
    probe = "import importlib.util as u; print(u.find_spec('extra'))"
    assert (
        subprocess.run(
            [house / "stacks/tf9/bin/python", "-c", probe], capture_output=True, text=True, timeout=30
        ).stdout
        == "None\n"
    )


def test_changed_packages_are_installed_again(house: Path, tmp_path: Path) -> None:
    new_packages(house, tmp_path).build()
    packages = new_packages(house, tmp_path)
    (packages.path / "extra/__init__.py").write_text("x = 2\n")
    assert "extra/__init__.py was changed" in packages.differences()[0]
    packages.build()
    assert packages.differences() == []


def test_empty_lock_makes_an_empty_directory(house: Path, tmp_path: Path) -> None:
    packages = new_packages(house, tmp_path)
    packages.lock = ""
    packages.build()
    assert [path.name for path in packages.path.iterdir()] == [links.REQUIREMENTS_MARKER]


def test_packages_need_their_environment(house: Path, tmp_path: Path) -> None:
    packages = new_packages(house, tmp_path)
    packages.environment = tmp_path / "none"
    with pytest.raises(ModuleFailed, match="none does not exist"):
        packages.build()


def test_packages_are_deleted_with_their_environment(
    house: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "REQUIREMENTS", str(tmp_path))
    for name, environment in (("a", "tf9-bbbbbbbbbbbb"), ("b", "tf9-cccccccccccc")):
        (tmp_path / name).mkdir()
        (tmp_path / name / links.REQUIREMENTS_MARKER).write_text(json.dumps({"environment": environment}))
    copy = tmp_path / "stacks/tf9-bbbbbbbbbbbb"
    shutil.copytree(house / f"stacks/tf9-{NAME}", copy, symlinks=True)
    links.drop(copy)
    assert not (tmp_path / "a").exists() and (tmp_path / "b").exists()
