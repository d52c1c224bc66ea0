"""The environment variables that a job file gives to its tasks, with the values that it leaves to others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tfctl.errors import BadFile, UsageError, located
from tfctl.model import env_file
from tfctl.model.jobfile import JobFile
from tfctl.model.text import Verbatim, clean, env_name
from tfctl.wording import listed


@dataclass(frozen=True)
class ExternalVariables:
    """The variables from outside the job file: ``shell``, the environment of tfctl, and ``given``, those of `-e`."""

    shell: Mapping[str, str] = field(default_factory=dict, repr=False)
    given: Mapping[str, str] = field(default_factory=dict, repr=False)


def external(words: Iterable[str], shell: Mapping[str, str]) -> ExternalVariables:
    """Return the variables of options `-e NAME=VALUE` or, with the value that the shell has, `-e NAME`.

    Raise UsageError, which shows no value.
    """
    given = {}
    for word in words:
        name, equals, value = word.partition("=")
        try:
            env_name(name)
            if not equals and name not in shell:
                raise ValueError(f"{name} is not set in the shell: write -e {name}=VALUE, or export {name} first")
            given[name] = clean(value if equals else shell[name])
        except ValueError as error:
            raise UsageError(f"-e {name}: {error}") from None
    return ExternalVariables(shell, given)


def by_role(job: JobFile, sources: ExternalVariables) -> dict[str, dict[str, str]]:
    """Return the variables of each role. Those of `-e` override the role's `env`, the job's `env` and `env_file`.

    Raise BadFile if a value that the job file leaves to the shell is missing.
    """
    from_file: dict[str, str] = {}
    if job.env_file:
        with located("env_file"):
            from_file = env_file.load(job.env_file)
    missing: dict[str, None] = {}
    found = {}
    for role, spec in job.roles.items():
        given = {name: Verbatim(value) for name, value in sources.given.items()}
        own = {**from_file, **job.env, **spec.env, **given}
        missing |= dict.fromkeys(name for name, value in own.items() if value is None and name not in sources.shell)
        found[role] = {name: _value(name, value, sources.shell) for name, value in own.items()}
    if missing:
        names, one = [*missing], len(missing) == 1
        raise BadFile(
            f"env: the job file takes {listed(names)} from the shell, where {'it is' if one else 'they are'} not set",
            f"export {names[0]}=VALUE, or add -e {names[0]}=VALUE to the command",
        )
    return found


def source(job: JobFile, role: str, name: str, outside: ExternalVariables) -> str:
    """Return the place from which a role has the variable, as errors name it."""
    if name in outside.given:
        return "-e"
    if name in job.roles[role].env:
        return f"roles/{role}/env"
    return "env" if name in job.env else "env_file"


def _value(name: str, value: str | None, shell: Mapping[str, str]) -> str:
    if value is not None:
        return value
    try:
        return Verbatim(clean(shell.get(name, "")))
    except ValueError as error:
        raise BadFile(f"env: {name}, as the shell has it: {error}") from None
