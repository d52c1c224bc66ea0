"""Real apt-get accepts every driver transaction, with extracts of Debian's package lists (packages/*/source.txt)."""

from __future__ import annotations

import re
from pathlib import Path

import jinja2
import pytest
from ansible_collections.tfctl.cluster.plugins.module_utils.created import removable
from ansible_collections.tfctl.cluster.plugins.module_utils.transaction import Apt, transaction

from tests.unit.provision import nvidia_packages
from tests.unit.provision.apt_tree import CARDS, AptTree, driver_packages, kernels
from tests.unit.provision.role_play import play, tasks_of, trial
from tests.unit.provision.test_gpu import decided
from tfctl.provision import ansible

RECORDED = sorted((Path(__file__).parent / "packages").iterdir())


def rendered(role: str, template: str, variables: dict[str, object]) -> str:
    """Return a template of a role as Ansible renders it, as far as it uses the filter ternary."""
    rendering = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined)
    rendering.filters["ternary"] = lambda value, true, false: true if value else false
    text = (ansible.data_dir() / "roles" / role / "templates" / template).read_text()
    return rendering.from_string(text).render(variables)


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


@pytest.mark.parametrize(
    "case",
    [
        {"preferences": {"driver_method": "repo"}, "gpu": {"devices": ["1db6"]}},
        {"stack": "tf2.18", "gpu": {"devices": ["2330"]}},
        {"gpu": {"devices": ["20b2"] * 8, "switches": 6}},
    ],
    ids=["V100", "H100", "8 A100 with NVSwitches"],
)
def test_the_repository_of_nvidia_gives_the_chosen_branch_and_another_one_is_refused(
    case: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "repository").mkdir()
    nvidia_packages.write(tmp_path / "repository")
    tree = AptTree(tmp_path / "apt", f"deb [trusted=yes] file:{tmp_path}/repository ./\n")
    tree.update()
    monkeypatch.setenv("APT_CONFIG", str(tree.configuration))
    decision, faults = decided(case)
    driver, source = decision["gpu"]["driver"], decision["gpu"]["source"]
    assert (faults, driver["method"], source["branch"]) == ([], "repo", "580")
    newest = transaction(Apt(), "nvidia_driver", (), driver["packages"], update=False).record
    assert newest["nvidia_driver"]["libcuda1"].startswith("610."), "apt has nothing to choose from"
    variables = {"nvidia_repo_drivers": source["drivers"], "nvidia_repo_driver_branch": source["branch"]}
    preferences = rendered("nvidia_repo", "etc/apt/preferences.d/tfctl-nvidia.j2", variables)
    (tmp_path / "apt/etc/preferences.d/tfctl-nvidia").write_text(preferences)
    chosen = transaction(Apt(), "nvidia_driver", (), driver["packages"], update=False).record
    assert {"nvidia-driver", "libcuda1", "nvidia-modprobe"} <= {*chosen["nvidia_driver"]}
    assert {version.partition(".")[0] for version in chosen["nvidia_driver"].values()} == {"580"}, chosen
    (refuse,) = (each for each in tasks_of("nvidia_packages", "simulate.yml") if "ansible.builtin.assert" in each)
    known = {"nvidia_packages_component": "nvidia_driver", "nvidia_packages_branch": "580"}
    tasks: list[dict[str, object]] = []
    for record, failure in ((chosen, ""), (newest, "libcuda1 610.57.04-1")):
        tasks += trial(refuse, failure, **known, nvidia_packages_transaction={"record": record})
    # With an epoch, without a branch, and without a version, as modules that follow the kernel have.
    for branch, version in (("580", "3:580.65.06-1.el9"), ("", "610.57.04-1"), ("580", "")):
        record = {"nvidia_driver": {"libcuda1": version}}
        given = {**known, "nvidia_packages_branch": branch, "nvidia_packages_transaction": {"record": record}}
        tasks += trial(refuse, "", **given)
    exact = {**known, "nvidia_packages_branch": "580.65.06"}
    for version, failure in (
        ("580.65.06-1", ""),
        ("580.105.08-1", "another driver than 580.65.06: libcuda1 580.105.08"),
    ):
        record = {"nvidia_driver": {"libcuda1": version}}
        tasks += trial(refuse, failure, **exact, nvidia_packages_transaction={"record": record})
    play(tmp_path, "nvidia_packages", tasks)


@pytest.mark.parametrize("version", ["580.65.06", "590.48.01"])
def test_the_repository_of_nvidia_gives_the_version_that_is_wanted(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "repository").mkdir()
    nvidia_packages.write(tmp_path / "repository")
    tree = AptTree(tmp_path / "apt", f"deb [trusted=yes] file:{tmp_path}/repository ./\n")
    tree.update()
    monkeypatch.setenv("APT_CONFIG", str(tree.configuration))
    variables = {"nvidia_repo_drivers": True, "nvidia_repo_driver_branch": version}
    preferences = rendered("nvidia_repo", "etc/apt/preferences.d/tfctl-nvidia.j2", variables)
    (tmp_path / "apt/etc/preferences.d/tfctl-nvidia").write_text(preferences)
    chosen = transaction(Apt(), "nvidia_driver", (), ("nvidia-open-580", "nvidia-modprobe"), update=False).record
    others = {name: each for name, each in chosen["nvidia_driver"].items() if not each.startswith(f"{version}-")}
    assert {*others} <= {"nvidia-open-580"}, "its metapackage has one version in a branch"


#: The packages that NVIDIA's repository has in each version of the driver.
OF_NVIDIA = (
    "nvidia-driver", "nvidia-driver-cuda", "libcuda1", "nvidia-persistenced", "nvidia-modprobe", "nvidia-settings",
    "nvidia-xconfig",
)  # fmt: skip


@pytest.mark.parametrize(
    ("card", "installed", "preferences", "version"),
    [
        ("2331", "580.65.06", {"upgrade_driver": True}, "580.105.08"),
        ("1db6", "580.65.06", {"upgrade_driver": True}, "580.105.08"),
        ("2331", "580.105.08", {"upgrade_driver": True}, "580.105.08"),
        ("2331", "580.65.06", {"driver": "580.105.08"}, "580.105.08"),
        ("1db6", "580.105.08", {"driver": "580.65.06"}, "580.65.06"),
        ("2331", "580.105.08", {"driver": "590.48.01"}, "590.48.01"),
        ("2331", "590.48.01", {"driver": "580.105.08"}, "580.105.08"),
        ("2331", "590.48.01", {"driver": "580"}, "580.105.08"),
    ],
)
def test_every_package_of_an_installed_driver_gets_the_version_that_is_wanted(
    card: str,
    installed: str,
    preferences: dict[str, object],
    version: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "repository").mkdir()
    nvidia_packages.write(tmp_path / "repository")
    tree = AptTree(tmp_path / "apt", f"deb [trusted=yes] file:{tmp_path}/repository ./\n")
    tree.update()
    is_open = card != "1db6"
    module = "nvidia-kernel-open-dkms" if is_open else "nvidia-kernel-dkms"
    meta = "nvidia-open-580" if is_open else "cuda-drivers-580"
    there = (*OF_NVIDIA, module, *([meta] if installed.startswith("580") else []))
    tree.have(*there, "linux-headers-6.1.0-18-amd64", "linux-headers-amd64", "dkms", version=f"{installed}-1")
    monkeypatch.setenv("APT_CONFIG", str(tree.configuration))
    monkeypatch.setenv("DPKG_ADMINDIR", str(tmp_path / "apt/state"))
    own = {"loaded": installed, "version": installed, "origins": ["nvidia"], "own": True, "packages": [*there]}
    asked = {"driver_method": "repo", **preferences}
    decision, faults = decided({"preferences": asked, "gpu": {"devices": [card], **own}})
    assert faults == []
    driver, source = decision["gpu"]["driver"], decision["gpu"]["source"]
    variables = {"nvidia_repo_drivers": source["drivers"], "nvidia_repo_driver_branch": source["branch"]}
    preferred = rendered("nvidia_repo", "etc/apt/preferences.d/tfctl-nvidia.j2", variables)
    (tmp_path / "apt/etc/preferences.d/tfctl-nvidia").write_text(preferred)
    found = transaction(Apt(), "nvidia_driver", (), driver["packages"], update=False, upgrade=driver["upgrade"]).record[
        "nvidia_driver"
    ]
    assert {name: each for name, each in found.items() if name in (*OF_NVIDIA, module)} == dict.fromkeys(
        (*OF_NVIDIA, module), f"{version}-1"
    )


@pytest.mark.parametrize("exact", [False, True])
def test_an_installed_driver_of_the_distribution_is_replaced_by_the_newer_one_and_the_headers_stay(
    recorded: tuple[str, AptTree], monkeypatch: pytest.MonkeyPatch, exact: bool
) -> None:
    """Later headers may require a later kernel."""
    system, tree = recorded
    tree.have()
    (kernel,) = kernels(tree)
    policy = tree.run("apt-cache", "policy", "libcuda1").stdout
    ((newest, version),) = re.findall(r"Candidate: ((\d+\.\d+(?:\.\d+)?)-\S+)", policy)
    old = f"{version.partition('.')[0]}.1.1"
    monkeypatch.setenv("APT_CONFIG", str(tree.configuration))
    monkeypatch.setenv("DPKG_ADMINDIR", str(tree.configuration.parent / "state"))
    for devices in CARDS.values():
        gpu = {"devices": devices, "kernel": kernel}
        fresh, _ = decided({"system": system, "gpu": gpu})
        names = fresh["gpu"]["driver"]["packages"]
        tree.have(*names)
        own = {"loaded": old, "version": old, "origins": ["debian"], "own": True, "packages": names}
        preferences = {"driver": version} if exact else {"upgrade_driver": True}
        decision, faults = decided({"system": system, "preferences": preferences, "gpu": {**gpu, **own}})
        assert faults == []
        driver = decision["gpu"]["driver"]
        planned = transaction(Apt(), "nvidia_driver", (), driver["packages"], update=False, upgrade=driver["upgrade"])
        found = planned.record["nvidia_driver"]
        assert found["libcuda1"] == found["nvidia-smi"] == newest and "1" not in found.values()
        assert {f"linux-headers-{kernel}=1", "linux-headers-amd64=1"} <= {*planned.install}


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
