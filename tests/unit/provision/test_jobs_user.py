"""No role, no module and no part of the node part executes a program as the jobs' user outside of a job's sandbox.

Tasks could get out of their own sandbox through such a program: see tfctl/node/forked.py.
"""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.provision.role_play import play, tasks_of, trial
from tests.unit.provision.test_roles import is_documentation
from tfctl.node import forked
from tfctl.provision import ansible

ROOT = ansible.data_dir()
NOBODY = 65534
#: Programs that start another one with other IDs, if asked to, as a word of a command, perhaps with its directory.
PROGRAMS = re.compile(
    r"(?<![\w.=:@%/-])(?:/[\w/.-]*/)?(setpriv|runuser|su|sudo|doas|pkexec|gosu|su-exec|setuidgid|chpst|capsh|chroot"
    r"|nsenter|unshare|bwrap|start-stop-daemon|systemd-run|systemd-nspawn|machinectl|newgrp|sg|crontab)(?=[\s'\"\],]|$)"
)
#: Lines of units, and options of systemd-run, that set a user.
UNIT_USER = re.compile(r"\bUser=|--uid\b|--gid\b|\bDynamicUser=")
#: Keys of plays, tasks and their modules, and variables, that set a user.
KEYS = re.compile(r"(ansible_)?(become_(user|method|flags|exe)|remote_user|(su|sudo)_user|user|scope)")
#: Functions that change the IDs of a process.
FUNCTIONS = re.compile(r"set(res|re|e|fs)?[ug]id|setgroups|initgroups|drop_root")
#: Arguments of subprocess that do so, or may.
ARGUMENTS = {"user", "group", "extra_groups", "preexec_fn"}
#: Keys whose values are texts for people.
PROSE = {"name", "msg", "fail_msg", "success_msg"}
#: Where another user is named, and why that does no harm.
ALLOWED = {
    "plugins/modules/build.py: preexec_fn": "nobody",
    "plugins/modules/build.py: setgid": "nobody",
    "plugins/modules/build.py: setgroups": "nobody",
    "plugins/modules/build.py: setuid": "nobody",
    "plugins/modules/shared_directory.py: drop_root": "the jobs' user, but drop_root prevents programs",
    "plugins/module_utils/facts.py: sudo": "looks for the program",
    "plugins/module_utils/install.py: extra_groups": "nobody",
    "plugins/module_utils/install.py: group": "nobody",
    "plugins/module_utils/install.py: user": "nobody",
    "plugins/module_utils/share.py: DynamicUser=": "a user that exists as long as the unit",
    "plugins/module_utils/share.py: systemd-run": "a user that exists as long as the unit",
    "roles/job_host/tasks/sudoers.yml: runuser": "operators, of which none is the jobs' user",
    "roles/job_host/tasks/sudoers.yml: sudo": "root",
    "roles/nvidia_library/tasks/runfile.yml: setpriv": "nobody",
    "roles/openmpi/tasks/verify.yml: setpriv": "nobody",
    "roles/ssh_mesh/tasks/main.yml: become_user": "any user but root and the jobs' user",
    "tfctl/node/10-tfctl.conf: User=": "the jobs' user, in the sandbox that this file describes",
    "tfctl/node/asuser.py: drop_root": "the jobs' user, but drop_root prevents programs",
    "tfctl/node/forked.py: setgid": "the jobs' user, but drop_root prevents programs",
    "tfctl/node/forked.py: setgroups": "the jobs' user, but drop_root prevents programs",
    "tfctl/node/forked.py: setuid": "the jobs' user, but drop_root prevents programs",
    "tfctl/node/nvml.py: drop_root": "the user of guards",
    "tfctl/node/pystacks.py: User=": "nobody",
    "tfctl/node/system.py: systemd-run": "the path of the program",
    "tfctl/node/guards.py: User=": "the user of guards, and of the socket between a guard and root",
}


def of_text(text: str) -> Iterator[str]:
    """Yield what a command, a script or a unit uses to become another user."""
    yield from (match[1] for match in PROGRAMS.finditer(text))
    yield from (match[0] for match in UNIT_USER.finditer(text))


def of_yaml(value: Any) -> Iterator[str]:
    """Yield what plays, tasks or variables use to become another user."""
    if isinstance(value, dict):
        yield from (str(key) for key in value if KEYS.fullmatch(str(key)))
        for key, inner in value.items():
            yield from () if key in PROSE and isinstance(inner, str) else of_yaml(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from of_yaml(inner)
    else:
        yield from of_text(str(value))


def of_python(source: str) -> Iterator[str]:
    """Yield what a module uses to become another user."""
    tree = ast.parse(source)
    for statement in [each for each in ast.walk(tree) if isinstance(each, ast.stmt)]:
        docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if docstring or is_documentation(statement):
            statement.__dict__["value"] = ast.Constant("")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
            yield from [name] if FUNCTIONS.fullmatch(name) else []
        elif isinstance(node, ast.Call):
            yield from (word.arg for word in node.keywords if word.arg in ARGUMENTS)
        elif isinstance(node, ast.Dict):
            keys = {str(key.value) for key in node.keys if isinstance(key, ast.Constant)}
            yield from keys if keys and keys <= ARGUMENTS else ()
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from of_text(node.value)


def ways(path: str, text: str) -> Iterable[str]:
    """Return what a file uses to become another user."""
    if path.endswith(".yml"):
        return of_yaml(yaml.safe_load(text))
    return of_python(text) if path.endswith(".py") else of_text(re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE))


def test_every_way_to_become_another_user_is_known_not_to_execute_programs_as_the_jobs_user() -> None:
    places = (ROOT / place for place in ("roles", "playbooks", "plugins", "tfctl/node"))
    files = [path for place in places for path in place.rglob("*") if path.is_file() and not path.is_symlink()]
    code = [path for path in files if path.suffix not in (".pyc", ".md", ".asc") and "meta" not in path.parts]
    assert len(code) > 250
    names = {path: str(path.relative_to(ROOT)) for path in code}
    found = {f"{name}: {way}" for path, name in names.items() for way in ways(name, path.read_text())}
    assert sorted(found) == sorted(ALLOWED)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("tasks.yml", '- ansible.builtin.command: {argv: [setpriv, "--reuid={{ uid }}", ls]}'),
        ("tasks.yml", "- ansible.builtin.command: /usr/bin/setpriv --reuid=880 ls"),
        ("tasks.yml", '- ansible.builtin.command: ls\n  become_user: "{{ tfctl_user }}"'),
        ("tasks.yml", "- block: [{ansible.builtin.shell: ls, vars: {ansible_become_user: tfctl}}]"),
        ("tasks.yml", "- ansible.builtin.shell: cd /tmp && runuser -u tfctl -- ls"),
        ("tasks.yml", "- ansible.builtin.shell:\n    cmd: |\n      su -s /bin/sh tfctl -c ls"),
        ("tasks.yml", "- ansible.builtin.command: sudo -u tfctl ls"),
        ("tasks.yml", "- ansible.builtin.command: systemd-run --pipe --uid=880 ls"),
        ("tasks.yml", "- ansible.builtin.command: chroot --userspec=880:880 / ls"),
        ("tasks.yml", "- ansible.builtin.cron: {name: x, job: ls, user: tfctl}"),
        ("play.yml", "- hosts: all\n  remote_user: tfctl"),
        ("vars.yml", "shared_storage_as_user: [setpriv, --reuid=880]"),
        ("vars.yml", "role_name: {as: \"{{ ['su', 'tfctl'] }}\"}"),
        ("x.service.j2", "[Service]\nUser={{ job_host_user }}\nExecStart=/bin/ls"),
        ("x.sh.j2", "set -e\n  exec setpriv --reuid=880 ls"),
        ("x.py", "subprocess.run(words, user='tfctl')"),
        ("x.py", "run(words, **{'user': uid, 'group': uid})"),
        ("x.py", "subprocess.Popen(words, preexec_fn=become)"),
        ("x.py", "os.setresuid(880, 880, 880)"),
        ("x.py", "from os import setuid\nsetuid(880)"),
        ("x.py", "libc.setfsuid(880)"),
        ("x.py", "run(['systemd-run', '--property=User=tfctl', 'ls'])"),
        ("x.py", "run(['runuser', '-u', 'tfctl', 'ls'])"),
        ("x.py", "run(['sh', '-c', 'su tfctl -c ls'])"),
    ],
)
def test_way_to_become_another_user_is_found_whatever_its_form(file: str, text: str) -> None:
    assert [*ways(file, text)] != []


@pytest.mark.parametrize(
    "execute",
    [
        lambda: subprocess.run(["true"]),
        lambda: os.system("true"),
        lambda: os.execv("/bin/true", ["true"]),
        lambda: os.posix_spawn("/bin/true", ["true"], {}),
    ],
)
def test_process_that_has_become_the_jobs_user_executes_no_program(execute: Callable[[], object]) -> None:
    def work() -> None:
        forked.drop_root(NOBODY, NOBODY)
        execute()

    with pytest.raises(PermissionError, match="must not execute a program"):
        forked.call(work, 20)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_process_that_has_become_the_jobs_user_cannot_be_entered_by_its_tasks() -> None:
    child = os.fork()
    if child == 0:
        forked.drop_root(NOBODY, NOBODY)
        time.sleep(30)
        os._exit(0)
    program = subprocess.Popen(["sleep", "30"], user=NOBODY, group=NOBODY, extra_groups=[])
    try:
        assert [is_entered(pid) for pid in (program.pid, child)] == [True, False]
    finally:
        program.kill()
        program.wait(10)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def is_entered(pid: int) -> bool:
    """Return whether another process of the user nobody can use this one, once it belongs to this user."""
    ends = time.monotonic() + 10
    while f"Uid:\t{NOBODY}\t" not in Path(f"/proc/{pid}/status").read_text() and time.monotonic() < ends:
        time.sleep(0.01)
    folder = f"/proc/{pid}"
    words = ["sh", "-c", f"ls {folder}/root/ && ls {folder}/fd/ && exec 3<>{folder}/mem"]
    done = subprocess.run(words, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, timeout=20)
    return done.returncode == 0


def test_ssh_mesh_refuses_the_jobs_user_as_which_it_would_execute_programs(tmp_path: Path) -> None:
    task = tasks_of("ssh_mesh", "main.yml")[0]
    failure = "tfctl_ssh_mesh: name a user other than root and tfctl"
    tasks = [each for user in ("root", "tfctl") for each in trial(task, failure, ssh_mesh_user=user)]
    play(tmp_path, "ssh_mesh", [*tasks, *trial(task, "", ssh_mesh_user="ops")])


def test_job_host_refuses_the_users_of_tfctl_as_operators(tmp_path: Path) -> None:
    (task,) = (each for each in tasks_of("job_host", "accounts.yml") if "no operator" in each["name"])
    tasks = [*trial(task, "tfctl_operators: tfctl is a user", job_host_operators=["ops", "tfctl"])]
    play(tmp_path, "job_host", [*tasks, *trial(task, "", job_host_operators=["ops"])])
