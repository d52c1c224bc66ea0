"""What files depend on although no import and no path in a string shows it, and what they do not depend on."""

from __future__ import annotations

from typing import NamedTuple

#: Stands for the list of all files: who depends on it asks whether files exist.
NAMES = "the list of all files"
#: Checks that are no files: the lint of the Ansible code, and all other lint.
ANSIBLE_LINT, LINT = "ansible-lint", "lint"
#: What tfctl passes to Ansible.
ANSIBLE = ("galaxy.yml", "meta/*", "playbooks/*", "plugins/*", "roles/*", "ansible.cfg")
#: What the commands that act on jobs do not use.
NO_JOBS = (*ANSIBLE, "tfctl/provision/decide/*", "tfctl/lab/*", "examples/*", "docs/*")
#: Code whose strings are no paths of this repository, but of hosts, of users or of invented repositories.
NO_PATHS = (
    "tfctl/*", "tfctl_runtime/*", "playbooks/*", "plugins/*", "roles/*", "examples/*", "tests/lab/programs/*",
    "scripts/affected/*", "tests/unit/test_changed.py", "tests/unit/test_script_test.py",
)  # fmt: skip


class Rule(NamedTuple):
    """The files that match ``who`` depend, for the reason ``why``, on those that match ``uses`` and on all on which
    these depend. Of those that match ``reads``, they depend on the text alone.

    ``but``: what they do not depend on, although something does on which they depend. Except the names above, all are
    patterns of fnmatch, whose `*` also matches a slash.
    """

    who: str
    uses: tuple[str, ...]
    why: str
    reads: tuple[str, ...] = ()
    but: tuple[str, ...] = ()


RULES = (
    Rule("tests/*", ("pyproject.toml", "requirements/*.txt", "scripts/test", "scripts/lib.sh"), "set how they run"),
    Rule("tests/*", ("ansible.cfg",), "Ansible reads it in the directory in which tests run"),
    # Lint
    Rule(ANSIBLE_LINT, (*ANSIBLE, "inventory/example.ini", "*.yml"), "the files that it checks"),
    Rule(
        ANSIBLE_LINT,
        (".*", "pyproject.toml"),
        "its configuration. Of the plugins that need more modules, it runs none",
        but=("tfctl/model/*", "tfctl/provision/node_part.py", "tfctl_runtime/*"),
    ),
    Rule(LINT, ("tests/browser/*", "tests/lab/*", "tests/typing/*", ".ci/run"), "no test of scripts/test runs them"),
    Rule(LINT, ("scripts/collection", "tests/sanity/*"), "likewise"),
    Rule(LINT, ("scripts/demo", "scripts/lock*", "scripts/record-packages", "scripts/bench-training/*"), "likewise"),
    # Code that finds modules and files by itself
    Rule("tfctl/cli/main.py", ("tfctl/cli/*.py",), "COMMANDS has the names of modules"),
    Rule("tfctl/cli/candidates.py", ("tfctl/cli/*.py", "tfctl/model/stacks/*"), "lists stacks, runs `tfctl list`"),
    Rule("tfctl/model/json_schema.py", ("docs/job-file.md",), "takes descriptions from the page"),
    Rule("tfctl/model/plan.py", ("tfctl/node/10-tfctl.conf",), "compares it with that of hosts"),
    Rule("tfctl/model/stacks/__init__.py", ("tfctl/model/stacks/*",), "reads the stacks and their lock files"),
    Rule("tfctl/model/strategies/__init__.py", ("tfctl/model/strategies/*",), "imports them by name"),
    Rule("tfctl/model/unit.py", ("tfctl/model/templates/*",), "reads the template"),
    Rule("tfctl/jobs/new_job.py", ("examples/*",), "copies an example"),
    Rule("tfctl/local/child.py", (), "runs a module that it imports"),
    Rule("tfctl/local/environment.py", ("tfctl_runtime/*",), "adds it to PYTHONPATH"),
    Rule("tfctl/local/environments.py", (), "runs programs that it installs"),
    Rule("tfctl/local/horovod.py", ("roles/horovod/*",), "runs the build script of the role"),
    Rule("tfctl/node/__main__.py", ("tfctl/node/*",), "imports verbs by name, and what runs is in bin/"),
    Rule("tfctl/node/bin/*", ("tfctl/node/*",), "run its modules"),
    Rule("tfctl/node/checks.py", ("tfctl/node/10-tfctl.conf",), "compares it with the installed one"),
    Rule("tfctl/node/guards.py", ("tfctl/node/10-tfctl.conf",), "takes settings from it"),
    Rule("tfctl/node/unitfile.py", ("tfctl/node/10-tfctl.conf",), "compares each unit with it"),
    Rule("tfctl/node/system.py", (), "needs only the name of its package"),
    Rule("tfctl/provision/ansible.py", ANSIBLE, "runs playbooks"),
    Rule("tfctl/provision/due.py", ANSIBLE, "digests the code of roles"),
    Rule("tfctl/provision/node_part.py", ("tfctl/node/*", "tfctl_runtime/*"), "packs them for hosts"),
    Rule("tfctl/ui/app.py", ("tfctl/ui/static/*",), "serves them"),
    Rule("tfctl/verify/run.py", ("tfctl/verify/on_nodes/*",), "sends the proofs to hosts"),
    Rule("tfctl/verify/on_nodes/main.py", ("tfctl/verify/on_nodes/*",), "runs the proof that it is given"),
    Rule("playbooks/*.yml", ANSIBLE, "contain the names of roles, plugins and files"),
    Rule("roles/*.yml", ANSIBLE, "contain the names of roles, plugins and files"),
    Rule("plugins/action/*", ("plugins/modules/*",), "run modules by name"),
    # Tests
    Rule("tests/cluster/*", (), "their commands act on jobs", but=NO_JOBS),
    Rule("tests/ssh/*", (), "no command runs", but=(*NO_JOBS, "tfctl/cli/*")),
    Rule("tests/unit/local/*", (), "their commands act on jobs", but=NO_JOBS),
    Rule("tests/unit/node/*", (), "their fork server has the modules of the node part", but=(*NO_JOBS, "tfctl/cli/*")),
    Rule("tests/unit/provision/test_roles.py", ("tests/lab/*.py",), "imports the tests of each role"),
    Rule("tests/unit/test_changed.py", (), "chooses from the files of the repository", reads=("tests/*.py", NAMES)),
    Rule("tests/unit/test_docs.py", (), "checks the links of all pages", reads=("*.md", NAMES)),
    Rule("tests/unit/test_doc_blocks.py", (), "looks for the tests that pages name", reads=("tests/*.py",)),
    Rule("tests/unit/test_proofs.py", ("tfctl/verify/on_nodes/*",), "runs the proofs"),
    Rule("tests/unit/test_script_test.py", (), "copies them", reads=("scripts/affected/*",)),
    Rule("tests/unit/test_site.py", (), "checks the links of the site", reads=(NAMES,)),
    Rule("tests/unit/test_wheel.py", ("tfctl/*", "tfctl_runtime/*", *ANSIBLE, "examples/*"), "builds the wheel"),
    Rule(
        "tests/unit/test_wheel.py",
        (),
        "what the build reads, and links in the description",
        reads=("README.md", "LICENSE", ".gitignore", NAMES),
    ),
)
