"""The job file's models. Unknown keys are rejected; docs/job-file.md is tested against these fields."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from tfctl.model.ports import port_range
from tfctl.model.text import (
    ENV_NAME,
    clean,
    cpu_count,
    known_placeholders,
    memory_size,
    output_path,
    quoted,
    seconds,
    split,
    stack_name,
)
from tfctl.node.names import JOB, ROLE

_OURS = ("TF_CONFIG", "TFCTL_")
#: From these, tfctl learns how a task ended (systemd.exec(5)); the job's own values would take their place.
_OF_SYSTEMD = ("EXIT_CODE", "EXIT_STATUS", "INVOCATION_ID", "MAINPID", "SERVICE_RESULT")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _scalar(value: Any) -> str:
    """Check a command word or environment value: text or an integer. Reject YAML's reading of `yes`, `1e3` or dates."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"YAML reads this as {quoted(value)}; quote it to keep the text as written")
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
    if not isinstance(value, dict):
        raise ValueError("should be a mapping of names to values")
    found = {}
    for name, text in value.items():
        if not isinstance(name, str) or not ENV_NAME.fullmatch(name):
            raise ValueError(f"{quoted(name)} is not a variable name: letters, digits and _, not starting with a digit")
        if name.startswith(_OURS):
            raise ValueError(f"{name} is set by tfctl itself; remove it")
        if name in _OF_SYSTEMD:
            raise ValueError(f"{name} is set by systemd, and tells tfctl how a task ended; use another name")
        try:
            found[name] = _scalar(text)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return found


def _ports(value: Any) -> Any:
    return port_range(value, lowest=1024)


def _path(value: Any, info: ValidationInfo) -> Path:
    """Return an absolute path. A relative one begins at the job file's directory, which is the validation's context."""
    if not isinstance(value, str | Path):
        raise ValueError(f"should be a valid string, not {quoted(value)}")
    try:
        path = Path(clean(str(value))).expanduser()
    except RuntimeError:
        raise ValueError(f"{value}: this machine has no such user; write the full path") from None
    return (info.context or Path.cwd()) / path


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


ExitCodes = Annotated[tuple[int, ...], BeforeValidator(_exit_codes)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
Environment = Annotated[dict[str, str], BeforeValidator(_environment)]
Ports = Annotated[tuple[int, int], BeforeValidator(_ports)]
LocalPath = Annotated[Path, BeforeValidator(_path)]
Folder = Annotated[LocalPath, AfterValidator(Path.resolve)]
StackName = Annotated[str, AfterValidator(stack_name)]
Seconds = Annotated[int, BeforeValidator(seconds)]
Memory = Annotated[str, BeforeValidator(memory_size)]
Cpus = Annotated[float, BeforeValidator(cpu_count)]


class CodeSpec(_Model):
    """The directory to send to the hosts. A bare string means ``path``.

    ``include``: files below it, by their relative paths, to send even if git ignores them or they look like secrets.
    """

    model_config = ConfigDict(revalidate_instances="always")

    path: Folder = Field(default=Path(), validate_default=True)
    include: tuple[str, ...] = Field(default=(), strict=False)

    @model_validator(mode="before")
    @classmethod
    def _from_path(cls, value: Any, info: ValidationInfo) -> Any:
        return value if isinstance(value, dict | CodeSpec) else {"path": _path(value, info)}

    @field_validator("include")
    @classmethod
    def _inside(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if clean(name) != posixpath.normpath(name) or name.startswith(("/", "..")) or name == ".":
                raise ValueError(f"{quoted(name)} is not the path of a file relative to `path`, such as keys/id_rsa")
        return value


class Limits(_Model):
    """What each task of a role may use of its host. ``memory``: as MemoryMax= takes it (systemd.resource-control(5)).

    ``cpus``: the CPU time per second, in seconds.
    """

    memory: Memory | None = None
    cpus: Cpus | None = None


class RoleSpec(_Model):
    """How many tasks a role has and where: ``replicas``, dealt round-robin over the hosts, or ``per_host`` on each.

    A bare number means ``replicas``. ``hosts`` is an Ansible pattern. ``command``, ``env`` and ``stack`` override the
    job's own. ``gpus`` is the number per task, and so are ``limits``.
    """

    replicas: int | None = Field(default=None, ge=1, le=10_000)
    per_host: int | None = Field(default=None, ge=1, le=1000)
    hosts: str = "all"
    gpus: int | None = Field(default=None, ge=0, le=64)
    command: Words | None = None
    env: Environment = Field(default_factory=dict)
    stack: StackName | None = None
    limits: Limits = Limits()

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, value: Any) -> Any:
        return {"replicas": value} if isinstance(value, int) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _either(self) -> RoleSpec:
        if self.replicas is not None and self.per_host is not None:
            raise ValueError("replicas and per_host are two ways to say how many; give one")
        return self


class NotifySpec(_Model):
    """Whom to tell how the job ended. ``command`` runs on the first decider's host; ``url`` gets a POST from there."""

    command: Words | None = None
    url: Annotated[str, AfterValidator(_url)] | None = Field(default=None, repr=False)

    @model_validator(mode="after")
    def _something(self) -> NotifySpec:
        if self.command is None and self.url is None:
            raise ValueError("give a command or a url")
        return self


class Policy(_Model):
    """When the job is done, how the rest is then cleaned up, and what a failed task causes. Durations in seconds.

    ``max_attempts``: how often the whole job is tried. ``retry_exit_codes``: if given, the only exit codes after which
    it is tried again; ``fail_exit_codes``: those after which it is not. ``lease``: how long a host without contact to
    the first one goes on.
    """

    success: Literal["auto", "chief", "worker0", "all_workers"] = "auto"
    clean: Literal["running", "all", "none"] = "running"
    on_failure: Literal["auto", "fail", "restart"] = "auto"
    max_restarts: int | None = Field(default=None, ge=0, le=1000)
    deadline: Seconds | None = None
    max_attempts: int = Field(default=1, ge=1, le=1000)
    retry_exit_codes: ExitCodes = ()
    fail_exit_codes: ExitCodes = ()
    start_timeout: Seconds | None = None
    grace: Seconds | None = None
    drain: Seconds = 1800
    lease: Seconds = 600
    notify: NotifySpec | None = None


class JobFile(_Model):
    """A job file. Paths on this machine are absolute; in the file they are relative to it."""

    name: str
    inventory: LocalPath | None = None
    strategy: str
    stack: StackName | None = None
    requirements: LocalPath | None = None
    #: Without validation: validate_default then reads the path as relative to the job file.
    code: CodeSpec = Field(default_factory=lambda: CodeSpec.model_construct(path=Path()), validate_default=True)
    command: Words
    output: str = ""
    env: Environment = Field(default_factory=dict)
    ports: Ports | None = None
    roles: dict[str, RoleSpec] = Field(min_length=1)
    environment: Literal["cloud"] | None = None
    launcher: Literal["gloo", "mpi"] | None = None
    policy: Policy = Policy()

    @field_validator("name")
    @classmethod
    def _job_name(cls, value: str) -> str:
        if not JOB.fullmatch(value):
            raise ValueError(
                f"{quoted(value)} is not a job name: lowercase letters, digits and dashes, a letter first, 40 at most"
            )
        return value

    @field_validator("roles", mode="before")
    @classmethod
    def _role_names(cls, value: Any) -> Any:
        for name in value if isinstance(value, dict) else ():
            if not isinstance(name, str) or not ROLE.fullmatch(name):
                raise ValueError(
                    f"{quoted(name)} is not a role: lowercase letters, digits and _, a letter first, 20 at most"
                )
        return value

    @field_validator("output")
    @classmethod
    def _output(cls, value: str) -> str:
        return output_path(value) if value else value

    @model_validator(mode="after")
    def _default_output(self) -> JobFile:
        return self if self.output else self.model_copy(update={"output": f"/srv/tfctl/{self.name}"})
