"""The roles around the jobs, as far as they go without a host."""

from __future__ import annotations

import functools
import hashlib
import http.server
import importlib.util
import io
import subprocess
import tarfile
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible.module_utils import tfctl_datasets
from ansible.module_utils.tfctl_datasets import Dataset
from ansible.module_utils.tfctl_machine import Failed

from tfctl.remote import ansible


def library(name: str) -> ModuleType:
    """A module of playbooks/library, which no package holds."""
    found = importlib.util.spec_from_file_location(name, ansible.data_dir() / f"playbooks/library/{name}.py")
    assert found and found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def chain(table: str, **more: str) -> dict[str, Any]:
    return {"chain": {"family": "inet", "table": table, "name": "input", "type": "filter", "hook": "input", **more}}


def rule(table: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"rule": {"family": "inet", "table": table, "chain": "input", "expr": list(parts)}}


def test_a_chain_that_turns_nothing_away_is_not_warned_of() -> None:
    firewall = library("tfctl_firewall")
    assert firewall.other_filters([chain("filter", policy="accept"), rule("filter", {"accept": None})]) == []
    assert firewall.other_filters([chain("filter", policy="drop")]) == ["inet filter input"]
    assert firewall.other_filters([chain("mine"), rule("mine", {"reject": None})]) == ["inet mine input"]
    assert firewall.other_filters([chain("tfctl"), rule("tfctl", {"reject": None})]) == []


def test_what_the_kernel_has_is_read_out_of_its_sets() -> None:
    sets = [
        {"set": {"family": "inet", "table": "tfctl", "elem": [each]}} for each in ({"range": [2222, 2299]}, "10.0.0.1")
    ]
    assert library("tfctl_firewall").in_table([*sets, rule("tfctl")]) == {"2222-2299", "10.0.0.1"}
    assert library("tfctl_firewall").in_table(sets) == set(), "sets without a rule keep nobody out"


@pytest.mark.parametrize("path", ["/srv/tfctl", "/mnt/all-of it", "/.hidden/ü"])
def test_a_mount_unit_is_named_as_systemd_names_it(path: str) -> None:
    said = subprocess.run(["systemd-escape", "--path", path], capture_output=True, text=True, check=True, timeout=20)
    assert library("tfctl_share").escaped(path) == said.stdout.strip()


def test_the_uppermost_mount_at_a_path_counts() -> None:
    mounts = "\n".join([
        "30 1 0:26 / /srv/all rw - ext4 /dev/sda1 rw",
        "31 30 0:27 / /srv/all rw shared:1 - nfs4 nas:/with\\040space rw",
        "32 1 0:28 / /srv/all/deeper rw - tmpfs mine rw",
    ])  # fmt: skip
    assert library("tfctl_share").mounted(mounts, "/srv/all") == ("nas:/with space", "nfs4")
    assert library("tfctl_share").mounted(mounts, "/srv") is None


def member(name: str, address: str, port: int = 22) -> dict[str, Any]:
    return {"name": name, "address": address, "port": port, "public": f"ssh-ed25519 {name}", "host_keys": ["ssh-rsa A"]}


def test_of_hosts_that_say_nothing_the_mesh_keeps_what_it_knew(tmp_path: Path) -> None:
    mesh = library("tfctl_mesh")

    def tell(members: list[dict[str, Any]], silent: list[str]) -> dict[str, str]:
        entries = mesh.entries_for(tmp_path, members, silent)
        for entry in entries:
            Path(entry["file"]).write_text(entry["content"])
        return {Path(entry["file"]).name: entry["content"] for entry in entries}

    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/authorized_keys").write_text("ssh-rsa mine me@home\n")
    first = tell([member("b", "127.0.0.2", 2200), member("a", "127.0.0.1")], [])
    assert first["authorized_keys"].splitlines() == [
        "ssh-rsa mine me@home",
        'restrict,from="127.0.0.1" ssh-ed25519 a tfctl a',
        'restrict,from="127.0.0.2" ssh-ed25519 b tfctl b',
    ]
    assert first["known_hosts_tfctl"] == "[b]:2200,[127.0.0.2]:2200 ssh-rsa A b\na,127.0.0.1 ssh-rsa A a\n"
    assert tell([member("a", "127.0.0.1")], ["b"]) == first
    assert "127.0.0.2" not in "".join(tell([member("a", "127.0.0.1")], []).values()), "b has left the inventory"


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A data set of two shards, whose archive is not on the host yet."""
    monkeypatch.setattr(tfctl_datasets, "LOCAL", str(tmp_path / "local"))
    path = tmp_path / "set.tgz"
    with tarfile.open(path, "w:gz") as file:
        for number in range(2):
            file.addfile(tarfile.TarInfo(f"train-{number}"), io.BytesIO())
    right = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"name": "set", "source": str(path), "sha256": right, "unpack": True, "dest": str(tmp_path / "sets")}


def test_a_data_set_is_there_or_what_is_wrong_is_named(entry: dict[str, Any]) -> None:
    dataset = Dataset({**entry, "files": {"train-*": 2}})
    assert list(dataset.faults()) == [] and dataset.wrong().endswith("sets/set is not there")
    dataset.bring(f"file://{entry['source']}")
    assert dataset.wrong() == ""
    (dataset.place / "train-1").unlink()
    assert dataset.wrong().endswith("train-1 is not as it was brought")
    dataset.bring("http://127.0.0.1:9/nobody")  # its archive is here
    assert dataset.wrong() == ""


def test_from_another_host_a_data_set_comes_past_the_proxy(
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


def test_a_data_set_that_lacks_a_shard_is_not_put_in_place(entry: dict[str, Any]) -> None:
    dataset = Dataset({**entry, "files": {"train-*": 3}})
    with pytest.raises(Failed, match=r"set has 2 files train-\*; 3 are wanted"):
        dataset.bring(f"file://{entry['source']}")
    assert [path.name for path in dataset.place.parent.iterdir()] == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"sha256": ""}, "sha256 is not 64 hexadecimal digits"),
        ({"source": "ftp://x/y"}, "neither an address nor a path"),
        ({"name": "Set"}, "is no name"),
        ({"dest": "../x"}, "is not an absolute path"),
        ({"sha1": "x"}, "sha1 is not known"),
    ],
)
def test_what_is_wrong_with_an_entry_is_named(entry: dict[str, Any], more: dict[str, Any], said: str) -> None:
    ((message, remedy),) = Dataset({**entry, **more}).faults()
    assert said in message and remedy


def test_cifar10_needs_no_more_than_its_name() -> None:
    assert list(Dataset({"name": "cifar10"}).faults()) == []
    assert len(list(Dataset({"name": "imagenet-tfrecords"}).faults())) == 2, "source and sha256 are the user's"
