"""The file of a sweep: which runs it has, and the figures of those that have ended. A second call continues with it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tfctl import files
from tfctl.errors import BadFile
from tfctl.report.figures import RunFigures
from tfctl.schema import SchemaError, parse, plain


@dataclass(frozen=True)
class SweepRun:
    """A run of a sweep. ``run``: the identifier of the attempt that the sweep has started, or empty. ``figures``: None
    until it has succeeded."""

    job: str
    settings: Mapping[str, str] = field(default_factory=dict)
    run: str = ""
    figures: RunFigures | None = None


@dataclass(frozen=True)
class SweepResults:
    """``jobfile``: the digest of the job file and the options `-e`, since only runs with the same can be compared."""

    jobfile: str = ""
    runs: tuple[SweepRun, ...] = ()

    @property
    def figures(self) -> list[RunFigures]:
        return [entry.figures for entry in self.runs if entry.figures]

    def find(self, job: str) -> SweepRun | None:
        return next((entry for entry in self.runs if entry.job == job), None)

    def put(self, entry: SweepRun) -> SweepResults:
        """Return the results with this entry, in place of the one of the same job."""
        if self.find(entry.job) is None:
            return replace(self, runs=(*self.runs, entry))
        return replace(self, runs=tuple(entry if each.job == entry.job else each for each in self.runs))

    def only(self, jobs: Sequence[str]) -> list[RunFigures]:
        return [entry.figures for entry in self.runs if entry.figures and entry.job in jobs]


def load(path: Path) -> SweepResults:
    """Read the file of a sweep. Raise BadFile."""
    try:
        return parse(SweepResults, json.loads(path.read_bytes()))
    except OSError as error:
        raise BadFile(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        what = str(error) if isinstance(error, SchemaError) else "it is not JSON"
        raise BadFile(f"{path} is not a file that tfctl sweep has written: {what}") from None


def save(path: Path, results: SweepResults) -> None:
    """Write the file, atomically. Raise OSError."""
    files.replace(path, json.dumps(plain(results), indent=2) + "\n")
