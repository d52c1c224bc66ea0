"""The runs of a sweep, and the file that lets it continue."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.report.test_figures import PUBLISHED
from tfctl.errors import BadFile, UsageError
from tfctl.model.load import load
from tfctl.node.names import JOB as JOB_NAME
from tfctl.report import sweep_file
from tfctl.report.sweep_file import SweepResults, SweepRun
from tfctl.report.sweep_variants import digest, parse, variants
from tfctl.report.sweep_variants import name as run_name

JOB = """\
name: resnet
strategy: parameter_server
command: python train.py
env: {BATCH: 64}
output: /srv/tfctl/shared
roles:
  chief: 1
  ps: {replicas: 2, hosts: "all"}
  worker: 4
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def test_each_combination_is_a_job_with_its_own_name_and_output(file: Path) -> None:
    found = variants(file, parse(["roles.worker.replicas=1,2", "env.BATCH=32,64"]))
    assert [each.name for each in found] == ["resnet-1-32", "resnet-1-64", "resnet-2-32", "resnet-2-64"]
    last = found[-1].job
    assert (last.roles["worker"].replicas, last.env["BATCH"]) == (2, "64")
    assert last.output == "/srv/tfctl/shared/2-64"
    assert list(last.roles) == ["chief", "ps", "worker"], "roles are placed in this order"
    assert found[-1].settings == {"roles.worker.replicas": "2", "env.BATCH": "64"}


def test_other_keys_of_a_role_keep_its_number_of_tasks(file: Path) -> None:
    [one] = variants(file, parse(["roles.worker.gpus=2"]))
    assert (one.job.roles["worker"].replicas, one.job.roles["worker"].gpus) == (4, 2)
    [deep] = variants(file, parse(["policy.max_restarts=0"]))
    assert deep.job.policy.max_restarts == 0


def test_a_strategy_runs_without_the_roles_that_it_does_not_have(file: Path) -> None:
    horovod, ps = variants(file, parse(["strategy=horovod,parameter_server"]))
    assert (horovod.job.strategy, list(horovod.job.roles)) == ("horovod", ["worker"])
    assert list(ps.job.roles) == ["chief", "ps", "worker"]


def test_runs_whose_values_look_alike_in_a_name_get_different_names_and_outputs(file: Path) -> None:
    found = variants(file, parse(["env.SHIFT=-1,1,2,+"]))
    assert len({each.name for each in found}) == len({each.job.output for each in found}) == 4
    assert all(JOB_NAME.fullmatch(each.name) for each in found)
    assert (found[2].name, found[2].job.output) == ("resnet-2", "/srv/tfctl/shared/2")
    assert found == variants(file, parse(["env.SHIFT=-1,1,2,+"])), "the same command continues the sweep"


def test_a_run_gets_another_name_than_one_of_an_earlier_sweep_with_other_settings(file: Path) -> None:
    [first] = variants(file, parse(["env.SHIFT=1"]))
    earlier = {first.name: first.settings}
    assert variants(file, parse(["env.SHIFT=1"]), earlier) == [first]
    [second] = variants(file, parse(["env.BATCH=1"]), earlier)
    assert second.name != first.name
    assert second.job.output != first.job.output
    assert variants(file, parse(["env.BATCH=1"]), {**earlier, second.name: second.settings}) == [second]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (["env.X=-1,1"], ["env.X=1"]),
        (["env.X=1"], ["env.X=-1,1"]),
        (["env.X=+"], ["env.X=.,+"]),
        (["env.X=1,2", "env.Y=3"], ["env.Y=3", "env.X=1,2"]),
        (["env.X=-1,1", "env.Y=3"], ["env.Y=3", "env.X=1"]),
        (["env.X=1", "env.Y=2"], ["env.X=2", "env.Y=1"]),
    ],
)
def test_a_run_has_the_name_and_output_of_an_earlier_one_with_the_same_settings_only(
    file: Path, before: list[str], now: list[str]
) -> None:
    first = variants(file, parse(before))
    second = variants(file, parse(now), {each.name: each.settings for each in first})
    both = [*first, *second]
    for one in both:
        for other in both:
            same = one.settings == other.settings
            assert ((one.name == other.name), (one.job.output == other.job.output)) == (same, same)


def test_long_names_end_in_a_digest() -> None:
    names = {run_name("resnet", f"multi-worker-mirrored-{number}-of-them-all") for number in range(3)}
    assert len(names) == 3
    assert all(len(name) <= 40 for name in names)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ([], "nothing to vary"),
        (["replicas"], "that is not a key with its values"),
        (["stack=tf2.15,"], "that is not a key with its values"),
        (["name=a,b"], "a sweep does not set name"),
        (["stack=a", "stack=b"], "stack is given twice"),
        (["stack=a,a"], "a value is given twice"),
    ],
)
def test_a_wrong_setting_is_a_usage_error(words: list[str], fault: str) -> None:
    with pytest.raises(UsageError, match=fault):
        parse(words)


def test_sweep_names_the_line_of_a_value_that_the_job_file_rejects(file: Path) -> None:
    with pytest.raises(BadFile, match=r"roles/worker/replicas: .*many") as raised:
        variants(file, parse(["roles.worker.replicas=many"]))
    assert "(line " in str(raised.value)
    with pytest.raises(BadFile, match="roles/worker/replica: unknown key"):
        variants(file, parse(["roles.worker.replica=2"]))


def test_changes_do_not_alter_the_file(file: Path) -> None:
    assert load(file, {("env", "BATCH"): "0755", ("stack",): "tf2.15"}).env == {"BATCH": "0755"}
    assert (load(file).env, load(file).stack) == ({"BATCH": "64"}, None)


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "resnet-sweep.json"
    figures = replace(PUBLISHED[0], settings={"roles.worker.replicas": "16"})
    first = SweepResults("0123").put(SweepRun("resnet-16", figures.settings, "0123abcd"))
    done = first.put(SweepRun("resnet-16", figures.settings, "0123abcd", figures))
    sweep_file.save(path, done)
    assert sweep_file.load(path) == done
    assert (len(done.runs), done.figures, first.figures) == (1, [figures], [])
    assert (done.only(["resnet-16"]), done.only(["other"])) == ([figures], [])


def test_variables_of_the_command_line_belong_to_what_the_runs_of_a_sweep_share(file: Path) -> None:
    """Results that were stored without any remain valid."""
    assert digest(file) == digest(file, []) == hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    assert digest(file, ["LR=1", "SEED=2"]) == digest(file, ["SEED=2", "LR=0", "LR=1"])
    others = [[], ["LR=1"], ["LR=2"], ["LR"], ["LR=1", "SEED=2"], ["LR=1SEED=2"]]
    assert len({digest(file, words) for words in others}) == len(others)


@pytest.mark.parametrize("text", ["{", "[]", '{"runs": [{}]}', '{"runs": 1}', '{"other": 1}'])
def test_a_file_of_something_else_is_rejected(text: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(BadFile, match="is not a file that tfctl sweep has written"):
        sweep_file.load(path)
    with pytest.raises(BadFile, match="cannot be read"):
        sweep_file.load(tmp_path / "missing.json")
