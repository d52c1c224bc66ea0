"""A playbook runs as a child process, here over a local connection: its events, its report and its end."""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import json
import os
import pwd
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.tfctl.cluster.plugins.module_utils.install import alone

from tests.linked_collection import link_collection
from tests.linked_package import link_package
from tfctl.errors import BadFile, Exit, TfctlError
from tfctl.provision import ansible
from tfctl.provision.ansible_environment import environment
from tfctl.provision.events import Event, HostDone, TaskStarted, Warned
from tfctl.provision.reset import ResetRequest
from tfctl.provision.results import PlayResult
from tfctl.provision.run_folder import run_folder
from tfctl.remote import own_address
from tfctl.remote.inventory import load

ROLES = ansible.data_dir() / "roles"
EMPTY = {"playbooks": None, "roles": None}
LOCAL = "ansible_connection=local ansible_python_interpreter={{ansible_playbook_python}}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with a collection that contains no playbook and no role, but the real plugins."""
    link_collection(tmp_path, EMPTY)
    return tmp_path


def own(folder: Path) -> Path:
    """Return the directory of the collection."""
    return ansible.collection(folder / "collections")


def play_of(folder: Path, *hosts: str, **more: Any) -> ansible.Play:
    return ansible.Play("test", inventory(folder, *hosts), collections=folder / "collections", **more)


def inventory(folder: Path, *hosts: str) -> Path:
    path = folder / "hosts.ini"
    path.write_text("".join(f"{host} {LOCAL}\n" for host in hosts))
    return path


def read_tasks(name: str) -> list[dict[str, object]]:
    return list(yaml.safe_load((ROLES / name).read_text()))


def playbook(folder: Path, *tasks: Mapping[str, object]) -> None:
    play = {"hosts": "all", "gather_facts": False, "tasks": list(tasks)}
    (own(folder) / "playbooks/test.yml").write_text(json.dumps([play]))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, PlayResult, list[Event]]:
    """One run on two hosts, of which b fails at its first task: the data directory, the result and the events."""
    folder = tmp_path_factory.mktemp("ran")
    link_collection(folder, EMPTY)
    on_a = {"when": "inventory_hostname == 'a'"}
    create = {"path": f"{folder}/{{{{ inventory_hostname }}}}-{{{{ text }}}}", "state": "directory"}
    playbook(
        folder,
        {"name": "Stop", "ansible.builtin.fail": {"msg": "out of paper"}, "when": "inventory_hostname == 'b'"},
        {"name": "Create", "ansible.builtin.file": create},
        {"name": "Keep", "ansible.builtin.file": {**create, "path": str(folder)}, **on_a},
        {"name": "Report", "ansible.builtin.debug": {"msg": "{{ inventory_hostname }} is slow"}, **on_a},
    )
    events: list[Event] = []
    play = play_of(folder, "a", "b", variables={"text": "x"})
    return folder, ansible.run(play, events.append), events


def test_playbook_continues_on_other_hosts_when_one_fails(ran: tuple[Path, PlayResult, list[Event]]) -> None:
    folder, report, events = ran
    assert [event.name for event in events if isinstance(event, TaskStarted)] == ["Stop", "Create", "Keep", "Report"]
    assert [(e.host, e.state) for e in events if isinstance(e, HostDone) and e.task == "Create"] == [("a", "changed")]
    a, b = report.hosts
    assert (a.host, a.changed, a.exit) == ("a", 1, Exit.OK), "the task Keep changes nothing"
    assert (b.host, b.failed, b.task, b.reason, b.exit) == ("b", True, "Stop", "out of paper", Exit.FAILED)
    assert (report.changed, report.exit) == (1, Exit.FAILED)
    assert (folder / "a-x").is_dir() and not (folder / "b-x").exists()


def test_debug_message_of_a_role_is_a_warning(ran: tuple[Path, PlayResult, list[Event]]) -> None:
    _, _, events = ran
    assert [event for event in events if isinstance(event, Warned)] == [Warned("a", "a is slow")]


#: Settings of a user that would change which tasks run, on which hosts, as whom, or what is known of their results.
OF_A_USER = """
[defaults]
strategy = free
strategy_plugins = {folder}/own
any_errors_fatal = True
forks = 1
callbacks_enabled = own
callback_plugins = {folder}/own
stdout_callback = yaml
task_timeout = 1
no_log = True
verbosity = 4
debug = False
transport = paramiko
force_color = True
gathering = smart
fact_caching = jsonfile
ask_vault_pass = True
ask_pass = True
enable_task_debugger = True
[tags]
skip = always
run = never
[privilege_escalation]
become = True
become_user = nobody
become_ask_pass = True
[ssh_connection]
control_path = {folder}/own-%%h
[diff]
always = True
"""
CALLBACK = """
from ansible.plugins.callback import CallbackBase

class CallbackModule(CallbackBase):
    CALLBACK_NAME = "own"

    def v2_playbook_on_start(self, playbook):
        open({file!r}, "w")
"""


def test_settings_of_a_user_do_not_change_a_run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/own.py").write_text(CALLBACK.format(file=str(tmp_path / "called")))
    config = tmp_path / "ansible.cfg"
    config.write_text(OF_A_USER.format(folder=tmp_path))
    monkeypatch.setenv("ANSIBLE_CONFIG", str(config))
    playbook(
        folder,
        {"name": "Stop", "ansible.builtin.fail": {"msg": "out of paper"}, "when": "inventory_hostname == 'b'"},
        {"name": "Wait", "ansible.builtin.command": "sleep 1.5", "when": "inventory_hostname == 'a'"},
        {"name": "Create", "ansible.builtin.file": {"path": f"{folder}/made", "state": "touch"}, "tags": ["always"]},
    )
    events: list[Event] = []
    a, b, c = ansible.run(play_of(folder, "a", "b", "c"), events.append).hosts
    assert (a.exit, b.exit, c.exit) == (Exit.OK, Exit.FAILED, Exit.OK), (a.reason, c.reason)
    assert b.reason == "out of paper"
    assert [event.name for event in events if isinstance(event, TaskStarted)] == ["Stop", "Wait", "Create"]
    assert not any(event.diff for event in events if isinstance(event, HostDone))
    assert (folder / "made").stat().st_uid == os.getuid()
    assert not (tmp_path / "called").exists()


@pytest.mark.parametrize(("tags", "made"), [((), "abc"), (("b",), "b"), (("b", "c"), "bc")])
def test_only_the_tags_of_a_run_count_although_a_user_has_set_others(
    tags: tuple[str, ...], made: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANSIBLE_RUN_TAGS", "a")
    tasks = [{"name": each, "ansible.builtin.debug": {"msg": each}, "tags": [each]} for each in "abc"]
    playbook(folder, *tasks)
    events: list[Event] = []
    assert ansible.run(replace(play_of(folder, "h"), tags=tags), events.append).exit is Exit.OK
    assert "".join(event.name for event in events if isinstance(event, TaskStarted)) == made


def test_ssh_arguments_of_a_user_follow_those_of_tfctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tfctl's own connections use them too, so that both reach the hosts behind the same jump host."""
    config = tmp_path / "ansible.cfg"
    config.write_text(
        "[ssh_connection]\nssh_args = -F own.cfg -o ControlPath=/own -oControlMaster=no -o ControlPersist=9 -J b\n"
    )
    monkeypatch.setenv("ANSIBLE_CONFIG", str(config))
    with run_folder() as made:
        words = environment(tmp_path, made, 3, 4)["ANSIBLE_SSH_ARGS"].split()
    assert words[-4:] == ["-F", "own.cfg", "-J", "b"]
    assert [word for word in words if word.startswith("Control")] == ["ControlMaster=auto", "ControlPersist=60s"]
    assert "StrictHostKeyChecking=yes" in words


@pytest.mark.parametrize("locale", ["C", "POSIX", "en_US.ISO-8859-1", "tr_TR.UTF-8", "no/such locale"])
def test_playbook_runs_in_every_locale(folder: Path, locale: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LC_ALL", "LANG", "LC_CTYPE"):
        monkeypatch.setenv(name, locale)
    playbook(folder, {"name": "Speak", "ansible.builtin.debug": {"msg": "İzmir"}})
    events: list[Event] = []
    assert ansible.run(play_of(folder, "a"), events.append).exit is Exit.OK
    assert [event.text for event in events if isinstance(event, Warned)] == ["İzmir"]


@pytest.mark.parametrize("name", ["", "with spaces", "100%", "x" * 100, "'quoted' $HOME"])
def test_sockets_of_ssh_are_where_their_paths_are_valid(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their names are those that Ansible chooses, and ssh appends 17 characters while it makes one."""
    (tmp_path / name).mkdir(exist_ok=True)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name) if name else "/var/tmp")
    with run_folder() as made:
        path = f"{made.connections}/0123456789"
        assert len(path) + 17 <= 104
        assert not set(path) & set(" %'$")
        assert made.path.parent == Path(tempfile.gettempdir())
        folders = (made.path, made.connections)
        assert all(folder.stat().st_mode & 0o777 == 0o700 for folder in folders)
    assert not any(folder.exists() for folder in folders)


#: A module that fails and passes on an exception, as some modules of Ansible do.
FAILING = """
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule({"text": {}, "secret": {"no_log": True}})
try:
    try:
        raise KeyError("cached")
    except KeyError:
        open("/nonexistent/file")
except OSError as error:
    module.fail_json(msg=module.params["text"], exception=error)
"""


@pytest.mark.extended
@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"text": "out of luck"}, ["out of luck", "[Errno 2] No such file or directory: '/nonexistent/file'"]),
        ({"text": "no: [Errno 2] No such file or directory: '/nonexistent/file'"}, None),
        # ansible-core does not censor the exception.
        ({"text": "out of luck", "secret": "/nonexistent"}, ["out of luck"]),
    ],
)
def test_reason_contains_the_cause_that_ansible_keeps_apart_from_the_message(
    tmp_path: Path, arguments: dict[str, str], lines: list[str] | None
) -> None:
    playbook_with_module(tmp_path, FAILING, arguments)
    (host,) = ansible.run(play_of(tmp_path, "a"), print).hosts
    assert host.reason.splitlines() == (lines or [arguments["text"]])


#: A module of a host that somebody else controls. It prints the answer that it is given.
HOSTILE = """
import os

from ansible.module_utils.basic import AnsibleModule

print(AnsibleModule({"answer": {"type": "str"}}).params["answer"].replace("@", chr(92)), flush=True)
os._exit(0)
"""


@pytest.mark.extended
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ('{"changed": true, "faults": [1], "drifts": 5}', "the host's answer to this task is malformed: faults/0"),
        ('{"failed": true, "msg": "half of a pair: @ud800"}', "Refusing to deserialize an invalid UTF8 string"),
        ('{"failed": true, "msg": {"a": 1}, "results": 5, "diff": {"before": 7, "after": 8}}', ""),
        ("[" * 100_000, ""),
    ],
)
def test_host_whose_answer_is_malformed_fails_and_the_others_go_on(tmp_path: Path, answer: str, reason: str) -> None:
    playbook_with_module(tmp_path, HOSTILE, {"answer": "{{ answers[inventory_hostname] }}"})
    answers = {"a": answer, "b": '{"changed": true}'}
    play = play_of(tmp_path, "a", "b", variables={"answers": answers})
    events: list[Event] = []
    a, b = ansible.run(play, events.append).hosts
    assert a.failed and a.reason.startswith(reason), a
    assert (b.failed, b.changed) == (False, 1), b.reason
    "\n".join(map(str, [a, b, *events])).encode()  # as it is printed


#: A module that returns what ansible.builtin.dnf does.
INSTALLING = """
from ansible.module_utils.basic import AnsibleModule

AnsibleModule({}).exit_json(changed=True, results=["Installed: gcc-14"])
"""


@pytest.mark.extended
def test_change_by_a_module_whose_results_are_texts_is_reported(tmp_path: Path) -> None:
    playbook_with_module(tmp_path, INSTALLING, {})
    events: list[Event] = []
    (host,) = ansible.run(play_of(tmp_path, "a", diff=True), events.append).hosts
    assert host.changed == 1
    assert [each.state for each in events if isinstance(each, HostDone)] == ["changed"]


def playbook_with_module(folder: Path, code: str, arguments: dict[str, str]) -> None:
    """Make a playbook with a role whose only task is a module of its own."""
    link_collection(folder, {**EMPTY, "plugins/modules/own.py": code})
    (own(folder) / "roles/own/tasks").mkdir(parents=True)
    (own(folder) / "roles/own/tasks/main.yml").write_text(
        json.dumps([{"name": "Run it", "tfctl.cluster.own": arguments}])
    )
    playbook(folder, {"ansible.builtin.include_role": {"name": "tfctl.cluster.own"}})


@pytest.mark.extended
def test_playbook_imports_no_python_file_of_the_current_directory(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    playbook(folder, {"name": "Ping", "ansible.builtin.ping": {}})
    own = tmp_path / "own"
    own.mkdir()
    for name in ("ansible", "yaml", "json"):
        (own / f"{name}.py").write_text("raise SystemExit('a file of the user was imported')\n")
    monkeypatch.chdir(own)
    assert ansible.run(play_of(folder, "a"), lambda _: None).exit is Exit.OK


@pytest.mark.extended
def test_build_warns_while_it_waits_for_another_run_and_then_continues(folder: Path) -> None:
    """The task is the one of the role openmpi. Its source stays on the host until the build has had its turn."""
    (folder / "source").touch()
    (task,) = (each for each in read_tasks("openmpi/tasks/build.yml") if "tfctl.cluster.build" in each)
    given = {"name": "Open MPI", "script": "echo error: no compiler; exit 1", "directory": f"{folder}/mpi/.build"}
    playbook(
        folder, {**task, "tfctl.cluster.build": {**given, "archive": f"{folder}/source", "result": f"{folder}/made"}}
    )
    events: list[Event] = []
    with contextlib.ExitStack() as other:
        other.enter_context(alone(folder / "mpi/.lock", "builds all day"))

        def listen(event: Event) -> None:
            events.append(event)
            if isinstance(event, Warned):
                assert (folder / "source").exists()
                other.close()

        report = ansible.run(play_of(folder, "a"), listen)
    (waits,) = (event.text for event in events if isinstance(event, Warned))
    assert re.fullmatch(
        rf"waits up to 15 min: another run builds all day on this host, for \d+ s now \(process {os.getpid()}\)",
        waits,
    )
    assert report.hosts[0].reason == "Open MPI could not be built\nerror: no compiler"
    assert not (folder / "source").exists()


@pytest.mark.extended
def test_check_with_diff_prints_each_diff_of_a_loop_and_changes_nothing(folder: Path) -> None:
    (folder / "old").write_text("there\n")
    write = {"content": "{{ item.text }}\n", "dest": f"{folder}/{{{{ item.name }}}}"}
    items = [{"name": "new", "text": "hello"}, {"name": "old", "text": "there"}, {"name": "other", "text": "again"}]
    playbook(folder, {"name": "Write", "ansible.builtin.copy": write, "loop": items})
    events: list[Event] = []
    report = ansible.run(
        play_of(folder, "a", check=True, diff=True),
        events.append,
    )
    assert report.changed == 1
    assert not (folder / "new").exists()
    (done,) = (event for event in events if isinstance(event, HostDone))
    assert [line for line in done.diff.splitlines() if line.startswith("+") and "after" not in line] == [
        "+hello", "+again",
    ]  # fmt: skip


#: A fake sudo: asks for the password as `sudo -S -p PROMPT` does, and runs the command as the same user. With -n, it
#: fails as sudo does.
FAKE_SUDO = """#!/bin/sh
case " $* " in *" -n "*) echo 'sudo: a password is required' >&2; exit 1 ;; esac
while [ "$1" != -p ]; do shift; done
prompt=$2
for attempt in 1 2 3; do
    printf '%s' "$prompt" >&2
    read -r password || break
    [ "$password" = open-sesame ] && break
    echo 'Sorry, try again.' >&2
done
[ "$password" = open-sesame ] || { echo 'sudo: 3 incorrect password attempts' >&2; exit 1; }
while [ "$1" != -u ]; do shift; done
shift 2
exec "$@"
"""
#: Prints where others could read the password: command lines, environments, and files of the given directories.
FIND_PASSWORD = """
import contextlib, sys
from pathlib import Path
from typing import Any
password = "-".join(["open", "sesame"]).encode()
places = [*Path("/proc").glob("[0-9]*/cmdline"), *Path("/proc").glob("[0-9]*/environ")]
places += [path for folder in sys.argv[1:] for path in Path(folder).rglob("*") if path.is_file()]
for path in places:
    with contextlib.suppress(OSError):
        if password in path.read_bytes():
            print(path)
"""


#: Prints whether a reset with the password on stdin has failed, and why.
RESET = """
import sys
from pathlib import Path
from typing import Any
from tfctl.provision.reset import ResetRequest, reset
request = ResetRequest(Path("hosts.ini"), become_password=sys.stdin.read() or None)
(host,) = reset(request, lambda _: None).hosts
print(host.failed or host.unreachable, host.reason)
"""


@pytest.mark.extended
def test_become_password_reaches_sudo_and_nobody_else(folder: Path) -> None:
    temporary = folder / "tmp"
    temporary.mkdir()
    link_package(folder)
    # Ansible does not call sudo for a user to become itself.
    settings = {
        **os.environ, "TMPDIR": str(temporary), "ANSIBLE_BECOME_ALLOW_SAME_USER": "True", "PYTHONPATH": str(folder),
    }  # fmt: skip
    (folder / "sudo").write_text(FAKE_SUDO)
    (folder / "sudo").chmod(0o755)
    (folder / "find.py").write_text(FIND_PASSWORD)
    command = f"{sys.executable} {folder}/find.py {temporary}"
    look = {"name": "Look", "become": True, "ansible.builtin.command": command, "register": "found"}
    playbook(folder, look, {"name": "Tell", "ansible.builtin.assert": {"that": "found.stdout == ''"}})
    (own(folder) / "playbooks/test.yml").rename(own(folder) / "playbooks/reset.yml")
    hosts = inventory(folder, f"a ansible_become_exe={folder}/sudo")
    for password, fails, reason in (
        ("open-sesame", False, ""),
        # By ssh, these are "Incorrect sudo password" and "Missing sudo password".
        ("wrong", True, "Duplicate become password prompt encountered"),
        (None, True, "Premature end of stream waiting for become success"),
    ):
        request = ResetRequest(hosts, become_password=password)
        assert "sesame" not in repr(request) + repr(ansible.Play("test", hosts, become_password=password))
        done = subprocess.run(
            [sys.executable, "-c", RESET], input=password or "", env=settings, cwd=folder, text=True,
            capture_output=True, timeout=60,
        )  # fmt: skip
        assert done.stdout.startswith(f"{fails} {reason}"), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "limit", "message"),
    [
        ("node1 [[[ broken\n", None, "Failed to parse|Completely failed"),
        ("a\n", "nope", "no hosts|host pattern"),
        ("[gpu]\n", None, "no hosts in it"),
    ],
)
def test_playbook_refuses_an_invalid_inventory(folder: Path, text: str, limit: str | None, message: str) -> None:
    playbook(folder)
    (folder / "hosts.ini").write_text(text)
    with pytest.raises(BadFile, match=message):
        ansible.run(
            ansible.Play("test", folder / "hosts.ini", collections=folder / "collections", limit=limit), lambda _: None
        )


def test_playbook_refuses_a_missing_inventory(folder: Path) -> None:
    with pytest.raises(BadFile, match="no such inventory"):
        ansible.run(ansible.Play("test", folder / "no.ini", collections=folder / "collections"), lambda _: None)


def test_error_quotes_ansible_when_it_ends_early(folder: Path) -> None:
    (own(folder) / "playbooks/test.yml").write_text("- hosts: all\n  tasks: [{nosuchmodule: {}}]\n")
    with pytest.raises(TfctlError, match=r"Ansible ended early: .*nosuchmodule"):
        ansible.run(play_of(folder, "a"), lambda _: None)


@pytest.mark.extended
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signal_to_tfctl_ends_ansible_and_its_children(folder: Path, number: signal.Signals) -> None:
    """Its temporary folder disappears as well, whether tfctl can remove it or is killed at once."""
    nap = f"3{os.getpid()}"
    playbook(folder, {"name": "Sleep", "ansible.builtin.command": f"sleep {nap}"})
    temporary = folder / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    program = (
        "import sys; from pathlib import Path; from tfctl.provision import ansible\n"
        f"hosts, collections = Path({str(inventory(folder, 'a'))!r}), Path({str(folder / 'collections')!r})\n"
        "play = ansible.Play('test', hosts, collections=collections)\n"
        "ansible.run(play, lambda event: print(event, flush=True))\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_for(lambda: sleeping(nap))
        assert list(temporary.glob("tfctl-ansible-*"))
        child_pattern = f"^{sys.executable} -P -m ansible playbook {folder}/"
        assert running(child_pattern)
        child.send_signal(number)
        events, stderr = child.communicate(timeout=20)
    finally:
        child.kill()
    assert "TaskStarted(name='Sleep')" in events
    assert number == signal.SIGKILL or stderr.strip().endswith("KeyboardInterrupt")
    wait_for(lambda: not sleeping(nap) and not running(child_pattern))
    wait_for(lambda: not list(temporary.glob("tfctl-ansible-*")))


@pytest.mark.extended
@pytest.mark.parametrize("seconds", ["1.", "3"])
def test_workers_of_ansible_end_when_ansible_is_killed(folder: Path, seconds: str) -> None:
    """A worker with a long result would otherwise write for ever to a pipe that nothing reads."""
    nap = f"{seconds}{os.getpid()}"
    text = f"sleep {nap}; head -c 300000 /dev/zero | tr '\\0' x"
    playbook(folder, {"name": "Print", "ansible.builtin.shell": text})
    pattern = f"^{sys.executable} -P -m ansible playbook {folder}/"
    with concurrent.futures.ThreadPoolExecutor() as pool:
        play = play_of(folder, "a")
        run = pool.submit(ansible.run, play, lambda _: None)
        wait_for(lambda: sleeping(nap))
        # The first of them is Ansible itself, and has started the other one.
        os.kill(int(subprocess.check_output(["pgrep", "-o", "-f", pattern])), signal.SIGKILL)
        with pytest.raises(TfctlError, match="Ansible ended early"):
            run.result(timeout=20)
    wait_for(lambda: not sleeping(nap) and not running(pattern))


def test_run_removes_the_temporary_folders_of_runs_that_were_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    names = ("tfctl-ansible-killed", "tfctl-ansible-running", "tfctl-ansible-new", "tfctl-other")
    for name in names:
        (temporary / name / "ssh").mkdir(parents=True)
    (temporary / "tfctl-ansible-killed/variables.json").write_text("{}")
    for name in names:
        if name != "tfctl-ansible-new":
            os.utime(temporary / name, (0, 0))
    (temporary / "tfctl-ansible-link").symlink_to(temporary / "tfctl-other")
    lock = os.open(temporary / "tfctl-ansible-running", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with run_folder():
        pass
    os.close(lock)
    assert sorted(path.name for path in temporary.iterdir()) == ["tfctl-ansible-link", *sorted(names[1:])]


@pytest.mark.extended
def test_run_removes_the_temporary_directory_of_a_host(folder: Path) -> None:
    """The host is this machine, by a local connection. The module copy works in that directory."""
    copy = {"content": "x", "dest": f"{folder}/x", "mode": "0644"}
    look = f"ls -d {{{{ lookup('env', 'ANSIBLE_REMOTE_TEMP') }}}} > {folder}/directory"
    playbook(folder, {"ansible.builtin.copy": copy}, {"name": "Look", "ansible.builtin.shell": look})
    result = ansible.run(play_of(folder, "a"), lambda _: None)
    assert result.exit is Exit.OK, result.hosts[0].reason
    directory = (folder / "directory").read_text().strip()
    assert Path(directory).name.startswith("tfctl-ansible-") and not Path(directory).exists()


@pytest.mark.extended
def test_directory_on_the_hosts_that_a_user_has_set_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The home directories may be on a file server that root must not read."""
    (folder / "ansible.cfg").write_text(f"[defaults]\nremote_tmp = {folder}/mine\n")
    monkeypatch.setenv("ANSIBLE_CONFIG", str(folder / "ansible.cfg"))
    playbook(folder, {"ansible.builtin.copy": {"content": "x", "dest": f"{folder}/x", "mode": "0644"}})
    assert ansible.run(play_of(folder, "a"), lambda _: None).exit is Exit.OK
    assert (folder / "mine").is_dir() and not [*(folder / "mine").iterdir()]


@pytest.mark.parametrize(
    ("local", "password", "given"), [(True, None, ""), (True, "secret", "secret\n"), (False, None, None)]
)
def test_temporary_files_of_root_on_this_machine_are_removed_by_sudo(
    local: bool, password: str | None, given: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only if the inventory has a local host, and only by an ordinary user. The `sudo` is a fake."""
    home = tmp_path / "home"
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin/sudo"
    fake.write_text(
        f'#!/bin/sh\ncat >{tmp_path}/given\nwhile [ "$1" != sh ]; do shift; done\nHOME={tmp_path}/root exec "$@"\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: pwd.struct_passwd(("me", "x", 12345, 100, "", str(home), "/bin/sh")))
    with run_folder(password) as made:
        if local:
            made.local_hosts.touch()
        left = [Path(made.remote.replace("~", str(each))) for each in (home, tmp_path / "root")]
        for directory in left:
            directory.mkdir(parents=True)
    assert [directory.exists() for directory in left] == [False, not local]
    assert (tmp_path / "given").exists() is local
    assert not local or (tmp_path / "given").read_text() == given


@pytest.mark.parametrize("beside", ["", "away ansible_host=192.0.2.1\n"])
def test_playbooks_get_the_address_at_which_other_hosts_reach_this_machine(beside: str, folder: Path) -> None:
    """As ansible-playbook alone cannot find it."""
    playbook(folder, {"ansible.builtin.debug": {"msg": "{{ tfctl_address | default('none') }} {{ own }}"}})
    path = folder / "hosts.ini"
    path.write_text(f"localhost {LOCAL} own=kept\n{beside}")
    events: list[Event] = []
    play = ansible.Play("test", path, "localhost", collections=folder / "collections", known=load(path))
    result = ansible.run(play, events.append)
    assert result.exit is Exit.OK, result.hosts[0].reason
    expected = own_address.source("192.0.2.1") if beside else None
    assert [event.text for event in events if isinstance(event, Warned)] == [f"{expected or 'none'} kept"]


def sleeping(nap: str) -> bool:
    return running(f"^sleep {nap}$")


def running(words: str) -> bool:
    return subprocess.run(["pgrep", "-f", words], stdout=subprocess.DEVNULL, timeout=20).returncode == 0


def wait_for(true: Callable[[], bool], limit_s: float = 15) -> None:
    ends = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.05)
