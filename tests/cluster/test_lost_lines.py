"""The last lines of a job are printed, or tfctl says that they are missing."""

from __future__ import annotations

import json
import re
import sys
import threading
from pathlib import Path

import pytest
from node_tree import wait_until

from tests.cluster.hosts import Hosts

#: A task that prints its last line when it is told to end.
TALKING = 'command: [sh, -c, "echo first; while [ ! -e {end} ]; do sleep 0.05; done; echo last; exit 3"]\n'


class Printing:
    """Start a job named print, and wait until it has printed its first line on node1."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self._end = hosts.folder / "print.end"
        self._end.unlink(missing_ok=True)
        self._journald = hosts.trees["node1"] / "journald"
        self._journald.mkdir()
        hosts.ok("start", hosts.file("print", TALKING.replace("{end}", str(self._end)) + "roles: {worker: 1}\n"))
        wait_until(lambda: "first" in hosts.ok("logs", "-j", "print"))

    def journald(self, state: str) -> Path:
        return self._journald / state

    def end(self) -> None:
        self._end.touch()


@pytest.fixture
def printing(hosts: Hosts) -> Printing:
    return Printing(hosts)


@pytest.mark.extended
def test_following_prints_the_last_lines_when_journald_is_slow_to_write_them(printing: Printing) -> None:
    stopped = printing.journald("stopped")
    stopped.touch()
    with printing.hosts.begin("wait", "print") as waiting, printing.hosts.begin("logs", "-f", "-j", "print") as client:
        client.until(out="first")
        printing.end()
        assert waiting.done().code == 100
        threading.Timer(7.0, stopped.unlink).start()  # longer than a heartbeat
        done = client.done()
    assert done.code == 0, done.err
    assert done.out == "worker/0 │ first\nworker/0 │ last\n"
    assert "tfctl:" not in done.err


@pytest.mark.extended
def test_logs_says_that_the_last_lines_are_missing_when_journald_fails_to_write_them(printing: Printing) -> None:
    printing.journald("stopped").touch()
    printing.end()
    assert printing.hosts("wait", "print").code == 100
    printing.journald("broken").touch()
    printing.journald("stopped").unlink()
    found = printing.hosts("logs", "-j", "print")
    assert (found.code, found.out) == (1, "worker/0 │ first\n")
    assert "node1: journald did not confirm that all lines are written; its last lines are missing" in found.err


#: A server on node1 that prints its last line, and goes on, once a file is there, and a chief on node2 that then ends.
QUIET = """\
command: [sh, -c, "echo first; until test -e {end}; do sleep 0.05; done; echo last; exec sleep 600"]
roles:
  chief: {replicas: 1, hosts: node2, command: [sh, -c, "until test -e {end}; do sleep 0.05; done; sleep 1"]}
  server: {replicas: 1, hosts: node1}
policy: {success: chief}
"""


@pytest.mark.parametrize(
    ("words", "out", "left"),
    [
        (("logs", "-f", "-j", "quiet"), "server/0 │ first\nserver/0 │ last\n", ["tfctl-quiet-server-0.service"]),
        (("wait", "quiet"), "", []),
    ],
    ids=["logs", "wait"],
)
def test_the_end_of_a_job_is_complete_although_a_connection_has_died_silently(
    words: tuple[str, ...], out: str, left: list[str], hosts: Hosts
) -> None:
    """As while a laptop sleeps. Only reading the last lines, or stopping the server, shows that it has."""
    end = hosts.folder / "quiet.end"
    end.unlink(missing_ok=True)
    with hosts.behind_relay("node1") as relay:
        hosts.ok("start", hosts.file("quiet", QUIET.replace("{end}", str(end))))
        wait_until(lambda: "first" in hosts.ok("logs", "-j", "quiet"))
        with hosts.begin(*words) as client:
            client.until(out=out.partition("\n")[0])
            for _ in range(4):  # the first looks are for the attempt; it then follows the states of the tasks
                for name in ("node1", "node2"):
                    hosts.forget(name)
                wait_until(lambda: hosts.shown("node1") and hosts.shown("node2"), lambda: client.err)
            relay.forget()
            end.touch()
            done = client.done()
    assert (done.code, done.out) == (0, out), done.err
    assert "not everything was stopped" not in done.err
    assert hosts.alive() == left


def test_a_line_is_printed_whole_when_journald_has_split_it(hosts: Hosts) -> None:
    """journald splits the line after 49,152 bytes, here within a character."""
    script = f"""
        echo before
        PYTHONIOENCODING=utf-8 {sys.executable} -S -c "print('x' + 'é' * 50000)"
        echo after
    """
    job = hosts.file("long", "command: [sh, long]\nroles: {worker: 1}\n", long=script)
    assert hosts("start", job, "--wait").code == 0
    whole = "x" + "é" * 50_000
    assert [line["line"] for line in hosts("logs", "-j", "long", "-o", "json").objects] == ["before", whole, "after"]
    assert hosts.ok("logs", "-j", "long", "--tail", "2") == f"worker/0 │ {whole}\nworker/0 │ after\n"
    assert hosts.ok("logs", "-j", "long", "--grep", "^x(é)+$") == f"worker/0 │ {whole}\n"


#: Six lines, which a file lets it print one by one.
STEPS = """
    for n in 1 2 3 4 5 6; do
        while [ ! -e "$1.$n" ]; do sleep 0.02; done
        echo $n
        sleep 0.01
    done
    exit $2
"""


class Steps:
    """A job named steps on node1, which prints ``1`` to ``6``, each when it is told to."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.tree = hosts.trees["node1"]
        self._mark = hosts.folder / "steps.mark"
        for mark in hosts.folder.glob("steps.mark.*"):
            mark.unlink()
        command = f"command: [sh, steps, {self._mark}, '0']\nroles: {{worker: 1}}\n"
        hosts.ok("start", hosts.file("steps", command, steps=STEPS))

    def up_to(self, number: int, written: bool = True) -> None:
        """Let it print the lines up to this one. Wait until the journal has it, unless journald drops it."""
        for each in range(1, number + 1):
            Path(f"{self._mark}.{each}").touch()
        if written:
            wait_until(lambda: any(entry["MESSAGE"] == str(number) for entry in self.tree.entries()))

    def end(self) -> None:
        self.up_to(6)
        assert self.hosts("wait", "steps").code == 0


@pytest.fixture
def steps(hosts: Hosts) -> Steps:
    return Steps(hosts)


def shown(numbers: str) -> str:
    return "".join(f"worker/0 │ {number}\n" for number in numbers)


def test_logs_name_the_time_span_when_the_oldest_lines_are_no_longer_in_the_journal(steps: Steps) -> None:
    steps.end()
    before = steps.hosts("logs", "-o", "json").objects
    assert "lost" not in before[0]
    steps.tree.vacuum("4")
    found = steps.hosts("logs")
    assert (found.code, found.out) == (0, shown("456"))
    assert re.search(r"~~ node1: lines of worker/0 between \d\d:\d\d:\d\d and \d\d:\d\d:\d\d are no longer", found.err)
    gap, *lines = steps.hosts("logs", "-o", "json").objects
    assert [line["line"] for line in lines] == ["4", "5", "6"]
    assert (gap["role"], gap["index"], gap["host"], gap["stream"]) == ("worker", 0, "node1", "lost")
    assert gap["line"].startswith("node1: lines of worker/0 between ")
    lost = gap["lost"]
    assert (lost["cause"], lost["lines"]) == ("rotated", None)
    assert lost["since"] <= before[0]["time"] < lost["until"] == gap["time"] == lines[0]["time"]


def test_logs_do_not_report_deleted_lines_that_were_not_asked_for(steps: Steps) -> None:
    steps.end()
    steps.tree.vacuum("4")
    fifth = steps.hosts("logs", "-o", "json").objects[2]["time"]
    for words in (["--tail", "2"], ["--since", fifth]):
        assert "no longer" not in steps.hosts("logs", *words).err
    assert "no longer" in steps.hosts("logs", "--tail", "4").err
    assert "no longer" in steps.hosts("logs", "--since", "1h").err


def test_logs_report_deleted_lines_when_none_of_a_task_are_left(steps: Steps) -> None:
    steps.end()
    with (steps.tree / "journal.jsonl").open("a") as file:
        file.write(json.dumps({**steps.tree.entries()[-1], "_SYSTEMD_UNIT": "cron.service", "MESSAGE": "other"}) + "\n")
    steps.tree.vacuum("other")
    found = steps.hosts("logs")
    assert (found.code, found.out) == (0, "")
    assert "node1: lines of worker/0 between " in found.err


def test_following_reports_the_lines_that_were_deleted_while_the_connection_was_broken(steps: Steps) -> None:
    steps.up_to(2)
    with steps.hosts.begin("logs", "-f", "-o", "json") as client:
        client.until(out='"line": "2"')
        steps.hosts.refuse("node1", "exit 1")
        steps.hosts.drop("node1")
        client.until(err="trying again")
        steps.up_to(5)
        steps.tree.vacuum("4")
        steps.hosts.heal("node1")
        client.until(out='"line": "5"')
        steps.end()
        done = client.done()
    assert done.code == 0, done.err
    lines = done.objects
    assert [line["line"] for line in lines if line["stream"] == "stdout"] == ["1", "2", "4", "5", "6"]
    [gap] = [line for line in lines if line["stream"] == "lost"]
    assert gap["lost"] == {"cause": "rotated", "since": lines[1]["time"], "until": lines[3]["time"], "lines": None}
    assert lines[2] == gap


def test_logs_say_how_many_lines_journald_has_dropped(steps: Steps) -> None:
    steps.up_to(1)
    with steps.tree.dropping():
        steps.up_to(4, written=False)
        wait_until(lambda: (steps.tree / "journald/tfctl-steps-worker-0.service.dropped").exists())
        wait_until(lambda: (steps.tree / "journald/tfctl-steps-worker-0.service.dropped").read_text() == "3")
    steps.end()
    found = steps.hosts("logs")
    assert (found.code, found.out) == (0, shown("156"))
    assert re.search(r"~~ node1: 3 lines of worker/0 before \d\d:\d\d:\d\d were dropped by journald\n", found.err)
    lines = steps.hosts("logs", "-o", "json").objects
    assert [line["stream"] for line in lines] == ["stdout", "lost", "stdout", "stdout"]
    lost = lines[1]["lost"]
    assert lost == {"cause": "dropped", "since": None, "until": lines[1]["time"], "lines": 3}


def test_logs_do_not_report_what_journald_has_dropped_of_an_earlier_attempt(steps: Steps) -> None:
    with steps.tree.dropping():
        steps.up_to(2, written=False)
        wait_until(lambda: (steps.tree / "journald/tfctl-steps-worker-0.service.dropped").exists())
    steps.end()
    assert "dropped by journald" in steps.hosts("logs").err
    steps.hosts.ok("restart", "steps", "--wait")
    found = steps.hosts("logs")
    assert found.out == shown("123456")
    assert "dropped" not in found.err


def test_logs_say_that_a_pattern_is_too_slow(hosts: Hosts) -> None:
    job = hosts.file("slow", f"command: [sh, -c, 'echo {'a' * 60}b']\nroles: {{worker: 1}}\n")
    assert hosts("start", job, "--wait").code == 0
    found = hosts("logs", "--grep", "^(a+)+$")
    assert (found.code, found.out) == (2, "")
    assert "node1: --grep took more than 1 s to match a line of 61 characters" in found.err
    assert "→ simplify --grep" in found.err


def test_following_with_a_pattern_repeats_and_loses_no_line_when_the_connection_breaks(steps: Steps) -> None:
    steps.up_to(2)
    with steps.hosts.begin("logs", "-f", "--grep", "[246]") as client:
        client.until(out="worker/0 │ 2\n")
        steps.up_to(3)
        steps.hosts.refuse("node1", "exit 1")
        steps.hosts.drop("node1")
        client.until(err="trying again")
        steps.up_to(4)
        steps.hosts.heal("node1")
        client.until(out="worker/0 │ 4\n")
        steps.end()
        done = client.done()
    assert (done.code, done.out) == (0, shown("246"))
    assert "no longer in the journal" not in done.err
