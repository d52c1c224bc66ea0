"""The roles run on a host unless all receipts hold: the same inputs, and nothing that they manage has changed."""

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
from tfctl.provision import ansible, node_part
from tfctl.provision.due import LIBRARIES, MOMENTARY, Wanted, choose, code_digest, digest_of
from tfctl.provision.events import Event, HostDone, TaskStarted, Warned
from tfctl.provision.faults import ModuleFault

CODE = "c"
WANTED = {"web": Wanted({"port": 1}, {}), "db": Wanted({"size": 2}, {"paths": ["/db"]})}


def receipt(part: str, *drifts: str, digest: str | None = None) -> CheckedReceipt:
    """Return a receipt that holds, unless another digest is given."""
    return CheckedReceipt(part, digest_of(CODE, WANTED[part].inputs) if digest is None else digest, drifts)


HOLDS = {part: receipt(part) for part in WANTED}


def reasons(receipts: Mapping[str, CheckedReceipt], **options: Any) -> dict[str, str]:
    """Return why each part runs."""
    return {part: role["reason"] for part, role in choose(CODE, WANTED, receipts, **options)["roles"].items()}


def test_nothing_runs_while_all_receipts_hold() -> None:
    assert reasons(HOLDS) == {}


@pytest.mark.parametrize(
    ("receipts", "reason"),
    [
        ({"db": HOLDS["db"]}, "web has not run here"),
        ({**HOLDS, "web": receipt("web", digest="")}, "the last run of web did not complete"),
        ({**HOLDS, "web": receipt("web", "x changed", digest="0")}, "the inputs of web have changed"),
        ({**HOLDS, "db": receipt("db", "x changed", "y was removed")}, "x changed; y was removed"),
    ],
)
def test_everything_runs_if_one_receipt_does_not_hold(receipts: dict[str, CheckedReceipt], reason: str) -> None:
    assert reasons(receipts) == {"web": reason, "db": reason}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"full": True}, {"web": "--full", "db": "--full"}),
        ({"check": True}, {"web": "--check", "db": "--check"}),
        ({"tags": ["db"]}, {"db": "--tags"}),
        ({"full": True, "skipped": ["db"]}, {"web": "--full"}),
        ({"tags": ["preflight"]}, {}),
        ({"live": ["db"]}, {"db": "it checks what no receipt describes"}),
        ({"live": ["db"], "tags": ["web"]}, {"web": "--tags"}),
    ],
)
def test_what_the_run_asks_for_runs(options: dict[str, Any], expected: dict[str, str]) -> None:
    assert reasons(HOLDS, **options) == expected


def test_what_runs_each_time_does_not_make_the_rest_run() -> None:
    changed = {**HOLDS, "db": receipt("db", "x changed")}
    found = choose(CODE, WANTED, changed, live=["db"])
    assert [*found["roles"]] == ["db"] and found["drifts"] == ["x changed"]


def test_what_is_not_planned_for_a_host_never_runs() -> None:
    assert choose(CODE, {}, {"web": receipt("web", "x changed")}, full=True) == {"roles": {}, "drifts": []}


@pytest.mark.parametrize("tag", ["nvidia_repo", "cuda", "cudnn", "nccl", "nvidia_driver"])
def test_the_package_source_runs_with_what_comes_from_it(tag: str) -> None:
    wanted = {"nvidia_repo": Wanted({}, {}), "tensorflow": Wanted({}, {}), tag: Wanted({}, {})}
    roles = choose(CODE, wanted, {}, tags=[tag])["roles"]
    assert {*roles} == {"nvidia_repo", tag}
    assert roles["nvidia_repo"]["entry"] == "main" and roles[tag]["entry"] == (tag if tag in LIBRARIES else "main")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("roles/web/tasks/main.yml", True),
        ("roles/web/templates/new.j2", True),
        ("plugins/modules/serve.py", True),
        ("roles/web/README.md", False),
        ("plugins/modules/__pycache__/serve.pyc", False),
        ("docs/page.yml", False),
    ],
)
def test_digest_covers_roles_and_plugins(tmp_path: Path, name: str, changes: bool) -> None:
    for each in ("roles/web/tasks/main.yml", "plugins/modules/serve.py"):
        (tmp_path / each).parent.mkdir(parents=True)
        (tmp_path / each).write_text("")
    before, path = code_digest(tmp_path), tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("# changed\n")
    assert (before != code_digest(tmp_path)) == changes


def test_digest_covers_the_node_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_digest(tmp_path)
    monkeypatch.setattr(node_part, "version", lambda: "another")
    assert before != code_digest(tmp_path)


def test_digest_covers_the_inputs_in_any_order() -> None:
    one, same, other = ({"a": 1, "b": {"c": [2]}}, {"b": {"c": [2]}, "a": 1}, {"a": 1, "b": {"c": [3]}})
    assert digest_of("code", one) == digest_of("code", same) != digest_of("code", other)
    assert digest_of("code", one) != digest_of("other code", one)


def test_digest_leaves_out_what_differs_after_an_installation() -> None:
    """Otherwise everything would run once more."""
    (one, *_) = MOMENTARY
    assert digest_of("code", {"a": 1, one: ["x"]}) == digest_of("code", {"a": 1, one: []})


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
    manages = {"note": {"paths": "{{ [note_file] + note_extra }}"}}
    always = {"note_path": str(folder), "provision_manages": manages}
    plays = [{**given, "vars": {**always, **variables}} for variables in ({}, *more)]
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
def test_role_that_failed_runs_again(play: ansible.Play, tmp_path: Path) -> None:
    (tmp_path / "note").mkdir()
    with pytest.raises(AssertionError, match="note"):
        run(play)
    receipt = json.loads((tmp_path / "receipts/note.json").read_text())
    assert (receipt["digest"], receipt["installed"]) == ("", []), "what is installed from now on is not the role's"
    (tmp_path / "note").rmdir()
    assert run(play)[1] == 1
