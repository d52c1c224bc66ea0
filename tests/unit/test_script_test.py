"""scripts/test runs what its arguments say, and does not repeat a check that has passed with the same files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
SITE, WHEEL, FLEET = "tests/unit/test_site.py", "tests/unit/test_wheel.py", "tests/ssh/test_fleet.py"
JOBS, LOGS = "tests/lab/test_jobs.py", "tests/lab/test_logs.py"
FILES = {
    ".gitignore": ".venv\n__pycache__\n", "pyproject.toml": "", "requirements/dev.txt": "", "requirements/uv.txt": "",
    "docs/page.md": "", "roles/one/tasks/main.yml": "", "tests/fakes/fake_one.py": "",
    SITE: 'DOCS = ROOT / "docs"\n', WHEEL: "", FLEET: "from fake_one import Fake\n",
    JOBS: "", LOGS: "",
}  # fmt: skip
#: A program that writes down how it is called, and edits a file or fails if it is told so. As Python, it runs
#: scripts/affected.
FAKE = f"""#!/bin/sh
name=${{0##*/}}
case "$name $*" in
    "python -VV") echo Python; exit ;;
    "python -m scripts.affected "*) exec {sys.executable} "$@" ;;
    "python -m pytest -q "*) shift 3; name=pytest ;;
esac
echo "$name $*" >>"$CALLS"
[ "$name" != "$EDITING" ] || echo new >>roles/one/tasks/main.yml
[ "$name" != "$FAILING" ] || exit 1
[ "$name" != "$EMPTY" ] || exit 5
"""


class Checkout:
    """A checkout of a few files, with the real scripts/test. It runs fakes of the programs that check the files."""

    def __init__(self, folder: Path, *, lock: str = "") -> None:
        self.root, self.cache, self._bin, self._calls = (folder / name for name in ("root", "cache", "bin", "calls"))
        for name, text in FILES.items():
            self.write(name, text)
        self.write("requirements/dev.txt", lock)
        shutil.copytree(
            SCRIPTS / "affected", self.root / "scripts/affected", ignore=shutil.ignore_patterns("__pycache__")
        )
        for name in ("test", "lib.sh"):
            shutil.copy(SCRIPTS / name, self.root / "scripts")
        for name in ("python", "ruff", "shellcheck", "mypy", "lint-imports", "ansible-lint"):
            self._program(self.root / ".venv/bin" / name, FAKE)
        inputs = "cat pyproject.toml requirements/uv.txt requirements/dev.txt | cksum | tr ' ' -"
        digest = subprocess.check_output(["sh", "-c", inputs], cwd=self.root, text=True, timeout=20).strip()
        (self.root / ".venv" / f".tfctl-dev-{digest}").touch()
        # As root, and with all packages.
        self._program(self._bin / "id", "#!/bin/sh\necho 0\n")
        self._program(self._bin / "dpkg-query", "#!/bin/sh\necho install ok installed\n")
        self.git("init", "--quiet", "--initial-branch=main")
        self.commit()

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def git(self, *words: str) -> None:
        settings = ["-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *settings, *words], cwd=self.root, check=True, timeout=20)

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "change")

    def run(self, *words: str, code: int = 0, **variables: str) -> str:
        """Run scripts/test, and return what it prints. The variables FAILING, EMPTY and EDITING name a program that
        fails, that runs no test or that edits a file."""
        self._calls.write_text("")
        environment = {
            **os.environ, "PATH": f"{self._bin}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(self.cache),
            "CALLS": str(self._calls), "FAILING": "", "EMPTY": "", "EDITING": "", **variables,
        }  # fmt: skip
        done = subprocess.run(
            ["bash", "scripts/test", *words],
            cwd=self.root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == code, done.stdout
        return done.stdout

    def calls(self, program: str) -> list[str]:
        """Return the arguments of each call in the last run."""
        lines = self._calls.read_text().splitlines()
        return [line.removeprefix(program).strip() for line in lines if line.split()[0] == program]

    def _program(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "first")


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """For tests that change nothing in it."""
    return Checkout(tmp_path_factory.mktemp("checkout"))


QUICK = "-n 4 --dist worksteal -m not extended and not browser"
TWO_LABS = "-n 2 --dist loadfile --no-loadscope-reorder -m not slow"


def test_paths_and_arguments_are_those_of_pytest_after_lint(unchanged: Checkout) -> None:
    unchanged.run(FLEET, "-k", "one host")
    assert unchanged.calls("pytest") == [f"{QUICK} {FLEET} -k one host"]
    assert (
        len(unchanged.calls("ruff")) == 2 and len(unchanged.calls("mypy")) == len(unchanged.calls("ansible-lint")) == 1
    )
    unchanged.run("--extended", FLEET, "-x")
    assert unchanged.calls("pytest") == [f"-n 2 --dist worksteal -m extended {FLEET} -x"]


@pytest.mark.parametrize(
    ("words", "called"),
    [
        ([], f"{TWO_LABS} tests/lab"),
        (["-k", "logs"], f"{TWO_LABS} tests/lab -k logs"),
        ([JOBS], f"-m not slow {JOBS}"),
        ([JOBS, "-x"], f"-m not slow {JOBS} -x"),
        ([f"{JOBS}::test_a", f"{JOBS}::test_b"], f"-m not slow {JOBS}::test_a {JOBS}::test_b"),
        ([JOBS, LOGS], f"{TWO_LABS} {JOBS} {LOGS}"),
        (["tests/lab"], f"{TWO_LABS} tests/lab"),
    ],
    ids=["all", "chosen by name", "file", "file and option", "tests of one file", "two files", "directory"],
)  # fmt: skip
def test_lab_runs_the_files_that_it_is_given_and_a_single_one_on_one_lab(
    unchanged: Checkout, words: list[str], called: str
) -> None:
    unchanged.run("--lab", *words)
    assert unchanged.calls("pytest") == [called]


def test_lab_runs_all_files_in_one_process_on_a_running_lab(unchanged: Checkout) -> None:
    unchanged.run("--lab", TFCTL_TEST_LAB="mine")
    assert unchanged.calls("pytest") == ["-m not slow tests/lab"]


def test_a_lab_test_is_refused_without_lab(unchanged: Checkout) -> None:
    said = unchanged.run(JOBS, code=1)
    assert said == f"The tests in tests/lab need a lab: scripts/test --lab {JOBS}\n"


@pytest.mark.extended
def test_checks_that_passed_run_again_only_when_a_file_on_which_they_depend_has_changed(checkout: Checkout) -> None:
    assert "has changed since it passed" not in checkout.run()
    assert checkout.calls("pytest") == [QUICK]
    assert len(checkout.calls("ansible-lint")) == 1

    said = checkout.run()
    for check in ("ansible-lint", SITE, WHEEL):
        assert f"{check}: nothing that it depends on has changed since it passed\n" in said
    assert checkout.calls("pytest") == [f"{QUICK} --deselect {SITE} --deselect {WHEEL}"]
    assert checkout.calls("ansible-lint") == []
    assert len(checkout.calls("mypy")) == 1

    checkout.write("docs/page.md", "new")
    checkout.run()
    assert checkout.calls("pytest") == [f"{QUICK} --deselect {WHEEL}"]
    checkout.write("roles/one/tasks/new.yml", "new")
    checkout.run()
    assert checkout.calls("pytest") == [QUICK], "the list of all files is another"
    assert len(checkout.calls("ansible-lint")) == 1

    checkout.write("docs/page.md", "")
    (checkout.root / "roles/one/tasks/new.yml").unlink()
    checkout.run()
    assert checkout.calls("pytest") == [f"{QUICK} --deselect {SITE} --deselect {WHEEL}"]


@pytest.mark.extended
def test_another_checkout_uses_what_has_passed_with_the_same_files_and_packages(
    checkout: Checkout, tmp_path: Path
) -> None:
    checkout.run()
    same, other = Checkout(tmp_path / "same"), Checkout(tmp_path / "other", lock="package==2\n")
    same.cache = other.cache = checkout.cache
    same.run()
    assert same.calls("ansible-lint") == []
    assert same.calls("pytest") == [f"{QUICK} --deselect {SITE} --deselect {WHEEL}"]
    assert same.calls("mypy") == checkout.calls("mypy"), "in the same cache"
    other.run()
    assert other.calls("pytest") == [QUICK]
    assert len(other.calls("ansible-lint")) == 1
    assert other.calls("mypy") != checkout.calls("mypy"), "in a cache of its own"


@pytest.mark.extended
def test_checks_that_fail_run_again(checkout: Checkout) -> None:
    checkout.run(FAILING="ansible-lint", code=1)
    checkout.write("docs/page.md", "new")
    checkout.run(FAILING="pytest", code=1)
    assert len(checkout.calls("ansible-lint")) == 1
    checkout.run()
    assert checkout.calls("pytest") == [f"{QUICK} --deselect {WHEEL}"]
    assert checkout.calls("ansible-lint") == []


@pytest.mark.extended
def test_a_check_during_which_a_file_changes_has_not_passed(checkout: Checkout) -> None:
    checkout.run(EDITING="ansible-lint")
    checkout.write("roles/one/tasks/main.yml", "")
    checkout.run()
    assert len(checkout.calls("ansible-lint")) == 1


@pytest.mark.extended
def test_tests_during_which_a_file_changes_have_not_passed(checkout: Checkout) -> None:
    checkout.run(EDITING="pytest")
    checkout.write("roles/one/tasks/main.yml", "")
    checkout.run()
    assert checkout.calls("pytest") == [f"{QUICK} --deselect {SITE}"], "only the wheel depends on the file"


def test_chosen_tests_run_although_they_have_passed_and_prove_nothing(checkout: Checkout) -> None:
    checkout.run("-k", "wheel")
    checkout.run(WHEEL)
    checkout.run()
    assert checkout.calls("pytest") == [QUICK]
    checkout.run(WHEEL)
    assert checkout.calls("pytest") == [f"{QUICK} {WHEEL}"]


def test_changed_runs_what_a_change_can_affect(checkout: Checkout) -> None:
    checkout.write("tests/fakes/fake_one.py", "new")
    said = checkout.run("--changed", "-x")
    assert checkout.calls("pytest") == [f"{QUICK} {FLEET} -x"]
    assert "1 file has changed since" in said and "files of tests/unit 2 of 2; ansible-lint" in said
    assert checkout.calls("ansible-lint") == []
    assert len(checkout.calls("mypy")) == len(checkout.calls("lint-imports")) == 1
    checkout.commit()
    checkout.write("docs/page.md", "new")
    checkout.run("--changed", "HEAD")
    assert checkout.calls("pytest") == [f"{QUICK} {SITE}"]
    checkout.run("--changed", "HEAD")
    assert checkout.calls("pytest") == [f"{QUICK} --deselect {SITE} {SITE}"]


def test_changed_runs_no_test_when_nothing_has_changed(unchanged: Checkout) -> None:
    said = unchanged.run("--changed")
    assert "no test is affected" in said
    assert unchanged.calls("pytest") == []
    assert len(unchanged.calls("mypy")) == 1


@pytest.mark.extended
def test_changed_succeeds_when_all_tests_that_it_chooses_are_marked_extended(checkout: Checkout) -> None:
    checkout.write("tests/fakes/fake_one.py", "new")
    checkout.run("--changed", EMPTY="pytest")
    checkout.run(EMPTY="pytest", code=1)


def test_changed_refuses_an_unknown_base(unchanged: Checkout) -> None:
    said = unchanged.run("--changed", "none", code=1)
    assert "git finds no commit that HEAD shares with none. Name one: scripts/test --changed COMMIT\n" in said
    assert unchanged.calls("ruff") == []


def test_caches_that_have_not_been_used_for_longest_are_deleted(checkout: Checkout) -> None:
    old = checkout.cache / "tfctl-tests"
    for age in range(4):
        (old / f"{age} days").mkdir(parents=True)
        os.utime(old / f"{age} days", (1e9 - age, 1e9 - age))
    checkout.run(FLEET)
    [new] = {path.name for path in old.iterdir()} - {"0 days", "1 days"}
    assert (old / new / "passed").is_dir()
