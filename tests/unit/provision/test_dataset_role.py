"""Data sets, as far as they need no host: their entries, the module that installs them, and the role dataset."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.tfctl.cluster.plugins.module_utils.install import ModuleFailed
from ansible_collections.tfctl.cluster.plugins.modules import dataset
from ansible_collections.tfctl.cluster.plugins.modules.dataset import Dataset, installed
from ansible_collections.tfctl.cluster.plugins.modules.store import FileStore, StoredFile

from tests.unit.provision.role_play import check, facts, play, tasks_of
from tfctl.provision.decide import datasets


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A data set of two shards whose archive has not been copied to the host yet."""
    monkeypatch.setattr(dataset, "ARCHIVES", tmp_path / "archives")
    path = tmp_path / "set.tgz"
    with tarfile.open(path, "w:gz") as file:
        for number in range(2):
            file.addfile(tarfile.TarInfo(f"train-{number}"), io.BytesIO())
    right = hashlib.sha256(path.read_bytes()).hexdigest()
    given = {"name": "set", "source": str(path), "sha256": right, "unpack": True, "dest": str(tmp_path / "sets")}
    assert datasets.faults(given) == []
    return datasets.completed(given)


def test_data_set_names_a_missing_file_and_is_repaired_from_its_archive(entry: dict[str, Any]) -> None:
    dataset = Dataset({**entry, "files": {"train-*": 2}})
    assert dataset.difference().endswith("sets/set is missing")
    dataset.install(f"file://{entry['source']}")
    assert dataset.difference() == ""
    (dataset.place / "train-1").unlink()
    assert dataset.difference().endswith("train-1 has changed since it was installed")
    dataset.install("http://127.0.0.1:9/nobody")  # not used: the archive is on the host
    assert dataset.difference() == ""


def test_data_set_is_copied_from_another_host_without_the_proxy(
    entry: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(entry["source"]).parent
    serve = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as peer:
        threading.Thread(target=peer.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{peer.server_port}"
        with pytest.raises(ModuleFailed, match="cannot be fetched"):
            Dataset(entry).install(f"{address}/set.tgz")
        (folder / "set.tgz").rename(folder / entry["sha256"])
        store = FileStore(dataset.ARCHIVES, [StoredFile("set", entry["sha256"], None)])
        assert (store.missing() != [], store.fetch(address), store.missing()) == (True, "", [])
        peer.shutdown()
    Dataset(entry).install("http://127.0.0.1:9/nobody")  # not used: the archive is on the host
    assert Dataset(entry).difference() == ""


@pytest.mark.extended
def test_data_set_that_cannot_be_installed_leaves_no_archive_in_the_temporary_directory(tmp_path: Path) -> None:
    archive, upload = tmp_path / "set.tgz", tmp_path / "tfctl-set"
    archive.write_text("archive")
    (task,) = tasks_of("dataset", "source.yml")
    for each in task["block"]:
        if each.pop("tfctl.cluster.dataset", None):
            each["ansible.builtin.fail"] = {"msg": "another hash"}
        for own in ("owner", "group"):  # tests need no root
            for kind in ("copy", "file"):
                each.get(f"ansible.builtin.{kind}", {}).pop(own, None)
    given = facts(dataset_entry={"name": "set", "source": str(archive)}, dataset_is_local=True)
    kept = facts(dataset_upload=str(upload), dataset_sent=str(tmp_path / "sent"))
    output = play(tmp_path, "dataset", [given, kept, {"block": [task], "rescue": [check("true")]}])
    assert "another hash" in output and "changed=0" in output
    assert not upload.exists()


def test_data_set_is_not_installed_where_jobs_may_replace_files(entry: dict[str, Any]) -> None:
    """A job could redirect root by a link. The lock is beside the archives, where only root can write."""
    given = {"server": "", "reason": "", "source": f"file://{entry['source']}"}
    dest = Path(entry["dest"])
    link = dest.with_name("link")
    dest.mkdir()
    dest.chmod(0o777)
    link.symlink_to(dest)
    for place in (dest, dest / "below/it", link):
        with pytest.raises(ModuleFailed, match="in which jobs may replace files"):
            installed(Dataset({**entry, "dest": str(place)}), given)
    assert [*dest.iterdir()] == []
    dest.chmod(0o755)
    assert installed(Dataset(entry), given) == {"changed": True}
    assert [path.name for path in dest.iterdir()] == ["set"]
    assert (dataset.ARCHIVES / ".set.lock").exists()


def test_data_set_with_a_missing_shard_is_not_installed(entry: dict[str, Any]) -> None:
    dataset = Dataset({**entry, "files": {"train-*": 3}})
    with pytest.raises(ModuleFailed, match=r"the archive of set contains 2 files train-\*, not 3"):
        dataset.install(f"file://{entry['source']}")
    assert [path.name for path in dataset.place.parent.iterdir()] == []


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"sha256": ""}, "sha256 is not 64 lowercase hexadecimal digits"),
        ({"source": "ftp://x/y"}, "neither a URL nor an absolute path"),
        ({"name": "Set"}, "is not a valid name"),
        ({"dest": "../x"}, "is not an absolute path"),
        ({"sha1": "x"}, "unknown key sha1"),
    ],
)
def test_data_set_entry_with_an_invalid_key_is_refused_with_a_remedy(
    entry: dict[str, Any], more: dict[str, Any], expected: str
) -> None:
    (fault,) = datasets.faults({**entry, **more})
    assert expected in fault["message"] and fault["remedy"] and fault["kind"] == "inventory"


def test_data_set_entry_needs_only_a_name_when_its_source_is_built_in() -> None:
    assert [datasets.faults({"name": name}) for name in ("cifar10", "cifar10-binary")] == [[], []]
    assert len(datasets.faults({"name": "imagenet-tfrecords"})) == 2, "source and sha256 are missing"
    assert datasets.completed({"name": "cifar10", "dest": "/data"})["dest"] == "/data"
