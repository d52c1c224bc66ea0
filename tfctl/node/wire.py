"""The protocol between client and node: one JSON object per line on the stdin and stdout of `tfctl-node`.

The client's first line is a request that names its protocol and verb. To a request of another protocol the node
answers one ``error`` with exit 8. Every message from the node is an object with one key, its kind.

start   request  {"protocol": 1, "verb": "start", "job": J, "code": SHA256 or null, "ports": [LO, HI],
                  "resolve": [NAME], "again": N, the job's attempt to start again, or absent}
        node     {"hello": {"protocol": 1, "host": its own host name, "highest": highest attempt of J here, or 0,
                  "ports": {"2222": holder}, "names": {NAME: address or null}, "gpus": [GPU],
                  "stacks": [NAME], "code": true if that code is here,
                  "gpu_trouble": ERROR that says why the host's GPUs cannot be listed, or null,
                  "again": [[ROLE, INDEX]], if asked for: tasks whose units and variables are kept here}}
                                                                                                    no lock is held
        client   {"plan": PLAN}, then, only if hello said code false, {"code": SIZE} and SIZE raw bytes (tar.gz)
                 or  {"again": {"job", "attempt", "run", "record": RECORD}}: the node makes the plan from what it kept
        node     {"reserved": {}}  or  {"refused": ERROR with "retry": true if a new hello may resolve it}
        client   {"share": {"write": NONCE}}   node {"share": {"ok": true}}        an empty file in the output directory
                 {"share": {"find": NONCE}}    node {"share": {"ok": found}}
                 {"share": {"remove": NONCE}}  node {"share": {"ok": true}}
        client   {"go": {}}      node  {"beat": {}} every 5 s, then {"started": {}}
                                 or  {"undone": ERROR} (the node has already undone what it started)
        client   {"keep": {}}    node  {"kept": {}}, and ends
        client   {"undo": {}}    node  {"undone": {}}; another plan may follow
        client   {"beat": {}}    at any time, no answer. After 30 s of silence, or if stdin ends before keep, the node
                                 undoes the start and ends.
show    request  {"protocol": 1, "verb": "show", "job": J or null, "attempt": N or null, "follow": bool}
        node     {"show": {"host": ..., "jobs": [SHOWN]}}: the given or latest attempt of J, or the latest of each job.
                 With follow: one more at every change, and {"beat": {}} every 5 s, until stdin ends.
stop    request  {"protocol": 1, "verb": "stop", "job": J, "attempt": N or null, "tasks": [[ROLE, INDEX]] or null}
                 tasks null: stop and mark all of the job on this host; otherwise only the tasks given
        node     {"beat": {}} every 5 s, then {"stopped": {"attempt": N, "tasks": [[ROLE, INDEX]], "left": [sentence]}};
                 tasks: those that were running; attempt: 0 if the job is not known here
restart request  {"protocol": 1, "verb": "restart", "job": J, "attempt": N, "tasks": [[ROLE, INDEX]]}
                 restarts only these, in place; refused with exit 7 if a unit is gone
        node     {"beat": {}} every 5 s, then {"restarted": {"attempt": N, "tasks": [[ROLE, INDEX]]}}
events  request  {"protocol": 1, "verb": "events", "job": J}
        node     {"events": {"host": ..., "jobs": as in show, "events": [EVENT] of all attempts, in order of time}}
nodes   request  {"protocol": 1, "verb": "nodes"}
        node     {"node": {"protocol": 1, "version": of the node part, "host": ..., "os": its name, "kernel": ...,
                  "systemd": int, "cpus": int, "load": of the last minute, "memory_mib": [total, available],
                  "stacks": {NAME: environment}, "gpus": [GPU], "gpu_trouble": ERROR or null,
                  "ports": {"2222": holder}, of the ports that jobs hold,
                  "tasks": [{"job", "role", "index", "state": starting or running}]}}        unknown values are null
logs    request  {"protocol": 1, "verb": "logs", "job": J, "attempt": N or null, "tasks": [[ROLE, INDEX]] or null,
                  "cursor": CURSOR or null, "follow": bool, "tail": N or null, "since": epoch s or null, "until": same}
        node     {"logs": {"attempt": N, "run": RUN, "units": {UNIT: [ROLE, INDEX]}}}, then journalctl's own JSON lines

ERROR   {"exit": code of tfctl.errors.Exit, "message": sentence, "remedy": sentence or "",
         "stack": NAME, if the host lacks that stack: the client knows which stacks exist};
        {"error": ERROR} answers any request that cannot be served.
GPU     {"uuid": ..., "index": int, "name": ..., "memory_mib": int, "holder": text or ""}; a MIG instance counts as one,
        with a UUID that begins with MIG-; index is the position by PCI address, from 0; memory_mib is 0 if unknown
PLAN    {"job", "attempt", "run", "record": RECORD, "code": SHA256, "output": directory,
         "stack": name or "none", of the first task; the env of each other task tells its own,
         "tasks": [{"role", "index", "ports": [int], "gpus": [uuid], "program": first word of the command,
                    "unit": text of the unit file, "env": text of the environment file}]}
RECORD  the job as it was started, the same on all its hosts: {"job", "attempt", "run", "strategy", "stack",
         "inventory", "output", "shared": true if several tasks write there, "code": SHA256, "started": epoch s,
         "policy": {...}, "deciders": [[ROLE, INDEX]],
         "vital": [[[ROLE, INDEX]]], groups of tasks: the job fails once all tasks of a group are gone for good,
         "leaves": [ROLE], roles whose tasks end by themselves soon after the deciders,
         "tasks": [{"role", "index", "host", "address", "port", "unit", "gpus"}],
         "env": [names of variables, no values]}
SHOWN   {"job", "attempt", "run", "record": RECORD, "stopped": epoch s of the job's stop mark or null,
         "tasks": [STATE of each task of this host]}
EVENT   {"time": epoch s, "attempt", "event": start, stop or restart (a user's action), begin or end (of a task's run),
         "role", "index": null for the whole job, "by": user or null, "exit_code", "signal": of an end, or null}
STATE   {"role", "index", "state", "exit_code", "signal", "started", "finished", "restarts"}: times in epoch s, or null
"""

from __future__ import annotations

import json
import signal
from typing import Any

PROTOCOL = 1
BEAT_S = 5.0
SILENCE_S = 30.0
#: The longest line of JSON that either side accepts, in bytes.
LINE_LIMIT = 16 * 2**20


def line(kind: str, value: Any) -> bytes:
    """Encode one message."""
    return json.dumps({kind: value}, separators=(",", ":")).encode() + b"\n"


def request(verb: str, **more: Any) -> bytes:
    """Encode the client's first line."""
    return json.dumps({"protocol": PROTOCOL, "verb": verb, **more}, separators=(",", ":")).encode() + b"\n"


def parse(text: bytes) -> tuple[str, Any]:
    """Return the kind and value of a message. Raises ValueError for anything else."""
    message = json.loads(text)
    if not isinstance(message, dict) or len(message) != 1:
        raise ValueError(f"not a message: {text[:200]!r}")
    return next(iter(message.items()))


def signal_name(number: int) -> str:
    """Return ``SIGKILL``, or ``SIG35`` for a real-time signal, which has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def error(
    exit_code: int, message: str, remedy: str = "", retry: bool | None = None, stack: str | None = None
) -> dict[str, Any]:
    """Build an ERROR."""
    found = {"exit": exit_code, "message": message, "remedy": remedy}
    more = {"retry": retry, "stack": stack}
    return {**found, **{key: value for key, value in more.items() if value is not None}}
