"""`provision` works on a canary, then on batches, and begins no further batch after one in which a host failed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.linked_collection import link_collection
from tests.linked_package import link_package
from tfctl.cli.host_results import host_lines
from tfctl.cli.provision import _summary
from tfctl.errors import Exit
from tfctl.provision import ansible
from tfctl.provision.events import Began, Collector, HostMessage, Message, PlayMessage, Warned
from tfctl.provision.order import BATCH, Order, batch_name, order
from tfctl.provision.results import PlayResult

LOCAL = "ansible_connection=local ansible_python_interpreter={{ansible_playbook_python}}"
#: A fake of the action decide. A host whose operator is "unfit" has a fault.
DECIDE = """
import gc
from ansible.plugins.action import ActionBase

gc.freeze()  # as the real one does

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        if "unfit" in self._task.args["operators"]:
            faults = [{"message": "no sudo", "remedy": "install it", "kind": "unfit"}]
            return {**result, "faults": faults}
        parts = dict.fromkeys(("stack", "gpu", "toolchain", "openmpi", "horovod"))
        return {**result, "seen": {"receipts": []}, "decision": {"operators": [], "output_roots": [], **parts}}
"""
#: A fake of the action due: the role job_host runs on every host without faults.
DUE = """
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        faults = self._task.args["faults"]
        if faults:
            return {**super().run(tmp, task_vars), "failed": True, "msg": faults[0]["message"], "faults": faults}
        role = {"role": "job_host", "entry": "main", "reason": "a test", "digest": "1", "manages": {}}
        connected = self._task.args["connected"]
        return {**super().run(tmp, task_vars), "roles": {"job_host": role}, "drifts": [], "connected": connected}
"""
#: A fake of receipt, which writes no receipt. It is an action, since a module takes much longer to run.
RECEIPT = """
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        return super().run(tmp, task_vars)
"""
#: An action that appends the host to a file, as far as check mode lets it.
APPEND = """
from pathlib import Path
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        if not self._task.check_mode:
            with Path(self._task.args["path"]).open("a") as file:
                file.write(f"{task_vars['inventory_hostname']}\\n")
        return {**super().run(tmp, task_vars), "changed": True}
"""
#: Fakes of roles. They write the hosts on which they run to files.
JOB_HOST = """
- name: Prepare the host
  tfctl.cluster.append_host: {path: "{{ log }}/prepared"}
  failed_when: out_of_order | default(false)
- name: Complete the host
  tfctl.cluster.append_host: {path: "{{ log }}/completed"}
"""
SSH_MESH = """
- name: Connect the host
  tfctl.cluster.append_host: {path: "{{ log }}/connected"}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with a collection that has the real playbook and role preflight, but fakes of what changes hosts."""
    actions = {"decide": DECIDE, "due": DUE, "receipt": RECEIPT, "append_host": APPEND}
    roles = {"job_host": JOB_HOST, "ssh_mesh": SSH_MESH}
    fakes = {
        **{f"plugins/action/{name}.py": text for name, text in actions.items()},
        **{f"roles/{name}/tasks/main.yml": text for name, text in roles.items()},
    }
    link_collection(tmp_path, {**{f"roles/{name}": None for name in roles}, **fakes})
    return tmp_path


def collections(folder: Path) -> Path:
    return folder / "collections"


def inventory(folder: Path, hosts: str, failing: str = "", unfit: str = "", **fleet: object) -> Path:
    """Write an inventory of hosts with these one-letter names."""
    lines = [f"{name} out_of_order={name in failing} tfctl_operators={'unfit' * (name in unfit)}" for name in hosts]
    everywhere = [f"log={folder}", "tfctl_ssh_mesh=ops", *(f"{name}={value}" for name, value in fleet.items())]
    path = folder / "hosts.ini"
    path.write_text("\n".join([*(f"{line} {LOCAL}" for line in lines), "[all:vars]", *everywhere, ""]))
    return path


def provisioned(path: Path, check: bool = False) -> tuple[PlayResult, list[str]]:
    """Run the playbook; return the result, and the hosts and names of the batches."""
    events: list[Any] = []
    # Without tags, Ansible would start a process for each host and role that does not run.
    tags = ("job_host", "ssh_mesh")
    result = ansible.run(
        ansible.Play("provision", path, tags=tags, check=check, collections=collections(path.parent)), events.append
    )
    return result, [f"{event.batch}: {''.join(event.hosts)}" for event in events if isinstance(event, Began)]


def logged(folder: Path, name: str) -> str:
    path = folder / name
    return "".join(sorted(path.read_text().split())) if path.exists() else ""


def not_begun(result: PlayResult) -> str:
    return "".join(host.host for host in result.hosts if not host.begun)


def test_all_hosts_are_provisioned_in_batches_after_a_canary(folder: Path) -> None:
    result, batches = provisioned(inventory(folder, "abcde", unfit="a", tfctl_canary=1, tfctl_batch=2))
    assert batches == [": abcde", "the canary: b", "batch 1 of 2: cd", "batch 2 of 2: e", ": bcde"]
    assert (logged(folder, "completed"), logged(folder, "connected"), not_begun(result)) == ("bcde", "bcde", "")
    assert [host.host for host in result.hosts if host.failed] == ["a"], "an unfit host is no failed canary"
    assert result.exit is Exit.PREFLIGHT


@pytest.mark.extended
def test_no_batch_begins_after_one_in_which_a_host_failed(folder: Path) -> None:
    """The other hosts of the failed batch are completed, and connected with those before them."""
    result, batches = provisioned(inventory(folder, "abcdefgh", failing="c", tfctl_batch=3))
    assert batches == [": abcdefgh", "the canary: a", "batch 1 of 3: bcd", ": abd"]
    assert (logged(folder, "prepared"), logged(folder, "completed")) == ("abcd", "abd")
    assert (logged(folder, "connected"), not_begun(result), result.exit) == ("abd", "efgh", Exit.FAILED)
    (fault,) = result.hosts[-1].faults
    assert fault.message == "not begun, because c failed in batch 1 of 3"
    assert fault.remedy == "repair c, then try again"


@pytest.mark.extended
def test_no_host_is_begun_after_a_failed_canary(folder: Path) -> None:
    link_package(folder)
    words = [sys.executable, "-m", "tfctl", "provision", str(inventory(folder, "abcde", failing="a")), "-o", "json"]
    settings = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(words, env=settings, cwd=folder, capture_output=True, text=True, timeout=60)
    assert (done.returncode, logged(folder, "prepared")) == (1, "a")
    hosts = json.loads(done.stdout)["hosts"]
    assert [host["begun"] for host in hosts] == [True, False, False, False, False]
    assert {host["reason"] for host in hosts[1:]} == {"not begun, because a failed in the canary"}
    assert "the canary: a\n" in done.stderr


@pytest.mark.extended
def test_run_says_what_it_left_out_when_a_whole_batch_fails(folder: Path) -> None:
    events: list[object] = []
    path = inventory(folder, "abcde", failing="e", tfctl_batch=3)
    result = ansible.run(ansible.Play("provision", path, collections=collections(path.parent)), events.append)
    assert (logged(folder, "completed"), logged(folder, "connected"), not_begun(result)) == ("abcd", "", "")
    (warned,) = (event for event in events if isinstance(event, Warned))
    assert warned.host == "batch 2 of 2" and "before data sets and ssh_mesh were set up" in warned.text


@pytest.mark.extended
def test_provision_in_one_batch_continues_without_a_failed_host(folder: Path) -> None:
    result, batches = provisioned(inventory(folder, "abcdef", failing="b", tfctl_canary=0))
    assert batches == [": abcdef", ": abcdef", ": acdef"]
    assert (logged(folder, "completed"), logged(folder, "connected"), not_begun(result)) == ("acdef", "acdef", "")


@pytest.mark.extended
def test_check_mode_looks_at_all_hosts_at_once(folder: Path) -> None:
    result, batches = provisioned(inventory(folder, "abcdef"), check=True)
    assert batches == [": abcdef"] * 3
    assert result.exit is Exit.OK and logged(folder, "prepared") == ""


@pytest.mark.extended
def test_ansible_playbook_alone_keeps_the_same_order(folder: Path) -> None:
    settings = {"ANSIBLE_COLLECTIONS_PATH": str(collections(folder)), "ANSIBLE_NOCOLOR": "1"}
    words = [sys.executable, "-m", "ansible", "playbook", "-i", "hosts.ini", "tfctl.cluster.provision"]
    inventory(folder, "abcdefgh", failing="c", tfctl_batch=3)
    ended = subprocess.run(
        words, cwd=folder, env={**os.environ, **settings}, capture_output=True, text=True, timeout=90
    )
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert (logged(folder, "prepared"), logged(folder, "connected")) == ("abcd", "abd")


@pytest.mark.extended
def test_a_wrong_number_of_hosts_in_the_inventory_is_a_fault_of_every_host(folder: Path) -> None:
    result, _ = provisioned(inventory(folder, "ab", tfctl_batch="10%"))
    assert result.exit is Exit.BAD_FILE and logged(folder, "prepared") == ""
    for host in result.hosts:
        (fault,) = host.faults
        assert fault.message == "tfctl_batch: '10%' is not a number of hosts from 1 up"
        assert fault.remedy == "correct it in the inventory"


@pytest.mark.parametrize(
    ("canary", "batch", "message"),
    [
        ("one", 50, "tfctl_canary: 'one' is not a number of hosts from 0 up"),
        (-1, 50, "tfctl_canary: -1 is not a number of hosts from 0 up"),
        (True, 50, "tfctl_canary: True is not a number of hosts from 0 up"),
        ("", 0, "tfctl_batch: 0 is not a number of hosts from 1 up"),
    ],
)
def test_order_refuses_a_canary_or_batch_that_is_no_number(canary: object, batch: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        order(canary, batch)


@pytest.mark.parametrize(
    ("given", "hosts", "serial"),
    [
        (("", ""), 4, [BATCH]),
        (("", ""), 5, [1, BATCH]),
        (("0", "20"), 100, [20]),
        ((3, 20), 4, [3, 20]),
    ],
)  # fmt: skip
def test_order_has_a_canary_when_there_are_more_than_four_hosts(
    given: tuple[object, object], hosts: int, serial: list[int]
) -> None:
    assert order(*given).serial(hosts) == serial


def test_batches_are_numbered_after_the_canary() -> None:
    assert [batch_name(index, 7, [1, 3]) for index in range(3)] == ["the canary", "batch 1 of 2", "batch 2 of 2"]
    assert [batch_name(index, 7, [5]) for index in range(2)] == ["batch 1 of 2", "batch 2 of 2"]
    assert batch_name(0, 4, [50]) == "", "there is only one"
    assert Order().serial(100) == [1, 50]


def batch(hosts: str, now: str) -> PlayMessage:
    return {"event": "play", "hosts": [*hosts], "batch": [*now], "serial": [1, 4]}


def failed(host: str) -> HostMessage:
    return {"event": "host", "host": host, "role": "r", "task": "t", "state": "failed", "result": {"msg": "broken"}}


def test_collector_names_the_failed_hosts_of_the_last_batch() -> None:
    """The messages are those of a run of nine hosts, of which four fail in the batch after the canary."""
    collector, hosts = Collector(), "abcdefghi"
    messages: list[Message] = [batch(hosts, "a"), batch(hosts, "bcde"), *map(failed, "bcde")]
    assert collector.take(messages[0]) == [Began(("a",), "the canary")]
    for message in messages[1:]:
        collector.take(message)
    (warned,) = collector.take({"event": "stats", "hosts": {}})
    assert isinstance(warned, Warned)
    result = collector.result()
    assert (not_begun(result), result.warnings) == ("fghi", (f"batch 1 of 2: {warned.text}",))
    *_, name, reason, remedy = host_lines(result, lambda host: _summary(host, False))
    assert (name, reason.strip()) == ("i  not begun", "not begun, because b, c, d and e failed in batch 1 of 2")
    assert remedy.strip() == "→ repair b, c, d and e, then try again"
