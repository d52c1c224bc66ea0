"""A role runs on a host unless its receipt holds: the same inputs, and nothing that it manages has changed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.linked_collection import link_collection
from tfctl.errors import Exit
from tfctl.node.receipts import CheckedReceipt
from tfctl.provision import ansible
from tfctl.provision.due import code_digests, digest_of, due
from tfctl.provision.events import Event, HostDone, TaskStarted, Warned
from tfctl.provision.faults import ModuleFault

HOLDS = {"web": CheckedReceipt("web", "1"), "db": CheckedReceipt("db", "2")}
NOW = {"web": "1", "db": "2"}


def test_no_role_runs_while_all_receipts_are_valid() -> None:
    assert due(NOW, HOLDS) == {}


@pytest.mark.parametrize(
    ("receipts", "options", "expected"),
    [
        ({"db": HOLDS["db"]}, {}, {"web": "it has not run here"}),
        ({**HOLDS, "web": CheckedReceipt("web", "")}, {}, {"web": "its last run did not complete"}),
        ({**HOLDS, "web": CheckedReceipt("web", "0", ("x changed",))}, {}, {"web": "its inputs have changed"}),
        (
            {**HOLDS, "db": CheckedReceipt("db", "2", ("x changed", "y was removed"))},
            {},
            {"db": "x changed; y was removed"},
        ),
        (HOLDS, {"full": True}, {"web": "--full", "db": "--full"}),
        (HOLDS, {"check": True}, {"web": "--check", "db": "--check"}),
        (HOLDS, {"named": ["db"]}, {"db": "--tags"}),
        (HOLDS, {"named": ["all"]}, {}),
        (HOLDS, {"unskipped": ["db"]}, {"db": "it checks what no receipt describes"}),
    ],
)
def test_role_runs_with_the_expected_reason(
    receipts: dict[str, CheckedReceipt], options: dict[str, Any], expected: dict[str, str]
) -> None:
    assert due(NOW, receipts, **options) == expected


def test_role_that_is_not_planned_for_a_host_never_runs() -> None:
    assert due({}, {"web": CheckedReceipt("web", "", ("x changed",))}, full=True) == {}


def test_roles_that_add_files_to_the_environment_run_when_it_may_be_installed_again() -> None:
    digests = {"tensorflow": "1", "requirements": "2", "openmpi": "3", "horovod": "4"}
    receipts = {role: CheckedReceipt(role, digest) for role, digest in digests.items()}
    assert due(digests, receipts) == {}
    changed = CheckedReceipt("tensorflow", "1", ("x changed",))
    adds = "it adds files to what tensorflow installs"
    found = due(digests, {**receipts, "tensorflow": changed})
    assert found == {"tensorflow": "x changed", "openmpi": adds, "horovod": adds}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A role that uses a module, which uses a module_util, and a role that includes another."""
    files = {
        "roles/web/tasks/main.yml": "- tfctl.cluster.serve: {port: '{{ web_port }}'}\n",
        "roles/web/README.md": "page",
        "roles/other/tasks/main.yml": "- ansible.builtin.include_role:\n    name: tfctl.cluster.web\n",
        "plugins/modules/serve.py": "from ansible_collections.tfctl.cluster.plugins.module_utils.net import listen\n",
        "plugins/module_utils/net.py": "x = 1\n",
        "plugins/module_utils/serve.py": "",
        "plugins/module_utils/unrelated.py": "",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("roles/web/tasks/main.yml", True),
        ("roles/web/templates/new.j2", True),
        ("plugins/modules/serve.py", True),
        ("plugins/module_utils/net.py", True),
        ("plugins/module_utils/serve.py", True),
        ("plugins/module_utils/unrelated.py", False),
        ("roles/web/README.md", False),
        ("roles/web/files/__pycache__/x.pyc", False),
    ],
)
def test_digest_covers_the_files_of_a_role_and_the_modules_it_uses(data: Path, name: str, changes: bool) -> None:
    before, path = code_digests(data), data / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text((path.read_text() if path.exists() else "") + "# changed\n")
    after = code_digests(data)
    assert [before[role] != after[role] for role in ("web", "other")] == [changes, changes]


def test_digest_covers_the_inputs_in_any_order() -> None:
    one, same, other = ({"a": 1, "b": {"c": [2]}}, {"b": {"c": [2]}, "a": 1}, {"a": 1, "b": {"c": [3]}})
    assert digest_of("code", one) == digest_of("code", same) != digest_of("code", other)
    assert digest_of("code", one) != digest_of("other code", one)


LOCAL = "ansible_connection=local\nansible_python_interpreter={{ansible_playbook_python}}"
ROLE = {
    "defaults/main.yml": "note_text: \"{{ tfctl_text | default('one') }}\"\nnote_extra: []\n",
    "meta/argument_specs.yml": (
        "argument_specs: {main: {short_description: Write a note, options: {"
        "note_text: {type: str, description: The text}, note_path: {type: path, description: Where}, "
        "note_extra: {type: list, elements: str, description: Other files}}}}\n"
    ),
    "tasks/main.yml": (
        "- name: Write it\n"
        "  ansible.builtin.lineinfile: {line: '{{ note_text }}', path: '{{ note_file }}', regexp: '.*', create: true}\n"
    ),
    "vars/main.yml": 'note_file: "{{ note_path }}/note"\n',
    "vars/receipt.yml": "note_manages: {paths: '{{ [note_file] + note_extra }}'}\n",
}


#: An action that returns what is known about the receipts in a directory.
RECEIPTS = """
from dataclasses import asdict
from ansible.plugins.action import ActionBase
from tfctl.node.receipts import check_all

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        found = [asdict(each) for each in check_all(self._task.args["folder"])]
        return {**super().run(tmp, task_vars), "receipts": found}
"""


def new_play(folder: Path, *more: Mapping[str, object]) -> ansible.Play:
    """A role that writes a file, run as provision.yml runs roles: on this machine, with receipts in ``folder``.

    ``more``: the variables of further plays of the same run, which do the same.
    """
    real = ansible.data_dir()
    files: dict[str, str | None] = {f"roles/note/{name}": text for name, text in ROLE.items()}
    receipts = folder / "receipts"
    for name in ("role.yml", "failed_role.yml"):
        tasks_of_role = (real / "playbooks/tasks" / name).read_text()
        in_folder = re.sub(r"^( +)state:", rf"\1folder: {receipts}\n\1state:", tasks_of_role, flags=re.MULTILINE)
        files[f"playbooks/{name}"] = in_folder
    files["plugins/action/receipts.py"] = RECEIPTS
    tasks: list[dict[str, object]] = [
        {"name": "Look", "tfctl.cluster.receipts": {"folder": str(receipts)}, "register": "seen"},
        {
            "name": "Decide",
            "tfctl.cluster.due": {
                "faults": "{{ faults | default([]) }}",
                "roles": {"note": True, "absent": False},
                "receipts": "{{ seen.receipts }}",
                "full": "{{ tfctl_full | default(false) }}",
                "momentary": {"note": "{{ momentary | default([]) }}"},
            },
            "register": "provision_due",
        },
        {
            "name": "Note",
            "ansible.builtin.include_tasks": "role.yml",
            "vars": {"tfctl_role": "note"},
            "when": "'note' in provision_due.roles",
        },
    ]
    given = {"hosts": "all", "gather_facts": False, "tasks": tasks}
    plays = [{**given, "vars": {"note_path": str(folder), **variables}} for variables in ({}, *more)]
    files["playbooks/test.yml"] = json.dumps(plays)
    (folder / "tmp").mkdir()  # Ansible would warn of having created it
    (folder / "hosts.ini").write_text(f"[all:vars]\n{LOCAL}\nansible_remote_tmp={folder}/tmp\n[ungrouped]\na\n")
    return ansible.Play("test", folder / "hosts.ini", collections=link_collection(folder, files))


@pytest.fixture
def play(tmp_path: Path) -> ansible.Play:
    return new_play(tmp_path)


def run(play: ansible.Play, *, check: bool = False, **variables: object) -> tuple[list[str], int, list[str]]:
    """Return the titles of the tasks, the number of changes, and the warnings."""
    events: list[Event] = []
    one = replace(play, check=check, variables=variables)
    result = ansible.run(one, events.append)
    assert not result.hosts[0].failed, result.hosts[0].reason
    titles = [event.name for event in events if isinstance(event, TaskStarted)]
    assert {event.host for event in events if isinstance(event, HostDone)} == {"a"}
    return titles, result.changed, [event.text for event in events if isinstance(event, Warned)]


WHOLE = ["Look", "Record what the host has before the role", "note: Write it", "Write the receipt of the role"]


def test_role_is_skipped_until_its_inputs_change_and_does_not_run_on_a_host_with_faults(tmp_path: Path) -> None:
    play = new_play(tmp_path, {}, {"tfctl_text": "two"})
    fault: ModuleFault = {"message": "no sudo", "remedy": "install it", "kind": "unfit"}
    with play.inventory.open("a") as file:
        file.write(f"unfit faults='[{json.dumps(fault)}]'\n")
    events: list[Event] = []
    fit, unfit = ansible.run(play, events.append).hosts
    titles = [event.name for event in events if isinstance(event, TaskStarted)]
    assert titles == [*WHOLE, "Look", *WHOLE]
    assert (fit.failed, fit.changed) == (False, 2), fit.reason
    assert not [event for event in events if isinstance(event, Warned)]
    assert json.loads((tmp_path / "receipts/note.json").read_text())["created"]["paths"] == [f"{tmp_path}/note"]
    assert (tmp_path / "note").read_text() == "two\n"
    assert (unfit.failed, unfit.task, unfit.reason, unfit.changed) == (True, "preflight: Decide", "no sudo", 0)
    assert unfit.faults[0].exit is Exit.PREFLIGHT


@pytest.mark.extended
def test_role_restores_a_file_that_was_changed_and_check_only_reports_it(play: ansible.Play, tmp_path: Path) -> None:
    run(play)
    (tmp_path / "note").write_text("mine")
    drift = [f"{tmp_path}/note changed since it was provisioned"]
    assert run(play, check=True) == (WHOLE, 1, drift)
    assert (tmp_path / "note").read_text() == "mine"
    assert run(play) == (WHOLE, 1, drift)
    assert run(play) == (["Look"], 0, [])


@pytest.mark.extended
def test_role_runs_with_full_and_after_an_upgrade_of_tfctl(play: ansible.Play) -> None:
    run(play)
    assert run(play, tfctl_full=True) == (WHOLE, 0, [])
    with (ansible.collection(play.collections) / "roles/note/tasks/main.yml").open("a") as file:
        file.write("# another version of tfctl\n")
    assert run(play) == (WHOLE, 0, [])


@pytest.mark.extended
@pytest.mark.parametrize(("momentary", "expected"), [([], WHOLE), (["note_extra"], ["Look"])])
def test_receipt_holds_without_the_variables_that_are_momentary(
    play: ansible.Play, tmp_path: Path, momentary: list[str], expected: list[str]
) -> None:
    """Such variables still reach the role, and its receipt has what it manages with them."""
    other = tmp_path / "other"
    other.write_text("")
    assert run(play, momentary=momentary, note_extra=[str(other)])[0] == WHOLE
    assert str(other) in json.loads((tmp_path / "receipts/note.json").read_text())["manages"]["paths"]
    assert run(play, momentary=momentary)[0] == expected


@pytest.mark.extended
def test_role_that_failed_runs_again(play: ansible.Play, tmp_path: Path) -> None:
    (tmp_path / "note").mkdir()
    with pytest.raises(AssertionError, match="note"):
        run(play)
    receipt = json.loads((tmp_path / "receipts/note.json").read_text())
    assert (receipt["digest"], receipt["installed"]) == ("", []), "what is installed from now on is not the role's"
    (tmp_path / "note").rmdir()
    assert run(play)[1] == 1
