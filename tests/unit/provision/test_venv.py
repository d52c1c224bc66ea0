"""The module environment builds an environment with uv from wheels that the test creates, and notices changes to it."""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.util
import io
import os
import py_compile
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.tfctl.cluster.plugins.module_utils import install as node_install
from ansible_collections.tfctl.cluster.plugins.module_utils import links, records, uv
from ansible_collections.tfctl.cluster.plugins.module_utils.install import ModuleFailed
from ansible_collections.tfctl.cluster.plugins.modules.environment import Environment, install
from uv import find_uv_bin

PYTHON = os.path.realpath(sys.executable)
# The user nobody could not enter the directories of the tests.
node_install.NOBODY = os.geteuid()

#: A source whose build needs no tools: it writes its wheel itself, with the variable HOME (PEP 517).
SOURCE = {
    "PKG-INFO": "Metadata-Version: 2.1\nName: sourced\nVersion: 1.0\n",
    "pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n",
    "backend.py": """
import os, zipfile
def build_wheel(folder, *_):
    with zipfile.ZipFile(os.path.join(folder, "sourced-1.0-py3-none-any.whl"), "w") as file:
        info = "sourced-1.0.dist-info"
        file.writestr("sourced.py", f"home = {os.environ['HOME']!r}\\n")
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: sourced\\nVersion: 1.0\\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        file.writestr(f"{info}/RECORD", f"sourced.py,,\\n{info}/METADATA,,\\n{info}/WHEEL,,\\n{info}/RECORD,,\\n")
    return "sourced-1.0-py3-none-any.whl"
""",
}


def wheel(folder: Path, name: str, version: str, **files: str) -> Path:
    """Create a wheel with a console script (PEP 427); a file whose name begins with / lies beside the package."""
    info = f"{name}-{version}.dist-info"
    texts = {
        **{file[1:] if file.startswith("/") else f"{name}/{file}": text for file, text in files.items()},
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    digests = {file: hashlib.sha256(text.encode()).digest() for file, text in texts.items()}
    rows = [
        f"{file},sha256={base64.urlsafe_b64encode(digests[file]).decode().rstrip('=')},{len(text)}\n"
        for file, text in texts.items()
    ]
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        for each, text in texts.items():
            file.writestr(each, text)
        file.writestr(f"{info}/RECORD", "".join(rows) + f"{info}/RECORD,,\n")
    return path


def uv_wheel(folder: Path) -> None:
    """Create a wheel of uv, whose program runs the installed uv, so that no test copies and hashes 40 MB."""
    with zipfile.ZipFile(folder / "uv-0.0-py3-none-any.whl", "w") as file:
        file.writestr("uv-0.0.data/scripts/uv", f'#!/bin/sh\nexec {find_uv_bin()} "$@"\n')


def pinned(*wheels: Path) -> str:
    """Return a lock that pins exactly these wheels."""
    return "".join(
        "{}=={} \\\n    --hash=sha256:{}\n".format(
            *path.name.split("-")[:2], hashlib.sha256(path.read_bytes()).hexdigest()
        )
        for path in wheels
    )


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two wheels of the test and the wheel of uv."""
    folder = tmp_path_factory.mktemp("house")
    wheel(folder, "big_one", "1.2.0", **{"__init__.py": "__version__ = '1.2.0'\ndef main(): print('ran')\n"})
    wheel(folder, "small", "0.1", **{"__init__.py": "", "data.txt": "1234\n"})
    uv_wheel(folder)
    return folder


def stored(wheel: Path, store: Path) -> dict[str, str]:
    """Put a wheel into the store, as the module store does, and return its name and hash."""
    store.mkdir(exist_ok=True)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    shutil.copy(wheel, store / digest)
    return {"name": wheel.name, "sha256": digest}


def new_environment(house: Path, folder: Path, **more: Any) -> Environment:
    uv, *packages = sorted(house.iterdir(), key=lambda path: not path.name.startswith("uv-"))
    asked: dict[str, Any] = {
        "path": f"{folder}/stacks/tf9-0123456789ab",
        "link": f"{folder}/stacks/tf9",
        "python": PYTHON,
        "lock": pinned(*packages),
        "uv_lock": pinned(uv),
        "imports": {"big_one": "1.2.0"},
        "wheels": [stored(path, folder / "store") for path in (uv, *packages)],
        "store": f"{folder}/store",
    }
    return Environment(**{**asked, **more})


@pytest.fixture
def make(wheels: Path, tmp_path: Path) -> Callable[..., Environment]:
    return functools.partial(new_environment, wheels, tmp_path)


@pytest.fixture(scope="module")
def built(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment that is built once; a test that damages it works on a copy."""
    environment = new_environment(wheels, tmp_path_factory.mktemp("built"))
    assert environment.differences() == [f"{environment.path} does not exist"]
    environment.build()
    return environment


@pytest.fixture
def copied(built: Environment, make: Callable[..., Environment], tmp_path: Path) -> Environment:
    shutil.copytree(built.path, tmp_path / "stacks" / built.path.name, symlinks=True)
    environment = make()
    assert environment.differences() == []
    return environment


def site(environment: Environment) -> Path:
    return links.site_of(environment.path)


def test_environment_is_built_linked_and_runs(built: Environment) -> None:
    assert built.differences() == []
    assert not built.linked()
    built.switch()
    assert built.linked()
    (site(built) / "tfctl-runtime.pth").unlink()
    assert not built.linked()
    built.switch()
    assert built.linked()
    done = subprocess.run([built.link / "bin/big_one"], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "ran\n"
    assert list(site(built).glob("big_one/__pycache__/__init__.*.pyc"))
    assert sorted(path.name for path in built.path.parent.iterdir()) == [".tf9.lock", "tf9", "tf9-0123456789ab"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("(site / 'small/data.txt').write_text('5678\\n')", "small/data.txt was changed"),
        ("(site / 'small/data.txt').unlink()", "small/data.txt is missing"),
        ("shutil.rmtree(site / 'small-0.1.dist-info')", "small 0.1 is not in"),
        ("(site / '../../../bin/small').unlink()", "bin/small is missing"),
        ("next(site.glob('small/__pycache__/*')).unlink()", "compiled modules are missing"),
        ("(path / 'bin/python').unlink()", "bin/python is not"),
        ("(path / 'tfctl-stack.json').unlink()", "does not exist"),
        ("shutil.rmtree(path / 'lib')", "is not in"),
    ],
)
def test_environment_reports_a_changed_or_missing_file(copied: Environment, damage: str, message: str) -> None:
    eval(damage, {"path": copied.path, "site": site(copied), "shutil": shutil})
    assert message in copied.differences()[0]


def test_environment_is_rebuilt_after_a_change(copied: Environment, make: Callable[..., Environment]) -> None:
    (site(copied) / "small/data.txt").unlink()
    environment = make()
    assert environment.differences() != []
    environment.build()
    assert environment.differences() == []
    assert (site(environment) / "small/data.txt").read_text() == "1234\n"


def test_what_an_interrupted_run_has_left_is_deleted_although_the_environment_is_in_order(
    copied: Environment, make: Callable[..., Environment]
) -> None:
    environment = make()
    assert install(copied, act=True)["differs"] is True, "it is not linked yet"
    for name in (".tf9-0123456789ab.part", ".tf9-ba9876543210.part", ".tf9-mine-0123456789ab.part"):
        (environment.link.with_name(name) / "old").mkdir(parents=True)
    found = install(environment, act=False)
    assert (found["differs"], found["build"], len(environment.left_over())) == (True, False, 2)
    install(environment, act=True)
    assert install(environment, act=True)["differs"] is False
    left = [path.name for path in environment.link.parent.glob("*.part")]
    assert left == [".tf9-mine-0123456789ab.part"]  # of another stack


def test_environment_uses_bytecode_that_was_sent(make: Callable[..., Environment], tmp_path: Path) -> None:
    source, compiled = tmp_path / "__init__.py", tmp_path / "x.pyc"
    source.write_text("__version__ = '1.2.0'\ndef main(): print('from bytecode')\n")
    py_compile.compile(str(source), str(compiled), invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
    environment = make()
    archive = tmp_path / "big_one-1.2.0-py3-none-any.whl.bytecode.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.write(compiled, importlib.util.cache_from_source("big_one/__init__.py"))
        file.write(compiled, importlib.util.cache_from_source("gone/__init__.py"))
        file.write(compiled, "../../../outside/__pycache__/__init__.x.pyc")
    environment.wheels = [*environment.wheels, stored(archive, environment.store)]
    environment.build()
    assert environment.differences() == []
    done = subprocess.run([environment.path / "bin/big_one"], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "from bytecode\n"
    assert list(site(environment).glob("small/__pycache__/*.pyc"))
    assert not (site(environment) / "gone").exists()


def test_environment_is_wrong_when_the_lock_changed(
    built: Environment, wheels: Path, make: Callable[..., Environment]
) -> None:
    other = make(path=str(built.path), lock=pinned(wheels / "small-0.1-py3-none-any.whl").replace("==0.1", "==0.2"))
    assert "small 0.2 is not in" in other.differences()[0]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"lock": "small==0.1 \\\n    --hash=sha256:" + "0" * 64 + "\n"}, "uv pip: .*[Hh]ash"),
        ({"uv_lock": "uv==0.0 --hash=sha256:" + "0" * 64}, "the hash of uv is not in its lock file"),
        ({"imports": {"big_one": "1.3.0"}}, "the new environment has big_one 1.2.0 instead of 1.3.0"),
        ({"imports": {"nosuch": "1"}}, "cannot import nosuch: .*No module named 'nosuch'"),
        ({"wheels": []}, "there are no wheels"),
        ({"wheels": [{"name": "../x.whl", "sha256": "0" * 64}]}, "'../x.whl' is neither a wheel nor a source"),
        ({"wheels": [{"name": "x.whl", "sha256": "0" * 64}]}, "x.whl is missing"),
    ],
)
def test_environment_is_not_installed_when_a_check_fails(
    make: Callable[..., Environment], more: dict[str, Any], message: str
) -> None:
    environment = make(**more)
    with pytest.raises(ModuleFailed, match=f"(?s){message}"):
        environment.build()
    assert not environment.path.exists() and not environment.part.exists()


@pytest.mark.parametrize("name", ["small-0.1-py3-none-any.whl", "small-0.1-py3-none-any.whl.bytecode.zip"])
def test_file_of_the_store_that_has_changed_is_deleted_and_not_installed(
    make: Callable[..., Environment], tmp_path: Path, name: str
) -> None:
    environment = make()
    if name.endswith(".zip"):
        (tmp_path / name).write_bytes(b"bytecode")
        environment.wheels = [*environment.wheels, stored(tmp_path / name, environment.store)]
    path = environment.store / next(each["sha256"] for each in environment.wheels if each["name"] == name)
    path.write_bytes(b"damaged")
    with pytest.raises(ModuleFailed, match=f"{name} has changed since it was copied, and was deleted"):
        environment.build()
    assert not path.exists() and not environment.path.exists()


def test_environment_refuses_packages_that_install_the_same_file(tmp_path: Path) -> None:
    """The packages tensorflow and tensorflow-cpu do this."""
    twins = tmp_path / "house"
    twins.mkdir()
    wheel(twins, "big_one", "1.2.0", **{"__init__.py": "__version__ = '1.2.0'\n"})
    wheel(twins, "twin", "1.0", **{"/big_one/__init__.py": "__version__ = '1.2.0'  # mine\n"})
    uv_wheel(twins)
    environment = new_environment(twins, tmp_path)
    with pytest.raises(
        ModuleFailed, match=r"two packages of the lock have the same file.*big_one/__init__\.py was changed"
    ):
        environment.build()
    assert not environment.path.exists()


def test_environment_has_the_wheel_that_was_built_from_a_source_in_a_directory_of_nobody(
    wheels: Path, tmp_path: Path
) -> None:
    source = tmp_path / "sourced-1.0.tar.gz"
    with tarfile.open(source, "w:gz") as archive:
        for name, text in SOURCE.items():
            info = tarfile.TarInfo(f"sourced-1.0/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    uv, big, small = sorted(wheels.iterdir(), key=lambda path: not path.name.startswith("uv-"))
    sdist = pinned(source).replace(".tar.gz", "")
    lock = "--no-binary=sourced\n" + pinned(big, small) + sdist
    files = [stored(path, tmp_path / "store") for path in (uv, big, small, source)]
    environment = new_environment(wheels, tmp_path, lock=lock, wheels=files)
    environment.build()
    built = next(environment.path.glob("lib/*/site-packages/sourced.py")).read_text()
    assert built == f"home = '{environment.part}/built'\n"


def test_lock_is_split_into_wheels_and_sources() -> None:
    entries = [
        f"{name}==1.0 \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{'1' * 64}\n" for name in ("a", "b", "c")
    ]
    assert uv.parted("".join(entries)) == ("".join(entries), "")
    # Ansible strips the newline at the end of a file that it reads.
    parted = uv.parted(("--no-binary=b,x\n" + "".join(entries)).rstrip())
    assert parted == (entries[0] + entries[2], entries[1])
    assert records.pinned("--no-binary=b,x\n" + "".join(entries)) == {"a": "1.0", "b": "1.0", "c": "1.0"}
