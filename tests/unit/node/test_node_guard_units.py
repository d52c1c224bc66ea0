"""The units of a job's guard, as root writes and removes them."""

from __future__ import annotations

from fake_system import fake_system
from node_tree import ACCOUNT, Tree

from tfctl.node import guards, names


def test_a_failed_program_for_the_end_of_the_job_is_no_failed_unit_once_the_guard_is_removed(tree: Tree) -> None:
    """Otherwise `systemctl is-system-running` would say `degraded` until the next boot."""
    for unit in (names.guard_service("digits"), names.notify_service("digits")):
        (tree / names.UNITS / unit).touch()
    (tree / "manager").mkdir()
    failed = tree / f"manager/{names.notify_service('digits')}.state"
    failed.write_text("ActiveState=failed\nSubState=failed\n")
    guards.remove(fake_system(str(tree.path), ACCOUNT, 30.0), "digits")
    assert not failed.exists()
    assert not list((tree / names.UNITS).iterdir())
