"""Damaged plans and requests to the real node part: each is refused with a reason or carried out, none makes it fail,
and nothing is left on the host that no answer has named."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

from node_tree import Tree, make_plan, make_task, sh, wait_until

from tests.fuzz.cases import FUZZER, Cases

pytestmark = FUZZER

NASTY: list[Any] = [
    None, True, 0, -1, 1, 10**14, 1e10, "", "a", "../..", "/", "/srv/tfctl/digits/..", "\n", "\u202e", "%n", "x" * 5000,
    [], {}, [[]], ["worker", 0], "0" * 64, "0123abcd", "digits", "\\x25n", '"', "job", "/etc", 65536, 22,
]  # fmt: skip
PIECES = [
    "\n", "%", "\\", '"', "]", "=", "\u2028", "\x85", "é", " ", ";", "/..", "User=root\n", "\nUser=root\n", "\r",
]  # fmt: skip
VERBS = [
    "show", "stop", "restart", "events", "logs", "pull", "exec", "queue", "prune", "notify", "leave", "nodes",
]  # fmt: skip
FIELDS = [
    "job", "attempt", "tasks", "run", "hold", "cursor", "tail", "since", "until", "grep", "role", "index", "words",
    "attempts", "jobs", "summaries", "output", "ticket", "outcome", "give_up", "overdue",
]  # fmt: skip
GUARD = {"key": "0" * 64, "notify": {"command": ["true", "%n", "a\nb"], "url": "http://x"}}


def plan(draw: Random) -> Any:
    """Return a plan with one to three changes."""
    made = copy.deepcopy(make_plan(make_task(command=sh("exit 0"))))
    if draw.random() < 0.6:
        made["guard"] = GUARD
        made["record"]["guard"] = {
            "head": "node1", "address": "127.0.0.1", "port": 0, "origin": made["run"], "lease": 300, "max_attempts": 1,
        }  # fmt: skip
    made = copy.deepcopy(made)
    for _ in range(draw.choice([1, 1, 2, 3])):
        *place, last = draw.choice([path for path in paths(made) if path])
        holder = made
        for key in place:
            holder = holder[key]
        how, value = draw.random(), holder[last]
        if how < 0.15 and isinstance(holder, dict):
            del holder[last]
        elif isinstance(value, str) and how < 0.6:
            cut = draw.randrange(len(value) + 1)
            holder[last] = value[:cut] + draw.choice(PIECES) + value[cut:]
        else:
            holder[last] = draw.choice(NASTY)
    return made


def paths(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield from paths(value[key], (*place, key))


def test_the_node_part_refuses_or_carries_out_each_plan(tree: Tree) -> None:
    cases, kinds = Cases(150), dict[str, int]()
    for number, draw in cases:
        sent = plan(draw)
        with tree.session("start", job="digits", code=None, ports=[2222, 2223], resolve=[]) as session:
            session.expect("hello")
            session.tell("plan", sent)
            kind, answer = session.hear() or ("nothing", {})
        kinds[kind] = kinds.get(kind, 0) + 1
        if kind not in ("reserved", "refused", "error") or "node part failed" in json.dumps(answer):
            cases.fault(number, f"{kind}: {json.dumps(answer)}", sent)
    cases.require_none(least=10)
    assert kinds.keys() >= {"reserved", "refused"}

    def left() -> list[str]:
        tree.ask("stop", job="digits")
        return [file for file in tree.files() if file.startswith(("run/systemd/", "var/lib/tfctl/jobs/"))]

    wait_until(lambda: left() == [], lambda: str(left()), timeout=40)
    assert tree.alive() == []


def test_the_node_part_refuses_or_answers_each_request(tree: Tree) -> None:
    tree.run(make_plan(make_task(command=sh("echo said"))))
    tree.wait_for("worker/0", "succeeded")
    cases = Cases(250)
    for number, draw in cases:
        verb, fields = draw.choice(VERBS), {name: draw.choice(NASTY) for name in draw.sample(FIELDS, 4)}
        if draw.random() < 0.8:
            fields["job"] = "digits"
        with tree.session(verb, **fields) as session:
            _, answer = session.hear(timeout=20.0) or ("nothing", {})
        if "node part failed" in json.dumps(answer):
            cases.fault(number, json.dumps(answer), (verb, fields))
    cases.require_none(least=10)
