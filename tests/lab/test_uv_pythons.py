"""A host without a Python for its stack gets one that uv takes from a mirror, and needs no option for that."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from python_mirror import archive, entry, listing

from tests.lab import expected_state
from tests.lab.labs import Lab
from tests.lab.test_provision import by_name, edited, provision
from tests.lab.test_stacks import TREES
from tfctl.provision import elf

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LEFT_OUT = {"test", "tests", "site-packages", "idlelib", "tkinter", "__pycache__"}


@pytest.fixture(scope="module")
def trixie(run_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One bare node with Debian 13, which has no Python that tf2.15 accepts; or the lab of TFCTL_TEST_LAB."""
    standing = os.environ.get("TFCTL_TEST_LAB")
    found = Lab(standing or f"{run_name}-uv", tmp_path_factory.mktemp("uv"))
    found.up(*(() if standing else ("--nodes", 1, "--suite", "trixie")))
    try:
        yield found
    finally:
        if not standing:
            found.down()


def mirror(folder: Path) -> tuple[str, Path]:
    """Return the release of a CPython 3.11 of this machine, and a file that lists an archive of it, as uv's are."""
    tree = next(iter(sorted(TREES.glob("3.11.*"))), None)
    if tree is None:
        pytest.skip(f"no CPython 3.11 in {TREES} (TFCTL_TEST_PYTHONS)")
    paths = [*tree.glob("include/**/*.h"), *tree.glob("lib/libpython3*"), *tree.glob("lib/python3.11/**/*")]
    files = {
        str(path.relative_to(tree)): moved(path, tree)
        for path in [tree / "bin/python3.11", *sorted(paths)]
        if path.is_file() and not LEFT_OUT & {*path.relative_to(tree).parts} and path.suffix != ".a"
    }
    values = next(name for name in files if "_sysconfigdata" in name)
    files[values] = files[values].replace(str(tree).encode(), b"/install").replace(b"'gcc", b"'clang")
    path = archive(folder / "cpython.tar.gz", files)
    return tree.name, listing(folder / "list.json", entry(path, tree.name))


def moved(path: Path, tree: Path) -> bytes:
    """Return a file that finds its libraries wherever the tree is, as those of uv do."""
    data = path.read_bytes()
    for offset, text in elf.run_paths(data) if elf.is_elf(data) else ():
        up = "/".join([".."] * (len(path.relative_to(tree).parts) - 1))
        data = elf.with_run_path(data, offset, text, f"$ORIGIN/{up}/lib")
    return data


def test_a_host_without_a_python_for_its_stack_gets_one_from_a_mirror(trixie: Lab, tmp_path: Path) -> None:
    release, file = mirror(tmp_path)
    inventory = edited(trixie, tmp_path, node1=f"tfctl_stack=tf2.15 tfctl_python_mirror={file.name}")
    explained = trixie.tfctl("stacks", "explain", "tf2.15", "--host", "node1", "-i", inventory, timeout=60).stdout
    home = re.search(rf"3\.11 from uv, as {release}: (/opt/tfctl/pythons/cpython-{release}-\w+)/bin", explained)
    assert home, explained
    done = trixie.tfctl("preflight", inventory, timeout=120)
    assert f"this host gets CPython {release}" in done.stdout + done.stderr
    assert trixie.shell("node1", "ls /opt/tfctl 2>/dev/null || true") == ""

    code, _, stderr = provision(trixie, inventory=inventory, timeout=700)
    assert code == 0, stderr
    host = trixie.testinfra("node1")
    expected_state.python_env(host, home[1], "3.11")
    expected_state.tensorflow(host, "tf2.15", "3.11")
    inside = trixie.shell("node1", "sudo -u tfctl readlink -f /opt/tfctl/stacks/tf2.15/bin/python")
    assert inside == f"{home[1]}/bin/python3.11"
    values = "import sysconfig as s; print(s.get_config_var('CC').split()[0], s.get_config_var('exec_prefix'))"
    assert trixie.shell("node1", f'{inside} -c "{values}"') == f"cc {home[1]}"
    file.unlink()  # it is not read again
    assert provision(trixie, inventory=inventory)[1]["changed"] == 0

    trixie.shell("node1", f"sudo rm {home[1]}/lib/python3.11/ssl.py")
    expected_state.is_violated(expected_state.python_env, host, home[1], "3.11")
    code, report, _ = provision(trixie, inventory=inventory)
    assert code == 3 and f"{file} cannot be read: No such file" in by_name(report)["node1"]["reason"]
    mirror(tmp_path)
    code, _, stderr = provision(trixie, inventory=inventory)
    assert code == 0, stderr
    expected_state.python_env(host, home[1], "3.11")

    trixie.tfctl("reset", inventory, "--yes", timeout=200)
    assert trixie.shell("node1", "ls /opt/tfctl /var/cache/tfctl 2>/dev/null || true") == ""
