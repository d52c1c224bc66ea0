"""provision and start: from bare nodes to a trained model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.lab.jobs import Jobs, lines_of_task

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.timeout(180)
def test_provision_and_start_train_a_model_from_bare_nodes(jobs: Jobs) -> None:
    jobs.names.append("digits-ps")
    jobs.lab.shell("node1", "sudo rm -rf /srv/tfctl/digits-ps")
    done = jobs("start", EXAMPLES / "digits-ps" / "job.yaml", "--wait", "--follow", timeout=150)
    assert done.returncode == 0, done.stderr
    accuracy = re.search(r"test accuracy (\d\.\d+)", "\n".join(lines_of_task(done.stdout, "chief/0")))
    assert accuracy, done.stdout[-2000:]
    assert float(accuracy[1]) > 0.85
    assert jobs.states("digits-ps") == {
        "chief/0": "succeeded", "ps/0": "stopped", "ps/1": "stopped",
        "worker/0": "stopped", "worker/1": "stopped", "worker/2": "stopped",
    }  # fmt: skip
    # Written by tasks of several hosts, and seen by one that ran none of them.
    written = jobs.lab.shell("node4", "sudo find /srv/tfctl/digits-ps -type f")
    assert "events.out.tfevents" in written
    assert re.search(r"\.data-00000-of-0000\d", written), written
    # The chief's unit stays, to be looked at; no process and no port does.
    left = [
        line for lines in jobs.traces().values() for line in lines if not line.startswith("tfctl-digits-ps-chief-0")
    ]
    assert left == []
