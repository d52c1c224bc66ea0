"""Whatever one writes is run right or refused: each row says what is wrong, and what is said of it.

Through the command line, against three hosts. A refusal has its exit code, one sentence that names the place and the
remedy, an empty stdout and no traceback, and it leaves nothing on any host.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest
from loopback import Impostor, forget_files, public

from tests.cluster.hosts import Done, Hosts

GOOD = "name: bad\nstrategy: custom\nstack: none\ncommand: sleep 600\nroles: {worker: 3}\n"


@pytest.fixture(autouse=True)
def hosts(module_hosts: Hosts) -> Iterator[Hosts]:
    """Whatever a test does, nothing of it is left there."""
    yield module_hosts
    module_hosts.heal("node2")
    assert {file for tree in module_hosts.trees.values() for file in tree.files()} <= {"run/tfctl/lock"}


def refused(done: Done, code: int, *said: str) -> None:
    assert (done.code, done.out) == (code, ""), done
    assert done.err.startswith("tfctl: "), done.err
    assert [text for text in said if text not in done.err] == [], done.err
    assert "Traceback" not in done.err
    assert all(line.startswith("  ") for line in done.err.splitlines()[1:]), done.err


def write(hosts: Hosts, text: str | bytes) -> Path:
    (hosts.folder / "bad").mkdir(exist_ok=True)
    path = hosts.folder / "bad/job.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# -- the job file

#: Lines that replace the lines of GOOD with the same keys, and the expected error: of the file's form, of the strategy,
#: of the hosts, of the shell's variables and of the code. unit/model/ has all other faults.
LINES = {
    "unknown key": ("commnd: x", "commnd: unknown key; did you mean `command`? (line 6)"),
    "no ps": (
        "strategy: parameter_server\nroles: {chief: 1, worker: 1}",
        "parameter_server needs a ps: it holds the variables\n  → add",
    ),
    "no host by that pattern": ("roles: {worker: {hosts: 'cpu[3:]'}}", "roles/worker/hosts: 'cpu[3:]' matches no host"),
    "variable that the shell lacks": (
        "env: [NO]",
        "env: the job file takes NO from the shell, where it is not set\n  → export NO=VALUE, or add -e NO=VALUE",
    ),
    "code that is not there": ("code: nowhere", "bad/nowhere is not a directory"),
}


@pytest.mark.parametrize("row", LINES)
def test_start_rejects_a_wrong_line_of_a_job_file_with_its_place(row: str, hosts: Hosts) -> None:
    lines, said = LINES[row]
    keys = [line.partition(":")[0] for line in lines.splitlines()]
    kept = [line for line in GOOD.splitlines() if line.partition(":")[0] not in keys]
    file = write(hosts, "\n".join([*kept, lines]) + "\n")
    for verb in ("render", "start"):
        refused(hosts(verb, file), 3, f"tfctl: {file}: ", said)


def test_start_rejects_a_file_that_is_not_a_job_file(hosts: Hosts) -> None:
    file = write(hosts, b"name: \xff\xfe\n")
    for verb in ("render", "start", "status"):
        refused(hosts(verb, file), 3, f"tfctl: {file}: cannot be read: ")


def test_start_names_the_remedy_when_there_are_fewer_ports_than_tasks(hosts: Hosts) -> None:
    file = write(hosts, GOOD.replace("3}", "{replicas: 3, hosts: node1}}") + "ports: 3000-3001\n")
    said = "node1: 3 tasks, but fewer free ports in 3000-3001 (ports)\n  → widen the range, or spread the tasks"
    for verb in ("render", "start"):
        refused(hosts(verb, file), 3, said)


# -- the inventory


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("", "no such inventory\n  → check the path; `tfctl init DIR` writes"),
        ("echo 'the cloud is down' >&2; exit 1", "the cloud is down"),
    ],
    ids=["none", "a program that fails"],
)
def test_commands_reject_a_wrong_inventory_with_its_place(program: str, said: str, hosts: Hosts) -> None:
    path = hosts.folder / "wrong"
    if program:
        path.write_text(f"#!/bin/sh\n{program}\n")
        path.chmod(0o755)
    for words in (["start", write(hosts, GOOD)], ["status", "bad"]):
        refused(hosts.with_inventory(path, *words), 3, f"tfctl: {path}", said, "  → ")


def test_start_rejects_a_missing_inventory_that_the_job_file_names(hosts: Hosts) -> None:
    file = write(hosts, GOOD + "inventory: none.ini\n")
    for verb in ("render", "start"):
        refused(
            hosts.with_inventory(None, verb, file), 3, f"tfctl: {file}: inventory: ", "none.ini does not exist\n  → "
        )


# -- a host


@contextlib.contextmanager
def nobody(_: Hosts) -> Iterator[dict[str, object]]:
    with contextlib.closing(Impostor()) as listener:
        port = listener.port
    yield {"ansible_port": port}


@contextlib.contextmanager
def silent(_: Hosts) -> Iterator[dict[str, object]]:
    with contextlib.closing(Impostor()) as listener:
        yield {"ansible_port": listener.port}


@contextlib.contextmanager
def hanging_up(_: Hosts) -> Iterator[dict[str, object]]:
    with contextlib.closing(Impostor(hang_up=True)) as listener:
        yield {"ansible_port": listener.port}


@contextlib.contextmanager
def its_files(hosts: Hosts) -> Iterator[dict[str, object]]:
    """Name files of node2, which the tests below change: Ansible reads the inventory with their names only once."""
    key, known = hosts.folder / "its-key", hosts.folder / "its-hosts"
    own = re.search(r"^node2 .*private_key_file=(\S+)", hosts.inventory.read_text(), re.MULTILINE)
    assert own
    shutil.copy(own[1], key)
    shutil.copy(hosts.known_hosts("node2"), known)
    arguments = f"'-o UserKnownHostsFile={known} -o GlobalKnownHostsFile=none'"
    yield {"ansible_ssh_private_key_file": key, "ansible_ssh_common_args": arguments}
    key.unlink(missing_ok=True)


@contextlib.contextmanager
def another_key(hosts: Hosts) -> Iterator[dict[str, object]]:
    key = public(asyncssh.generate_private_key("ssh-ed25519"))
    with its_files(hosts) as named:
        file = hosts.folder / "its-hosts"
        file.write_text(re.sub(r"(\S+) .*", rf"\1 {key}", file.read_text()))
        yield named


@contextlib.contextmanager
def no_key_file(hosts: Hosts) -> Iterator[dict[str, object]]:
    with its_files(hosts) as named:
        (hosts.folder / "its-key").unlink()
        yield named


@contextlib.contextmanager
def a_locked_key(hosts: Hosts) -> Iterator[dict[str, object]]:
    with its_files(hosts) as named:
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(hosts.folder / "its-key", passphrase="secret", rounds=50)
        yield named


@contextlib.contextmanager
def a_stranger(hosts: Hosts) -> Iterator[dict[str, object]]:
    with its_files(hosts) as named:
        asyncssh.generate_private_key("ssh-ed25519").write_private_key(hosts.folder / "its-key")
        yield named


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (nobody, "refuses the connection\n  → start sshd there"),
        (silent, "accepts the connection but sends nothing for 1 s\n  → "),
        (hanging_up, "closes the connection before it sends anything\n  → "),
        (another_key, "has changed"),
        (no_key_file, "/its-key does not exist\n  → "),
        (a_locked_key, "/its-key needs a passphrase, and no agent holds the key\n  → "),
        (a_stranger, "rejects user ops with"),
    ],
)
def test_start_names_a_host_that_it_cannot_reach(fault: object, said: str, hosts: Hosts) -> None:
    with fault(hosts) as variables:  # type: ignore[operator]
        path = hosts.told("node2", **variables)
        forget_files()
        refused(hosts.with_inventory(path, "start", write(hosts, GOOD)), 4, "tfctl: node2: ", said, "  → ")


def test_start_refuses_a_host_with_a_node_part_of_another_version(hosts: Hosts) -> None:
    said = '{"error": {"exit": 8, "message": "node2 uses protocol 9 of tfctl\'s node part", "remedy": ""}}'
    hosts.refuse("node2", f"read request; echo '{said.replace(chr(39), chr(39) + chr(92) + chr(39) * 2)}'")
    refused(hosts("start", write(hosts, GOOD)), 8, "node2: node2 uses protocol 9", "→ tfctl provision")


def test_start_names_a_program_that_a_host_lacks(hosts: Hosts) -> None:
    file = write(hosts, GOOD.replace("sleep 600", "no-such-program --epochs 3"))
    refused(
        hosts("start", file), 8, "node1: worker/0: program no-such-program is not on the PATH", "→ correct the command"
    )


@pytest.mark.parametrize("lines", ["stack: tf2.51\n", "roles: {ps: 1, worker: {replicas: 3, stack: tf2.51}}\n"])
def test_start_suggests_a_stack_when_neither_host_nor_tfctl_has_the_named_one(lines: str, hosts: Hosts) -> None:
    """Hosts are asked because a site may have its own stacks. tfctl cannot install a stack that it does not ship."""
    key = lines.partition(":")[0]
    kept = [line for line in GOOD.splitlines() if not line.startswith(key)]
    done = hosts("start", write(hosts, "\n".join([*kept, lines])))
    refused(done, 8, "node1: stack tf2.51 is not installed on ", "→ tfctl ships no stack tf2.51: did you mean tf2.")
    assert "none" in done.err.splitlines()[-1]


def test_start_suggests_provision_when_a_host_lacks_a_stack_of_tfctl(hosts: Hosts) -> None:
    file = write(hosts, GOOD.replace("none", "tf2.18"))
    remedy = "→ run: tfctl provision INVENTORY --stack tf2.18"
    refused(hosts("start", file), 8, "stack tf2.18 is not installed on", remedy)


# -- words


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("status never-was", 7, "no host has a job 'never-was'\n  → tfctl list shows"),
        ("stop never-was", 7, "no host has a job 'never-was'\n  → tfctl list shows"),
        ("wait never-was", 7, "no host has a job 'never-was'\n  → tfctl list shows"),
        ("logs --job never-was", 7, "no host has a job 'never-was'\n  → tfctl list shows"),
        ("status", 7, "no host has a job\n  → start one"),
        ("stop", 2, "no job is running\n  → name a job"),
        ("status Never_Was", 2, "'Never_Was' is neither a job's name nor a job file"),
        ("status a;b", 2, "'a;b' is neither a job's name nor a job file"),
        ("status one --job two", 2, "two jobs specified: one and two\n  → specify only one"),
        ("status none.yaml", 3, "none.yaml: no such job file"),
        ("start none.yaml", 3, "none.yaml: no such job file"),
        ("start .", 3, "cannot be read"),
        ("wait never-was --timeout soon", 2, "--timeout: 'soon' is not a duration such as 90s"),
        ("logs --since yesterday", 2, "--since: 'yesterday' is neither a duration such as 10m nor a time"),
        ("logs --grep (", 2, "--grep: '(' is not a regular expression"),
        ("logs worker/x", 2, "'worker/x' is not a task\n  → write worker 3"),
        ("logs bad worker three", 2, "'worker three' is not a task\n  → write worker 3"),
        ("logs worker three", 7, "no host has a job 'worker'\n  → tfctl list shows"),
    ],
)
def test_commands_reject_words_that_they_do_not_know(words: str, code: int, said: str, hosts: Hosts) -> None:
    refused(hosts(*words.split()), code, said)


@pytest.mark.parametrize(
    "words",
    [
        "status never-was", "logs -j never-was", "wait never-was", "stop never-was", "restart never-was",
        "events never-was", "prune never-was", "report never-was", "pull never-was", "tensorboard never-was",
        "exec never-was worker 0 -- true", "ssh never-was worker 0", "forward never-was worker 0:1",
    ],
)  # fmt: skip
def test_every_command_for_jobs_prints_an_error_as_an_object(words: str, hosts: Hosts) -> None:
    command, dashes, rest = words.partition(" --")
    done = hosts(*f"{command} -o json{dashes}{rest}".split())
    assert (done.code, [list(found) for found in done.objects]) == (7, [["error"]]), done
    error = done.objects[0]["error"]
    assert (error["exit"], "never-was" in error["message"]) == (7, True)


@pytest.mark.parametrize(("lines", "code"), [("stack: tf2.51\n", 8), ("command: no-such-program\n", 8), ("x: 1\n", 3)])
def test_start_prints_an_error_as_an_object(lines: str, code: int, hosts: Hosts) -> None:
    key = lines.partition(":")[0]
    kept = [line for line in GOOD.splitlines() if not line.startswith(key)]
    done = hosts("start", write(hosts, "\n".join([*kept, lines])), "-o", "json")
    assert (done.code, done.objects[0]["error"]["exit"]) == (code, code), done


@pytest.mark.parametrize("words", ["start", "strat job.yaml", "start job.yaml --wate", "logs -n x"])
def test_commands_reject_unknown_options_in_one_sentence(words: str, hosts: Hosts) -> None:
    done = hosts(*words.split())
    assert (done.code, done.out) == (2, "")
    assert "Usage: tfctl" in done.err
    assert "Error" in done.err
