"""The values in a job file: how each is checked, and its JSON Schema, which an editor checks before tfctl does.

A schema accepts every form that the checks accept. It rejects what a pattern can express; tfctl checks the rest.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ValidationInfo, WithJsonSchema

from tfctl.model.ports import port_range
from tfctl.model.text import (
    PLACEHOLDERS,
    PLACEHOLDERS_OF_JOB,
    clean,
    cpu_count,
    env_name,
    known_placeholders,
    memory_size,
    output_path,
    quoted,
    seconds,
    split,
    stack_name,
    without_references,
    without_task,
)
from tfctl.node.names import STACK
from tfctl.node.progress import progress

#: Instead of a path: the default directory, which every host has for itself.
LOCAL = "local"
#: Instead of a path: the job needs no directory of the hosts.
NO_OUTPUT = "none"


def _scalar(value: Any) -> str:
    """Check a command word or environment value. The loader keeps numbers, `yes` and dates as text."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"should be text or a number, not {quoted(value)}")
    return known_placeholders(clean(str(value)))


def _words(value: Any) -> Any:
    """Return a command as words, splitting a string as a shell would."""
    if isinstance(value, str):
        value = list(split(clean(value)))
    if not isinstance(value, list):
        raise ValueError("should be a string or a list of words")
    if not value or not value[0]:
        raise ValueError("the command is empty")
    program = str(value[0])
    if "=" in program or program.startswith("-"):  # env(1), which looks it up on PATH, would read these as its own
        raise ValueError(f"{quoted(program)} is not a program: put variables in `env`, and options after the program")
    return tuple(_scalar(word) for word in value)


def _environment(value: Any) -> Any:
    """Return names with values; None is a value that the shell has. A list holds the names of such variables."""
    if isinstance(value, list):
        value = dict.fromkeys(map(_listed_name, value))
    if not isinstance(value, dict):
        raise ValueError("should be a mapping of names to values, or a list of names")
    return {env_name(name): _variable(name, text) for name, text in value.items()}


def _listed_name(value: Any) -> str:
    name, equals, _ = value.partition("=") if isinstance(value, str) else (value, "", "")
    if equals:
        raise ValueError(f"{quoted(name)} has a value, and a list holds names alone: write `env: {{{name}: VALUE}}`")
    return env_name(name)


def _variable(name: str, value: Any) -> str | None:
    try:
        return None if value is None else without_references(_scalar(value))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _hosts(value: Any) -> Any:
    """Return a pattern of hosts. A list of patterns is joined, as Ansible joins those of a play."""
    if not isinstance(value, list):
        return value
    for part in value:
        if not isinstance(part, str) or not part.strip():
            raise ValueError(f"should list names of hosts, groups or patterns, not {quoted(part)}")
    if not value:
        raise ValueError("should list at least one host; leave the key out for all")
    return ",".join(value)


def local_path(value: Any, info: ValidationInfo) -> Path:
    """Return an absolute path. A relative one begins at the job file's directory, which is the validation's context."""
    if not isinstance(value, str | Path):
        raise ValueError(f"should be a valid string, not {quoted(value)}")
    try:
        path = Path(clean(str(value))).expanduser()
    except RuntimeError:
        raise ValueError(f"{value}: this machine has no such user; write the full path") from None
    return (info.context or Path.cwd()) / path


def _lease(value: int) -> int:
    """Return a lease (s) that is longer than the time between two messages of a guard."""
    if value < 10:
        raise ValueError("should be at least 10s: hosts hear from each other every 5 s")
    return value


def _stall(value: int) -> int:
    """Return a time without progress (s) that several samples of the guard can tell from a pause."""
    if value < 30:
        raise ValueError("should be at least 30s: hosts look at the progress of tasks every 10 s")
    return value


def _url(value: str) -> str:
    if not re.fullmatch(r"https?://[^\s]+", value):
        raise ValueError("should begin with http:// or https://")
    return value


def _exit_codes(value: Any) -> Any:
    """Return a list of exit codes; a bare number is a list of one."""
    codes = value if isinstance(value, list | tuple) else [value]
    for code in codes:
        if isinstance(code, bool) or not isinstance(code, int) or not 1 <= code <= 255:
            raise ValueError(f"{quoted(code)} is not an exit code of a failure, 1 to 255")
    return tuple(codes)


def _schema(*types: str, **keywords: Any) -> WithJsonSchema:
    """Return a JSON Schema. Each keyword concerns values of one type alone."""
    return WithJsonSchema({"type": types[0] if len(types) == 1 else [*types], **keywords})


#: Patterns are those of ECMA-262, in Unicode mode, and of Python's `re` alike.
def _no_unknown_placeholder(known: tuple[str, ...]) -> str:
    names = "|".join((*known, "[a-z][a-z0-9_]{0,19}_hosts"))
    return rf"^(?![\s\S]*(?<!\$)\{{(?!({names})\}})[a-z][a-z0-9_]*\}})"


def _words_schema(known: tuple[str, ...]) -> WithJsonSchema:
    pattern = _no_unknown_placeholder(known)
    return _schema(
        "string", "number", "boolean", "array",
        pattern=pattern + r"\s*(?![\w.\/]*=)[^\s=\x2d]",
        minItems=1, items={"type": ["string", "number", "boolean"], "pattern": pattern},
    )  # fmt: skip


_NO_REFERENCE = r"([^$]|\$\$\{|\$(?!\{))*$"
_ENV_NAME = "^(?!TF_CONFIG|TFCTL_|(EXIT_CODE|EXIT_STATUS|INVOCATION_ID|MAINPID|SERVICE_RESULT)$)[A-Za-z_][A-Za-z0-9_]*$"
_VALUE = {
    "type": ["string", "number", "boolean", "null"],
    "pattern": _no_unknown_placeholder(PLACEHOLDERS) + _NO_REFERENCE,
}

ExitCodes = Annotated[
    tuple[int, ...],
    BeforeValidator(_exit_codes),
    _schema("integer", "array", minimum=1, maximum=255, items={"type": "integer", "minimum": 1, "maximum": 255}),
]
Words = Annotated[tuple[str, ...], BeforeValidator(_words), _words_schema(PLACEHOLDERS)]
#: A command that runs once for the job.
WordsOfJob = Annotated[
    tuple[str, ...], BeforeValidator(_words), AfterValidator(without_task), _words_schema(PLACEHOLDERS_OF_JOB)
]
Environment = Annotated[
    dict[str, str | None],
    BeforeValidator(_environment),
    _schema(
        "object", "array",
        propertyNames={"pattern": _ENV_NAME}, additionalProperties=_VALUE,
        items={"type": "string", "pattern": _ENV_NAME},
    ),
]  # fmt: skip
Hosts = Annotated[
    str,
    BeforeValidator(_hosts),
    _schema("string", "array", minItems=1, items={"type": "string", "pattern": r"\S"}),
]
Ports = Annotated[
    tuple[int, int],
    BeforeValidator(lambda value: port_range(value, lowest=1024)),
    _schema("integer", "string", minimum=1024, maximum=65535, pattern=r"^\s*\d{4,5}\s*(-\s*\d{4,5}\s*)?$"),
]
LocalPath = Annotated[Path, BeforeValidator(local_path), _schema("string")]
Folder = Annotated[LocalPath, AfterValidator(Path.resolve)]
StackName = Annotated[str, AfterValidator(stack_name), _schema("string", pattern=f"^({STACK.pattern})$")]
Output = Annotated[
    str,
    AfterValidator(lambda value: value if value in ("", LOCAL, NO_OUTPUT) else output_path(value)),
    _schema(
        "string",
        pattern=r"^((?!\/+(home|root|run\/+user)(\/|$))(?!.*\/\.\.(\/|$))\/[A-Za-z0-9._\/@+=:,-]+|local|none)?$",
    ),
]
Seconds = Annotated[
    int,
    BeforeValidator(seconds),
    _schema("integer", "string", minimum=1, maximum=10 * 365 * 86400, pattern=r"^(?=.)(\d+d)?(\d+h)?(\d+m)?(\d+s)?$"),
]
Lease = Annotated[
    int,
    BeforeValidator(seconds),
    AfterValidator(_lease),
    _schema(
        "integer", "string",
        minimum=10, maximum=10 * 365 * 86400, pattern=r"^(?=.)(?!0*\ds$)(\d+d)?(\d+h)?(\d+m)?(\d+s)?$",
    ),
]  # fmt: skip
Stall = Annotated[
    int,
    BeforeValidator(seconds),
    AfterValidator(_stall),
    _schema(
        "integer", "string",
        minimum=30, maximum=10 * 365 * 86400, pattern=r"^(?=.)(?!0*[12]?\ds$)(\d+d)?(\d+h)?(\d+m)?(\d+s)?$",
    ),
]  # fmt: skip
Memory = Annotated[
    str,
    BeforeValidator(memory_size),
    _schema(
        "integer",
        "string",
        minimum=2**20,
        pattern=r"^([1-9]\d{6,17}|[1-9]\d{3,17}K|[1-9]\d{0,12}M|[1-9]\d{0,9}G|[1-9]\d{0,6}T)$",
    ),
]
Cpus = Annotated[float, BeforeValidator(cpu_count), _schema("number", minimum=0.01, maximum=10_000)]
ProgressPattern = Annotated[str, AfterValidator(progress), _schema("string", minLength=1)]
Url = Annotated[str, AfterValidator(_url), _schema("string", pattern=r"^https?:\/\/\S+$")]
