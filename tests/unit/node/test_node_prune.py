"""`prune` deletes what a host keeps of attempts that are over, and nothing else."""

from __future__ import annotations

import json
import os
import threading
import time

import pytest
from node_tree import Tree, answers, digest, guarded, make_plan, make_task, reserve, sh, tarball

from tfctl.node import code, names, summaries, wire
from tfctl.node.session import RequestRefused
from tfctl.node.system import System

CODE = tarball({"train.sh": "#!/bin/sh\nexit 0\n"})


def _run(tree: Tree, job: str, run: str, script: str = "exit 0") -> None:
    task = make_task(job=job, run=run, command=sh(script), output=f"/srv/tfctl/{job}")
    tree.run(make_plan(task, job=job, run=run, code=CODE, output=f"/srv/tfctl/{job}"), CODE)


def test_prune_deletes_attempts_code_and_restart_files_of_ended_jobs_alone(tree: Tree) -> None:
    _run(tree, "old", "11111111")
    tree.wait_for("worker/0", "succeeded", "old")
    with tree.start("fresh", CODE) as session:  # a start at the same moment holds the code
        [stored] = tree.ask("prune")["attempts"]
        assert stored[:3] == ["old", 1, "11111111"]
        assert stored[6] is False
        pruned = tree.ask("prune", attempts=[["old", 1, "11111111"]])
        assert pruned["attempts"] == [["old", 1, "11111111"]]
        assert (tree / names.stored_code(digest(CODE) or "")).is_dir()
        plan = make_plan(make_task(job="fresh"), job="fresh", code=CODE)
        reserve(session, plan)
        kept = tree.ask("prune", attempts=[["fresh", 1, plan["run"]]])
        assert kept["attempts"] == []
        assert "fresh runs on" in kept["kept"][0]
        session.hang_up()
    assert tree.ask("show")["jobs"] == []
    assert not (tree / names.job_dir("old")).exists()
    assert (tree / "srv/tfctl/old").is_dir()
    assert tree.ask("prune", attempts=[])["attempts"] == []
    assert list((tree / names.CODE_STORE).iterdir()) == []
    assert not [name for name in tree.files() if name.startswith(("run/systemd/system/tfctl-", "run/tfctl/e"))]
    assert not list((tree / names.JOBS).iterdir())


@pytest.mark.parametrize(("job", "over", "waits"), [("digits", False, True), (None, True, True), (None, False, False)])
def test_prune_waits_for_the_guard_of_a_job_that_has_just_ended(
    tree: Tree, job: str | None, over: bool, waits: bool
) -> None:
    """If all jobs are meant, tasks of a job that is not known to be over may run elsewhere: its guard stays."""
    tree.run(guarded())
    tree.ask("stop", job="digits", attempt=1, tasks=[["worker", 0]])
    state = tree / f"manager/{names.guard_service('digits')}.state"
    state.write_text("ActiveState=active\n")
    if over:
        (tree / names.guard_dir("digits", 1) / "report.json").write_text('{"over": true}')
    timer = threading.Timer(1.5, state.write_text, ["ActiveState=inactive\n"])
    timer.start()
    [stored] = tree.ask("prune", **({"job": job} if job else {}))["attempts"]
    timer.cancel()
    assert stored[6] is not waits, "whether the job is alive"


def _keep(tree: Tree, job: str, attempt: int, run: str, code: str) -> None:
    folder = tree / names.attempt_dir(job, attempt)
    (folder / "worker-0").mkdir(parents=True)
    record = {"run": run, "code": code, "started": 1e9 + attempt, "tasks": [{"host": "node1"}]}
    (folder / "job.json").write_text(json.dumps(record))
    (folder / "worker-0/ends.jsonl").write_bytes(bytes(3 * 2**20))
    (tree / names.stored_code(code)).mkdir(parents=True, exist_ok=True)


def test_prune_deletes_the_named_run_and_code_that_no_other_attempt_has(tree: Tree) -> None:
    first, second = "a" * 64, "b" * 64
    _keep(tree, "digits", 1, "11111111", first)
    _keep(tree, "digits", 2, "22222222", second)
    _keep(tree, "other", 1, "33333333", second)
    (tree / names.stored_code("c" * 64)).mkdir()
    [stored] = answers(tree, wire.PruneRequest("other"))
    assert isinstance(stored, wire.Stored)
    [other] = stored.attempts
    assert (other.run, other.alive, other.mib, other.age < 60) == ("33333333", False, 3, True)
    first_run, unknown = wire.AttemptName("digits", 1, "11111111"), wire.AttemptName("digits", 2, "99999999")
    assert answers(tree, wire.PruneRequest(attempts=(first_run, unknown))) == [wire.Pruned((first_run,), mib=3)]
    assert [path.name for path in (tree / names.CODE_STORE).iterdir()] == [second]
    assert [path.name for path in (tree / names.job_dir("digits")).iterdir()] == ["2"]
    wanted = (wire.AttemptName("digits", 2, "22222222"),)
    assert answers(tree, wire.PruneRequest(attempts=wanted)) == [wire.Pruned(wanted, mib=3)]
    assert [path.name for path in (tree / names.JOBS).iterdir()] == ["other"]
    assert [path.name for path in (tree / names.CODE_STORE).iterdir()] == [second]


def test_prune_deletes_a_job_whose_only_attempt_has_no_record(tree: Tree) -> None:
    """As after a power loss during its start."""
    (tree / names.attempt_dir("cut", 1) / "worker-0").mkdir(parents=True)
    [stored] = answers(tree, wire.PruneRequest())
    assert isinstance(stored, wire.Stored)
    assert [(each.job, each.attempt, each.run, each.alive) for each in stored.attempts] == [("cut", 1, "", False)]
    wanted = (wire.AttemptName("cut", 1, ""),)
    assert answers(tree, wire.PruneRequest(attempts=wanted)) == [wire.Pruned(wanted, mib=0)]
    assert not list((tree / names.JOBS).iterdir())


def test_age_of_an_attempt_does_not_depend_on_when_its_summary_was_written(tree: Tree) -> None:
    """`tfctl list` writes it, perhaps long after the end. An attempt without a record has only its directory."""
    _keep(tree, "digits", 1, "11111111", "a" * 64)
    (tree / names.attempt_dir("cut", 1)).mkdir(parents=True)
    ended = time.time() - 40 * 86400
    for path in (tree / names.JOBS).rglob("*"):
        os.utime(path, (ended, ended))
    summaries.write(System(str(tree.path)), wire.Summary("digits", 1, "11111111", 1e9, "custom", 1, 1, 1, 1), 0)
    [stored] = answers(tree, wire.PruneRequest())
    assert isinstance(stored, wire.Stored)
    assert {each.job: each.age > 39 * 86400 for each in stored.attempts} == {"digits": True, "cut": True}


def test_prune_deletes_nothing_when_one_of_the_names_is_malformed(tree: Tree) -> None:
    _keep(tree, "digits", 1, "11111111", "a" * 64)
    wanted = (wire.AttemptName("digits", 1, "11111111"), wire.AttemptName("../digits", 1, "11111111"))
    with pytest.raises(RequestRefused, match="is not a job's name"):
        answers(tree, wire.PruneRequest(attempts=wanted))
    assert (tree / names.attempt_dir("digits", 1)).is_dir()


def test_prune_touches_nothing_on_a_host_that_does_not_have_the_attempt(tree: Tree) -> None:
    unknown = (wire.AttemptName("digits", 1, "11111111"),)
    assert answers(tree, wire.PruneRequest(attempts=unknown)) == [wire.Pruned((), mib=0)]
    _keep(tree, "digits", 1, "99999999", "a" * 64)
    before = (tree / names.JOBS).stat().st_mtime_ns
    assert answers(tree, wire.PruneRequest(attempts=unknown)) == [wire.Pruned((), mib=0)]
    assert (tree / names.JOBS).stat().st_mtime_ns == before


def test_code_that_a_start_holds_stays(tree: Tree) -> None:
    _keep(tree, "digits", 1, "11111111", "a" * 64)
    held = code.hold(System(str(tree.path)), "a" * 64)
    assert held is not None
    wanted = (wire.AttemptName("digits", 1, "11111111"),)
    assert answers(tree, wire.PruneRequest(attempts=wanted)) == [wire.Pruned(wanted, mib=3)]
    assert (tree / names.stored_code("a" * 64)).is_dir()
    os.close(held)
    answers(tree, wire.PruneRequest(attempts=()))
    assert not (tree / names.stored_code("a" * 64)).exists()
