"""The node part and the playbooks' modules find out with the same files which jobs live or are being started."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.tfctl.cluster.plugins.module_utils import forked as node_forked
from ansible_collections.tfctl.cluster.plugins.module_utils import programs
from ansible_collections.tfctl.cluster.plugins.module_utils import starting as node_starting
from ansible_collections.tfctl.cluster.plugins.module_utils import unit_list as node_unit_list
from ansible_collections.tfctl.cluster.plugins.module_utils.install import ModuleFailed
from ansible_collections.tfctl.cluster.plugins.modules.gpu_state import state

from tfctl.node import forked, starting, unit_list


def test_modules_of_the_playbooks_use_the_files_of_the_node_part() -> None:
    for used, own in ((node_unit_list, unit_list), (node_starting, starting), (node_forked, forked)):
        assert Path(str(used.__file__)).resolve() == Path(str(own.__file__)).resolve()


@pytest.mark.parametrize(
    ("columns", "lives"),
    [
        ("loaded active running A task", True),
        ("loaded activating auto-restart A task", True),
        ("loaded deactivating stop-sigterm A task", True),
        ("loaded failed failed A task", False),
        ("loaded failed failed start A task", True),
        ("loaded inactive dead start A task", True),
        ("loaded inactive dead", False),
    ],
)
def test_unit_lives_if_it_has_not_ended_or_has_a_job_queued(columns: str, lives: bool) -> None:
    name = "tfctl-digits-worker-0.service"
    assert unit_list.live_or_queued(f"\n{name} {columns}\n") == ([name] if lives else [])


def test_state_of_the_driver_for_a_reboot_is_unknown_when_systemctl_does_not_say_which_jobs_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemctl = tmp_path / "systemctl"
    systemctl.write_text("#!/bin/sh\necho Transport endpoint is not connected >&2; exit 1\n")
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(programs, "STARTS", tmp_path)
    with pytest.raises(ModuleFailed, match=r"^tfctl cannot find out which jobs run: Transport endpoint"):
        state()
