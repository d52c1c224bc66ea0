"""`tfctl nodes` names the command that repairs what was changed by hand."""

from __future__ import annotations

from tfctl.cli.nodes import drift_message

CHANGED = "changed since it was provisioned"


def test_drift_of_a_role_that_each_run_has_is_repaired_by_a_run() -> None:
    drifts = [f"/etc/tfctl/node.json {CHANGED}"]
    assert drift_message("node1", drifts).endswith("\n  → tfctl provision INVENTORY --limit node1")


def test_drift_of_the_packages_of_jobs_is_repaired_with_their_requirements_file() -> None:
    drifts = [f"/etc/tfctl/node.json {CHANGED}", f"/opt/tfctl/requirements/0123456789ab/pandas/__init__.py {CHANGED}"]
    expected = "\n  → tfctl provision INVENTORY --limit node1 --requirements FILE"
    assert drift_message("node1", drifts).endswith(expected)
