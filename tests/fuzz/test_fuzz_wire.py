"""Messages between client and node part, entries of the journal, and the lines in which hosts record the ends of tasks:
whatever they contain, only Malformed is raised, and what is accepted can be sent and read again."""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

import pytest

from tests.fuzz.cases import FUZZER, Cases
from tfctl.node import states, wire
from tfctl.node.journal_export import ExportReader
from tfctl.node.wire import codec

pytestmark = FUZZER

NASTY: list[Any] = [
    None, True, False, 0, -1, 1, 10**15, -(10**16), 10**400, 1e308, float("inf"), float("nan"), "", "a", "\0", "\ud800",
    "\u202e", "x" * 300, [], {}, [[]], [None], {"": ""}, "worker", "../x", "1" * 12, "٣", "a\n",
]  # fmt: skip
TEXTS = ["a", "worker", "node1", "\n", "é", "/srv/tfctl/x", "0" * 8]


def value(kind: Any, draw: Random, depth: int = 0) -> Any:
    """Return a value of JSON for an annotation: mostly one that fits."""
    if draw.random() < 0.04 or depth > 6:
        return draw.choice(NASTY)
    simple: dict[Any, list[Any]] = {
        str: TEXTS,
        int: [0, 1, 5, 2222, 10**14, -3],
        float: [0, 1.5, 1.7e9, 9.9e10],
        bool: [True, False],
        codec.Figure: [0, -1.5, 1e300],
    }
    if kind in simple:
        return draw.choice(simple[kind])
    if hasattr(kind, "_fields"):
        return _fields(kind, draw, depth)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return draw.choice(args)
    if origin is typing.Union:
        return None if draw.random() < 0.3 else value(args[0], draw, depth + 1)
    if origin is dict:
        return {draw.choice(["1", "22", "x"]): value(args[1], draw, depth + 1) for _ in range(draw.randrange(3))}
    assert origin is tuple, kind
    if args[1:] == (Ellipsis,):
        return [value(args[0], draw, depth + 1) for _ in range(draw.randrange(3))]
    return [value(one, draw, depth + 1) for one in args]


def _fields(kind: Any, draw: Random, depth: int) -> Any:
    if kind in codec._ROWS:
        return [value(one, draw, depth + 1) for one in kind.__annotations__.values()]
    return {
        name: value(one, draw, depth + 1)
        for name, one in kind.__annotations__.items()
        if name not in kind._field_defaults or draw.random() < 0.6
    }


def damaged(data: bytes, draw: Random) -> bytes:
    """Return the data with some other bytes in a third of the cases."""
    found = bytearray(data)
    for _ in range(draw.choice([0, 0, 1, 4])):
        if found:
            found[draw.randrange(len(found))] = draw.randrange(256)
    return bytes(found)


def accepted(cases: Cases, number: int, what: str, read: Callable[[bytes], Any], line: bytes) -> Any:
    """Return what is read from the line, or None if it is refused."""
    try:
        return read(line)
    except wire.Malformed:
        return None
    except Exception as error:
        cases.fault(number, f"{what}: {type(error).__name__}: {error}", line)
        return None


@pytest.mark.parametrize("side", ["node", "client"])
def test_a_message_is_refused_or_stays_the_same_when_it_is_sent_again(side: str) -> None:
    kinds: Mapping[str, Any] = wire.NODE_MESSAGES if side == "node" else wire.CLIENT_MESSAGES
    read: Callable[[bytes], Any] = wire.node_message if side == "node" else wire.client_message
    cases, kept = Cases(25_000), 0
    for number, draw in cases:
        name = draw.choice(list(kinds))
        line = damaged(json.dumps({name: value(kinds[name], draw)}).encode(), draw)
        found = accepted(cases, number, name, read, line)
        if found is not None:
            kept += 1
            again = accepted(cases, number, f"{name}, again", read, wire.line(found))
            if again != found and "nan" not in repr(found):
                cases.fault(number, f"{name}: it is another one when it is read again", line)
    cases.require_none(least=1000)
    assert kept > cases.made / 10


def request(verb: str, line: bytes) -> Any:
    return wire.decode(wire.REQUESTS[verb], wire.parse(line))


def test_a_request_is_refused_or_read() -> None:
    cases = Cases(30_000)
    for number, draw in cases:
        verb = draw.choice(list(wire.REQUESTS))
        line = damaged(json.dumps(value(wire.REQUESTS[verb], draw)).encode(), draw)
        accepted(cases, number, verb, partial(request, verb), line)
    cases.require_none(least=1000)


MESSAGES = ["x", [1, 2, 255], [[65], [66]], [256], ["a"], [None], [[[]]], {"a": 1}, *NASTY]


def test_an_entry_of_the_journal_is_refused_or_read() -> None:
    cases = Cases(60_000)
    choices = {
        "__CURSOR": ["s=1", *NASTY], "__REALTIME_TIMESTAMP": ["1700000000000000", *NASTY], "MESSAGE": MESSAGES,
        "_SYSTEMD_UNIT": ["u", *NASTY], "_TRANSPORT": ["stdout", "driver", *NASTY], "N_DROPPED": ["5", *NASTY],
        "_STREAM_ID": ["s", *NASTY], "_LINE_BREAK": ["line-max", *NASTY], wire.CUT: [5, *NASTY],
    }  # fmt: skip
    for number, draw in cases:
        entry = {name: draw.choice(those) for name, those in choices.items() if draw.random() < 0.9}
        found = accepted(cases, number, "journal", wire.journal_entry, json.dumps(entry).encode())
        if found is not None and not isinstance(found.searched, str):
            cases.fault(number, "its text is none", entry)
    cases.require_none(least=1000)


FIELD_VALUES = [b"", b"x", b"a=b", b"\n", b"\n\n", b"\xff\0", b"MESSAGE=x\n\n__CURSOR=s=9\n", b"x" * 9000, b"\n" * 9000]


def exported(fields: list[tuple[bytes, bytes]]) -> bytes:
    """Return an entry as `journalctl -o export` prints it."""
    found = b""
    for name, data in fields:
        is_text = data.isascii() and b"\n" not in data and b"\0" not in data
        found += name + (b"=" if is_text else b"\n" + len(data).to_bytes(8, "little")) + data + b"\n"
    return found + b"\n"


def test_entries_that_journalctl_exports_are_read_as_they_are_however_they_arrive() -> None:
    cases = Cases(4000)
    for number, draw in cases:
        messages, data = [], b""
        for place in range(draw.randint(1, 5)):
            messages.append(draw.choice(FIELD_VALUES))
            fields = [(b"MESSAGE", messages[-1]), *((draw.choice([b"X", b"_TRANSPORT"]), b"x") for _ in range(2))]
            draw.shuffle(fields)
            data += exported([(b"__CURSOR", b"s=%d" % place), (b"__REALTIME_TIMESTAMP", b"1"), *fields])
        reader, sent = ExportReader(), b""
        while data:
            size = draw.choice([1, 2, 7, 100, 5000])
            sent, data = sent + reader.add(data[:size]), data[size:]
        found = [(entry.cursor, entry.message) for entry in map(wire.journal_entry, sent.splitlines())]
        if found != [(f"s={place}", message) for place, message in enumerate(messages)]:
            cases.fault(number, "other entries", [message[:50] for message in messages])
    cases.require_none(least=100)


def test_a_damaged_export_raises_nothing() -> None:
    cases = Cases(4000)
    for number, draw in cases:
        data = b"".join(exported([(b"__CURSOR", b"s"), (b"MESSAGE", draw.choice(FIELD_VALUES))]) for _ in range(3))
        reader = ExportReader()
        try:
            list(map(json.loads, reader.add(damaged(data, draw)).splitlines()))
        except Exception as error:
            cases.fault(number, f"{type(error).__name__}: {error}", data)
    cases.require_none(least=100)


def test_the_lines_about_the_ends_of_tasks_give_a_status_that_can_be_sent() -> None:
    """A task can write to its own file of them. `²` in a number that systemctl prints is left out: it prints none."""
    cases = Cases(40_000)
    for number, draw in cases:
        text = "\n".join(end_line(draw) for _ in range(draw.randrange(6)))
        try:
            invocations = states.read_invocations(text)
            states.fails_at_once(invocations, 1.7e9)
            marks = {name: draw.random() < 0.3 for name in ("marked", "overdue", "given_up")}
            status = states.task_status(("worker", 0), draw.choice([None, unit(draw)]), invocations, boot="c", **marks)
            wire.decode(wire.TaskStatus, json.loads(json.dumps(wire.encode(status))))
        except Exception as error:
            cases.fault(number, f"{type(error).__name__}: {error}", text)
    cases.require_none(least=1000)


def end_line(draw: Random) -> str:
    times = [1.7e9, "1.7e9", *NASTY]
    line = json.dumps(
        draw.choice(
            [
                {
                    "begin": draw.choice(["a", "b", *NASTY]),
                    "boot": draw.choice(["b", *NASTY]),
                    "time": draw.choice(times),
                },
                {"stop": draw.choice(["a", *NASTY])},
                {
                    "result": draw.choice(["success", "exit-code", *NASTY]),
                    "code": draw.choice(["exited", "killed", *NASTY]),
                    "status": draw.choice(["0", "1", "9", "TERM", "999", "٣٣", *NASTY]),
                    "invocation": draw.choice(["a", *NASTY]),
                    "time": draw.choice(times),
                },
            ]
        )
    )
    if draw.random() < 0.2:
        line = line[: draw.randrange(len(line) + 1)] + draw.choice(["[" * 3000, "", "\udcff", "1" * 5000])
    return line


def unit(draw: Random) -> dict[str, str]:
    return {
        "ActiveState": draw.choice(["active", "failed", "inactive", "activating", ""]),
        "InvocationID": draw.choice(["a", ""]),
        "ExecMainExitTimestampMonotonic": draw.choice(["0", "55", "x"]),
        "ExecMainCode": draw.choice(["1", "2", "9"]),
        "ExecMainStatus": draw.choice(["0", "9", "x", "99"]),
        "Result": "exit-code",
        "NRestarts": draw.choice(["0", "5"]),
        "Job": "0",
    }
