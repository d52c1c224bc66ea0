"""A task that fails at once whenever it is started is given up: it has failed, and systemd does not start it again."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
from node_tree import ACCOUNT, HERE, RUN, STAY, Tree, make_plan, make_task, sh, wait_until

AGAIN = "Restart=on-failure\nRestartSec=300ms\nRestartPreventExitStatus=0\n"
UNIT = "tfctl-digits-worker-0.service"
#: Calls give_up as another program of tfctl on the host does.
PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from tfctl.node.verbs.stop import give_up
from tfctl.node.system import System
_, project, systemctl, tree, account, run = sys.argv
system = System(prefix=tree, account=account, systemctl=(sys.executable, "-S", systemctl, tree))
tasks = [("worker", 0), ("worker", 1)]
print(json.dumps(give_up(system, "digits", run, tasks)))
"""


def run(tree: Tree, *commands: list[str]) -> None:
    """Start a worker with each command, which systemd starts again whenever it fails."""
    tasks = [make_task(index=index, command=command, service=AGAIN) for index, command in enumerate(commands)]
    for task in tasks:
        task["unit"] = task["unit"].replace("StartLimitBurst=4", "StartLimitBurst=1000")
    tree.run(make_plan(*tasks))


def give_up(tree: Tree, run: str = RUN) -> list[list[object]]:
    words = [str(HERE.parents[1]), str(HERE / "fake_systemctl.py"), str(tree.path), ACCOUNT, run]
    done = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM, *words], check=True, capture_output=True, text=True, timeout=60
    )
    return list(json.loads(done.stdout))


def wait_until_it_fails_at_once(tree: Tree) -> None:
    wait_until(lambda: "fails_at_once" in tree.states()["worker/0"])


@pytest.mark.extended
@pytest.mark.parametrize("script", ["exit 3", "sleep 2; exit 3"])
def test_a_task_that_is_given_up_has_failed_with_its_exit_code_and_is_not_started_again(
    script: str, tree: Tree
) -> None:
    """systemd is mostly about to start the first one again; the second one mostly runs."""
    run(tree, sh(script), STAY)
    wait_until_it_fails_at_once(tree)
    assert give_up(tree) == [["worker", 0]]
    done = tree.wait_for("worker/0", "failed")
    assert (done["exit_code"], done.get("signal"), done["given_up"]) == (3, None, True)
    time.sleep(0.6)
    assert tree.states()["worker/0"] == done
    assert tree.states()["worker/1"]["state"] == "running"
    assert give_up(tree) == []


def test_a_task_that_works_again_by_now_is_not_given_up(tree: Tree) -> None:
    run(tree, STAY)
    assert give_up(tree) == []
    assert tree.states()["worker/0"]["state"] == "running"


def test_a_task_of_another_run_is_not_given_up(tree: Tree) -> None:
    run(tree, sh("exit 3"))
    wait_until_it_fails_at_once(tree)
    assert give_up(tree, "89abcdef") == []
    assert tree.states()["worker/0"]["state"] in ("starting", "running")


def test_a_task_that_was_given_up_starts_afresh_when_a_user_restarts_it(tree: Tree) -> None:
    works = tree / "var/lib/tfctl/jobs/digits/1/worker-0/works"
    run(tree, sh("[ -e ../worker-0/works ] || exit 3; exec sleep 600"))
    wait_until_it_fails_at_once(tree)
    assert give_up(tree) == [["worker", 0]]
    tree.wait_for("worker/0", "failed")
    works.touch()
    assert "tasks" in tree.ask("restart", job="digits", attempt=1, tasks=[["worker", 0]])
    now = tree.wait_for("worker/0", "running")
    assert ("given_up" in now, "fails_at_once" in now) == (False, False)
    assert give_up(tree) == []
