"""Real apt-get accepts every driver transaction, with extracts of Debian's package lists (packages/*/source.txt)."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.module_utils.tfctl_created import removable
from ansible.module_utils.tfctl_transaction import Apt

from tests.unit.provision.apt_tree import AptTree, driver_packages, kernels

RECORDED = sorted((Path(__file__).parent / "packages").iterdir())


@pytest.fixture(scope="module", params=RECORDED, ids=lambda path: path.name)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, AptTree]:
    """A Debian release, and a tree with its lists."""
    place: Path = request.param
    tree = AptTree(tmp_path_factory.mktemp(place.name), f"deb [trusted=yes] file:{place} ./\n")
    tree.update()
    return place.name, tree


def test_apt_installs_every_planned_driver_and_headers_that_follow_the_kernel(recorded: tuple[str, AptTree]) -> None:
    system, tree = recorded
    (kernel,) = kernels(tree)
    tree.boot(kernel)
    for packages in {*driver_packages(system, kernel)}:
        names = tree.install(packages)
        assert {"dkms", "libcuda1", "nvidia-modprobe", "nvidia-persistenced", "linux-headers-amd64"} <= {*names}
        assert f"linux-headers-{kernel}" in names
        assert not [name for name in names if name.startswith("linux-image")], "it would install another kernel"


def test_apt_has_no_headers_of_an_older_kernel(recorded: tuple[str, AptTree]) -> None:
    """Preflight reports this, because the archive has the latest kernels only."""
    system, tree = recorded
    kernel = {"debian-11": "5.10.0-8-amd64", "debian-12": "6.1.0-9-amd64", "debian-13": "6.12.31-amd64"}[system]
    tree.boot(kernel)
    done = tree.simulate(driver_packages(system, kernel)[0])
    assert done.returncode == 100
    assert f"E: Unable to locate package linux-headers-{kernel}" in done.stderr


def test_packages_that_a_held_driver_needs_are_not_removable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tfctl reset` leaves the driver, which is on hold, and removes the compiler that a role has installed."""
    tree = AptTree(tmp_path / "apt", "")
    tree.have(
        "g++: g++-12", "g++-12: libc6-dev", "libc6-dev", "make", "libtool", "dpkg-dev: make",
        "dkms: dpkg-dev, make", "nvidia-kernel-dkms: dkms", held="nvidia-kernel-dkms",
    )  # fmt: skip
    monkeypatch.setenv("APT_CONFIG", str(tree.configuration))
    going, needed = removable(Apt(), ["g++", "g++-12", "libc6-dev", "libtool", "make"])
    assert going == ["g++", "g++-12", "libc6-dev", "libtool"]
    assert needed == {"make": ["dkms", "dpkg-dev", "nvidia-kernel-dkms"]}
