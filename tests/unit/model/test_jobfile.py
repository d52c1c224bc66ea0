"""Each row: what is wrong in a job file, and the sentence that says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfctl.errors import BadFile
from tfctl.model.jobfile import JobFile
from tfctl.model.load import load

GOOD = "name: digits\nstrategy: custom\ncommand: python train.py\nroles: {worker: 2}\n"


def read(folder: Path, text: str) -> JobFile:
    file = folder / "job.yaml"
    file.write_text(text)
    return load(file)


def test_keys_have_their_documented_defaults(tmp_path: Path) -> None:
    job = read(tmp_path, GOOD)
    assert job.output == "/srv/tfctl/digits"
    assert job.command == ("python", "train.py")
    assert job.roles["worker"].replicas == 2
    assert (job.policy.start_timeout, job.policy.drain, job.policy.clean) == (None, 1800, "running")


def test_paths_are_relative_to_the_job_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    folder = tmp_path / "job"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    assert read(folder, GOOD).code.path == folder
    assert read(folder, GOOD).inventory is None
    relative = read(Path("job"), GOOD + "code: ../src\ninventory: hosts.ini\n")
    assert (relative.code.path, relative.inventory) == (tmp_path / "src", folder / "hosts.ini")
    absolute = read(folder, GOOD + "code: /src\ninventory: ~/hosts.ini\n")
    assert (absolute.code.path, absolute.inventory) == (Path("/src"), Path("/home/me/hosts.ini"))


def test_code_is_a_directory_or_one_with_files_to_include(tmp_path: Path) -> None:
    job = read(tmp_path, GOOD + "code: {path: src, include: [.env, keys/id_rsa]}\n")
    assert (job.code.path, job.code.include) == (tmp_path / "src", (".env", "keys/id_rsa"))
    job = read(tmp_path, GOOD + "code: {include: [.env]}\n")
    assert (job.code.path, job.code.include) == (tmp_path, (".env",))


WRITTEN = ["1e-3", "0.10", "1.50", "0o17", "0755", "1_000", "1:30", "yes", "NO", "on", "2026-11-22", ".nan", "=", "+5"]


@pytest.mark.parametrize("text", WRITTEN)
def test_words_and_values_are_kept_as_they_are_written(text: str, tmp_path: Path) -> None:
    job = read(
        tmp_path,
        GOOD.replace("command: python train.py", f"command: [train, {text}]").replace(
            "{worker: 2}", f"{{worker: {{command: [train, &a {text}], env: {{ON: *a}}}}}}"
        )
        + f"env: {{X: {text}, <<: {{Y: {text}}}}}\npolicy: {{notify: {{command: [mail, {text}]}}}}\n",
    )
    worker, notify = job.roles["worker"], job.policy.notify
    assert (job.command, job.env) == (("train", text), {"X": text, "Y": text})
    assert (worker.command, worker.env) == (("train", text), {"ON": text})
    assert notify and notify.command == ("mail", text)


def test_a_number_that_is_also_a_variable_stays_a_number_elsewhere(tmp_path: Path) -> None:
    job = read(tmp_path, GOOD.replace("2}", "&n 2}") + "env: {WORKERS: *n}\npolicy: {max_restarts: *n}\n")
    assert (job.env["WORKERS"], job.roles["worker"].replicas, job.policy.max_restarts) == ("2", 2, 2)


def test_a_variable_without_a_value_is_left_to_the_shell(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD + "env: {A: , B: null, C: ''}\n").env == {"A": None, "B": None, "C": ""}
    assert read(tmp_path, GOOD + "env: [A, NO]\n").env == {"A": None, "NO": None}


def test_two_dollar_signs_before_a_brace_are_one(tmp_path: Path) -> None:
    job = read(tmp_path, GOOD + "env: {A: '$${HOME} $HOME $$ {role}', B: '$${role}'}\n")
    assert job.env == {"A": "${HOME} $HOME $$ {role}", "B": "${role}"}


@pytest.mark.parametrize("memory", ["16G", "512M", "2T", "1048576K", "17179869184"])
def test_a_limit_of_memory_has_a_suffix_of_systemd_or_none(memory: str, tmp_path: Path) -> None:
    text = GOOD.replace("2}", f"{{limits: {{memory: {memory}}}}}}}")
    assert read(tmp_path, text).roles["worker"].limits.memory == memory


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("commnd: x", "commnd: unknown key; did you mean `command`? (line 5)"),
        ("policy: {max_restart: 1}", "policy/max_restart: unknown key; did you mean `max_restarts`?"),
        ("roles: {worker: {replica: 1}}", "roles/worker/replica: unknown key; did you mean `replicas`?"),
        ("roles: {worker: 0}", "roles/worker/replicas: should be greater than or equal to 1, not 0"),
        ("roles: {worker: two}", "roles/worker: should be a mapping of keys to values, not 'two'"),
        ("roles: {worker: {replicas: 1, per_host: 1}}", "replicas and per_host are two ways"),
        ("roles: {wor-ker: 1}", "'wor-ker' is not a role"),
        ("roles: {}", "roles: Dictionary should have at least 1 item"),
        ("name: a/b", "'a/b' is not a job name"),
        ('name: "a\\"b"', "is not a job name"),
        ('name: "a\\nb"', "is not a job name"),
        ("name: a%b", "is not a job name"),
        (f"name: {'a' * 300}", "is not a job name"),
        ("command: a && b", "'&&' needs a shell"),
        ("command: ''", "the command is empty"),
        ("command: []", "the command is empty"),
        ("command: A=1 python x", "'A=1' is not a program: put variables in `env`"),
        ("command: -x", "'-x' is not a program"),
        ("command: |\n  python a.py\n  python b.py", "a new line needs a shell and there is none"),
        (
            "env: {<<: 3}",
            "not plain YAML: expected a mapping or list of mappings for merging, but found scalar (line 5",
        ),
        ("? [a]\n: b", "not plain YAML: found unhashable key (line 5, column 3)"),
        ("command: 'run {what}'", "command: {what} is not a placeholder; known are {role} {index}"),
        ("env: {A: '{what}'}", "env: A: {what} is not a placeholder; known are {role} {index}"),
        ("command: [python, [a]]", "command: should be text or a number, not ['a']"),
        ("command: [python, ~]", "command: should be text or a number, not null"),
        ("command: 'a \"b'", "no closing quotation"),
        ("env: {X: [1]}", "env: X: should be text or a number, not [1]"),
        ("env: X", "env: should be a mapping of names to values, or a list of names"),
        ("env: ['X=1']", "env: 'X' has a value, and a list holds names alone: write `env: {X: VALUE}`"),
        ("env: [a-b]", "env: 'a-b' is not a variable name"),
        ("env: ['']", "env: '' is not a variable name"),
        ("env: [TF_CONFIG]", "env: TF_CONFIG is set by tfctl itself"),
        ("env: {X: 'a${HOME}b'}", "env: X: tfctl does not replace `${HOME}`: to take a variable from the shell, write"),
        ("env: {X: '$${A} ${B:-c}'}", "env: X: tfctl does not replace `${B}`"),
        ("roles: {worker: {env: {X: '${A}'}}}", "roles/worker/env: X: tfctl does not replace `${A}`"),
        ("env_file: 3", "env_file: should be a valid string, not 3"),
        ('env: {X: "a\\0b"}', "control character '\\x00' at position 1"),
        ("env: {TF_CONFIG: x}", "TF_CONFIG is set by tfctl itself"),
        ("env: {EXIT_STATUS: x}", "EXIT_STATUS is set by systemd, and tells tfctl how a task ended"),
        ("env: {MAINPID: x}", "MAINPID is set by systemd, and tells tfctl how a task ended"),
        ("env: {EXIT_CODE: x}", "EXIT_CODE is set by systemd"),
        ("env: {SERVICE_RESULT: x}", "SERVICE_RESULT is set by systemd"),
        ("env: {INVOCATION_ID: x}", "INVOCATION_ID is set by systemd"),
        ("output: /home/me/out", "output: /home/me/out is in /home, which tasks cannot see"),
        ("env: {TFCTL_X: x}", "TFCTL_X is set by tfctl itself"),
        ("env: {a-b: x}", "'a-b' is not a variable name"),
        ("output: relative", "'relative' is not a plain absolute path"),
        ("ports: 2299-2222", "2299-2222: the range must ascend"),
        ("ports: 80-90", "80-90: the range must ascend and lie within 1024-65535"),
        ("ports: many", "'many' is not a range"),
        ("code: {include: .env}", "code/include: "),
        ("code: {include: [../.env]}", "code/include: '../.env' is not the path of a file relative to `path`"),
        ("code: {includes: []}", "code/includes: unknown key; did you mean `include`?"),
        ("code: 3", "code: should be a valid string, not 3"),
        ("code: ~no-such-user/src", "code: ~no-such-user/src: this machine has no such user; write the full path"),
        ('inventory: "a\\0b"', "inventory: control character '\\x00' at position 1"),
        ("policy: {deadline: soon}", "policy/deadline: 'soon' is not a duration"),
        ("policy: {grace: 0}", "policy/grace: 0 is not a duration"),
        ("policy: {success: some}", "policy/success: should be 'auto', 'chief', 'worker0' or 'all_workers'"),
        ("policy: [1]", "policy: should be a mapping of keys to values"),
        ("environment: sky", "environment: should be 'cloud'"),
        ("roles: {worker: {limits: {memory: 0}}}", "roles/worker/limits/memory: 0 is not an amount of memory such as"),
        ("roles: {worker: {limits: {memory: 80%}}}", "memory: '80%' is not an amount of memory such as 16G, 512M or"),
        ("roles: {worker: {limits: {memory: 16GB}}}", "memory: '16GB' is not an amount of memory such as 16G"),
        ("roles: {worker: {limits: {memory: 1.5G}}}", "memory: '1.5G' is not an amount of memory such as 16G"),
        ("roles: {worker: {limits: {memory: lots}}}", "memory: 'lots' is not an amount of memory such as 16G"),
        ("roles: {worker: {limits: {memory: yes}}}", "memory: True is not an amount of memory such as 16G"),
        ("roles: {worker: {limits: {memory: 16}}}", "memory: 16 should be at least 1M: add the unit, as in 16G"),
        ("roles: {worker: {limits: {memory: 9999999T}}}", "memory: '9999999T' is more than any host has"),
        ("roles: {worker: {limits: {cpus: 0}}}", "cpus: 0 is not a number of CPUs above 0, such as 4 or 0.5"),
        ("roles: {worker: {limits: {cpus: -1}}}", "cpus: -1 is not a number of CPUs above 0"),
        ("roles: {worker: {limits: {cpus: '4'}}}", "cpus: '4' is not a number of CPUs above 0"),
        ("roles: {worker: {limits: {cpus: 0_5}}}", "is not a number of CPUs above 0"),
        ("roles: {worker: {limits: {cpus: .nan}}}", "cpus: nan is not a number of CPUs above 0"),
        ("roles: {worker: {limits: {cpus: 0.333}}}", "cpus: 0.333 has more than two decimals; write 0.33"),
        ("roles: {worker: {limits: {cpu: 4}}}", "roles/worker/limits/cpu: unknown key; did you mean `cpus`?"),
    ],
)
def test_a_fault_is_named_with_its_place(line: str, sentence: str, tmp_path: Path) -> None:
    key = line.partition(":")[0]
    kept = [old for old in GOOD.splitlines() if not old.startswith(f"{key}:")]
    with pytest.raises(BadFile) as caught:
        read(tmp_path, "\n".join([*kept, line]) + "\n")
    assert sentence in caught.value.message
    assert "job.yaml: " in caught.value.message
    assert caught.value.exit == 3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "a job file is a mapping"),
        ("- a\n- b\n", "a job file is a mapping"),
        ("just words", "a job file is a mapping"),
        (GOOD + "name: twice\n", "name: given twice (line 5)"),
        ("name: [", "not valid YAML"),
        ("name: digits\n", "strategy: is missing"),
        ("!!python/object:os.system {}", "not plain YAML"),
        ("a: " + "[" * 2000, "too deep"),
        ("x: " + "y" * 2**20, "larger than 1 MiB"),
    ],
)
def test_a_text_that_is_not_a_job_file_is_refused(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=sentence.replace("(", r"\(").replace(")", r"\)")):
        read(tmp_path, text)


def test_exploding_aliases_are_refused_at_once(tmp_path: Path) -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    with pytest.raises(BadFile, match="aliases stand for more than"):
        read(tmp_path, "\n".join(rows))


def test_an_alias_for_a_single_value_is_accepted(tmp_path: Path) -> None:
    read(tmp_path, GOOD + "env: {A: &a 1, B: *a}\n")


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="no such job file"):
        load(tmp_path / "none.yaml")
    with pytest.raises(BadFile, match="cannot be read"):
        load(tmp_path)
