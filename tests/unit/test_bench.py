"""The command line of scripts/bench. What it measures needs a lab."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit.model.four_hosts import INVENTORY
from tfctl.model.assign import assign
from tfctl.model.host import Site
from tfctl.model.job import Job
from tfctl.model.layout import lay_out
from tfctl.model.load import load

BENCH = Path(__file__).parents[2] / "scripts" / "bench"


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(BENCH), *words], capture_output=True, text=True, timeout=30)


def test_help_is_not_taken_for_an_inventory() -> None:
    done = bench("--help")
    assert (done.returncode, done.stdout.startswith("usage: bench ")) == (0, True)


@pytest.mark.parametrize("words", [[], ["my.ini", "many"], ["my.ini", "0"], ["my.ini", "5", "more"], ["training"]])
def test_a_wrong_command_line_is_a_usage_error(words: list[str]) -> None:
    done = bench(*words)
    assert (done.returncode, done.stderr.startswith("usage: bench ")) == (2, True)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script as a module. Its name has no suffix."""
    spec = spec_from_loader("bench", SourceFileLoader("bench", str(BENCH)))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_aliases_share_the_nodes_and_the_group_of_a_lab(script: ModuleType) -> None:
    hosts = "node1 ansible_host=10.0.0.1\nnode2 ansible_host=10.0.0.2\n"
    lab = f"# a comment\n\n[lab]\n{hosts}\n[lab:vars]\ntfctl_stack=tf2.15\n"
    assert script.aliases(lab, 3).splitlines() == [
        "# a comment", "", "[lab]", "alias000 ansible_host=10.0.0.1", "alias001 ansible_host=10.0.0.2",
        "alias002 ansible_host=10.0.0.1", "", "[lab:vars]", "tfctl_stack=tf2.15",
    ]  # fmt: skip


def test_stock_ansible_playbook_accepts_the_playbook(script: ModuleType, tmp_path: Path) -> None:
    """Without a node, only the paths, the variables and the syntax can be checked."""
    inventory = tmp_path / "hosts.ini"
    inventory.write_text("node1 ansible_host=10.0.0.1\n")
    words = [*script.stock(inventory, tmp_path / "ansible.cfg"), "--syntax-check"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_training_by_hand_runs_the_tasks_with_the_environment_of_tfctl(script: ModuleType, tmp_path: Path) -> None:
    file = script.training_job(tmp_path, "parameter_server", "{chief: 1, ps: 1, worker: 2}")
    assert script.job_name(file) == "bench-parameter-server"
    layout = lay_out(load(file), INVENTORY, str(file))
    job = Job(layout, 1, "0123abcd", 0.0, assign(layout, {host.name: Site("10.0.0.1", {}) for host in layout.hosts}))
    lines = script.by_hand_script(job, job.tasks[0], "/srv/tfctl/by hand")
    assert "cd '/srv/tfctl/by hand'\n" in lines
    assert "TFCTL_ROLE=chief" in lines
    assert lines.count("'TF_CONFIG={") == 1
    assert "python train.py & task=$!" in lines


def test_a_task_by_hand_ends_with_its_client_and_keeps_its_exit_code(script: ModuleType, tmp_path: Path) -> None:
    def command(words: str) -> list[str]:
        return ["sh", "-c", script.BY_HAND.format(folder=tmp_path, variables="A=1", words=words)]

    with subprocess.Popen(command("/bin/sh -c 'echo $A; exit 7'"), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as it:
        assert it.stdout is not None
        assert (it.stdout.read(), it.wait(20)) == (b"1\n", 7)
    with subprocess.Popen(command("/bin/sleep 600"), stdin=subprocess.PIPE) as endless:
        assert endless.stdin is not None
        endless.stdin.close()
        assert endless.wait(20) == 143


def test_the_throughput_is_found_among_the_lines_of_a_task(script: ModuleType) -> None:
    assert script.throughput("2026 warning\nchief/0 | throughput 1234.50\n") == 1234.5
    with pytest.raises(RuntimeError, match="no task has printed a throughput: boom"):
        script.throughput("boom")
