"""Each row: what is wrong in a job file, and the sentence that says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.model.job_files import FAULTS, GOOD, with_line
from tfctl.errors import BadFile
from tfctl.model.jobfile import JobFile
from tfctl.model.load import load


def read(folder: Path, text: str) -> JobFile:
    file = folder / "job.yaml"
    file.write_text(text)
    return load(file)


def test_keys_have_their_documented_defaults(tmp_path: Path) -> None:
    job = read(tmp_path, GOOD)
    assert job.output_path == "/srv/tfctl/digits"
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


@pytest.mark.parametrize(("line", "sentence"), FAULTS)
def test_a_fault_is_named_with_its_place(line: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(BadFile) as caught:
        read(tmp_path, with_line(line))
    assert sentence in caught.value.message
    assert "job.yaml: " in caught.value.message
    assert caught.value.exit == 3


def test_a_value_that_is_too_long_for_a_process_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"env: X: longer than 130816 bytes; put it in a file \(line 5\)"):
        read(tmp_path, with_line(f"env: {{X: {'x' * 132_000}}}"))


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
        ("a: " + "[" * 1000, "too deep"),
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


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_bytes(b"name: \xff\xfe\n")
    with pytest.raises(BadFile, match=r"job\.yaml: cannot be read: "):
        load(tmp_path / "job.yaml")
