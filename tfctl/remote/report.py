"""Events and a report from the messages of an ansible-playbook run (playbooks/callback_plugins/tfctl_events.py)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfctl.errors import Exit, first_of
from tfctl.remote.remedies import remedy_for

_REASON_LINES = 8
_PASSWORD = re.compile(r"(//[^/\s:@]*):[^/\s@]+@")
#: Prefixes that Ansible puts before the actual message.
_NOISE = re.compile(
    r"^(task failed: |module failed: |e: |fatal: |data could not be sent to remote host .* over ssh: "
    r"|failed to connect to the host via ssh: |finalization of task args for '\w+' failed: "
    r"|error while resolving value for '\w+': |the lookup plugin '\w+' failed: )+",
    re.IGNORECASE,
)
#: Messages that are unclear or too long, and their replacements.
_TOLD = (
    (re.compile(r"^Failed to replace '([^']+)' with .*No space left on device.*"), r"no space left on device for \1"),
    (re.compile(r"^'/usr/bin/apt-get [^\n]*' failed: E: "), ""),
)
_BECOME = re.compile(r"sudo: |become password|sudo password", re.IGNORECASE)


@dataclass(frozen=True)
class Began:
    """The run has begun on these hosts, in inventory order."""

    hosts: tuple[str, ...]


@dataclass(frozen=True)
class TaskStarted:
    """A task has started on all hosts that are still in the run."""

    name: str


@dataclass(frozen=True)
class HostDone:
    """A task has ended on one host. ``state``: ok, changed, failed, unreachable or skipped; ``diff``: for --diff."""

    host: str
    task: str
    state: str
    diff: str = ""


@dataclass(frozen=True)
class Warned:
    """A warning for the owner of the host."""

    host: str
    text: str


Event = Began | TaskStarted | HostDone | Warned


@dataclass(frozen=True)
class HostReport:
    """The result of one host. ``ok`` and ``changed`` count tasks as Ansible's recap does: ok includes changed ones.

    ``task``, ``reason`` and ``remedy`` say why it failed or could not be reached; ``exit`` is the exit code for it.
    ``faults``: the same causes one by one, each {"message", "remedy", "exit"}.
    ``explained``: the answer of playbooks/module_utils/tfctl_explain.py, if it was asked for.
    """

    host: str
    ok: int = 0
    changed: int = 0
    failed: bool = False
    unreachable: bool = False
    task: str = ""
    reason: str = ""
    remedy: str = ""
    exit: Exit = Exit.OK
    explained: Mapping[str, Any] | None = None
    faults: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Report:
    """All hosts of the run, in inventory order."""

    hosts: tuple[HostReport, ...]

    @property
    def changed(self) -> int:
        return sum(host.changed for host in self.hosts)

    @property
    def exit(self) -> Exit:
        """0, or the host's exit code that comes first in tfctl.errors.PRECEDENCE."""
        return first_of(host.exit for host in self.hosts if host.exit is not Exit.OK)


@dataclass
class Collector:
    """Collects the plugin's messages one by one. ``finished``: the run is complete, whether or not hosts failed."""

    finished: bool = False
    _causes: dict[str, dict[str, Any]] = field(default_factory=dict)
    _stats: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def take(self, message: Mapping[str, Any]) -> list[Event]:
        """Take one message and return its events."""
        if message["event"] == "play":
            for host in message["hosts"]:
                self._causes.setdefault(host, {})
            return [Began(tuple(message["hosts"]))]
        if message["event"] == "task":
            return [TaskStarted(_titled(message))]
        if message["event"] == "host":
            return self._host(message)
        if message["event"] == "waits":
            return [Warned(message["host"], f"waits up to {message['at_most_s'] // 60} min: {message['text']}")]
        if message["event"] == "stats":
            self._stats, self.finished = message["hosts"], True
        return []

    def report(self) -> Report:
        return Report(tuple(self._row(host, cause) for host, cause in self._causes.items()))

    def _host(self, message: Mapping[str, Any]) -> list[Event]:
        host, state, result = message["host"], message["state"], message["result"]
        title = _titled(message)
        if state in ("failed", "unreachable"):
            reason, remedy, code = explain(result, host, state)
            told = {"task": title, "reason": reason, "remedy": remedy, "exit": code}
            faults = faults_of(result, host) or [{"message": reason, "remedy": remedy, "exit": int(code)}]
            self._causes[host] = {**told, "faults": tuple(faults), state: True}
        if "explained" in result:
            self._causes[host]["explained"] = result["explained"]
        warned: list[Event] = [Warned(host, _without_passwords(str(text))) for text in result.get("warnings", [])]
        return [*warned, HostDone(host, title, state, _without_passwords(result.get("diff", "")))]

    def _row(self, host: str, cause: dict[str, Any]) -> HostReport:
        counts = self._stats.get(host, {})
        return HostReport(host, ok=counts.get("ok", 0), changed=counts.get("changed", 0), **cause)


def explain(result: Mapping[str, Any], host: str, state: str) -> tuple[str, str, Exit]:
    """Return reason, remedy and exit code of a failed task: stated by our own modules, else derived from the text."""
    faults = faults_of(result, host)
    if faults:
        reason = "\n".join(fault["message"] for fault in faults)
        remedy = "\n".join(dict.fromkeys(fault["remedy"] for fault in faults if fault["remedy"]))
        return reason, remedy, first_of(Exit(fault["exit"]) for fault in faults)
    lines = list(dict.fromkeys(_lines(result)))
    text = "\n".join(lines)
    reason = _without_passwords("\n".join(lines[:1] + lines[1:][-_REASON_LINES:])) or "no reason given"
    remedy = remedy_for(text).replace("HOST", host)
    if state == "unreachable" and not _BECOME.search(text):
        return reason, remedy, Exit.UNREACHABLE
    return reason, remedy, Exit.PREFLIGHT if _BECOME.search(text) else Exit.FAILED


def faults_of(result: Mapping[str, Any], host: str) -> list[dict[str, Any]]:
    """Return the faults that one of our own modules reported, each {"message", "remedy", "exit"}."""
    return [
        {
            "message": _without_passwords(fault["message"]),
            "remedy": (fault["remedy"] or remedy_for(fault["message"])).replace("HOST", host),
            "exit": int(fault.get("exit", Exit.FAILED)),
        }
        for fault in result.get("faults", [])
    ]


def _lines(result: Mapping[str, Any]) -> list[str]:
    texts = [result.get(key) or "" for key in ("msg", "stderr", "module_stderr", "censored")]
    texts += result.get("items", [])
    if result.get("rc", 0) and not result.get("stderr"):
        texts += [result.get("stdout") or "", result.get("module_stdout") or ""]
    lines = [_told(_NOISE.sub("", line.strip())) for text in texts for line in str(text).splitlines()]
    return [line for line in lines if line and line != "non-zero return code"]


def _told(line: str) -> str:
    for pattern, replacement in _TOLD:
        line = pattern.sub(replacement, line)
    return line


def _titled(message: Mapping[str, Any]) -> str:
    role, task = message["role"], message["task"]
    return f"{role}: {task}" if role else task


def _without_passwords(text: str) -> str:
    """Mask passwords in URLs. User and host stay, to show which URL failed."""
    return _PASSWORD.sub(r"\1:***@", text)
