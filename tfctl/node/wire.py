"""What client and node say to each other: one JSON object a line, on the stdin and stdout of `tfctl-node`.

The client's first line is a request and names its protocol and verb. Of another protocol the node answers one
``error`` with exit 8. Every message from the node is an object with one key, its kind.

start   request  {"protocol": 1, "verb": "start", "job": J, "code": SHA256 or null, "ports": [LO, HI],
                  "resolve": [NAME], "again": N, or absent: the job's attempt that is to be begun again}
        node     {"hello": {"protocol": 1, "host": its own host name, "highest": highest attempt of J here, or 0,
                  "ports": {"2222": who has it}, "names": {NAME: address or null}, "gpus": [GPU],
                  "stacks": [NAME], "code": true when that code is here,
                  "gpu_trouble": ERROR or null: there are GPUs, and why they cannot be told,
                  "again": [[ROLE, INDEX]], where asked for: its tasks whose units and variables are kept here}}
                                                                                                    no lock is held
        client   {"plan": PLAN}, then, only when hello said code false, {"code": SIZE} and SIZE raw bytes (tar.gz)
                 or  {"again": {"job", "attempt", "run", "record": RECORD}}: the plan is made here of what is kept
        node     {"reserved": {}}  or  {"refused": ERROR with "retry": true when the next hello may mend it}
        client   {"share": {"write": NONCE}}   node {"share": {"ok": true}}        an empty file in the output directory
                 {"share": {"find": NONCE}}    node {"share": {"ok": found}}
                 {"share": {"remove": NONCE}}  node {"share": {"ok": true}}
        client   {"go": {}}      node  {"beat": {}} every 5 s, then {"started": {}}
                                 or  {"undone": ERROR} (what it had started is undone already)
        client   {"keep": {}}    node  {"kept": {}}, and ends
        client   {"undo": {}}    node  {"undone": {}}; another plan may follow
        client   {"beat": {}}    at any time, no answer. 30 s of silence or the end of stdin before keep: undo, and end.
show    request  {"protocol": 1, "verb": "show", "job": J or null, "attempt": N or null, "follow": bool}
        node     {"show": {"host": ..., "jobs": [SHOWN]}}: the wanted or latest attempt of J, or the latest of each job.
                 With follow: again at every change, {"beat": {}} every 5 s, until stdin ends.
stop    request  {"protocol": 1, "verb": "stop", "job": J, "attempt": N or null, "tasks": [[ROLE, INDEX]] or null}
                 tasks null: all of the job here, and the job's own stop mark; otherwise those alone, and only theirs
        node     {"beat": {}} every 5 s, then {"stopped": {"attempt": N, "tasks": [[ROLE, INDEX]], "left": [sentence]}};
                 tasks: those that ran until then; of a job not known here: attempt 0
restart request  {"protocol": 1, "verb": "restart", "job": J, "attempt": N, "tasks": [[ROLE, INDEX]]}
                 those alone, in place; refused with 7 where a unit is gone
        node     {"beat": {}} every 5 s, then {"restarted": {"attempt": N, "tasks": [[ROLE, INDEX]]}}
events  request  {"protocol": 1, "verb": "events", "job": J}
        node     {"events": {"host": ..., "jobs": as in show, "events": [EVENT] of every attempt, by time}}
nodes   request  {"protocol": 1, "verb": "nodes"}
        node     {"node": {"protocol": 1, "version": of the node part, "host": ..., "os": its name, "kernel": ...,
                  "systemd": int, "cpus": int, "load": of the last minute, "memory_mib": [all, available],
                  "stacks": {NAME: environment}, "gpus": [GPU], "gpu_trouble": ERROR or null,
                  "ports": {"2222": who has it}, those that jobs hold,
                  "tasks": [{"job", "role", "index", "state": starting or running}]}}        what is not known is null
logs    request  {"protocol": 1, "verb": "logs", "job": J, "attempt": N or null, "tasks": [[ROLE, INDEX]] or null,
                  "cursor": CURSOR or null, "follow": bool, "tail": N or null, "since": epoch s or null, "until": same}
        node     {"logs": {"attempt": N, "run": RUN, "units": {UNIT: [ROLE, INDEX]}}}, then journalctl's own JSON lines

ERROR   {"exit": code of tfctl.errors.Exit, "message": sentence, "remedy": sentence or "",
         "stack": NAME, where that stack is what the host lacks: the client knows which there are};
        {"error": ERROR} answers any request that cannot be served.
GPU     {"uuid": ..., "index": int, "name": ..., "memory_mib": int, "holder": text or ""}; a MIG instance is one,
        its UUID begins with MIG-; index counts them by PCI address, from 0; memory_mib 0: not told
PLAN    {"job", "attempt", "run", "record": RECORD, "code": SHA256, "output": directory,
         "stack": name or "none", that of the first task; what others have stands in their env,
         "tasks": [{"role", "index", "ports": [int], "gpus": [uuid], "program": first word of the command,
                    "unit": text of the unit file, "env": text of the environment file}]}
RECORD  the job as it was started, alike on all its hosts: {"job", "attempt", "run", "strategy", "stack", "inventory",
         "output", "shared": true when several tasks write there, "code": SHA256, "started": epoch s, "policy": {...},
         "deciders": [[ROLE, INDEX]],
         "vital": [[[ROLE, INDEX]]], groups of tasks: one that is gone for good, all of it, takes the job with it,
         "leaves": [ROLE], whose tasks end by themselves soon after the deciders,
         "tasks": [{"role", "index", "host", "address", "port", "unit", "gpus"}],
         "env": [names of variables, no values]}
SHOWN   {"job", "attempt", "run", "record": RECORD, "stopped": epoch s of the job's stop mark or null,
         "tasks": [STATE of each task of this host]}
EVENT   {"time": epoch s, "attempt", "event": start, stop or restart (somebody's deed), begin or end (of a task's run),
         "role", "index": null for the whole job, "by": who, or null, "exit_code", "signal": of an end, or null}
STATE   {"role", "index", "state", "exit_code", "signal", "started", "finished", "restarts"}: times in epoch s, or null
"""

from __future__ import annotations

import json
import signal
from typing import Any

PROTOCOL = 1
BEAT_S = 5.0
SILENCE_S = 30.0
#: No line of JSON is longer, on either side.
LINE_LIMIT = 16 * 2**20


def line(kind: str, value: Any) -> bytes:
    """One message as it goes over the wire."""
    return json.dumps({kind: value}, separators=(",", ":")).encode() + b"\n"


def request(verb: str, **more: Any) -> bytes:
    """The client's first line."""
    return json.dumps({"protocol": PROTOCOL, "verb": verb, **more}, separators=(",", ":")).encode() + b"\n"


def parse(text: bytes) -> tuple[str, Any]:
    """Kind and value of a message. Raises ValueError for anything else."""
    message = json.loads(text)
    if not isinstance(message, dict) or len(message) != 1:
        raise ValueError(f"not a message: {text[:200]!r}")
    return next(iter(message.items()))


def signal_name(number: int) -> str:
    """``SIGKILL``; ``SIG35`` for one of the real-time signals, which have no names."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def error(
    exit_code: int, message: str, remedy: str = "", retry: bool | None = None, stack: str | None = None
) -> dict[str, Any]:
    """An ERROR."""
    found = {"exit": exit_code, "message": message, "remedy": remedy}
    more = {"retry": retry, "stack": stack}
    return {**found, **{key: value for key, value in more.items() if value is not None}}
