"""`scripts/test --changed` chooses what a change can affect. The digest of a check covers all that it depends on."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from scripts.affected.graph import Graph
from scripts.affected.repository import Change, GitError, Repository
from scripts.affected.rules import ANSIBLE_LINT, LINT, NAMES, RULES, Rule
from scripts.affected.selection import Selection, of_tests, report, select

ROOT = Path(__file__).parents[2]
COLLECTION = "ansible_collections.tfctl.cluster.plugins"
A, B = "tests/unit/test_a.py", "tests/ssh/test_b.py"
#: In each tree, the second test depends on nothing but itself.
ALONE = {B: "def test_b(): pass\n"}


def git(folder: Path, *words: str) -> str:
    settings = ["-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *settings, *words], cwd=folder, capture_output=True, text=True, check=True, timeout=20
    )
    return done.stdout.strip()


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def commit(folder: Path, **files: str) -> str:
    write(folder, files)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "change", "--allow-empty")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """An empty repository of git, on the branch main."""
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    return tmp_path


def chosen(tree: Path, changed: Iterable[str], *, renames: bool = False, rules: Iterable[Rule] = ()) -> Selection:
    change = Change("0" * 40, frozenset(changed), renames)
    return select(Graph(Repository(tree), change.files, rules), change)


#: For each way to depend on a file: the file that changes, with its text, and the text of the test that is affected.
#: Other files are named in brackets.
DEPENDENCIES: dict[str, tuple[str, dict[str, str]]] = {
    "a module": ("tfctl/one.py", {A: "from tfctl.one import name\n"}),
    "a module as a member": ("tfctl/one.py", {A: "from tfctl import one, two\n"}),
    "a module with its full name": ("tfctl/one.py", {A: "import tfctl.one as short\n"}),
    "an import in a function": ("tfctl/one.py", {A: "def test_a():\n    import tfctl.one\n"}),
    "the package of a module": ("tfctl/deep/__init__.py", {A: "import tfctl.deep.one\n", "tfctl/deep/one.py": ""}),
    "a module of a module": ("tfctl/one.py", {A: "import tfctl.two\n", "tfctl/two.py": "from tfctl import one\n"}),
    "a relative import": ("tfctl/d/one.py", {A: "import tfctl.d\n", "tfctl/d/__init__.py": "from .one import f"}),
    "an import from above": ("tfctl/one.py", {A: "import tfctl.d.two\n", "tfctl/d/two.py": "from ..one import f"}),
    "a fake": ("tests/fakes/fake_one.py", {A: "from fake_one import Fake\n"}),
    "a helper": ("tests/unit/helper.py", {A: "from tests.unit.helper import help\n"}),
    "a module of Ansible": ("plugins/module_utils/one.py", {A: f"from {COLLECTION}.module_utils import one\n"}),
    "a conftest.py": ("tests/unit/conftest.py", {A: ""}),
    "what a conftest.py imports": ("tfctl/one.py", {A: "", "tests/unit/conftest.py": "import tfctl.one\n"}),
    "a program of Python": (
        "tfctl/one.py",
        {A: 'run([sys.executable, "-m", "tfctl", "list"])\n', "tfctl/__main__.py": "import tfctl.one\n"},
    ),
    "a program in a command line": (
        "tfctl/one.py",
        {A: 'run(f"{python} -m tfctl list | cat")\n', "tfctl/__main__.py": "import tfctl.one\n"},
    ),
    "code in a string": ("tfctl/one.py", {A: 'CODE = "import os; from tfctl import one; one.main()"\n'}),
    "code on several lines": ("tfctl/one.py", {A: 'CODE = """\nimport os\nimport tfctl.one\n"""\n'}),
    "a module by its name": ("tfctl/one.py", {A: 'load("tfctl.one")\n'}),
    "a path": ("docs/page.md", {A: 'PAGE = ROOT / "docs/page.md"\n'}),
    "a path of several parts": ("docs/page.md", {A: 'PAGE = ROOT / "docs" / "page.md"\n'}),
    "a file in the root": ("README.md", {A: 'PAGE = ROOT / "README.md"\n'}),
    "a path that is joined": ("docs/page.md", {A: 'PAGE = Path(f"{ROOT}/docs/page.md")\n'}),
    "a path in a text": ("docs/page.md", {A: 'run("cat docs/page.md | wc", shell=True)\n'}),
    "a directory": ("docs/more/page.md", {A: 'for page in (ROOT / "docs").rglob("*.md"): pass\n'}),
    "a directory with a slash": ("docs/page.md", {A: 'name.startswith("docs/")\n'}),
    "a pattern": ("docs/more/page.md", {A: 'PAGES = ROOT.glob("docs/**/*.md")\n'}),
    "a package by its path": ("tfctl/one.py", {A: 'CODE = (ROOT / "tfctl").rglob("*.py")\n', "tfctl/__init__.py": ""}),
    "a file beside the test": ("tests/unit/data.yaml", {A: 'DATA = Path(__file__).with_name("data.yaml")\n'}),
    "a directory of tests/": ("tests/golden/case/job.yaml", {A: 'GOLDEN = Path(__file__).parents[1] / "golden"\n'}),
    "a file of tests/fakes": ("tests/fakes/fake_one.py", {A: 'run(FAKES / "fake_one.py")\n'}),
    "the end of a path": ("tfctl/node/bin/end", {A: 'PROGRAM = Path(node.__file__).parent / "bin/end"\n'}),
    "a script without a suffix": (
        "scripts/part.py",
        {A: 'run(ROOT / "scripts/tool")\n', "scripts/tool": "#!/usr/bin/env python3\nimport scripts.part\n"},
    ),
    "code that looks for modules itself": (
        "tfctl/one.py",
        {A: "import tfctl.finder\n", "tfctl/finder.py": "from importlib import import_module\n"},
    ),
    "code that looks for files itself": (
        "docs/page.md",
        {A: "import tfctl.finder\n", "tfctl/finder.py": "HERE = Path(__file__).parent\n"},
    ),
    "the test itself": (A, {A: ""}),
    "a test that is being written": (A, {A: "def test_a(:\n"}),
}  # fmt: skip


@pytest.mark.parametrize(("changed", "files"), DEPENDENCIES.values(), ids=DEPENDENCIES)
def test_a_change_selects_the_test_that_depends_on(tree: Path, changed: str, files: dict[str, str]) -> None:
    write(tree, {changed: "", **files, **ALONE})
    found = chosen(tree, [changed])
    assert (found.chosen, found.unknown) == ([A], [])
    assert found.omitted == [B, ANSIBLE_LINT]


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ("tests/ssh/test_b.py", 'VERBS = ["lab", "ssh"]\n'),
        ("tests/ssh/conftest.py", 'FOLDER = tmp_path / "ssh"\n'),
        ("tfctl/one.py", 'USER = "tfctl"\n'),
        ("tfctl/two.py", "import tfctl.one\n"),
        ("docs/page.md", 'KEYS = {"documents": None}\n'),
    ],
    ids=["a test", "a directory of tests", "a package", "another module", "another directory"],
)
def test_a_change_does_not_select_a_test_that_only_has_the_name_of(tree: Path, changed: str, text: str) -> None:
    write(tree, {"tfctl/__init__.py": "", "tfctl/one.py": "", **ALONE, changed: "", A: text})
    assert A not in chosen(tree, [changed], rules=[Rule(LINT, ("*",), "reads everything")]).chosen


def test_a_link_depends_on_its_target(tree: Path) -> None:
    write(
        tree,
        {
            "tfctl/one.py": "",
            "roles/x/tasks/main.yml": "",
            "playbooks/here": "",
            A: f"from {COLLECTION}.module_utils import linked\n",
            **ALONE,
        },
    )
    write(tree, {"tests/unit/test_c.py": 'ROLES = ROOT / "playbooks/roles"\n', "plugins/module_utils/here": ""})
    (tree / "plugins/module_utils/linked.py").symlink_to("../../tfctl/one.py")
    (tree / "playbooks/roles").symlink_to("../roles")
    assert chosen(tree, ["tfctl/one.py"]).chosen == [A]
    assert chosen(tree, ["roles/x/tasks/main.yml"]).chosen == ["tests/unit/test_c.py"]


def test_a_file_on_which_nothing_depends_selects_everything(tree: Path) -> None:
    write(tree, {"Makefile": "", "docs/page.md": "", A: 'ROOT / "docs"\n', **ALONE})
    found = chosen(tree, ["Makefile", "docs/page.md"])
    assert (found.chosen, found.unknown) == ([B, A, ANSIBLE_LINT], ["Makefile"])
    assert chosen(tree, ["Makefile"], rules=[Rule(LINT, ("Make*",), "")]).chosen == []


def test_parts_that_are_joined_name_one_path(tree: Path) -> None:
    write(tree, {"docs/a/page.md": "", "docs/b/page.md": "", A: 'ROOT / "docs" / "a"\n', **ALONE})
    assert chosen(tree, ["docs/a/page.md"]).chosen == [A]
    assert chosen(tree, ["docs/b/page.md"], rules=[Rule(LINT, ("docs/*",), "")]).chosen == []


def test_who_reads_a_file_does_not_depend_on_what_it_imports(tree: Path) -> None:
    write(tree, {A: "", "tfctl/one.py": "import tfctl.two\n", "tfctl/two.py": "", **ALONE})
    rules = [Rule(A, (), "checks its style", reads=("tfctl/one.py",)), Rule(LINT, ("tfctl/*",), "")]
    assert chosen(tree, ["tfctl/one.py"], rules=rules).chosen == [A]
    assert chosen(tree, ["tfctl/two.py"], rules=rules).chosen == []


def test_a_program_of_which_tests_only_read_the_text_is_not_known(tree: Path) -> None:
    write(tree, {"tests/unit/run_one.py": "", A: "", **ALONE})
    rules = [Rule(A, (), "checks the style of all tests", reads=("tests/*.py",))]
    assert chosen(tree, ["tests/unit/run_one.py"], rules=rules).unknown == ["tests/unit/run_one.py"]


def test_a_rule_adds_what_a_file_depends_on_and_removes_it_from_others(tree: Path) -> None:
    write(tree, {"roles/x/main.yml": "", "tfctl/run.py": "import_module", A: "import tfctl.run\n", **ALONE})
    write(tree, {"tests/unit/test_c.py": "import tfctl.run\n"})
    rules = [
        Rule("tfctl/run.py", ("roles/*",), "runs them"),
        Rule("tests/unit/test_c.py", (), "runs none", but=("roles/*",)),
    ]
    assert chosen(tree, ["roles/x/main.yml"], rules=rules).chosen == [A]
    assert chosen(tree, ["tfctl/run.py"], rules=rules).chosen == [A, "tests/unit/test_c.py"]


def test_a_deleted_module_selects_the_tests_that_still_import_it(tree: Path) -> None:
    write(tree, {A: "import tfctl.gone\n", **ALONE})
    assert chosen(tree, ["tfctl/gone.py"], renames=True).chosen == [A]


def test_deleted_python_that_nothing_imports_selects_nothing(tree: Path) -> None:
    write(tree, {A: "", **ALONE})
    assert chosen(tree, ["tests/unit/test_gone.py", "tfctl/gone.py"], renames=True).chosen == []


def test_a_new_or_deleted_file_selects_the_tests_that_ask_whether_files_exist(tree: Path) -> None:
    write(tree, {"docs/new.md": "", A: "", **ALONE})
    rules = [Rule(A, (), "checks links", reads=(NAMES,)), Rule(LINT, ("docs/*",), "")]
    assert chosen(tree, ["docs/new.md"], renames=True, rules=rules).chosen == [A]
    assert chosen(tree, ["docs/new.md"], renames=False, rules=rules).chosen == []


def test_the_report_names_what_has_changed_and_what_is_left_out(tree: Path) -> None:
    write(
        tree,
        {A: "import tfctl.one\n", "tfctl/one.py": "", "tests/unit/test_c.py": "", "tests/lab/test_d.py": "", **ALONE},
    )
    change = Change("0123456789abcdef", frozenset(["tfctl/one.py", "tests/lab/test_d.py"]), False)
    found = select(Graph(Repository(tree), rules=[Rule(LINT, ("tests/lab/*",), "")]), change)
    assert [*report(change, found)] == [
        "2 files have changed since 0123456789ab: tests/lab/test_d.py, tfctl/one.py",
        "left out, because nothing that they import, read or run has changed: files of tests/ssh 1 of 1, "
        "tests/unit 1 of 2; ansible-lint",
        "left out, because it needs a lab: scripts/test --lab tests/lab/test_d.py",
    ]


def test_the_report_names_the_file_because_of_which_everything_runs(tree: Path) -> None:
    write(tree, {"Makefile": "", **ALONE})
    change = Change("0123456789abcdef", frozenset(["Makefile"]), False)
    assert [*report(change, select(Graph(Repository(tree), rules=()), change))] == [
        "1 file has changed since 0123456789ab: Makefile",
        "everything runs, because it is not known what depends on Makefile",
    ]


def test_change_covers_committed_staged_unstaged_and_new_files_but_not_ignored_ones(tree: Path) -> None:
    names = ("kept", "committed", "staged", "edited", "gone", "moved")
    base = commit(tree, **{".gitignore": "ignored\n", **dict.fromkeys(names, "old")})
    git(tree, "checkout", "--quiet", "-b", "mine")
    commit(tree, committed="new")
    write(tree, {"staged": "new"})
    git(tree, "add", "staged")
    git(tree, "rm", "--quiet", "gone")
    git(tree, "mv", "moved", "to here")
    write(tree, {"edited": "new", "new/ä": "new", "ignored": "new"})
    changed = {"committed", "staged", "edited", "gone", "moved", "to here", "new/ä"}
    assert Repository(tree).change() == Change(base, frozenset(changed), renames=True)
    assert Repository(tree).change("HEAD").files == changed - {"committed"}


def test_change_compares_with_the_commit_at_which_the_branch_left_its_base(tree: Path) -> None:
    base = commit(tree, first="")
    git(tree, "checkout", "--quiet", "-b", "mine")
    commit(tree, mine="")
    git(tree, "checkout", "--quiet", "main")
    commit(tree, theirs="")
    git(tree, "checkout", "--quiet", "mine")
    found = Repository(tree).change()
    assert (found.base, found.files) == (base, frozenset(["mine"]))
    git(tree, "update-ref", "refs/remotes/origin/main", "mine")
    assert Repository(tree).change().files == set(), "origin/main comes before main"
    assert Repository(tree).change("main").files == {"mine"}


def test_change_without_renames_leaves_the_list_of_files_as_it_is(tree: Path) -> None:
    commit(tree, file="old")
    write(tree, {"file": "new"})
    assert not Repository(tree).change().renames


def test_change_names_the_bases_that_do_not_exist(tree: Path) -> None:
    git(tree, "checkout", "--quiet", "-b", "other")
    commit(tree, file="")
    with pytest.raises(GitError, match="HEAD shares with origin/main or main"):
        Repository(tree).change()
    with pytest.raises(GitError, match="HEAD shares with nothing"):
        Repository(tree).change("nothing")


def test_a_digest_changes_with_the_content_mode_or_existence_of_a_file_and_with_a_word(tree: Path) -> None:
    write(tree, {"one": "1", "two": "2"})
    repository = Repository(tree)
    digests = [repository.digest(["one", "two"]), repository.digest(["one"]), repository.digest(["one", "two"], "word")]
    write(tree, {"one": "12", "two": ""})
    digests.append(repository.digest(["one", "two"]))
    (tree / "two").chmod(0o755)
    digests.append(repository.digest(["one", "two"]))
    (tree / "two").unlink()
    digests.append(repository.digest(["one", "two"]))
    (tree / "two").symlink_to("one")
    digests.append(repository.digest(["one", "two"]))
    assert len({*digests}) == len(digests)
    write(tree, {"one": "1"})
    (tree / "two").unlink()
    write(tree, {"two": "2"})
    assert repository.digest(["two", "one"]) == digests[0]


@pytest.fixture(scope="module")
def real() -> Graph:
    return Graph(Repository(ROOT))


@pytest.fixture(scope="module")
def checked(real: Graph) -> dict[str, frozenset[str]]:
    """What each test and ansible-lint depend on."""
    return {check: real.inputs(check) for check in [*of_tests(real.files.paths), ANSIBLE_LINT]}


def test_each_file_of_the_tests_is_one_on_which_something_depends(real: Graph) -> None:
    change = Change("0" * 40, real.files.matching("tests/*"), renames=False)
    assert select(real, change).unknown == [], "a change of these runs everything"


def test_each_test_depends_on_something_that_is_not_of_the_tests(
    real: Graph, checked: Mapping[str, frozenset[str]]
) -> None:
    common = real.files.matching("tests/*", "pyproject.toml", "requirements/*", "ansible.cfg")
    assert [check for check, inputs in checked.items() if inputs <= common] == []


def test_rules_name_existing_files_only(real: Graph) -> None:
    names = {NAMES, LINT, ANSIBLE_LINT}
    patterns = {each for rule in RULES for each in (rule.who, *rule.uses, *rule.reads, *rule.but)} - names
    missing = [each for each in patterns if not any(fnmatchcase(path, each) for path in real.files.paths)]
    assert missing == []
    assert all(rule.why for rule in RULES)


@pytest.mark.parametrize(
    ("changed", "wanted", "spared"),
    [
        ("docs/gpu.md", "unit/test_docs.py unit/test_site.py", "cluster ssh unit/node"),
        ("docs/job-file.md", "unit/model/test_json_schema.py", "cluster ssh unit/node"),
        ("roles/nvidia_library/tasks/main.yml", "unit/provision/test_roles.py", "cluster unit/node"),
        ("plugins/modules/facts.py", "unit/provision/test_order.py", "cluster unit/node"),
        ("tfctl/node/states.py", "cluster/test_start.py unit/node/test_node_states.py", "unit/report"),
        ("tfctl/model/templates/task.service.j2", "unit/model/test_render.py cluster/test_start.py", "unit/report"),
        ("tfctl/model/strategies/horovod.py", "unit/test_docs.py unit/model/test_strategies.py", "unit/remote"),
        ("tfctl/cli/list.py", "cluster/test_many_jobs.py unit/test_cli.py", "ssh"),
        ("tests/fakes/fake_systemctl.py", "cluster/test_start.py", "unit/report"),
        ("tests/unit/node/nvidia_smi.yaml", "unit/node/test_node_gpus.py", "unit/report"),
    ],
)
def test_a_change_of_this_repository_selects(
    checked: Mapping[str, frozenset[str]], changed: str, wanted: str, spared: str
) -> None:
    found = {check.removeprefix("tests/") for check, inputs in checked.items() if changed in inputs}
    assert {*wanted.split()} - found == set()
    assert [each for each in found if each.startswith(tuple(f"{folder}/" for folder in spared.split()))] == []
    assert (ANSIBLE_LINT in found) == changed.startswith(("roles", "plugins"))


def test_how_tests_run_selects_every_test(checked: Mapping[str, frozenset[str]]) -> None:
    for path in ("pyproject.toml", "tests/conftest.py", "requirements/dev.txt", "scripts/test"):
        assert [check for check, inputs in checked.items() if path not in inputs and check != ANSIBLE_LINT] == [], path
