"""The tasks of one cluster have the same TensorFlow."""

from __future__ import annotations

import pytest

from tests.unit.model.four_hosts import MakeJob
from tfctl.errors import BadFile

HEAD = "name: j\ncommand: run\n"
OLD = "stack: tf2.11"


@pytest.mark.parametrize(
    ("strategy", "roles"),
    [
        ("multi_worker_mirrored", f"{{chief: {{{OLD}}}, worker: 1}}"),
        ("parameter_server", f"{{chief: 1, worker: 2, ps: {{replicas: 2, {OLD}}}}}"),
        ("tf1_ps", f"{{worker: {{{OLD}}}, ps: 1}}"),
        ("estimator", f"{{chief: 1, worker: {{{OLD}}}, ps: 1, evaluator: 1}}"),
    ],
)
def test_roles_of_one_cluster_with_different_versions_are_refused(strategy: str, roles: str, make_job: MakeJob) -> None:
    with pytest.raises(BadFile) as caught:
        make_job(f"{HEAD}strategy: {strategy}\nroles: {roles}\n")
    assert "the tasks of one cluster have different versions of TensorFlow: 2.1" in caught.value.message
    assert "2.11.1 (" in caught.value.message and "stack tf2.11)" in caught.value.message
    assert caught.value.remedy == "set one `stack:` in the job file"


@pytest.mark.parametrize(
    ("strategy", "roles"),
    [
        ("custom", f"{{worker: 1, other: {{{OLD}}}}}"),
        ("multi_worker_mirrored", f"{{worker: 2, evaluator: {{{OLD}}}}}"),
        ("parameter_server", f"{{chief: 1, worker: 1, ps: 1, evaluator: {{{OLD}}}}}"),
        ("estimator", f"{{chief: 1, worker: 1, ps: 1, evaluator: {{{OLD}}}}}"),
    ],
)
def test_custom_jobs_and_an_evaluator_outside_of_the_cluster_may_differ(
    strategy: str, roles: str, make_job: MakeJob
) -> None:
    job = make_job(f"{HEAD}strategy: {strategy}\nroles: {roles}\n")
    assert not any("version" in note for note in job.layout.notes)


def test_a_stack_of_which_nothing_is_known_beside_another_one_is_a_warning(make_job: MakeJob) -> None:
    job = make_job(f"{HEAD}strategy: tf1_ps\nroles: {{worker: 2, ps: {{stack: own}}}}\n")
    assert job.layout.notes == (
        "the tasks of one cluster have the stacks tf2.15 (worker/0 on node1) and own (ps/0 on node1): all of them need "
        "the same version of TensorFlow",
    )
    assert make_job(f"{HEAD}strategy: tf1_ps\nstack: own\nroles: {{worker: 2, ps: 1}}\n").layout.notes == ()
