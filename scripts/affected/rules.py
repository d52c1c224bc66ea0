"""What files depend on although no import and no path in a string shows it, and what they do not depend on."""

from __future__ import annotations

from dataclasses import dataclass

#: Stands for the list of all files: who depends on it asks whether files exist.
NAMES = "the list of all files"
#: Checks that are no files: the lint of the Ansible code, and all other lint.
ANSIBLE_LINT, LINT = "ansible-lint", "lint"
#: What tfctl passes to Ansible.
ANSIBLE = ("playbooks/*", "roles/*", "ansible.cfg")


@dataclass(frozen=True)
class Rule:
    """The files that match ``who`` depend on those that match ``uses``, for the reason ``why``.

    ``but``: what they do not depend on, although something does on which they depend. Except the names above, all are
    patterns of fnmatch, whose `*` also matches a slash.
    """

    who: str
    uses: tuple[str, ...]
    why: str
    but: tuple[str, ...] = ()


RULES = (
    Rule("tests/*", ("pyproject.toml", "requirements/*.txt", "scripts/test", "scripts/lib.sh"), "how each test runs"),
    # Lint
    Rule(ANSIBLE_LINT, (*ANSIBLE, "inventory/example.ini", "*.yml"), "the files that it checks"),
    Rule(ANSIBLE_LINT, (".*", "pyproject.toml"), "its configuration"),
    Rule(LINT, ("tests/lab/*", "tests/typing/*", ".ci/run"), "no test of scripts/test runs them"),
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
    Rule("tfctl/node/__main__.py", ("tfctl/node/*",), "imports verbs by name, and what runs is in bin/"),
    Rule("tfctl/node/bin/*", ("tfctl/node/*",), "run its modules"),
    Rule("tfctl/node/checks.py", ("tfctl/node/10-tfctl.conf",), "compares it with the installed one"),
    Rule("tfctl/node/guards.py", ("tfctl/node/10-tfctl.conf",), "takes settings from it"),
    Rule("tfctl/node/system.py", (), "needs only the name of its package"),
    Rule("tfctl/provision/ansible.py", ANSIBLE, "runs playbooks"),
    Rule("tfctl/provision/due.py", ANSIBLE, "digests the code of roles"),
    Rule("tfctl/provision/node_part.py", ("tfctl/node/*",), "packs the node part"),
    Rule("tfctl/verify/run.py", ("tfctl/verify/on_nodes/*",), "sends the proofs to hosts"),
    Rule("tfctl/verify/on_nodes/main.py", ("tfctl/verify/on_nodes/*",), "runs the proof that it is given"),
    Rule("playbooks/*", ANSIBLE, "tasks have the names of roles, modules and files"),
    Rule("roles/*", ANSIBLE, "tasks have the names of roles, modules and files"),
    # Tests
    Rule("tests/unit/test_changed.py", ("tests/*", NAMES), "chooses from the files of the repository"),
    Rule("tests/unit/test_docs.py", ("*.md", NAMES), "checks the links of all pages"),
    Rule("tests/unit/test_doc_blocks.py", ("tests/*.py",), "looks for the tests that the pages name"),
    Rule("tests/unit/test_proofs.py", ("tfctl/verify/on_nodes/*",), "runs the proofs"),
    Rule("tests/unit/test_site.py", (NAMES,), "checks the links of the site"),
    Rule(
        "tests/unit/test_wheel.py",
        ("tfctl/*", "tfctl_runtime/*", *ANSIBLE, "examples/*", "README.md", "LICENSE", ".gitignore", NAMES),
        "builds the wheel, and checks the links of its description",
    ),
)
