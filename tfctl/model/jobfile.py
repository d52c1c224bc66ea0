"""The job file's models. Unknown keys are rejected; docs/job-file.md is tested against these fields."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from tfctl.model.text import clean, quoted
from tfctl.model.values import (
    LOCAL,
    NO_OUTPUT,
    Cpus,
    Environment,
    ExitCodes,
    Folder,
    Hosts,
    Lease,
    LocalPath,
    Memory,
    Output,
    Ports,
    ProgressPattern,
    Seconds,
    StackName,
    Stall,
    Url,
    Words,
    WordsOfJob,
    local_path,
)
from tfctl.node.names import JOB, ROLE


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


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
        return value if isinstance(value, dict | CodeSpec) else {"path": local_path(value, info)}

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

    A bare number means ``replicas``. ``hosts`` is an Ansible pattern, in the file also a list of them.
    ``command``, ``env`` and ``stack`` override the job's own. ``gpus`` is the number per task, and so are ``limits``.
    """

    replicas: int | None = Field(default=None, ge=1, le=10_000)
    per_host: int | None = Field(default=None, ge=1, le=1000)
    hosts: Hosts = "all"
    gpus: int | None = Field(default=None, ge=0, le=64)
    command: Words | None = None
    env: Environment = Field(default_factory=dict, repr=False)
    stack: StackName | None = None
    limits: Limits = Limits()

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, value: Any) -> Any:
        return {"replicas": value} if isinstance(value, int) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _either(self) -> RoleSpec:
        if self.replicas is not None and self.per_host is not None:
            raise ValueError("set either replicas or per_host, not both")
        return self


class NotifySpec(_Model):
    """Whom to tell how the job ended. ``command`` runs on the first decider's host; ``url`` gets a POST from there."""

    command: WordsOfJob | None = None
    url: Url | None = Field(default=None, repr=False)

    @model_validator(mode="after")
    def _something(self) -> NotifySpec:
        if self.command is None and self.url is None:
            raise ValueError("give a command or a url")
        return self


class ProgressSpec(_Model):
    """How to read progress from what the tasks print. A bare string means ``pattern``, which may also be the name of a
    format. ``total``: how many steps the whole job makes or, if the pattern has no step, how many epochs."""

    pattern: ProgressPattern
    total: int | None = Field(default=None, ge=1, le=10**12)

    @model_validator(mode="before")
    @classmethod
    def _from_pattern(cls, value: Any) -> Any:
        return value if isinstance(value, dict | ProgressSpec) else {"pattern": value}


class Policy(_Model):
    """When the job is done, how the rest is then cleaned up, and what a failed task causes. Durations in seconds.

    ``max_attempts``: how often the whole job is tried. ``retry_exit_codes``: if given, the only exit codes after which
    it is tried again; ``fail_exit_codes``: those after which it is not. ``lease``: how long a host without contact to
    the first one goes on. ``stall``: how long it may make no progress.
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
    stall: Stall | None = None
    on_stall: Literal["report", "restart", "fail"] = "report"
    grace: Seconds | None = None
    drain: Seconds = 1800
    lease: Lease = 600
    notify: NotifySpec | None = None

    @model_validator(mode="after")
    def _stall(self) -> Policy:
        if self.stall is None and "on_stall" in self.model_fields_set:
            raise ValueError("on_stall says what to do after the time that stall sets; set it too, such as stall: 15m")
        if self.on_stall == "restart" and self.max_attempts == 1:
            raise ValueError("on_stall: restart starts the next attempt; set max_attempts to 2 or more")
        return self


class JobFile(_Model):
    """A job file. Paths on this machine are absolute; in the file they are relative to it.

    ``env``: where a value is None, the shell has it (model/variables.py).
    """

    name: str
    inventory: LocalPath | None = None
    strategy: str
    stack: StackName | None = None
    requirements: LocalPath | None = None
    #: Without validation: validate_default then reads the path as relative to the job file.
    code: CodeSpec = Field(default_factory=lambda: CodeSpec.model_construct(path=Path()), validate_default=True)
    command: Words
    output: Output = ""
    env: Environment = Field(default_factory=dict, repr=False)
    env_file: LocalPath | None = None
    ports: Ports | None = None
    roles: dict[str, RoleSpec] = Field(min_length=1)
    environment: Literal["cloud"] | None = None
    launcher: Literal["gloo", "mpi"] | None = None
    progress: ProgressSpec | None = None
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

    @property
    def output_path(self) -> str:
        """The directory on the hosts, with or without `output: local`; "" if the job needs none."""
        if self.output == NO_OUTPUT:
            return ""
        return f"/srv/tfctl/{self.name}" if self.output in ("", LOCAL) else self.output
