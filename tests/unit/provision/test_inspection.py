"""How the settings of an inventory become a decision. tests/unit/provision/test_actions.py runs the action itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.provision.fresh_host import facts
from tests.unit.provision.test_gpu import gpu_facts
from tfctl.errors import TfctlError
from tfctl.provision import ansible
from tfctl.provision.decide.wanted import Preferences
from tfctl.provision.inspection import HostSettings, Inspection

KEY = (ansible.data_dir() / "roles/nvidia_repo/files/3bf863cc.asc").read_bytes()
SETTINGS = HostSettings(uid=880, shared=("/srv/tfctl",), stack="tf2.15")


def inspection(base: Path, **preferences: Any) -> Inspection:
    return Inspection(replace(SETTINGS, preferences=Preferences(**preferences)), base, "~/.ansible/tmp")


def test_key_file_of_an_inventory_begins_at_its_directory(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys/mirror.asc").write_bytes(KEY)
    host = facts(system="ubuntu-22.04", title="Ubuntu", gpu=gpu_facts({"devices": ["20b5"]}, "ubuntu-22.04"))
    given = inspection(tmp_path, driver_method="repo", nvidia_key_file="keys/mirror.asc")
    result: Any = given.decide(host, 0, 0, write=False)
    assert result["decision"]["gpu"]["source"]["repository"]["key"] == str(tmp_path / "keys/mirror.asc")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory"),
        (b"", "is not an ASCII-armored public key"),
        (b"\x99\x02\x0d\x04binary", "is not an ASCII-armored public key"),
        (KEY + KEY.replace(b"PUBLIC", b"PRIVATE"), "is not an ASCII-armored public key"),
    ],
)
def test_key_file_is_refused_when_apt_would_not_read_it(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "key.asc"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TfctlError, match=f"^tfctl_nvidia_key_file {path}:? {message}"):
        inspection(tmp_path, nvidia_key_file=str(path))
