"""The job file as models. What is not known is refused; docs/job-file.md is tested against these fields."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from tfctl.model.text import ENV_NAME, absolute_path, clean, known_placeholders, seconds, shown, split
from tfctl.node.names import JOB, ROLE, STACK

_OURS = ("TF_CONFIG", "TFCTL_")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _scalar(value: Any) -> str:
    """A word or an environment value: text, or an integer. What YAML makes of `yes`, `1e3` or a date is refused."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{shown(value)} is what YAML makes of it; quote it to have the text itself")
    return known_placeholders(clean(str(value)))


def _words(value: Any) -> Any:
    """A command as words; a string is split as a shell would split it."""
    if isinstance(value, str):
        value = list(split(clean(value)))
    if not isinstance(value, list):
        raise ValueError("a string or a list of words is wanted")
    if not value or not value[0]:
        raise ValueError("the command is empty")
    program = str(value[0])
    if "=" in program or program.startswith("-"):  # env(1), which finds it on the PATH, takes these for its own
        raise ValueError(f"{shown(program)} is no program: variables go into `env`, options behind a program's name")
    return tuple(_scalar(word) for word in value)


def _environment(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError("a mapping of names to values is wanted")
    found = {}
    for name, text in value.items():
        if not isinstance(name, str) or not ENV_NAME.fullmatch(name):
            raise ValueError(f"{shown(name)} is not a name: letters, digits and _, not starting with a digit")
        if name.startswith(_OURS):
            raise ValueError(f"{name} is written by tfctl itself; take it out")
        try:
            found[name] = _scalar(text)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return found


def _port_range(value: Any) -> Any:
    """``2222-2299`` as its first and last port, both included."""
    first, dash, last = str(value).partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and len(str(value)) <= 11):
        raise ValueError(f"{shown(value)} is not a range such as 2222-2299")
    found = (int(first), int(last))
    if not 1024 <= found[0] <= found[1] <= 65535:
        raise ValueError(f"{value}: ports go up from 1024 to 65535 at most")
    return found


def _stack(value: Any) -> Any:
    if isinstance(value, str) and not STACK.fullmatch(value):
        raise ValueError(f"{shown(value)} is not the name of a stack, such as tf2.15, or none")
    return value


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
Environment = Annotated[dict[str, str], BeforeValidator(_environment)]
Ports = Annotated[tuple[int, int], BeforeValidator(_port_range)]
StackName = Annotated[str, BeforeValidator(_stack)]
Seconds = Annotated[int, BeforeValidator(seconds)]


class RoleSpec(_Model):
    """How many tasks of a role and where: ``replicas`` dealt round over the hosts, or ``per_host`` on each of them.

    A bare number is ``replicas``. ``hosts`` is an Ansible pattern. What stands here of ``command env stack gpus`` goes
    before the job's own; ``gpus`` is the number for each task.
    """

    replicas: int | None = Field(default=None, ge=1, le=10_000)
    per_host: int | None = Field(default=None, ge=1, le=1000)
    hosts: str = "all"
    gpus: int | None = Field(default=None, ge=0, le=64)
    command: Words | None = None
    env: Environment = Field(default_factory=dict)
    stack: StackName | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, value: Any) -> Any:
        return {"replicas": value} if isinstance(value, int) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _either(self) -> RoleSpec:
        if self.replicas is not None and self.per_host is not None:
            raise ValueError("replicas and per_host are two ways to say how many; give one")
        return self


class Policy(_Model):
    """When the job is done, what is then done with the rest, and what when a task fails. Durations in seconds."""

    success: Literal["auto", "chief", "worker0", "all_workers"] = "auto"
    clean: Literal["running", "all", "none"] = "running"
    on_failure: Literal["auto", "fail", "restart"] = "auto"
    max_restarts: int | None = Field(default=None, ge=0, le=1000)
    deadline: Seconds | None = None
    start_timeout: Seconds = 600
    grace: Seconds | None = None
    drain: Seconds = 1800


class JobFile(_Model):
    """One job file."""

    name: str
    inventory: str | None = None
    strategy: str
    stack: StackName | None = None
    code: str = "."
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
                f"{shown(value)} is not a job name: a small letter, then small letters, digits and dashes, 40 at most"
            )
        return value

    @field_validator("roles", mode="before")
    @classmethod
    def _role_names(cls, value: Any) -> Any:
        for name in value if isinstance(value, dict) else ():
            if not isinstance(name, str) or not ROLE.fullmatch(name):
                raise ValueError(
                    f"{shown(name)} is not a role: a small letter, then small letters, digits and _, 20 at most"
                )
        return value

    @field_validator("inventory", "code")
    @classmethod
    def _plain(cls, value: str | None) -> str | None:
        return value if value is None else clean(value)

    @field_validator("output")
    @classmethod
    def _output(cls, value: str) -> str:
        return absolute_path(value) if value else value

    @model_validator(mode="after")
    def _default_output(self) -> JobFile:
        return self if self.output else self.model_copy(update={"output": f"/srv/tfctl/{self.name}"})
