"""The runs of a sweep: a job file with each combination of several settings."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfctl.errors import UsageError
from tfctl.model import load
from tfctl.model.jobfile import JobFile
from tfctl.model.strategies import STRATEGIES
from tfctl.model.values import LOCAL, NO_OUTPUT

_SETTING = re.compile(r"([a-z_]+(?:\.[A-Za-z0-9_]+)*)=(.+)")
_LONGEST_NAME = 40
#: Keys that a sweep sets itself, or that would make the runs differ in what they are.
_OWN = ("name", "output", "inventory")


@dataclass(frozen=True)
class Variant:
    """A run of the sweep: the job file with these settings. Its name and its output directory are its own."""

    settings: Mapping[str, str]
    job: JobFile

    @property
    def name(self) -> str:
        return self.job.name


def parse(words: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the values of each key in words such as ``roles.worker.replicas=1,2``. Raise UsageError."""
    found: dict[str, tuple[str, ...]] = {}
    for word in words:
        match = _SETTING.fullmatch(word)
        values = tuple(value.strip() for value in match[2].split(",")) if match else ()
        if match is None or not all(values):
            raise UsageError(
                f"--set {word}: that is not a key with its values", "write --set roles.worker.replicas=1,2,4"
            )
        key = match[1]
        if key.split(".")[0] in _OWN:
            raise UsageError(f"--set {word}: a sweep does not set {key}", "it gives each run a name and an output")
        if key in found or len(set(values)) < len(values):
            raise UsageError(f"--set {word}: {key if key in found else 'a value'} is given twice")
        found[key] = values
    if not found:
        raise UsageError("nothing to vary", "write --set roles.worker.replicas=1,2,4")
    return found


def variants(
    file: Path, settings: Mapping[str, Sequence[str]], earlier: Mapping[str, Mapping[str, str]] | None = None
) -> list[Variant]:
    """Return the job file with each combination of the settings, the last one varying fastest. Raise BadFile.

    ``earlier``: the settings of the runs of earlier sweeps, by name. A run with the same settings gets the same name, a
    run with other settings another one.
    """
    base = load.load(file)
    combinations = [dict(zip(settings, values, strict=True)) for values in itertools.product(*settings.values())]
    count = Counter(name_suffix(chosen.values()) for chosen in combinations)
    found = []
    for chosen in combinations:
        suffix = _suffix_before(base.name, chosen, earlier or {})
        if suffix is None:
            suffix = name_suffix(chosen.values())
            if not suffix or count[suffix] > 1 or name(base.name, suffix) in (earlier or {}):
                suffix = _with_digest(chosen)
        changes = {("name",): name(base.name, suffix), **{tuple(key.split(".")): text for key, text in chosen.items()}}
        if base.output not in ("", LOCAL, NO_OUTPUT):
            changes["output",] = f"{base.output.rstrip('/')}/{suffix}"
        job = load.load(file, changes)
        found.append(Variant(chosen, _with_own_roles(job) if "strategy" in chosen else job))
    return found


def _suffix_before(job: str, chosen: Mapping[str, str], earlier: Mapping[str, Mapping[str, str]]) -> str | None:
    """Return the suffix of the earlier run with these settings, in whatever order, or None if there is none."""
    for before, settings in earlier.items():
        if settings == chosen:
            for suffix in (name_suffix(settings.values()), _with_digest(settings)):
                if name(job, suffix) == before:
                    return suffix
    return None


def _with_digest(settings: Mapping[str, str]) -> str:
    """Return a suffix that other settings do not have."""
    return name_suffix([*settings.values(), _digest(json.dumps(settings).encode(), 8)])


def _with_own_roles(job: JobFile) -> JobFile:
    """Leave out the roles that the strategy does not have, so that one file can serve several strategies."""
    strategy = STRATEGIES.get(job.strategy)
    if strategy is None:
        return job
    return job.model_copy(update={"roles": {role: spec for role, spec in job.roles.items() if strategy.rule(role)}})


def name_suffix(values: Iterable[str]) -> str:
    """Return values as a part of a job's name: ``4-horovod``. Values such as ``-1`` and ``1`` give the same."""
    return re.sub(r"-+", "-", re.sub(r"[^a-z0-9]", "-", "-".join(values).lower())).strip("-")


def name(job: str, suffix: str) -> str:
    """Return the name of a run. A digest replaces the end of one that is too long."""
    whole = f"{job}-{suffix}"
    if len(whole) <= _LONGEST_NAME:
        return whole
    return f"{whole[: _LONGEST_NAME - 9].rstrip('-')}-{_digest(whole.encode(), 8)}"


def digest(file: Path, words: Iterable[str] = ()) -> str:
    """Return a digest of what all runs share: the job file, which `load.load` has read, and the options `-e`."""
    given = {word.partition("=")[0]: word for word in words}
    variables = "".join(f"\0{given[name]}" for name in sorted(given))
    return _digest(file.read_bytes() + variables.encode(errors="surrogateescape"), 16)


def _digest(data: bytes, length: int) -> str:
    return hashlib.sha256(data).hexdigest()[:length]
