"""Which attempts `prune` deletes, from what the hosts keep."""

from __future__ import annotations

import pytest

from tfctl.errors import Busy
from tfctl.jobs.prune import Attempt, choose, merged
from tfctl.node import wire


def _stored(job: str, attempt: int = 1, **more: object) -> wire.StoredAttempt:
    blank = wire.StoredAttempt(job, attempt, f"{attempt:08}", 100.0 + attempt, 1, 50.0, alive=False, mib=2)
    return blank._replace(**more)  # type: ignore[arg-type]


def _names(attempts: list[Attempt]) -> list[tuple[str, int]]:
    return [(each.name.job, each.name.attempt) for each in attempts]


def test_attempts_of_all_hosts_are_put_together_the_last_started_first() -> None:
    found = merged({"a": [_stored("x"), _stored("x", 2)], "b": [_stored("x", age=9.0)]})
    assert _names(found) == [("x", 2), ("x", 1)]
    assert (found[1].hosts, found[1].age, found[1].mib) == (("a", "b"), 9.0, 4)


def test_a_job_that_is_alive_on_one_host_keeps_all_its_attempts() -> None:
    found = merged({"a": [_stored("x"), _stored("y")], "b": [_stored("x", 2, alive=True)]})
    assert _names(choose(found, None, 0, False, print)) == [("y", 1)]
    with pytest.raises(Busy, match="x runs"):
        choose(found, None, 0, False, print, "x")


def test_keep_and_age_each_protect_attempts() -> None:
    found = merged({"a": [_stored("x", 1, age=100.0), _stored("x", 2, age=90.0), _stored("x", 3, age=10.0)]})
    assert _names(choose(found, None, 1, False, print)) == [("x", 2), ("x", 1)]
    assert _names(choose(found, 95.0, 0, False, print)) == [("x", 1)]
    assert choose(found, 95.0, 3, False, print) == []


def test_an_attempt_that_a_silent_host_may_run_is_kept() -> None:
    said: list[str] = []
    found = merged({"a": [_stored("x", hosts=2), _stored("y")]})
    assert _names(choose(found, None, 0, True, said.append)) == [("y", 1)]
    assert said == ["x: kept, because hosts that do not answer may still run tasks"]
