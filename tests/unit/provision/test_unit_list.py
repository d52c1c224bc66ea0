"""The node part and the playbooks' modules read with one file which units of jobs live."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.module_utils import tfctl_unit_list

from tfctl.node import unit_list


def test_modules_of_the_playbooks_use_the_file_of_the_node_part() -> None:
    assert Path(tfctl_unit_list.__file__).resolve() == Path(unit_list.__file__).resolve()


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
