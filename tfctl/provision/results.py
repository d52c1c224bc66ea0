"""The result of a run of Ansible, host by host: what failed, why, and what a user can do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from tfctl import schema
from tfctl.errors import ErrorObject, Exit, first_of
from tfctl.provision.explanation import Explanation
from tfctl.provision.faults import Fault, ModuleFault, reported, without_passwords
from tfctl.provision.remedies import remedy_for
from tfctl.wording import Lines

#: Lines of a failed task's output that are kept, beside the first.
_REASON_LINES = 8
_WORD = re.compile(r"\w+")
#: Prefixes that Ansible puts before the actual message.
_NOISE = re.compile(
    r"^(task failed: |module failed: |e: |fatal: |data could not be sent to remote host .* over ssh: "
    r"|failed to connect to the host via ssh: |finalization of task args for '\w+' failed: "
    r"|error while resolving value for '\w+': |the (lookup|filter) plugin '[\w.]+' failed: )+",
    re.IGNORECASE,
)
#: What Ansible writes in place of the value of an argument that is not logged; since ansible-core 2.22, the second.
_NOT_LOGGED = ("VALUE_SPECIFIED_IN_NO_LOG_PARAMETER", "$REDACTED$")
#: Messages that say only that something failed.
_EMPTY = ("non-zero return code", "one or more items failed")
#: Messages that are unclear or too long, and their replacements.
_CLEARER = (
    (re.compile(r"^Failed to replace '([^']+)' with .*No space left on device.*"), r"no space left on device for \1"),
    (re.compile(r"^'/usr/bin/apt-get [^\n]*' failed: E: "), ""),
    # Ansible writes to an ssh that is about to end, and then does not read what ssh reports.
    (re.compile(r"^\[Errno 32\] Broken pipe$"), "ssh ended before the connection was established"),
)


class TaskResult(TypedDict, total=False):
    """What the callback plugin keeps of a task's result, see `kept_of`.

    ``causes``: what `causes_of` returns for the task. The items of a loop have none. ``items``: the messages of failed
    items of a loop. ``url``: what get_url or uri was to download.
    """

    msg: str
    causes: list[str]
    faults: list[ModuleFault]
    stderr: str
    stdout: str
    module_stderr: str
    module_stdout: str
    rc: int
    warnings: list[str]
    censored: str
    items: list[str]
    diff: str
    explained: Explanation[ModuleFault]
    url: str
    drifts: list[str]
    removed: list[str]
    kept: list[str]


@dataclass(frozen=True)
class HostResult:
    """The result of one host. ``ok`` and ``changed`` count tasks as Ansible's recap does: ok includes changed ones.

    ``begun``: False for a host of a batch that was not begun, because one before it failed. ``task``: the task that
    failed or did not reach the host; ``faults``: why. ``explained``: what stacks would be on the host, if that was
    asked for. ``drifts``: what has changed on the host since it was provisioned, in sentences. ``warnings``: other
    warnings; one about several hosts is listed for the first of them. ``removed``: what a reset removed; ``kept``: what
    it left, in sentences.
    """

    host: str
    ok: int = 0
    changed: int = 0
    failed: bool = False
    unreachable: bool = False
    begun: bool = True
    task: str = ""
    faults: tuple[Fault, ...] = ()
    explained: Explanation[ErrorObject] | None = None
    drifts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        return Lines(*(fault.message for fault in self.faults))

    @property
    def remedy(self) -> str:
        return Lines(*dict.fromkeys(fault.remedy for fault in self.faults if fault.remedy))

    @property
    def exit(self) -> Exit:
        return first_of(fault.exit for fault in self.faults)


@dataclass(frozen=True)
class PlayResult:
    """The results of all hosts of a run, in inventory order. ``warnings``: about the run as a whole."""

    hosts: tuple[HostResult, ...]
    warnings: tuple[str, ...] = ()

    @property
    def changed(self) -> int:
        return sum(host.changed for host in self.hosts)

    @property
    def exit(self) -> Exit:
        """0, or the host's exit code that comes first in tfctl.errors.PRECEDENCE."""
        return first_of(host.exit for host in self.hosts if host.exit is not Exit.OK)


#: The fields of a task's result as Ansible has them. The others are derived.
_FIELDS = tuple(name for name in TaskResult.__annotations__ if name not in ("causes", "items", "diff"))
#: Those that modules of others fill as well, and not always with text.
_TEXTS = ("msg", "stderr", "stdout", "module_stderr", "module_stdout", "censored", "url", "diff")


def kept_of(result: Mapping[str, Any], error: Any) -> dict[str, Any]:
    """Return what the callback plugin keeps of a task's result. ``error``: see `causes_of`."""
    failed = [str(item.get("msg", "")) for item in _items_of(result) if item.get("failed")]
    return {
        **{name: result[name] for name in _FIELDS if name in result},
        "items": failed,
        "causes": causes_of(result, error),
    }


def diffs_of(result: Mapping[str, Any]) -> list[Any]:
    """Return the diffs of a task's result, or of those items of its loop that have changed."""
    changed = [item.get("diff") for item in _items_of(result) if item.get("changed") or item.get("failed")]
    return [each for diff in changed for each in (diff if isinstance(diff, list) else [diff]) if isinstance(each, dict)]


def _items_of(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the results of the items of a loop, or the result itself. The module dnf returns strings in `results`."""
    items = result.get("results")
    return [item for item in items if isinstance(item, dict)] or [result] if isinstance(items, list) else [result]


def checked(given: object) -> TaskResult:
    """Return what `kept_of` returned on the control machine, whatever the host has put into it.

    Raises SchemaError, which names the field whose type is wrong.
    """
    if not isinstance(given, Mapping):
        raise schema.SchemaError(f"expected a mapping, not {given!r}")
    found = {name: value for name, value in given.items() if value is not None}
    found.update((name, str(found[name])) for name in _TEXTS if name in found)
    if isinstance(found.get("warnings"), list):
        found["warnings"] = [str(text) for text in found["warnings"]]
    return schema.parse(TaskResult, {**found, "rc": int(bool(found.get("rc")))})


def causes_of(result: Mapping[str, Any], error: Any) -> list[str]:
    """Return the first lines of the exceptions that caused a failure, the outermost first.

    Those that the message of the task already contains are omitted. ``result``: the task's result, as callback plugins
    get it. ``error``: the task's ErrorSummary, a type that ansible-core may change, or None. ansible-core does not
    censor the summary, so nothing is returned unless the result shows that no argument is kept from the log.
    """
    event = getattr(error, "event", None)
    message = str(result.get("msg") or "")
    arguments = str(result.get("invocation") or _NOT_LOGGED)
    if not event or not message or "censored" in result or any(mark in arguments for mark in _NOT_LOGGED):
        return []
    told: list[str] = []
    found = False
    while event:
        text = str(getattr(event, "msg", ""))
        line = text.strip().partition("\n")[0]
        if found and not any(line in each for each in (message, *told)):
            told.append(line)
        found = found or text == message
        chain = getattr(event, "chain", None)
        event = chain.event if chain and chain.follow else None
    return told


def faults_of(
    result: TaskResult, host: str, unreachable: bool = False, variables: Mapping[str, str] | None = None
) -> tuple[Fault, ...]:
    """Return why a task failed: the faults that a module of ours reported, else one derived from its output.

    ``variables``: names of variables that Ansible mentions, and what to call them instead.
    """
    return reported(result.get("faults", []), host) or (_derived(result, host, unreachable, variables or {}),)


def _derived(result: TaskResult, host: str, unreachable: bool, variables: Mapping[str, str]) -> Fault:
    lines = [_WORD.sub(lambda word: variables.get(word[0], word[0]), line) for line in dict.fromkeys(_lines(result))]
    url = result.get("url", "")
    if lines and url not in lines[0]:
        lines[0] = f"{url}: {lines[0]}"
    reason = without_passwords("\n".join(lines[:1] + lines[1:][-_REASON_LINES:])) or "no reason given"
    found = remedy_for("\n".join(lines))
    code = found.exit if found else Exit.FAILED
    # Ansible also calls a host unreachable whose sudo asks for a password.
    if unreachable and code is not Exit.PREFLIGHT:
        code = Exit.UNREACHABLE
    return Fault(reason, found.naming(host) if found else "", code)


def _lines(result: TaskResult) -> list[str]:
    texts = [result.get("msg"), result.get("stderr"), result.get("module_stderr"), result.get("censored")]
    texts += result.get("items", [])
    if result.get("rc", 0) and not result.get("stderr"):
        texts += [result.get("stdout"), result.get("module_stdout")]
    lines = [_clearer(_NOISE.sub("", line.strip())) for text in texts for line in str(text or "").splitlines()]
    lines += result.get("causes", [])
    return [line for line in lines if line and line.lower() not in _EMPTY]


def _clearer(line: str) -> str:
    for pattern, replacement in _CLEARER:
        line = pattern.sub(replacement, line)
    return line
