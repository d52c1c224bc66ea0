"""What a task's state is after its host was rebooted or has lost power."""

from __future__ import annotations

import json

import pytest
from node_tree import RUN, STAY, Tree, make_plan, make_task, sh, wait_until

from tfctl.node import names

#: Stays until SIGTERM, then saves its work and exits with 0.
CATCHES = sh("trap 'exit 0' TERM; echo begun; while :; do sleep 0.05; done")


def test_power_loss_after_a_restart_makes_a_task_lost(tree: Tree) -> None:
    """The end of its first run says nothing about the second."""
    again = sh("test -e again && exec sleep 600; echo > again; exit 7")
    tree.run(make_plan(make_task(command=again, service="Restart=on-failure\nRestartSec=10ms\n")))
    wait_until(lambda: tree.states()["worker/0"]["restarts"] == 1 and "running" in tree.states()["worker/0"]["state"])
    tree.lose_power()
    task = tree.states()["worker/0"]
    assert (task["state"], task["loss"], task["exit_code"], task["finished"]) == ("lost", "reboot", None, None)
    assert task["restarts"] == 1


def test_power_loss_makes_a_succeeded_task_lost_that_was_restarted_in_place(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=sh("test -e again && exec sleep 600; exit 0"))))
    tree.wait_for("worker/0", "succeeded")
    (tree / "var/lib/tfctl/jobs/digits/1/code/again").touch()
    tree.ask("restart", job="digits", attempt=1, tasks=[["worker", 0]])
    tree.wait_for("worker/0", "running")
    tree.lose_power()
    assert tree.states()["worker/0"]["state"] == "lost"


@pytest.mark.parametrize("command", [CATCHES, STAY], ids=["exit code 0", "SIGTERM"])
def test_reboot_makes_a_running_task_lost(tree: Tree, command: list[str]) -> None:
    tree.run(make_plan(make_task(command=command)))
    wait_until(lambda: "begun" in (tree / "journal.jsonl").read_text())
    tree.reboot()
    task = tree.states()["worker/0"]
    assert (task["state"], task["loss"], task["restarts"]) == ("lost", "reboot", 0)


def test_reboot_changes_nothing_about_tasks_that_had_ended(tree: Tree) -> None:
    commands = (sh("exit 0"), sh("exit 3"), STAY, STAY)
    tree.run(make_plan(*(make_task(index=index, command=command) for index, command in enumerate(commands))))
    tree.wait_for("worker/0", "succeeded")
    tree.wait_for("worker/1", "failed")
    tree.ask("stop", job="digits", attempt=1, tasks=[["worker", 2]])
    tree.reboot()
    states = tree.states()
    assert [states[f"worker/{index}"]["state"] for index in range(4)] == ["succeeded", "failed", "stopped", "lost"]


def test_stop_by_an_administrator_makes_a_task_lost_before_and_after_a_reboot(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=CATCHES)))
    wait_until(lambda: "begun" in (tree / "journal.jsonl").read_text())
    tree.systemctl("stop", "tfctl-digits-worker-0.service")
    wait_until(lambda: not tree.alive())
    task = tree.states()["worker/0"]
    assert (task["state"], task["loss"]) == ("lost", "stop")
    tree.reboot()
    assert tree.states()["worker/0"]["state"] == "lost"


def test_no_further_attempt_is_announced_after_a_reboot(tree: Tree) -> None:
    """The guard that would have started it is gone."""
    plan = make_plan(make_task(command=sh("exit 3")))
    guard = {"head": "node1", "address": "10.9.0.1", "port": 0, "origin": RUN, "lease": 600, "max_attempts": 2}
    plan["record"]["guard"] = guard
    tree.run(plan)
    tree.wait_for("worker/0", "failed")
    report = {"retry_at": 1.8e9, "reason": "it was not up in time", "finished": 1.7e9}
    (tree / names.guard_dir("digits", 1) / "report.json").write_text(json.dumps(report))
    tree.lose_power()
    [shown] = tree.ask("show", job="digits", attempt=None, follow=False)["jobs"]
    assert (shown["guarded"], shown["guard"]) == (False, {"reason": "it was not up in time", "finished": 1.7e9})
