"""A job with a requirements file: its packages are installed beside the stack, and it trains with them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.lab import expected_state
from tests.lab.jobs import Jobs

pytestmark = pytest.mark.timeout(540)

PROGRAMS = Path(__file__).parent / "programs"
JOB = """
    strategy: custom
    stack: tf2.15
    requirements: requirements.txt
    command: python own_packages.py
    roles: {worker: {replicas: 2, hosts: 'gpu[0:1]'}}
"""


def test_job_trains_with_the_packages_of_its_requirements_file(jobs: Jobs) -> None:
    file = jobs.file("own-packages", JOB)
    requirements = file.with_name("requirements.txt")
    requirements.write_text("pandas>=2,<3\n")
    shutil.copy(PROGRAMS / "own_packages.py", file.parent)
    done = jobs("start", file)
    assert done.returncode == 8, done.stderr
    command = re.search(r"tfctl (provision .*)", done.stderr)
    assert command and str(requirements) in command[1]
    jobs.lab.tfctl("provision", jobs.lab.inventory, "--requirements", requirements, timeout=300)
    (lock,) = file.parent.glob("requirements.*.lock")
    assert lock.name == "requirements.tf2.15-cpu-3.11.lock" and "numpy==" not in lock.read_text()
    jobs.ok("start", file, "--wait", "--timeout", "2m", timeout=150)
    log = jobs.ok("logs", "--job", "own-packages")
    path = re.search(r"pandas 2\.\S+ at (/opt/tfctl/requirements/[0-9a-f]{12})/pandas", log)
    assert path, log
    assert re.search(r"numpy \S+ at /opt/tfctl/stacks/tf2\.15", log)
    assert min(map(float, re.findall(r"accuracy (\S+)", log))) > 0.9
    for node in ("node1", "node2", "node3", "node4"):
        expected_state.requirements(jobs.lab.testinfra(node), path[1], "pandas")
    again = ("provision", jobs.lab.inventory, "--requirements", requirements, "-o", "json")
    assert json.loads(jobs.lab.tfctl(*again).stdout)["changed"] == 0
    node1 = jobs.lab.testinfra("node1")
    jobs.lab.root_script("node1", f"rm {path[1]}/pandas/__init__.py", 20)
    expected_state.is_violated(expected_state.requirements, node1, path[1], "pandas")
    remedy = "tfctl provision INVENTORY --limit node1 --requirements FILE"
    assert remedy in jobs.lab.tfctl("nodes", "-i", jobs.lab.inventory).stderr
    assert json.loads(jobs.lab.tfctl(*again, timeout=300).stdout)["changed"] > 0
    expected_state.requirements(node1, path[1], "pandas")
    assert remedy not in jobs.lab.tfctl("nodes", "-i", jobs.lab.inventory).stderr


def test_requirements_that_do_not_fit_the_stack_change_nothing(jobs: Jobs) -> None:
    requirements = jobs.folder / "requirements.txt"
    requirements.write_text("numpy==2.0.0\n")
    done = jobs.lab.tfctl("provision", jobs.lab.inventory, "--requirements", requirements, "-o", "json", check=False)
    report = json.loads(done.stdout)
    assert (report["exit"], report["changed"]) == (3, 0)
    for host in report["hosts"]:
        assert "does not fit the stack tf2.15 (edition cpu, Python 3.11)" in host["reason"]
        assert "numpy" in host["reason"]
    assert not list(jobs.folder.glob("*.lock"))
