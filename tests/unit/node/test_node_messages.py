"""Messages and records: what is encoded is decoded, and what is malformed becomes a sentence that names the host."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import tracemalloc
import zlib
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from records import make_record

from tfctl.cli import nodes as table
from tfctl.cli import tables
from tfctl.errors import PreflightFailed, TfctlError
from tfctl.jobs import events, state
from tfctl.jobs.nodes import NodeState
from tfctl.model.host import Host, Ssh
from tfctl.node import wire
from tfctl.remote.session import Session

#: A record, notes and ends as a host with protocol 1 wrote them.
RECORDED = Path(__file__).with_name("protocol1")
SEVERAL = settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def sample(kind: Any) -> Any:
    """Return a value of an annotation of the wire, with one element in every list."""
    simple: dict[Any, Any] = {str: "a", int: 1, float: 1.5, bool: True, wire.Figure: wire.Figure(-1.5)}
    if kind in simple:
        return simple[kind]
    if hasattr(kind, "_fields"):
        return kind(*map(sample, kind.__annotations__.values()))
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return args[0]
    if origin is Union:
        return sample(args[0])
    if origin is dict:
        return {sample(args[0]): sample(args[1])}
    return tuple(map(sample, args[:1] if args[-1] is Ellipsis else args))


@st.composite
def mutated(draw: st.DrawFn, kind: Any) -> Any:
    """Return an encoded value in which one value, somewhere, is replaced by anything or removed."""
    value = json.loads(json.dumps(wire.encode(sample(kind))))
    place, parent, key = value, None, None  # type: Any, Any, Any
    while isinstance(place, (dict, list)) and place and (parent is None or draw(st.booleans())):
        parent = place
        key = draw(st.sampled_from(sorted(place))) if isinstance(place, dict) else draw(st.integers(0, len(place) - 1))
        place = parent[key]
    if parent is None:
        return draw(_JSON)
    if isinstance(parent, dict) and draw(st.booleans()):
        del parent[key]
    else:
        parent[key] = draw(_JSON)
    return value


class Channel:
    """The channel of a host that sends one line."""

    host = "node7"
    ended = False

    def __init__(self, line: bytes) -> None:
        self._line = line

    def readline(self, _timeout: float | None) -> bytes:
        return self._line


def received(line: bytes) -> wire.NodeMessage:
    return Session(Channel(line)).receive(1.0)  # type: ignore[arg-type]


def use(message: wire.NodeMessage) -> None:
    """Do with a message what the commands do."""
    if isinstance(message, (wire.Shown, wire.Events)):
        for job in state.jobs({"node7": message.jobs}):
            json.dumps(tables.job_json(job))
            tables.job_text(job)
            if isinstance(message, wire.Events):
                json.dumps(tables.EVENTS.json(events.merged(job, {"node7": message.events})))
    if isinstance(message, wire.Node):
        node = NodeState(Host("node7", Ssh("10.0.0.7")), message, "1.0")
        json.dumps(node.json())
        table.table([node])


@pytest.mark.parametrize("kind", [*wire.NODE_MESSAGES.values(), *wire.CLIENT_MESSAGES.values()])
def test_a_message_survives_encoding_and_decoding(kind: Any) -> None:
    message = sample(kind)
    decode = wire.node_message if kind in wire.NODE_MESSAGES.values() else wire.client_message
    assert type(decode(wire.line(message))) is kind
    assert decode(wire.line(message)) == message


@pytest.mark.parametrize("verb", wire.REQUESTS)
def test_a_request_survives_encoding_and_decoding(verb: str) -> None:
    asked = sample(wire.REQUESTS[verb])
    line = wire.parse(wire.request(asked))
    assert (line["protocol"], line["verb"]) == (wire.PROTOCOL, verb)
    assert wire.decode(wire.REQUESTS[verb], line) == asked


@pytest.mark.parametrize("kind", sorted({*wire.CLIENT_MESSAGES, *wire.NODE_MESSAGES}))
def test_each_message_is_in_the_description_of_a_verb(kind: str) -> None:
    """The lines of who sends what, at the end of the docstring of each request."""
    lines = [re.search(r"\n    (client|node)  .*", kind.__doc__ or "", re.DOTALL) for kind in wire.REQUESTS.values()]
    assert all(lines)
    assert any(line and re.search(rf"\b{kind}s?\b", line[0]) for line in lines)


@pytest.mark.parametrize("kind", wire.NODE_MESSAGES)
@SEVERAL
@given(st.data())
def test_a_malformed_message_of_a_host_becomes_a_sentence_that_names_it(kind: str, data: st.DataObject) -> None:
    line = json.dumps({kind: data.draw(mutated(wire.NODE_MESSAGES[kind]))}).encode() + b"\n"
    if kind == "beat":
        return
    try:
        use(received(line))
    except TfctlError as error:
        assert error.message.startswith("node7: ")
        assert error.message.isprintable() or kind == "error"


@given(st.binary(max_size=60).filter(lambda line: b"\n" not in line))
def test_noise_in_place_of_a_message_is_quoted_in_the_error(noise: bytes) -> None:
    with pytest.raises(PreflightFailed, match=r"^node7: this is not a message of tfctl-node: "):
        received(noise + b"\n")


class Chatter:
    """The channel of a host that prints long lines, but no message."""

    host = "node7"
    ended = False

    def __init__(self) -> None:
        self._left = 100

    def readline(self, _timeout: float | None) -> bytes:
        self._left -= 1
        return b"%d" % self._left + b"x" * 2**20 + b"\n" if self._left >= 0 else b""

    def wait(self, _timeout: float) -> int:
        return 1

    def stderr(self) -> str:
        return ""


def test_a_session_keeps_little_of_what_it_skips() -> None:
    session = Session(Chatter())  # type: ignore[arg-type]
    tracemalloc.start()
    try:
        with pytest.raises(TfctlError, match=r"ended with status 1: 0x+\n") as caught:
            session.receive(1.0)
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()
    assert len(caught.value.message) < 300


@given(st.binary(max_size=60) | _JSON.map(lambda value: json.dumps(value).encode()))
def test_noise_in_place_of_a_journal_entry_is_malformed(noise: bytes) -> None:
    with pytest.raises(wire.Malformed):
        wire.journal_entry(noise)


@SEVERAL
@given(st.data())
def test_a_mutated_journal_entry_is_read_or_malformed(data: st.DataObject) -> None:
    entry: dict[str, Any] = {
        "__CURSOR": "s=1", "__REALTIME_TIMESTAMP": "1700000000000000", "_SYSTEMD_UNIT": "u", "MESSAGE": [104, 105],
    }  # fmt: skip
    entry[data.draw(st.sampled_from(list(entry)))] = data.draw(_JSON)
    with contextlib.suppress(wire.Malformed):
        assert isinstance(wire.journal_entry(json.dumps(entry).encode()).text, str)


def test_an_error_names_the_place_of_the_malformed_value() -> None:
    line = wire.line(wire.Restarted(1, (("worker", 0),))).replace(b"0]", b'"x"]')
    with pytest.raises(PreflightFailed, match=r"\(restarted: tasks: 0: 1: 'x' is not an integer\)"):
        received(line)


def test_expect_refuses_a_message_of_another_kind() -> None:
    session = Session(Channel(wire.line(wire.Kept())))  # type: ignore[arg-type]
    with pytest.raises(PreflightFailed, match=r"^node7: tfctl-node sent kept in place of shown"):
        session.expect(wire.Shown, 1.0)


def test_a_field_of_a_newer_version_is_ignored() -> None:
    assert wire.node_message(b'{"share": {"ok": true, "rack": 7}}') == wire.Shared(True)


@pytest.mark.parametrize("name", ["../../x", "$(id)", "a\x1b[2J", "", "A", "-a", "a\n"])
def test_a_name_of_a_job_or_role_that_cannot_be_one_is_malformed(name: str) -> None:
    status = wire.TaskStatus("worker", 0, "running", None, None, None, None, 0)
    record = make_record()
    good = wire.JobStatus("digits", 1, record.run, record, None, (status,))
    event = wire.Event(1.0, 1, "begin", "worker", 0, None, None, None)
    summary = sample(wire.Summary)
    messages: list[wire.NodeMessage] = [
        wire.Shown((good._replace(job=name),)),
        wire.Shown((good._replace(record=record._replace(job=name)),)),
        wire.Shown((good._replace(tasks=(status._replace(role=name),)),)),
        wire.Shown((good._replace(record=record._replace(tasks=(record.tasks[0]._replace(role=name),))),)),
        wire.Shown((good._replace(record=record._replace(deciders=((name, 0),))),)),
        wire.Shown((), past=(summary._replace(job=name),)),
        wire.Events((good,), (event._replace(role=name),)),
        wire.Logs(1, record.run, {"u": (name, 0)}),
        wire.Files(1, (wire.TaskFiles(name, 0, "", None),)),
        wire.Stored((wire.StoredAttempt(name, 1, record.run, 1.0, 1, 1.0, alive=False),)),
    ]
    for message in messages:
        with pytest.raises(wire.Malformed, match=r"is not a (job's name|role)$"):
            wire.node_message(wire.line(message))


def test_an_event_of_the_whole_job_has_no_role() -> None:
    events = wire.Events((), (wire.Event(1.0, 1, "stop", None, None, "ops", None, None),))
    assert wire.node_message(wire.line(events)) == events


def test_a_lone_surrogate_is_replaced_so_that_it_can_be_printed() -> None:
    assert wire.node_message(b'{"error": {"exit": 1, "message": "a\\ud800"}}') == wire.Error(1, "a?")


def test_a_packed_record_is_read_and_a_fifth_as_long() -> None:
    tasks = [("worker", index, f"node{index:04}") for index in range(1000)]
    plan = wire.Plan("digits", 1, "0123abcd", make_record(tasks), None, "/srv/tfctl/digits", "none", ())
    for message in (plan, wire.Rerun(plan.record)):
        line = wire.line_with(message, wire.packed(plan.record))
        assert wire.client_message(line) == message
        assert 5 * len(line) < len(wire.line(message))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("!", "it is not packed text"),
        ("AAAA", "it is not packed text"),
        (wire.packed(make_record())[:100], "it is cut off"),
        (base64.b64encode(zlib.compress(b" " * (wire.LINE_LIMIT + 1))).decode(), "longer than"),
        (base64.b64encode(zlib.compress(b"[]")).decode(), "record: it is not an object"),
        (base64.b64encode(zlib.compress(b'{"job": "digits"}')).decode(), "record: attempt is missing"),
    ],
)
def test_a_packed_record_with_nonsense_is_malformed(text: str, said: str) -> None:
    with pytest.raises(wire.Malformed, match=said):
        wire.client_message(wire.line_with(wire.Rerun(make_record()), text))


def test_a_record_of_protocol_1_is_read() -> None:
    record = wire.decode(wire.Record, json.loads((RECORDED / "job.json").read_text()))
    assert (record.job, record.attempt, record.policy.max_restarts, record.policy.deadline) == ("digits", 3, 3, 600)
    assert record.deciders == (("worker", 0), ("worker", 1))
    assert record.vital == ((("ps", 0),),)
    assert record.tasks[0].unit == "tfctl-digits-ps-0.service"


def test_an_action_of_protocol_1_is_read() -> None:
    lines = (RECORDED / "notes.jsonl").read_bytes().splitlines()
    found = [wire.decode(wire.UserAction, wire.parse(line)) for line in lines]
    assert [(one.deed, one.by, one.tasks) for one in found] == [
        ("start", "ops", None),
        ("restart", "ops", (("worker", 1),)),
        ("stop", "ops", None),
    ]
