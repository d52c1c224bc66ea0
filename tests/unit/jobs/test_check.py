"""`tfctl check`: each mistake in a job file, its inventory or its code is found without contact to any host."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.unit.provision.test_stacks import own_stack
from tfctl.cli.main import run
from tfctl.model.host import VARIABLES
from tfctl.provision.ansible import data_dir
from tfctl.provision.role_variables import inventory_variables
from tfctl.remote import hostvars

JOB = "name: digits\nstrategy: custom\nstack: tf2.15\ncommand: python train.py\nroles: {worker: 2}\n"
#: Nothing answers there: 192.0.2.0/24 is for documentation.
HOSTS = "[gpu]\n" + "".join(f"node{n} ansible_host=192.0.2.{n} tfctl_ports=3000-3009\n" for n in (1, 2, 3))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One directory for all tests, because Ansible takes a second to read the inventory of a new one."""
    return tmp_path_factory.mktemp("check")


@pytest.fixture(autouse=True)
def folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a job that has no mistakes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    folder = place / "job"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "bin").mkdir(parents=True)
    (folder / "train.py").write_text("")
    (folder / "bin/run").write_text("")
    (folder / "job.yaml").write_text(JOB)
    (folder / "hosts.ini").write_text(HOSTS)
    monkeypatch.chdir(folder)
    return folder


def write(folder: Path, lines: str) -> None:
    """Replace the lines of JOB that have the same keys."""
    keys = [line.partition(":")[0] for line in lines.splitlines()]
    kept = [line for line in JOB.splitlines() if line.partition(":")[0] not in keys]
    (folder / "job.yaml").write_text("\n".join([*kept, lines, ""]))


def check(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[str], list[str]]:
    """Return the exit code, the errors and the warnings."""
    code = run(["check", "job.yaml", "-i", "hosts.ini", "-o", "json", *words])
    found = json.loads(capsys.readouterr().out)
    return code, [f"{error['message']} → {error['remedy']}" for error in found["errors"]], found["warnings"]


def test_check_prints_a_line_for_a_job_without_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "job.yaml", "-i", "hosts.ini"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("digits: no errors; 2 tasks on 2 hosts\n", "")
    assert check(capsys) == (0, [], [])


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("command: python trian.py", "worker/0: trian.py is not in the code that is sent to the hosts: /"),
        ("command: python ~/train.py", "worker/0: the `~` in ~/train.py is not expanded, because no shell runs"),
        ("command: ~/run", "worker/0: the `~` in ~/run is not expanded"),
        ("command: train.py --epochs 3", "worker/0: train.py is not on the PATH → write `python train.py` or"),
        ("command: ./none.sh", "worker/0: ./none.sh is not in the code that is sent to the hosts: /"),
        ("command: bin/run", "worker/0: bin/run is not executable → run: chmod +x /"),
        ("command: .venv/bin/python train.py", "worker/0: .venv/bin/python is not in the code that is sent"),
        ("roles: {worker: {hosts: cpu}}", "job.yaml: roles/worker/hosts: 'cpu' matches no host of /"),
        ("commnd: x", "job.yaml: commnd: unknown key; did you mean `command`? (line 6)"),
        ("env: [ABSENT_X]", "job.yaml: env: the job file takes ABSENT_X from the shell, where it is not set"),
        ("env_file: none.env", "none.env does not exist → create it, or remove `env_file`"),
        ("ports: 3000-3000\nroles: {worker: {per_host: 2}}", "node1: 2 tasks, but fewer free ports in 3000-3000"),
        ("code: {include: [absent]}", "absent is not a file → correct the list: paths relative to `code`"),
        (
            "env: {CUDA_VISIBLE_DEVICES: 0}",
            "job.yaml: env: CUDA_VISIBLE_DEVICES is set by tfctl for each task → remove",
        ),
        ("output: gs://bucket/x", "job.yaml: output: 'gs://bucket/x' is a URL, and this is a directory of the hosts"),
        ("output: none\ncommand: python train.py {output}", "command: {output} is the directory of the job, and with"),
        ("command: python train.py {ps2_hosts}", "job.yaml: command: {ps2_hosts} is not a placeholder; choose from"),
        (
            "strategy: multi_worker_mirrored\nroles: {worker: 1, chief: {stack: tf2.11}}",
            "job.yaml: the tasks of one cluster have different versions of TensorFlow: 2.15.1 (worker/0 on node1, st",
        ),
    ],
)
def test_check_names_an_error_and_its_remedy(
    lines: str, sentence: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, lines)
    code, errors, _ = check(capsys)
    assert (code, len(errors)) == (3, 1)
    assert sentence in errors[0]
    assert run(["check", "job.yaml", "-i", "hosts.ini"]) == 3
    captured = capsys.readouterr()
    assert captured.out == "" and sentence.partition(" → ")[0] in captured.err


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("stack: tf2.16", "stack tf2.16: tfctl has none of this name, so the hosts must have their own in /opt"),
        ("command: python train.py ~/data", "worker: `~/data`: `~` is not expanded, because no shell runs the command"),
        ("command: python train.py --data=/home/me/x", "worker: `--data=/home/me/x`: tasks cannot see /home of the"),
        ("env: {DATA: /root}", "worker: DATA: tasks cannot see /root of the hosts; use a directory such as"),
        ("env: {DATA: ~/x}", "worker: DATA: `~` is not expanded"),
        ("env: {KEY: $WANDB_API_KEY}", "worker: KEY: tfctl does not replace `$WANDB_API_KEY`; to take a variable from"),
        ("env: {DATA: /srv/$NAME}", "worker: DATA: tfctl does not replace `$NAME`"),
        ("env_file: .env", "worker: FROM_FILE: tfctl does not replace `$OTHER`"),
        ('command: python train.py "$DATA"', "worker: `$DATA` in the command is not replaced, because no shell runs"),
        ("command: [python, train.py, '--data=${DATA}/x']", "worker: `$DATA` in the command is not replaced"),
        ("roles: {worker: {hosts: 'gpu,cpu'}}", "roles/worker/hosts: `cpu` matches no host of /"),
        ("command: [sh, -c, 'a; b']", "`sh -c` without `exec`"),
        (
            "ports: 40000-40100",
            "ports: 40000-40100 is in the range of outgoing connections of node1 and node2 (32768-60",
        ),
        ("ports: 30000-32768", "ports: 30000-32768 is in the range of outgoing connections of node1 and node2 (32768-"),
        ("ports: 60999", "ports: 60999-60999 is in the range of outgoing connections"),
        ("command: python -c 'import os; del os.environ[\"TF_CONFIG\"]'", "worker: the command changes TF_CONFIG"),
        ("command: python train.py --wandb-api-key=hunter2", "worker: the command contains a secret, which all users"),
        ("command: python train.py https://me:hunter2@host/", "worker: the command contains a secret, which all users"),
    ],
)
def test_check_warns_of_what_is_probably_a_mistake(
    lines: str, sentence: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "env_file" in lines:
        (folder / ".env").write_text("FROM_FILE=$OTHER\nPASSWORD=a$b\n")
    write(folder, lines)
    code, errors, warnings = check(capsys)
    assert (code, errors, len(warnings)) == (0, [], 1)
    assert warnings[0].startswith(sentence)
    assert "hunter2" not in warnings[0]


@pytest.mark.parametrize(
    "lines",
    ['command: sh -c "exec echo $HOME"', "command: [bash, -c, 'exec echo ${HOME}']", "env: {COST: 'US$ 5', A: $$b}"],
)
def test_check_does_not_warn_of_variables_that_a_shell_replaces(
    lines: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, lines)
    assert check(capsys) == (0, [], [])


def test_check_knows_the_stacks_of_the_inventory(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own_stack(folder / "stacks")
    (folder / "hosts.ini").write_text(f"{HOSTS}[all:vars]\ntfctl_stack_dirs=stacks\n")
    write(folder, "stack: mine")
    assert check(capsys) == (0, [], [])


def test_check_names_all_errors_of_the_commands_once_per_role(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, "roles: {worker: {replicas: 9, command: ./a}, ps: {replicas: 2, command: python b.py}}")
    code, errors, _ = check(capsys)
    assert (code, [error.split()[:2] for error in errors]) == (3, [["worker/0:", "./a"], ["ps/0:", "b.py"]])


@pytest.mark.parametrize("command", ["python .", "python -m bin", "python /opt/x.py", "/opt/run", "run", "{role}/run"])
def test_check_does_not_judge_programs_and_paths_that_only_hosts_have(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, f"command: '{command}'\nenv: {{HOME: /home/me, X: home}}")
    assert check(capsys) == (0, [], [])


def test_check_takes_the_limit_of_the_code_that_its_remedy_names(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (folder / "data").open("w") as file:
        file.truncate(2**20)
    assert check(capsys, "--code-limit", "2") == (0, [], [])
    code, [error], _ = check(capsys, "--code-limit", "1")
    assert code == 3
    assert "its code is larger than 1 MB → " in error and error.endswith("or raise --code-limit")


def test_check_names_a_misspelt_variable_of_the_inventory_and_leaves_others_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inventory = folder / "hosts.ini"
    inventory.write_text(HOSTS + "[gpu:vars]\ntfctl_site=berlin\ntfctl_color=red\n")
    assert check(capsys) == (0, [], [])
    inventory.write_text(HOSTS + "[gpu:vars]\ntfctl_stck=tf2.15\n")
    for _ in ("read by Ansible", "from the cache"):
        code, [error], _ = check(capsys)
        assert code == 3
        where = f"{inventory}: tfctl_stck (of node1, node2 and node3)"
        assert error == f"{where} is not a tfctl variable → did you mean tfctl_stack?"


def test_render_refuses_the_same_errors_and_prints_the_same_warnings(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, "command: python trian.py")
    assert run(["render", "job.yaml", "-i", "hosts.ini"]) == 3
    assert "trian.py is not in the code" in capsys.readouterr().err
    write(folder, "stack: tf2.16\nroles: {worker: {hosts: 'gpu,cpu'}}")
    assert run(["render", "job.yaml", "-i", "hosts.ini"]) == 0
    said = capsys.readouterr().err
    assert "`cpu` matches no host" in said and "stack tf2.16: tfctl has none of this name" in said
    (folder / "train.py").write_text("import os\ndel os.environ['TF_CONFIG']\n")
    (folder / ".env").write_text("A=1\n")
    assert run(["render", "job.yaml", "-i", "hosts.ini"]) == 0
    said = capsys.readouterr().err
    assert "train.py, line 2 changes TF_CONFIG" in said and "not sent to the hosts, because they may hold" in said


def test_render_prints_one_object_with_the_files_that_it_also_writes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["render", "job.yaml", "-i", "hosts.ini", "-o", "json", "--to", "out"]) == 0
    found = json.loads(capsys.readouterr().out)
    written = {str(path.relative_to("out")): path.read_text() for path in Path("out").rglob("*") if path.is_file()}
    assert found["files"] == written != {}


def test_variables_of_the_inventory_are_those_of_the_roles_and_of_the_hosts() -> None:
    source = Path(hostvars.__file__).read_text() + (data_dir() / "playbooks/vars/roles.yml").read_text()
    given_by_tfctl = {"tfctl_built", "tfctl_cache", "tfctl_more_trees", "tfctl_role", "tfctl_tools"}
    read = {*inventory_variables(data_dir() / "roles").values(), *re.findall(r"\btfctl_\w+", source)}
    assert read - given_by_tfctl == set(VARIABLES)


def test_check_names_ports_of_the_inventory_in_the_range_of_outgoing_connections(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "hosts.ini").write_text(HOSTS.replace("3000-3009", "32000-33000"))
    for lines, hosts in (("", "node1 and node2"), ("ports: 3000-3009", "node1")):  # whose guard has one of them
        write(folder, lines)
        code, errors, [warning] = check(capsys)
        assert (code, errors) == (0, [])
        assert warning.startswith(f"tfctl_ports: 32000-33000 is in the range of outgoing connections of {hosts} (3276")
    write(folder, "ports: 32000-32767")
    (folder / "hosts.ini").write_text(HOSTS)
    assert check(capsys) == (0, [], [])


@pytest.mark.parametrize("lines", ["roles: {worker: {per_host: 1, hosts: [node1, node3]}}", "output: none"])
def test_check_accepts_lists_of_hosts_and_jobs_without_output(
    lines: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(folder, lines)
    assert check(capsys) == (0, [], [])
