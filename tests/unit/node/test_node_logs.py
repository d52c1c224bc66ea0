"""`logs`: one line that names the units, then their entries in the journal."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from typing import Any

import pytest
from fake_system import fake_system
from node_tree import ACCOUNT, STAY, Session, Tree, make_plan, make_task, sh, wait_until

from tfctl.node import following as following_lines
from tfctl.node import wire
from tfctl.node.session import Gone, NodeSession, RequestRefused
from tfctl.node.system import System
from tfctl.node.verbs import logs

ASK: dict[str, Any] = {
    "job": "digits", "attempt": None, "tasks": None, "cursor": None, "follow": False, "tail": None, "since": None,
    "until": None,
}  # fmt: skip


#: A shell function that prints an entry as `journalctl -o export` does.
ENTRY = "entry() { printf '__CURSOR=s=1\\nMESSAGE=%s\\n\\n' \"$1\"; }; "


def sent(*texts: object) -> bytes:
    """What the client gets for these entries."""
    return b"".join(b'{"__CURSOR":"s=1","MESSAGE":"%s"}\n' % str(text).encode() for text in texts)


FIELDS = "--output-fields=MESSAGE,_TRANSPORT,_SYSTEMD_UNIT,_STREAM_ID,_LINE_BREAK,N_DROPPED,OBJECT_SYSTEMD_UNIT"


def lines(session: Session) -> list[dict[str, Any]]:
    assert session.process.stdout
    rest = session._rest + session.process.stdout.read()
    session._rest = b""
    return [json.loads(line) for line in rest.splitlines()]


def printed(tree: Tree, **more: Any) -> list[str]:
    with tree.session("logs", **{**ASK, **more}) as session:
        session.expect("logs")
        return [one["MESSAGE"] for one in lines(session)]


@pytest.fixture
def job(tree: Tree) -> Tree:
    tree.run(
        make_plan(make_task("ps", 0, sh("echo p1; exec sleep 600")), make_task("worker", 0, sh("echo w1; echo w2")))
    )
    tree.wait_for("worker/0", "succeeded")
    wait_until(lambda: "p1" in printed(tree))
    return tree


def test_logs_without_follow_end_even_if_stdin_stays_open(job: Tree) -> None:
    with job.session("logs", **ASK) as session:
        assert session.process.stdin
        session.process.stdin.close()
        header = session.expect("logs")
        assert (header["attempt"], header["run"]) == (1, "0123abcd")
        assert header["units"] == {
            "tfctl-digits-ps-0.service": ["ps", 0],
            "tfctl-digits-worker-0.service": ["worker", 0],
        }
        assert sorted(one["MESSAGE"] for one in lines(session)) == ["p1", "w1", "w2"]
        assert session.process.wait(10) == 0


def test_logs_can_be_limited_to_tasks_and_lines(job: Tree) -> None:
    assert printed(job, tasks=[["worker", 0]]) == ["w1", "w2"]
    assert printed(job, tasks=[["worker", 0]], tail=1) == ["w2"]
    assert printed(job, until=1.0) == []
    assert printed(job, tasks=[["worker", 9]]) == []


def test_logs_from_a_cursor_begin_with_its_own_line(job: Tree) -> None:
    with job.session("logs", **{**ASK, "tasks": [["worker", 0]]}) as session:
        session.expect("logs")
        cursors = [one["__CURSOR"] for one in lines(session)]
    assert printed(job, tasks=[["worker", 0]], cursor=cursors[1]) == ["w2"]


def test_logs_with_follow_end_when_the_client_disconnects(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=sh("while :; do echo on; sleep 0.1; done"))))
    with tree.session("logs", **{**ASK, "follow": True}) as session:
        session.expect("logs")
        assert session.process.stdout
        assert json.loads(session.process.stdout.readline())["MESSAGE"] == "on"
        session.hang_up()
        assert {one["MESSAGE"] for one in lines(session)} <= {"on"}  # its pipe has ended: no journalctl lives on


def following(tree: Tree, **more: Any) -> Session:
    return tree.session("logs", **{**ASK, "follow": True, "states": True, **more})


def heard(session: Session) -> tuple[str, Any]:
    """Return the kind and the value of the next message, or ``line`` and the text of the next line of the journal."""
    assert session.process.stdout
    while b"\n" not in session._rest:
        data = os.read(session.process.stdout.fileno(), 65536)
        assert data, "the node part has ended"
        session._rest += data
    text, _, session._rest = session._rest.partition(b"\n")
    found = json.loads(text)
    return ("line", found["MESSAGE"]) if "MESSAGE" in found else next(iter(found.items()))


def state_of(shown: dict[str, Any]) -> list[str]:
    return [wire.decode(wire.TaskStatus, task).state for job in shown["jobs"] for task in job["tasks"]]


def test_followed_logs_have_the_states_before_the_first_line_and_at_every_change(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=STAY)))
    wait_until(lambda: "begun" in printed(tree))
    with following(tree) as session:
        assert session.expect("logs")["states"] is True
        kind, shown = heard(session)
        assert (kind, state_of(shown)) == ("show", ["running"])
        assert heard(session) == ("line", "begun")
        tree.systemctl("stop", "tfctl-digits-worker-0.service")
        kinds = []
        while (found := heard(session))[0] != "show" or state_of(found[1]) in (["running"], ["starting"]):
            kinds.append(found[0])
        assert set(kinds) <= {"show", "line", "beat"}
        assert session.hang_up() == 0


def test_followed_logs_without_states_have_none(tree: Tree) -> None:
    """Clients that are older than this node part do not expect them."""
    tree.run(make_plan(make_task(command=sh("while :; do echo on; sleep 0.1; done"))))
    with following(tree, states=None) as session:
        assert "states" not in session.expect("logs")
        assert [heard(session) for _ in range(20)] == [("line", "on")] * 20


def test_followed_lines_of_a_task_are_collected_if_the_client_asks_for_it(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=sh("for n in 1 2 3 4 5 6; do echo $n; sleep 0.3; done; exec sleep 600"))))
    with following(tree, states=None, collect=2.0) as session:
        session.expect("logs")
        assert session.process.stdout
        pieces: list[bytes] = []
        while not pieces or not re.search(rb'"MESSAGE": ?"6"', pieces[-1]):
            pieces.append(os.read(session.process.stdout.fileno(), 100_000))
        assert len(pieces) <= 3, "older lines and the first new one are sent at once"


@pytest.mark.extended
def test_followed_logs_beat_while_nothing_is_printed(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=STAY)))
    wait_until(lambda: "begun" in printed(tree))
    with following(tree) as session:
        assert [heard(session)[0] for _ in range(4)] == ["logs", "show", "line", "beat"]


def test_followed_logs_with_a_pattern_have_the_states_too(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=sh("echo on; echo off; exec sleep 600"))))
    wait_until(lambda: "off" in printed(tree))
    with following(tree, grep="off") as session:
        assert [heard(session)[0] for _ in range(2)] == ["logs", "show"]
        assert heard(session) == ("line", "off")


def test_lines_are_followed_while_systemd_does_not_answer_until_the_host_says_so(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=STAY)))
    hung = fake_system(str(tree.path), ACCOUNT, 30.0)._replace(systemctl=("/bin/sh", "-c", "exec sleep 4"))
    source, sink = os.pipe(), os.pipe()
    try:
        session = NodeSession(source[0], sink[1])
        words = ["/bin/sh", "-c", f"{ENTRY} entry 'a line'; exec sleep 600"]
        with pytest.raises(RequestRefused, match=r"the states of the tasks on .* could not be read for 1 s"):
            following_lines.run(hung, session, words, None, wire.ShowRequest("digits", 1), limit=1.0)
        assert os.read(sink[0], 1000) == sent("a line")
    finally:
        for descriptor in (*source, *sink):
            os.close(descriptor)


def test_reading_a_journal_that_hangs_ends_with_the_client() -> None:
    source, sink = os.pipe(), os.pipe()
    threading.Timer(0.5, os.close, [sink[0]]).start()
    try:
        with pytest.raises(Gone):
            following_lines.run(
                System(), NodeSession(source[0], sink[1]), ["/bin/sh", "-c", "exec sleep 600"], None, follow=False
            )
    finally:
        for descriptor in (*source, sink[1]):
            os.close(descriptor)


@pytest.mark.extended
def test_followed_logs_beat_while_lines_take_long_to_match() -> None:
    """The client would take the host for silent, and read the same lines again."""
    source, sink = os.pipe(), os.pipe()
    words = ["/bin/sh", "-c", f"{ENTRY} for n in 1 2 3 4 5 6 7 8 9 10 11; do entry $n; done"]

    def slow(line: bytes) -> bytes:
        time.sleep(wire.BEAT_S / 10 + 0.1)
        return line if line == sent(11) else b""

    try:
        following_lines.run(System(), NodeSession(source[0], sink[1]), words, slow, None)
        assert os.read(sink[0], 1000) == b'{"beat":{}}\n' + sent(11)
    finally:
        for descriptor in (*source, *sink):
            os.close(descriptor)


class Recorder(NodeSession):
    """A session that keeps what it sends."""

    def __init__(self, source: int) -> None:
        super().__init__(source, source)
        self.sent: list[bytes] = []

    def send_raw(self, data: bytes) -> None:
        self.sent.append(data)


@pytest.mark.parametrize(("collect", "together"), [(0.0, False), (3.0, True)])
def test_lines_are_sent_together_only_if_the_client_has_them_collected(collect: float, together: bool) -> None:
    """A message costs the client more CPU time than a line. Only the first lines are not collected."""
    words = ["/bin/sh", "-c", f"{ENTRY} for n in 1 2 3 4; do entry $n; sleep 0.3; done"]
    source, sink = os.pipe()
    try:
        session = Recorder(source)
        following_lines.run(System(), session, words, None, None, collect=collect)
        assert b"".join(session.sent) == sent(1, 2, 3, 4)
        assert (len(session.sent) == 2) == together
    finally:
        os.close(source)
        os.close(sink)


def test_old_lines_are_sent_together_at_once_although_journalctl_prints_them_in_pieces() -> None:
    script = """
import time
for _ in range(30):
    print('__CURSOR=s=1\\nMESSAGE=' + 'x' * 4095 + '\\n', flush=True)
    time.sleep(0.0005)
time.sleep(0.5)
"""
    source, sink = os.pipe()
    try:
        session = Recorder(source)
        following_lines.run(System(), session, [sys.executable, "-c", script], None, None, collect=3.0)
        assert session.sent == [30 * sent("x" * 4095)]
    finally:
        os.close(source)
        os.close(sink)


def test_old_lines_are_not_collected_although_journalctl_takes_long_to_read_them() -> None:
    """Lines that are sent late are printed after newer ones of other hosts."""
    script = """
import sys, time
for n, age in enumerate([9, 8, 7, -9, -9, -9]):
    print(f'__CURSOR={n}\\n__REALTIME_TIMESTAMP={int((time.time() - age) * 1e6)}\\n', flush=True)
    time.sleep(0.2)
"""
    source, sink = os.pipe()
    try:
        session = Recorder(source)
        following_lines.run(System(), session, [sys.executable, "-c", script], None, None, collect=3.0)
        numbers = [b"".join(re.findall(rb'"__CURSOR":"(\d)"', each)) for each in session.sent]
        assert numbers == [b"0", b"1", b"2", b"3", b"45"]
    finally:
        os.close(source)
        os.close(sink)


@pytest.mark.extended
def test_logs_do_not_wait_for_the_oldest_entry_of_a_journal_that_cannot_be_read(tree: Tree) -> None:
    tree.run(make_plan(make_task()))
    hung = fake_system(str(tree.path), ACCOUNT, 30.0)._replace(journalctl=("/bin/sh", "-c", "exec sleep 600"))
    source, sink = os.pipe(), os.pipe()
    os.close(source[1])  # the client leaves as soon as it has the header
    try:
        began = time.monotonic()
        logs.run(hung, NodeSession(source[0], sink[1]), wire.LogsRequest("digits", follow=True))
        assert time.monotonic() - began < wire.SILENCE_S / 2
        header = json.loads(os.read(sink[0], 10_000).splitlines()[0])["logs"]
        assert (header["attempt"], "oldest" in header) == (1, False)
    finally:
        for descriptor in (source[0], *sink):
            os.close(descriptor)


def test_logs_refuse_an_unknown_job(tree: Tree) -> None:
    with tree.session("logs", **ASK) as session:
        error = session.expect("error")
        assert (error["exit"], "has no attempt of job digits" in error["message"]) == (7, True)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, []),
        ({"follow": True}, ["-f", "--no-tail"]),
        ({"follow": True, "tail": 5}, ["-f", "--lines=5"]),
        ({"cursor": "s=1;i=2", "follow": True, "tail": 5, "since": 3}, ["-f", "--cursor=s=1;i=2", "--no-tail"]),
        ({"since": 1.5, "until": 2}, ["--since=@1.500000", "--until=@2.000000"]),
    ],
)
def test_logs_pass_the_right_arguments_to_journalctl(asked: dict[str, Any], words: list[str]) -> None:
    found = logs.command(System(), "0123abcd", ["a.service", "b.service"], wire.LogsRequest("digits", **asked))
    assert found[:7] == ["/bin/journalctl", "-q", "--no-pager", "--all", "-o", "export", FIELDS]
    printed = ["TFCTL_RUN=0123abcd", "_SYSTEMD_UNIT=a.service", "_SYSTEMD_UNIT=b.service"]
    dropped = ["_TRANSPORT=driver", "MESSAGE_ID=a596d6fe7bfa4994828e72309e95d61e"]
    objects = ["OBJECT_SYSTEMD_UNIT=a.service", "OBJECT_SYSTEMD_UNIT=b.service"]
    assert found[7:] == [*words, *printed, "+", *dropped, *objects]


@pytest.mark.parametrize(
    "asked", [{"cursor": "a\nb"}, {"cursor": 5}, {"tail": -1}, {"tail": "5"}, {"since": "now"}, {"until": float("nan")}]
)
def test_logs_refuses_what_journalctl_must_not_be_given(tree: Tree, asked: dict[str, Any]) -> None:
    tree.run(make_plan())
    with tree.session("logs", **{**ASK, **asked}) as session:
        assert session.expect("error")["exit"] == 2


def test_logs_sends_only_the_lines_that_match(job: Tree) -> None:
    assert printed(job, grep="^w") == ["w1", "w2"]
    assert printed(job, grep="2$", tasks=[["worker", 0]]) == ["w2"]
    assert printed(job, grep="x") == []


@pytest.mark.parametrize("pattern", ["([", "a{99999999999}", "(?L)a", "(" * 3000 + ")" * 3000])
def test_logs_sends_every_line_when_its_python_cannot_compile_the_pattern(pattern: str, job: Tree) -> None:
    """The client checks each line again; the host's Python may be older."""
    assert sorted(printed(job, grep=pattern)) == ["p1", "w1", "w2"]


def test_logs_sends_the_first_line_after_a_cursor_without_a_check(job: Tree) -> None:
    """The client compares it with the cursor, to see whether lines were deleted."""
    with job.session("logs", **{**ASK, "tasks": [["worker", 0]]}) as session:
        session.expect("logs")
        cursor = lines(session)[0]["__CURSOR"]
    assert printed(job, tasks=[["worker", 0]], cursor=cursor, grep="2$") == ["w1", "w2"]


@pytest.mark.timeout(60)
def test_logs_refuses_a_pattern_that_takes_too_long(tree: Tree) -> None:
    """To find that this line does not match takes years."""
    tree.run(make_plan(make_task(command=sh("echo " + "a" * 60 + "b"))))
    tree.wait_for("worker/0", "succeeded")
    with tree.session("logs", **{**ASK, "grep": "^(a+)+$"}) as session:
        session.expect("logs")
        error = session.expect("error")
        assert error["exit"] == 2
        assert "--grep took more than 1 s to match a line of 61 characters" in error["message"]
        assert session.process.wait(10) == 1


def test_following_with_a_pattern_ends_with_the_client(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=sh("while :; do echo on; echo off; sleep 0.1; done"))))
    with tree.session("logs", **{**ASK, "follow": True, "grep": "off"}) as session:
        session.expect("logs")
        assert session.process.stdout
        assert json.loads(session.process.stdout.readline())["MESSAGE"] == "off"
        session.hang_up()
        assert {one["MESSAGE"] for one in lines(session)} <= {"off"}


@pytest.mark.extended
def test_logs_gives_up_a_journald_that_does_not_answer_and_beats_meanwhile() -> None:
    source, sink = os.pipe(), os.pipe()
    try:
        session = NodeSession(source[0], sink[1])
        stuck = System(journalctl=("/bin/sh", "-c", "exec sleep 600"))
        assert not logs.is_synced(stuck, session, limit=5.5)
        assert os.read(sink[0], 1000).startswith(wire.line(wire.Beat()))
        assert logs.is_synced(System(journalctl=("/bin/true",)), session)
        assert not logs.is_synced(System(journalctl=("/bin/false",)), session)
        assert not logs.is_synced(System(journalctl=("/nonexistent",)), session)
    finally:
        for descriptor in (*source, *sink):
            os.close(descriptor)
