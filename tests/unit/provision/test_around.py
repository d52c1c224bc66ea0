"""The parts of the roles firewall, shared_storage and dataset that work without a host."""

from __future__ import annotations

import functools
import hashlib
import http.server
import importlib.util
import io
import os
import subprocess
import sys
import tarfile
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible.module_utils import tfctl_datasets
from ansible.module_utils.tfctl_datasets import Dataset
from ansible.module_utils.tfctl_machine import Failed

from tfctl.provision import ansible


def library(name: str) -> ModuleType:
    """Import a module of playbooks/library, which is not a package."""
    found = importlib.util.spec_from_file_location(name, ansible.data_dir() / f"playbooks/library/{name}.py")
    assert found and found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def chain(table: str, **more: str) -> dict[str, Any]:
    return {"chain": {"family": "inet", "table": table, "name": "input", "type": "filter", "hook": "input", **more}}


def rule(table: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"rule": {"family": "inet", "table": table, "chain": "input", "expr": list(parts)}}


def test_firewall_reports_only_foreign_chains_that_can_drop_packets() -> None:
    firewall = library("tfctl_firewall")
    assert firewall.other_filters([chain("filter", policy="accept"), rule("filter", {"accept": None})]) == []
    assert firewall.other_filters([chain("filter", policy="drop")]) == ["inet filter input"]
    assert firewall.other_filters([chain("mine"), rule("mine", {"reject": None})]) == ["inet mine input"]
    assert firewall.other_filters([chain("tfctl"), rule("tfctl", {"reject": None})]) == []


def test_firewall_reads_loaded_addresses_and_ports_only_when_a_rule_uses_them() -> None:
    sets = [
        {"set": {"family": "inet", "table": "tfctl", "elem": [each]}} for each in ({"range": [2222, 2299]}, "10.0.0.1")
    ]
    assert library("tfctl_firewall").in_table([*sets, rule("tfctl")]) == {"2222-2299", "10.0.0.1"}
    assert library("tfctl_firewall").in_table(sets) == set(), "sets without a rule block nothing"


def test_a_range_and_a_single_port_are_written_as_the_kernel_lists_them() -> None:
    firewall = library("tfctl_firewall")
    assert (firewall.as_listed(2222, 2299), firewall.as_listed(2222, 2222)) == ("2222-2299", "2222")


DEFAULTS_OF_PORTS = """
- hosts: localhost
  gather_facts: false
  vars_files: [ROOT/roles/firewall/defaults/main.yml, ROOT/roles/dataset/defaults/main.yml]
  tasks:
    - ansible.builtin.assert:
        that: ["firewall_ports == [FIRST, LAST]", "dataset_ports == [FIRST, LAST]"]
"""


@pytest.mark.parametrize(("ports", "first", "last"), [("2222", "2222", "2222"), ("2222-2299", "2222", "2299")])
def test_roles_take_every_range_that_an_inventory_may_hold(ports: str, first: str, last: str, tmp_path: Path) -> None:
    root, playbook = ansible.data_dir(), tmp_path / "play.yml"
    text = DEFAULTS_OF_PORTS.replace("ROOT", str(root)).replace("FIRST", first).replace("LAST", last)
    playbook.write_text(text)
    words = [sys.executable, "-m", "ansible", "playbook", "--connection", "local", "-e", f"tfctl_ports={ports}"]
    environment = {**os.environ, "ANSIBLE_FILTER_PLUGINS": str(root / "playbooks/filter_plugins")}
    done = subprocess.run([*words, str(playbook)], env=environment, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", ["/srv/tfctl", "/mnt/all-of it", "/.hidden/ü"])
def test_mount_unit_name_matches_systemd_escape(path: str) -> None:
    expected = subprocess.run(
        ["systemd-escape", "--path", path], capture_output=True, text=True, check=True, timeout=20
    )
    assert library("tfctl_share").escaped(path) == expected.stdout.strip()


def test_mounted_returns_the_last_mount_at_a_path() -> None:
    mounts = "\n".join([
        "30 1 0:26 / /srv/all rw - ext4 /dev/sda1 rw",
        "31 30 0:27 / /srv/all rw shared:1 - nfs4 nas:/with\\040space rw",
        "32 1 0:28 / /srv/all/deeper rw - tmpfs mine rw",
    ])  # fmt: skip
    assert library("tfctl_share").mounted(mounts, "/srv/all") == ("nas:/with space", "nfs4")
    assert library("tfctl_share").mounted(mounts, "/srv") is None


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A data set of two shards whose archive has not been copied to the host yet."""
    monkeypatch.setattr(tfctl_datasets, "LOCAL", str(tmp_path / "local"))
    path = tmp_path / "set.tgz"
    with tarfile.open(path, "w:gz") as file:
        for number in range(2):
            file.addfile(tarfile.TarInfo(f"train-{number}"), io.BytesIO())
    right = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"name": "set", "source": str(path), "sha256": right, "unpack": True, "dest": str(tmp_path / "sets")}


def test_data_set_names_a_missing_file_and_is_repaired_from_its_archive(entry: dict[str, Any]) -> None:
    dataset = Dataset({**entry, "files": {"train-*": 2}})
    assert list(dataset.faults()) == [] and dataset.wrong().endswith("sets/set is not there")
    dataset.bring(f"file://{entry['source']}")
    assert dataset.wrong() == ""
    (dataset.place / "train-1").unlink()
    assert dataset.wrong().endswith("train-1 is not as it was brought")
    dataset.bring("http://127.0.0.1:9/nobody")  # not used: the archive is on the host
    assert dataset.wrong() == ""


def test_data_set_is_copied_from_another_host_without_the_proxy(
    entry: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(entry["source"]).parent
    serve = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as peer:
        threading.Thread(target=peer.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{peer.server_port}/set.tgz"
        with pytest.raises(Failed, match="cannot be fetched"):
            Dataset(entry).bring(address)
        Dataset(entry).bring(address, direct=True)
        peer.shutdown()
    assert Dataset(entry).wrong() == ""


def test_data_set_with_a_missing_shard_is_not_installed(entry: dict[str, Any]) -> None:
    dataset = Dataset({**entry, "files": {"train-*": 3}})
    with pytest.raises(Failed, match=r"set has 2 files train-\*; 3 are wanted"):
        dataset.bring(f"file://{entry['source']}")
    assert [path.name for path in dataset.place.parent.iterdir()] == []


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"sha256": ""}, "sha256 is not 64 hexadecimal digits"),
        ({"source": "ftp://x/y"}, "neither an address nor a path"),
        ({"name": "Set"}, "is no name"),
        ({"dest": "../x"}, "is not an absolute path"),
        ({"sha1": "x"}, "sha1 is not known"),
    ],
)
def test_data_set_entry_with_an_invalid_key_is_refused_with_a_remedy(
    entry: dict[str, Any], more: dict[str, Any], expected: str
) -> None:
    ((message, remedy),) = Dataset({**entry, **more}).faults()
    assert expected in message and remedy


def test_data_set_entry_needs_only_a_name_when_its_source_is_built_in() -> None:
    assert list(Dataset({"name": "cifar10"}).faults()) == []
    assert len(list(Dataset({"name": "imagenet-tfrecords"}).faults())) == 2, "source and sha256 are missing"
