"""`tfctl start`: the whole job on three hosts, or nothing."""

from __future__ import annotations

import os
import signal

import pytest
from node_tree import wait_until

from tests.cluster.hosts import STAY, Hosts

THREE = STAY + "roles: {worker: 3}\n"


def test_start_with_wait_returns_0_and_stops_the_servers_when_the_job_succeeds(hosts: Hosts) -> None:
    text = "command: [sh, -c, 'echo hello {role} {index}']\nroles: {ps: 1, worker: 3}\n"
    done = hosts("start", hosts.file("good", text.replace("ps: 1", "ps: {replicas: 1, command: sleep 600}")), "--wait")
    assert (done.code, done.out) == (0, "good\n"), done.err
    assert "good: attempt 1, 4 tasks run on 3 hosts" in done.err
    assert "stopped ps/0, which had nothing left to do" in done.err
    assert "good succeeded after" in done.err
    workers = dict.fromkeys(["worker/0", "worker/1", "worker/2"], "succeeded")
    assert hosts.states("good") == {"ps/0": "stopped", **workers}
    assert hosts.alive() == []


def test_start_with_wait_returns_100_and_names_the_failed_task(hosts: Hosts) -> None:
    text = "command: [sh, -c, 'test {index} = 1 && exit 7; exec sleep 600']\nroles: {worker: 3}\n"
    done = hosts("start", hosts.file("bad", text), "--wait")
    assert (done.code, done.out) == (100, "bad\n")
    assert "bad failed after" in done.err
    assert "worker/1 on node2 failed with exit code 7" in done.err
    assert hosts.states("bad") == {"worker/0": "stopped", "worker/1": "failed", "worker/2": "stopped"}
    assert hosts("wait", "bad").code == 100
    assert hosts("status", "bad").code == 0


def test_start_with_wait_returns_103_when_the_job_is_stopped(hosts: Hosts) -> None:
    with hosts.begin("start", hosts.file("halted", THREE), "--wait") as client:
        client.until(err="3 tasks run")
        assert hosts("stop", "halted").code == 0
        done = client.done()
    assert (done.code, done.out) == (103, "halted\n")
    assert "halted stopped after" in done.err
    assert hosts("stop", "halted").code == 0


def test_start_with_wait_returns_101_after_its_timeout(hosts: Hosts) -> None:
    done = hosts("start", hosts.file("long", THREE), "--wait", "--timeout", "1s")
    assert done.code == 101
    assert "long is running" in done.err
    assert hosts("wait", "long", "--timeout", "1").code == 101
    assert len(hosts.alive()) == 3


def test_start_refuses_a_running_job_and_numbers_the_next_attempt(hosts: Hosts) -> None:
    file = hosts.file("twice", THREE)
    hosts.ok("start", file)
    again = hosts("start", file)
    assert (again.code, again.out) == (5, "")
    assert "node1: job twice, task worker/0 runs on" in again.err
    assert "→ stop it first: tfctl stop twice" in again.err
    assert len(hosts.alive()) == 3
    hosts.ok("stop", "twice")
    hosts.ok("start", file)
    assert hosts.status("twice")["attempt"] == 2


def test_start_runs_nothing_when_one_host_refuses(hosts: Hosts) -> None:
    (hosts.trees["node3"] / "usr/bin/date").unlink()
    done = hosts("start", hosts.file("lacks", "command: date\nroles: {worker: 3}\n"))
    assert (done.code, done.out) == (8, "")
    assert "node3: worker/2: program date is not on the PATH" in done.err
    assert hosts.left() == []
    assert hosts("status", "lacks").code == 7


def test_start_runs_nothing_when_sudo_refuses_on_one_host(hosts: Hosts) -> None:
    hosts.refuse("node2", "echo 'sudo: a password is required' >&2; exit 1")
    done = hosts("start", hosts.file("locked", THREE))
    assert done.code == 8
    assert "node2: sudo does not permit this user to run" in done.err
    assert hosts.left() == []


def test_start_with_dry_run_changes_nothing(hosts: Hosts) -> None:
    done = hosts("start", hosts.file("dry", THREE), "--dry-run")
    assert done.code == 0
    assert done.out.splitlines()[0] == "dry: attempt 1, custom, 3 tasks on 3 hosts"
    assert "worker/1 at 10.9.0.2:23400, stack none: sh -c 'echo begun; exec sleep 600'" in done.out
    assert all(tree.files() == [] for tree in hosts.trees.values())


def test_one_of_two_concurrent_starts_wins(hosts: Hosts) -> None:
    file = hosts.file("race", THREE)
    with hosts.begin("start", file) as one, hosts.begin("start", file) as other:
        ends = [one.done(), other.done()]
    assert sorted(end.code for end in ends) == [0, 5], ends
    assert sorted(end.out for end in ends) == ["", "race\n"]
    assert len(hosts.alive()) == 3


@pytest.mark.extended
def test_start_draws_other_ports_when_another_start_has_taken_its_own(hosts: Hosts) -> None:
    """Starts that all take the next lowest ports meet again at every retry."""
    text = STAY + "roles: {worker: {per_host: 3, hosts: node1}}\n"
    slow, quick = hosts.file("slow", text), hosts.file("quick", text)
    with hosts.delayed("node1", "plan") as (waits, go_on), hosts.begin("start", slow) as client:
        wait_until(waits)
        hosts.heal("node1")
        hosts.ok("start", quick)
        go_on()
        done = client.done()
    assert (done.code, done.out) == (0, "slow\n"), done.err
    assert "is held by job quick, task worker/0; trying again" in done.err
    ports = [task["port"] for task in hosts.status("slow")["tasks"]]
    assert ports != list(range(ports[0], ports[0] + 3))


def test_start_undoes_every_host_when_a_connection_breaks_while_units_start(hosts: Hosts) -> None:
    with hosts.held("node2"), hosts.begin("start", hosts.file("cut", THREE)) as client:
        wait_until(lambda: _starts(hosts, "node2"))
        hosts.drop("node2")
        done = client.done()
    assert (done.code, done.out) == (6, "")
    assert "node2: the connection broke" in done.err
    assert "no part of the job is running" in done.err
    hosts.untouched()


def test_start_releases_the_others_when_a_connection_breaks_while_a_host_reserves(hosts: Hosts) -> None:
    with hosts.locked("node2") as release, hosts.begin("start", hosts.file("cut", THREE)) as client:
        wait_until(lambda: bool(hosts.reserved("node1") and hosts.reserved("node3")))
        hosts.drop("node2")
        hosts.untouched(but="node2")
        release()
        done = client.done()
    assert (done.code, done.out) == (4, "")
    assert "node2: the connection broke" in done.err
    assert "; nothing had been started\n  → the machine or the network went down\n" in done.err
    hosts.untouched()


def test_start_says_that_nothing_had_been_started_when_a_connection_breaks_before_the_hello(hosts: Hosts) -> None:
    reached = hosts.folder / "reached"
    hosts.refuse("node2", f"touch {reached}; exec sleep 60")
    with hosts.begin("start", hosts.file("early", THREE)) as client:
        wait_until(reached.exists)
        hosts.drop("node2")
        done = client.done()
    assert (done.code, done.out) == (4, "")
    assert "ran; nothing had been started\n  → the machine or the network went down\n" in done.err
    hosts.untouched()


@pytest.mark.extended
def test_start_says_that_units_may_have_been_started_on_a_host_that_is_gone(hosts: Hosts) -> None:
    with hosts.behind_relay("node2") as relay, hosts.held("node2"):
        with hosts.begin("start", hosts.file("gone", THREE)) as client:
            wait_until(lambda: _starts(hosts, "node2"))
            relay.close()
            done = client.done()
        assert (done.code, done.out) == (6, "")
        assert "node2 may have started units and did not receive the order to undo its part" in done.err
        assert "continue" not in done.err
    hosts.untouched()


def test_start_undoes_every_host_when_a_connection_breaks_before_keep(hosts: Hosts) -> None:
    """The connection to node2 breaks after its units have started, while the others still start theirs."""
    with hosts.held("node1"), hosts.begin("start", hosts.file("late", THREE)) as client:
        wait_until(lambda: bool(hosts.trees["node2"].alive() and _starts(hosts, "node1")))
        wait_until(lambda: any(file.endswith("began.json") for file in hosts.trees["node2"].files()))
        hosts.drop("node2")
        hosts.release("node1")
        done = client.done()
    assert (done.code, done.out) == (6, "")
    assert "node2: the connection broke" in done.err
    hosts.untouched()


@pytest.mark.extended
def test_start_that_is_undone_leaves_a_run_alone_that_somebody_has_started_meanwhile(hosts: Hosts) -> None:
    """The order to undo reaches node2 late. node2 has undone its part by itself, and the same attempt runs again."""
    file = hosts.file("again", THREE)
    with hosts.held("node2"), hosts.delayed("node2", "stop") as (reached, go_on), hosts.begin("start", file) as client:
        wait_until(lambda: _starts(hosts, "node2"))
        hosts.drop("node2")
        hosts.release("node2")
        wait_until(reached)
        hosts.untouched()
        hosts.ok("start", file)
        go_on()
        assert client.done().code == 6
    assert set(hosts.states("again").values()) == {"running"}


@pytest.mark.extended
def test_start_stops_the_job_when_one_host_loses_keep(hosts: Hosts) -> None:
    """The others have received `keep`; node2 has not, and undoes its part."""
    hosts.lose("node2", "keep")
    with hosts.begin("start", hosts.file("torn", THREE)) as client:
        done = client.done()
    assert (done.code, done.out) == (6, "")
    assert "node2: " in done.err
    assert "the job was stopped on the other hosts" in done.err
    wait_until(lambda: hosts.alive() == [])
    hosts.heal("node2")
    assert hosts.status("torn")["state"] == "stopped"


def test_start_names_a_host_that_confirmed_the_job_and_then_could_not_stop_it(hosts: Hosts) -> None:
    hosts.lose("node2", "keep")
    hosts.lose("node3", "stop")
    done = hosts("start", hosts.file("torn", THREE))
    assert (done.code, done.out) == (6, "")
    assert "  not everything was stopped on the other hosts: node3: " in done.err
    assert hosts.alive() == ["tfctl-torn-worker-2.service"]


def test_start_stops_the_job_when_one_host_loses_keep_also_on_ctrl_c(hosts: Hosts) -> None:
    hosts.lose("node2", "keep")
    with hosts.delayed("node3", "keep") as (waits, go_on), hosts.begin("start", hosts.file("torn", THREE)) as client:
        wait_until(waits)
        client.process.send_signal(signal.SIGINT)
        go_on()
        done = client.done()
    assert (done.code, done.out) == (6, "")
    assert "the job was stopped on the other hosts" in done.err
    assert "torn runs" not in done.err
    wait_until(lambda: hosts.alive() == [])


@pytest.mark.extended
def test_start_refuses_an_output_that_is_not_shared_when_several_tasks_write(hosts: Hosts) -> None:
    done = hosts("start", hosts.file("apart", STAY + "roles: {ps: 2, worker: 2}\n"))
    assert (done.code, done.out) == (8, "")
    assert "is not the same directory as on node1" in done.err
    assert "mount one shared directory there on all hosts" in done.err
    hosts.untouched()
    apart = hosts.file("apart", "output: local\ncommand: [sh, -c, 'exit 0']\nroles: {ps: 2, worker: 2}\n")
    hosts.ok("start", apart, "--wait")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_start_undoes_every_host_on_ctrl_c_while_units_start(number: signal.Signals, hosts: Hosts) -> None:
    with hosts.held("node3"), hosts.begin("start", hosts.file("broken-off", THREE)) as client:
        wait_until(lambda: _starts(hosts, "node3"))
        client.process.send_signal(number)
        done = client.done()
    assert (done.code, done.out) == (130, "")
    assert "interrupted" in done.err
    assert hosts.left() == []


@pytest.mark.extended
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_start_keeps_the_job_on_every_host_when_interrupted_during_keep(number: signal.Signals, hosts: Hosts) -> None:
    with hosts.delayed("node3", "keep") as (waits, go_on), hosts.begin("start", hosts.file("whole", THREE)) as client:
        wait_until(waits)
        client.process.send_signal(number)
        go_on()
        done = client.done()
    assert (done.code, done.out) == (130, "")
    assert "whole runs: tfctl stop whole ends it" in done.err
    assert set(hosts.states("whole").values()) == {"running"}


def test_start_says_that_hosts_undo_their_parts_on_ctrl_c_while_they_do_so(hosts: Hosts) -> None:
    with hosts.undoing("start", hosts.file("undone", THREE)) as client:
        client.process.send_signal(signal.SIGINT)
        done = client.done()
    assert (done.code, done.out) == (130, "")
    assert "each host undoes its part on its own, at most 30 s after it loses contact\n" in done.err
    assert "undone runs" not in done.err
    hosts.untouched()


def test_start_undoes_every_host_on_ctrl_c_while_hosts_reserve(hosts: Hosts) -> None:
    with hosts.locked("node3") as release, hosts.begin("start", hosts.file("broken-off", THREE)) as client:
        wait_until(lambda: bool(hosts.reserved("node1") and hosts.reserved("node2")))
        client.process.send_signal(signal.SIGINT)
        hosts.untouched(but="node3")
        release()
        done = client.done()
    assert (done.code, done.out) == (130, "")
    assert hosts.left() == []


@pytest.mark.parametrize(
    ("side", "lost", "names"),
    [
        ("client", "start", ["node1", "node2", "node3"]),
        ("client", "plan", ["node1"]),
        ("client", "code", ["node1"]),
        ("client", "code-2", ["node1"]),
        ("client", "plan", ["node2", "node3"]),
        ("client", "go", ["node1", "node2", "node3"]),
        ("client", "go", ["node2", "node3"]),
        ("node", "started", ["node1", "node2", "node3"]),
        ("client", "keep", ["node1", "node2", "node3"]),
    ],
)
def test_start_leaves_nothing_when_its_client_is_killed(side: str, lost: str, names: list[str], hosts: Hosts) -> None:
    """The message is lost on these hosts. The host that sorts first is asked to reserve before the others."""
    file = hosts.file("killed", THREE)
    (file.parent / "data").write_bytes(os.urandom(2**18))
    with hosts.stalled(names, side, lost) as stalled, hosts.begin("start", file) as client:
        wait_until(stalled)
        client.process.kill()
        client.process.wait(20)
        hosts.untouched()
    assert not [file for tree in hosts.trees.values() for file in tree.files() if "/jobs/killed/" in file]


def _starts(hosts: Hosts, name: str) -> bool:
    """Return whether its systemd was asked to start units."""
    return any(call.startswith("start ") for call in hosts.trees[name].calls())


def test_start_refuses_a_script_that_is_not_in_the_code_before_it_connects(hosts: Hosts) -> None:
    for name in hosts.names:
        hosts.refuse(name, "echo connected >&2; exit 1")
    done = hosts("start", hosts.file("typo", "command: python trian.py\nroles: {worker: 3}\n", **{"train.py": ""}))
    assert (done.code, done.out) == (3, "")
    assert "worker/0: trian.py is not in the code that is sent to the hosts" in done.err
    assert "connected" not in done.err


def test_start_names_the_files_that_it_leaves_out_because_they_may_be_secret(hosts: Hosts) -> None:
    file = hosts.file("quiet", "command: [sh, -c, 'test ! -e .env && test -e kept.pem']\nroles: {worker: 1}\n")
    for name in (".env", "kept.pem"):
        (file.parent / name).write_text("-----BEGIN PRIVATE KEY-----\n")
    file.write_text(file.read_text() + "code: {include: [kept.pem]}\n")
    done = hosts("start", file, "--wait")
    assert done.code == 0, done.err
    assert "not sent to the hosts, because they may hold secrets and git does not track them: .env;" in done.err


def test_start_and_render_ask_for_exec_when_a_shell_would_stay_the_main_process(hosts: Hosts) -> None:
    file = hosts.file("shell", "command: [sh, -c, 'sleep 0; true']\nroles: {worker: 1}\n")
    for done in (hosts("start", file, "--wait"), hosts("render", file)):
        assert done.code == 0, done.err
        assert "write `exec` before the last command" in done.err
    done = hosts("start", hosts.file("execs", "command: [sh, -c, 'exec true']\nroles: {worker: 1}\n"), "--wait")
    assert "`exec`" not in done.err


def test_start_refuses_horovod_on_hosts_whose_stack_lacks_it_and_names_them_all(hosts: Hosts) -> None:
    file = hosts.file("ring", THREE)
    file.write_text(file.read_text().replace("custom", "horovod").replace("stack: none", "stack: tf2.15"))
    hosts.install_horovod("node2")
    done = hosts("start", file)
    assert (done.code, done.out) == (8, "")
    assert "node1, node3: stack tf2.15 has no Horovod there\n" in done.err
    assert "→ set tfctl_horovod=true for these hosts in the inventory, then run: tfctl provision /" in done.err
    assert hosts.left() == []
    hosts.install_horovod("node1", "node3")
    hosts.ok("start", file)


def test_start_does_not_ask_for_horovod_in_a_stack_that_is_none(hosts: Hosts) -> None:
    file = hosts.file("own", THREE)
    file.write_text(file.read_text().replace("custom", "horovod"))
    hosts.ok("start", file)


#: Compares the variables without containing the secret: hunter2.
COMPARE = """
    two=$((1 + 1))
    test "$URL $RATE $B_KEY $C" = "https://me:hunter$two@h 1e-3 hunter$two {role}"
"""


def test_variables_of_a_file_the_shell_and_options_reach_each_task_and_no_secret_is_printed(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "command: ./compare.sh\nroles: {worker: 3}\nenv_file: .env\nenv: {RATE: 1e-3, B_KEY: }\n"
    file = hosts.file("told", text, **{"compare.sh": COMPARE})
    (file.parent / ".env").write_text("URL='https://me:hunter2@h'\nC=none\n")
    assert hosts("start", file).code == 3
    monkeypatch.setenv("B_KEY", "hunter2")
    rendered, dry = hosts("render", file, "-e", "C={role}"), hosts("start", file, "--dry-run", "-e", "C={role}")
    assert 'URL="https://***@h"' in rendered.out and 'B_KEY="***"' in rendered.out
    assert "because they may be secrets: URL, B_KEY\n" in rendered.err
    done = hosts("start", file, "--wait", "-e", "C={role}")
    for each in (rendered, dry, done):
        assert each.code == 0, each
        assert "hunter2" not in each.out + each.err
    assert "not sent to the hosts" not in done.err
    for tree in hosts.trees.values():
        kept = [tree / name for name in tree.files() if not name.startswith("manager/")]
        found = [path for path in kept if path.is_file() and b"hunter2" in path.read_bytes()]
        assert found and all(path.suffix == ".env" and path.stat().st_mode & 0o077 == 0 for path in found), found
