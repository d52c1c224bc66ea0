"""tfctl_packages simulates, installs, holds and records packages, tested against fakes of apt, dnf and rpm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils import tfctl_packages
from ansible.module_utils.tfctl_machine import Failed, Rights

#: The installed packages are a table of name, version, and hold or install. apt-get installs what the table `offers`
#: has, with dependencies. Each package has a file `NAME.so`, and lists missing paths below /etc and /usr/share too.
FAKE_APT = r"""
import os, sys
from pathlib import Path
here = Path(__file__).resolve().parent
rows = dict((line.split()[0], line.split()[1:]) for line in (here / "there").read_text().splitlines())
offers = dict((line.split()[0], line.split()[1:]) for line in (here / "offers").read_text().splitlines())
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
with (here / "log").open("a") as log:
    log.write(" ".join([name, *[word for word in words if "::" not in word and "DPkg" not in word]]) + "\n")
def save():
    (here / "there").write_text("".join(" ".join([key, *value]) + "\n" for key, value in rows.items()))
if name == "dpkg-query":
    for key in words[3:]:
        if key in rows and "Files" in words[2]:
            print("ii  " + key, " /etc/gone", " /usr/share/gone", " /usr", f" {here}/{key}.so", "", sep="\n")
        elif key in rows:
            print(("hi " if rows[key][1] == "hold" else "ii ") + "\t" + key + "\t" + rows[key][0])
elif name == "apt-mark":
    for key in words[1:]:
        rows[key][1] = words[0]
    save()
elif "install" in words:
    asked = [word.partition("=")[0] for word in words[words.index("install") + 1:]]
    missing = [key for key in asked if key not in offers and key not in rows]
    if missing:
        sys.exit("Reading package lists...\nE: Unable to locate package " + missing[0])
    for key in asked:
        for each in [key, *offers.get(key, ["", ""])[1:]]:
            if each.startswith("-"):
                print("Remv " + each[1:] + " [1]")
            elif each not in rows:
                if "-s" in words:
                    print("Inst " + each + " (" + offers[each][0] + " Debian:12/stable [amd64])")
                else:
                    rows[each] = [offers[each][0], "install"]
                    (here / f"{each}.so").touch()
            if "--reinstall" in words:
                (here / f"{key}.so").touch()
    if "-s" not in words:
        save()
"""
OFFERS = """nvidia-smi 535.261.03-1 libcuda1 dkms
libcuda1 535.261.03-1
dkms 3.0
nvidia-headless 1 linux-image-6.9
linux-image-6.9 6.9
nvidia-rude 1 -openmpi
"""


@pytest.fixture
def fake_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("apt-get", "apt-mark", "dpkg-query"):
        (folder / name).write_text(f"#!/usr/bin/env python3\n{FAKE_APT}")
        (folder / name).chmod(0o755)
    (folder / "offers").write_text(OFFERS)
    (folder / "there").write_text("libc6 2.36 install\n")
    settled(folder, tmp_path, monkeypatch)
    return folder


def settled(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(tfctl_packages, "HELD", tmp_path / "held.json")
    monkeypatch.setattr(Rights, "of", lambda *_: Rights.seen(tmp_path))


def apt(*asked: str, component: str = "nvidia_driver") -> Any:
    return tfctl_packages.Packages(component, "apt-get", asked)


def test_apt_packages_are_simulated_installed_held_and_recorded(fake_apt: Path, tmp_path: Path) -> None:
    packages = apt("nvidia-smi")
    assert not packages.done()
    assert packages.bring() == [["nvidia-smi", "535.261.03-1"], ["libcuda1", "535.261.03-1"], ["dkms", "3.0"]]
    calls = [line for line in (fake_apt / "log").read_text().splitlines() if line.startswith("apt")]
    assert [line.split("-o ")[-1] for line in calls] == [
        "update", "-s --no-install-recommends install nvidia-smi",
        "-y --no-install-recommends --allow-downgrades install nvidia-smi",
        "apt-mark hold libcuda1 nvidia-smi",
    ]  # fmt: skip
    noted = {"nvidia_driver": dict.fromkeys(("libcuda1", "nvidia-smi"), "535.261.03-1")}
    assert json.loads((tmp_path / "held.json").read_text()) == noted
    assert apt("nvidia-smi").done()
    assert apt().done()
    assert apt("nvidia-smi=535.261.*").done()
    assert not apt("nvidia-smi=550.*").done()
    assert not apt("nvidia-smi", component="cuda").done()


@pytest.mark.parametrize(
    ("before", "after"),
    [("libcuda1 535.261.03-1 hold\n", ""), ("libcuda1 535.261.03-1 hold", "libcuda1 535.261.03-1 x")],
)
def test_apt_package_is_restored_when_it_was_removed_or_unheld(fake_apt: Path, before: str, after: str) -> None:
    apt("nvidia-smi", "libcuda1").bring()
    there = (fake_apt / "there").read_text()
    assert before in there
    (fake_apt / "there").write_text(there.replace(before, after))
    assert not apt().done()
    apt().bring()
    assert sorted((fake_apt / "there").read_text().splitlines()) == sorted(there.splitlines())


def test_apt_package_is_reinstalled_when_one_of_its_files_is_missing(fake_apt: Path) -> None:
    apt("nvidia-smi").bring()
    (fake_apt / "libcuda1.so").unlink()
    assert not apt("nvidia-smi").done()
    apt("nvidia-smi").bring()
    assert (fake_apt / "log").read_text().count("--reinstall install libcuda1=535.261.03-1\n") == 1
    assert apt("nvidia-smi").done()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("nvidia-headless", "nvidia-headless would bring another kernel: linux-image-6.9 6.9"),
        ("nvidia-rude", "to install nvidia-rude, openmpi would have to be removed"),
        ("nvidia-none", "apt cannot install nvidia-none .exit 1.\nE: Unable to locate package nvidia-none"),
    ],
)
def test_apt_refuses_unwanted_changes_before_it_installs_anything(fake_apt: Path, asked: str, message: str) -> None:
    before = (fake_apt / "there").read_text()
    with pytest.raises(Failed, match=message):
        apt(asked).bring()
    assert (fake_apt / "there").read_text() == before


def test_apt_keeps_earlier_holds_when_a_transaction_fails(fake_apt: Path) -> None:
    apt("nvidia-smi").bring()
    there = (fake_apt / "there").read_text()
    with pytest.raises(Failed, match="Unable to locate package nvidia-none"):
        apt("nvidia-none").bring()
    assert (fake_apt / "there").read_text() == there


FAKE_DNF = """
echo "dnf $*" >> $LOG
case "$*" in
*--assumeno*) cat <<END
================================================================================
 Package             Architecture  Version              Repository         Size
================================================================================
Installing:
 nvidia-open         noarch        3:580.65.06-1.el9    tfctl-nvidia       8.5 k
Installing dependencies:
 kmod-nvidia-open-dkms noarch      3:580.65.06-1.el9    tfctl-nvidia        13 M
$EXTRA
Transaction Summary
================================================================================
Operation aborted.
END
exit 1;;
*-y\\ install\\ nvidia*) touch $LOG.done;;
esac
"""
FAKE_RPM = """
test -e $LOG.done || exit 1
printf 'nvidia-open\\t580.65.06-1.el9\\tnoarch\\nkmod-nvidia-open-dkms\\t580.65.06-1.el9\\tnoarch\\n'
"""


@pytest.fixture
def fake_dnf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("dnf", FAKE_DNF), ("rpm", FAKE_RPM)):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("EXTRA", "")
    settled(folder, tmp_path, monkeypatch)


@pytest.mark.usefixtures("fake_dnf")
def test_dnf_packages_are_simulated_installed_locked_and_recorded(tmp_path: Path) -> None:
    tfctl_packages.Packages("nvidia_driver", "dnf", ["nvidia-open"], stream="nvidia-driver:580-open").bring()
    calls = [line.split("weak_deps=False ")[1] for line in (tmp_path / "log").read_text().splitlines()]
    assert calls == [
        "-y install python3-dnf-plugin-versionlock",
        "-y module enable nvidia-driver:580-open",
        "--assumeno install nvidia-open",
        "-y install nvidia-open",
        "versionlock add kmod-nvidia-open-dkms nvidia-open",
    ]
    noted = json.loads((tmp_path / "held.json").read_text())
    assert noted == {"nvidia_driver": dict.fromkeys(("nvidia-open", "kmod-nvidia-open-dkms"), "580.65.06-1.el9")}


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (
            " kernel-core           x86_64      5.14.0-400.el9    baseos        19 M",
            "kernel: kernel-core 5.14.0-400.el9",
        ),
        ("Removing:\n openmpi  x86_64   4.1.1-7.el9  @appstream   19 M", "openmpi would have to be removed"),
    ],
)
@pytest.mark.usefixtures("fake_dnf")
def test_dnf_refuses_to_install_a_kernel_or_remove_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: str, message: str
) -> None:
    monkeypatch.setenv("EXTRA", extra)
    with pytest.raises(Failed, match=message):
        tfctl_packages.Packages("nvidia_driver", "dnf", ["nvidia-open"]).bring()
    assert "-y install nvidia" not in (tmp_path / "log").read_text()
