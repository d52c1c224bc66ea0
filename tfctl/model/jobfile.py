"""The job file's models. Unknown keys are rejected; docs/job-file.md is tested against these fields."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from tfctl.model.text import ENV_NAME, absolute_path, clean, known_placeholders, seconds, shown, split
from tfctl.node.names import JOB, ROLE, STACK

_OURS = ("TF_CONFIG", "TFCTL_")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _scalar(value: Any) -> str:
    """Check a command word or environment value: text or an integer. Reject YAML's reading of `yes`, `1e3` or dates."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"YAML reads this as {shown(value)}; quote it to keep the text as written")
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
        raise ValueError(f"{shown(program)} is not a program: put variables in `env`, and options after the program")
    return tuple(_scalar(word) for word in value)


def _environment(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError("should be a mapping of names to values")
    found = {}
    for name, text in value.items():
        if not isinstance(name, str) or not ENV_NAME.fullmatch(name):
            raise ValueError(f"{shown(name)} is not a variable name: letters, digits and _, not starting with a digit")
        if name.startswith(_OURS):
            raise ValueError(f"{name} is set by tfctl itself; remove it")
        try:
            found[name] = _scalar(text)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return found


def _port_range(value: Any) -> Any:
    """Parse ``2222-2299`` into its first and last port, both inclusive."""
    first, dash, last = str(value).partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and len(str(value)) <= 11):
        raise ValueError(f"{shown(value)} is not a range such as 2222-2299")
    found = (int(first), int(last))
    if not 1024 <= found[0] <= found[1] <= 65535:
        raise ValueError(f"{value}: the range must ascend and lie within 1024-65535")
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
    """How many tasks a role has and where: ``replicas``, dealt round-robin over the hosts, or ``per_host`` on each.

    A bare number means ``replicas``. ``hosts`` is an Ansible pattern. ``command``, ``env`` and ``stack`` override the
    job's own. ``gpus`` is the number per task.
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
    """When the job is done, how the rest is then cleaned up, and what a failed task causes. Durations in seconds."""

    success: Literal["auto", "chief", "worker0", "all_workers"] = "auto"
    clean: Literal["running", "all", "none"] = "running"
    on_failure: Literal["auto", "fail", "restart"] = "auto"
    max_restarts: int | None = Field(default=None, ge=0, le=1000)
    deadline: Seconds | None = None
    start_timeout: Seconds = 600
    grace: Seconds | None = None
    drain: Seconds = 1800


class JobFile(_Model):
    """A job file."""

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
                f"{shown(value)} is not a job name: lowercase letters, digits and dashes, a letter first, 40 at most"
            )
        return value

    @field_validator("roles", mode="before")
    @classmethod
    def _role_names(cls, value: Any) -> Any:
        for name in value if isinstance(value, dict) else ():
            if not isinstance(name, str) or not ROLE.fullmatch(name):
                raise ValueError(
                    f"{shown(name)} is not a role: lowercase letters, digits and _, a letter first, 20 at most"
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
