"""Which of a job's variables a task gets, and which values are shown."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.unit.model.four_hosts import INVENTORY
from tfctl.errors import BadFile, UsageError
from tfctl.model import env, plan
from tfctl.model.assign import assign
from tfctl.model.host import Site
from tfctl.model.job import Job
from tfctl.model.layout import lay_out
from tfctl.model.load import load
from tfctl.model.masking import command, masked, without_user_info
from tfctl.model.variables import ExternalVariables, external

HEAD = "name: digits\nstrategy: custom\nstack: none\ncommand: run\nroles: {worker: 1, other: {env: {B: role}}}\n"


def make(folder: Path, text: str, outside: ExternalVariables, env_file: str = "") -> Job:
    head = HEAD.replace("command: run\n", "") if "command:" in text else HEAD
    (folder / "job.yaml").write_text(head + text)
    (folder / ".env").write_text(env_file)
    layout = lay_out(load(folder / "job.yaml"), INVENTORY, "job.yaml", outside=outside)
    sites = {host.name: Site(host.address or "", {}) for host in layout.hosts}
    return Job(layout, 1, "00000000", 0.0, assign(layout, sites))


def values(job: Job, names: str) -> dict[str, list[str | None]]:
    """Return the values of these variables in each task."""
    return {str(task): [env.environment(job, task).get(name) for name in names.split()] for task in job.tasks}


def test_variables_of_options_override_the_role_the_job_and_its_file(tmp_path: Path) -> None:
    text, file = "env_file: .env\nenv: {A: job, B: job}\n", "A=file\nB=file\nC=file\nD=file\n"
    job = make(tmp_path, text, ExternalVariables({"C": "shell"}, {"D": "given"}), file)
    assert values(job, "A B C D") == {
        "worker/0": ["job", "job", "file", "given"],
        "other/0": ["job", "role", "file", "given"],
    }
    job = make(tmp_path, text, ExternalVariables({}, {"B": "given"}), file)
    assert values(job, "B") == {"worker/0": ["given"], "other/0": ["given"]}


def test_a_variable_without_a_value_is_taken_from_the_shell(tmp_path: Path) -> None:
    job = make(tmp_path, "env: {A: , E: ''}\n", ExternalVariables({"A": "${HOME} {role} {x}", "E": "no"}))
    assert values(job, "A E")["worker/0"] == ["${HOME} {role} {x}", ""]
    assert values(make(tmp_path, "env: [A]\n", ExternalVariables({}, {"A": "given"})), "A")["worker/0"] == ["given"]


def test_variables_that_the_shell_lacks_are_named_together(tmp_path: Path) -> None:
    with pytest.raises(BadFile) as caught:
        make(tmp_path, "env: [ABSENT, HERE, GONE]\n", ExternalVariables({"HERE": "1"}))
    assert str(caught.value) == (
        "job.yaml: env: the job file takes ABSENT and GONE from the shell, where they are not set\n"
        "  export ABSENT=VALUE, or add -e ABSENT=VALUE to the command"
    )


def test_a_value_of_the_shell_that_cannot_reach_a_process_is_refused_without_showing_it(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="env: A, as the shell has it: control character") as caught:
        make(tmp_path, "env: [A]\n", ExternalVariables({"A": "hunter2\x07"}))
    assert "hunter2" not in str(caught.value)


def test_placeholders_are_filled_in_the_values_of_the_job_file_alone(tmp_path: Path) -> None:
    text = "env_file: .env\nenv: {A: '{role} $${role}'}\n"
    job = make(tmp_path, text, ExternalVariables({}, {"C": "{role}"}), "B={role} {x}\n")
    assert values(job, "A B C")["worker/0"] == ["worker ${role}", "{role} {x}", "{role}"]


def test_options_have_a_value_or_take_it_from_the_shell() -> None:
    found = external(["A=1=2", "B", "C="], {"B": "shell", "D": "shell"})
    assert dict(found.given) == {"A": "1=2", "B": "shell", "C": ""}


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("B", "-e B: B is not set in the shell: write -e B=VALUE, or export B first"),
        ("=hunter2", "-e : '' is not a variable name"),
        ("A-B=hunter2", "-e A-B: 'A-B' is not a variable name"),
        ("TFCTL_JOB=hunter2", "-e TFCTL_JOB: TFCTL_JOB is set by tfctl itself"),
        ("A=hunter2\x07", "-e A: control character '\\x07' at position 7"),
    ],
)
def test_an_option_that_is_refused_is_named_without_its_value(word: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        external([word], {})
    assert str(caught.value).startswith(sentence)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["WANDB_API_KEY", "HF_TOKEN", "aws_secret_access_key", "DB_PASSWORD", "MYSQL_PWD", "APIKEY", "SENTRY_DSN",
     "GOOGLE_APPLICATION_CREDENTIALS", "KEY_PASSPHRASE", "TFCTL_SECRET", "HTTP_AUTH", "GITHUBTOKEN"],
)  # fmt: skip
def test_a_variable_with_the_name_of_a_secret_is_masked(name: str) -> None:
    assert masked(name, "hunter2") == "***"
    assert masked(name, "") == ""


@pytest.mark.parametrize("name", ["PATH", "BATCH", "TOKENIZERS_PARALLELISM", "TF_USE_LEGACY_KERAS", "AUTHOR", "PWDX"])
def test_other_variables_are_shown(name: str) -> None:
    assert masked(name, "hunter2") == "hunter2"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:hunter2@host/a@b", "https://***@host/a@b"),
        ("https://hunter2@host", "https://***@host"),
        ("mysql://me:hun@ter2@host:3306/x and s3://bucket/a", "mysql://***@host:3306/x and s3://bucket/a"),
        ("grpc://10.0.0.1:2222,grpc://10.0.0.2:2222", "grpc://10.0.0.1:2222,grpc://10.0.0.2:2222"),
        ("me@host", "me@host"),
    ],
)
def test_users_and_passwords_in_urls_are_masked(text: str, shown: str) -> None:
    assert without_user_info(text) == shown == masked("URL", text)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("t.py --wandb-api-key=hunter2 --n 1", "t.py --wandb-api-key=*** --n 1"),
        ("t.py --api_key hunter2 -v", "t.py --api_key '***' -v"),
        ("t.py '--password=a \"hunter2' b", "t.py '--password=***' b"),
        ('t.py --password "it\'s hunter2" b', "t.py --password '***' b"),
        ("t.py --api-key=hunter2 --note 'hello world'", "t.py '--api-key=***' --note 'hello world'"),
        ("sh -c 'a --secret=\"hunter2 b\" && b --token hunter2; c'", "sh -c 'a --secret=*** && b --token *** c'"),
        ("t.py https://me:hunter2@host/ --hf_token=hunter2", "t.py https://***@host/ --hf_token=***"),
    ],
)
def test_secrets_in_a_command_are_masked(line: str, shown: str) -> None:
    assert command(shlex.split(line)) == shlex.split(shown)


def test_other_options_of_a_command_are_shown() -> None:
    line = "t --max-tokens 512 --eos_token end --tokenizer=x --password-file=/x --use-secret train.py --token -v"
    words = [*shlex.split(line), "--api-keys", "3", "--ask-password"]
    assert command(words) == words


def test_no_secret_is_shown_and_each_reaches_the_root_only_file_of_its_task(tmp_path: Path) -> None:
    text = (
        "command: python train.py --api-key=hunter2 --password hunter2\n"
        "env_file: .env\nenv: {URL: 'https://me:hunter2@host/', TOKEN: }\n"
    )
    job = make(tmp_path, text, ExternalVariables({"TOKEN": "hunter2"}), "API_KEY=hunter2\n")
    shown = "\n".join([plan.text(job), *plan.files(job).values()])
    assert "hunter2" not in shown
    assert 'API_KEY="***"\n' in shown and 'URL="https://***@host/"\n' in shown
    for each in plan.plans(job, "").values():
        assert all(task.env.count("hunter2") == 3 and task.unit.count("hunter2") == 2 for task in each.tasks)
        assert "hunter2" not in str(each.record)
    assert env.secret_names(job, job.tasks[0]) == ("API_KEY", "URL", "TOKEN")
