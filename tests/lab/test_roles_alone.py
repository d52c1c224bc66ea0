"""The roles of the stack alone, in a play as a user writes it: no preflight, and no variables of tfctl."""

from __future__ import annotations

import re

import pytest

from tests.lab import expected_state
from tests.lab.labs import Lab
from tests.lab.plays import play

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

NODE = "alone"
ROLES = ["python_env", "toolchain", "tensorflow", "openmpi", "horovod"]


def test_roles_of_the_stack_run_alone_in_a_play_of_a_user(node: Lab) -> None:
    """Horovod is built, unless this machine has its wheel. A second run changes nothing."""
    given = {"python_env_packages": ["python3.11-venv"], "horovod_mpi_prefix": "/usr"}
    assert re.search(r"changed=[1-9]\d* .*failed=0 ", output := play(node, ROLES, given)), output
    host = node.testinfra("node1")
    expected_state.python_env_packages(host, "python3.11-venv")
    expected_state.toolchain(host, 12)
    expected_state.tensorflow(host, "tf2.15", "3.11")
    expected_state.openmpi(host, "4.1.4")
    expected_state.horovod(host, "tf2.15", "3.11")
    for words in ((), ("--check",)):
        assert re.search("changed=0 .*failed=0 ", output := play(node, ROLES, given, *words)), output
    assert host.check_output("ls -A /var/cache/tfctl-sent | grep -E 'horovod|tf2' || true") == ""
