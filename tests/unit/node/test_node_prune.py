"""`prune` deletes what a host keeps of attempts that are over, and nothing else."""

from __future__ import annotations

import json

from node_tree import Tree, digest, make_plan, make_task, reserve, sh, tarball

from tfctl.node import names

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
    assert tree.ask("show")["jobs"] == []
    assert not (tree / names.job_dir("old")).exists()
    assert (tree / "srv/tfctl/old").is_dir()
    assert tree.ask("prune", attempts=[])["attempts"] == []
    assert list((tree / names.CODE_STORE).iterdir()) == []
    assert not [name for name in tree.files() if name.startswith(("run/systemd/system/tfctl-", "run/tfctl/e"))]
    assert not list((tree / names.JOBS).iterdir())


def test_prune_leaves_another_run_of_the_same_number(tree: Tree) -> None:
    folder = tree / names.attempt_dir("digits", 1)
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps({"run": "22222222"}))
    assert tree.ask("prune", attempts=[["digits", 1, "11111111"]])["attempts"] == []
    assert folder.is_dir()
    assert tree.ask("prune", job="digits")["attempts"][0][:3] == ["digits", 1, "22222222"]
    assert tree.ask("prune", attempts=[["digits", 1, "22222222"]])["attempts"] == [["digits", 1, "22222222"]]
    assert not folder.parent.exists()
