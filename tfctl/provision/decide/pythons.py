"""Choose a stack's Python.

The sources, in this order: a path named in the inventory, an interpreter on the host, the distribution, a tree of the
control machine, a tree sent earlier, with the one in use first. Of each, the first that the stack accepts is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tfctl.model.stacks import Stack
from tfctl.provision.decide.decision import Python, Tree
from tfctl.provision.decide.facts import Facts
from tfctl.provision.decide.fault import Findings
from tfctl.provision.decide.wanted import Wanted
from tfctl.provision.python_tree import PythonTree

#: CPython trees sent from the control machine.
TREES = "/opt/tfctl/pythons"


def choose(facts: Facts, wanted: Wanted, stack: Stack, findings: Findings) -> Python | None:
    """Return the interpreter for the stack, or None with a fault."""
    for path, version in facts.python.given.items():
        if not version:
            message = f"tfctl_pythons: {path} does not exist, or cannot import ctypes, ssl and zlib"
            findings.refuse(message, "correct or remove it: --python-tree sends a Python of this machine")
    for provider in PROVIDERS:
        for version in stack.pythons:
            found = provider(facts, wanted, stack, version, findings)
            if found:
                return found
    there = {*facts.python.pythons, *_packaged(facts, wanted)}
    has = ", ".join(sorted(there, key=lambda version: int(version.partition(".")[2]))) or "none"
    findings.refuse(
        f"{stack.name} takes Python {', '.join(stack.pythons)}; {facts.title} has {has}",
        f"send one of this machine (--python-tree ~/.pyenv/versions/{stack.pythons[0]}.N), name one that is on the "
        "host (tfctl_pythons in the inventory), or give this host another stack",
    )
    return None


def places(facts: Facts, wanted: Wanted, stack: Stack) -> dict[str, list[str]]:
    """Return the sources, in words, of every Python version that the stack accepts."""
    found = {}
    for version in stack.pythons:
        offers = (provider(facts, wanted, stack, version, Findings()) for provider in PROVIDERS)
        found[version] = list(dict.fromkeys(each.from_ for each in offers if each))
    return found


def _given(facts: Facts, _wanted: Wanted, _stack: Stack, version: str, _findings: Findings) -> Python | None:
    path = next((path for path, own in facts.python.given.items() if own == version), None)
    return Python(version, path, "tfctl_pythons of the inventory") if path else None


def _present(facts: Facts, _wanted: Wanted, _stack: Stack, version: str, _findings: Findings) -> Python | None:
    path = facts.python.pythons.get(version)
    return Python(version, path, "this host") if path else None


def _offered(facts: Facts, wanted: Wanted, _stack: Stack, version: str, _findings: Findings) -> Python | None:
    packages = _packaged(facts, wanted).get(version)
    return Python(version, f"/usr/bin/python{version}", "the distribution", packages) if packages else None


def _sent_now(facts: Facts, wanted: Wanted, _stack: Stack, version: str, findings: Findings) -> Python | None:
    trees = [tree for tree in wanted.trees if tree.python == version]
    if not trees:
        return None
    tree = next((each for each in trees if each.machine == facts.machine), trees[0])
    for message, remedy in _unfit(facts, tree):
        findings.refuse(message, remedy)
    to_send = Tree(tree.name, tree.python, tree.archive, tree.sha256, tree.megabytes)
    path = f"{TREES}/{tree.name}/bin/python{version}"
    there = tree.name in facts.python.trees
    return Python(version, path, "a tree of the control machine", tree=None if there else to_send)


def _in_use(facts: Facts, _wanted: Wanted, stack: Stack, version: str, _findings: Findings) -> Python | None:
    used = facts.python.in_use.get(stack.name)
    paths = (f"{TREES}/{tree}/bin/python{version}" for tree in facts.python.trees)
    return Python(version, used, "a tree sent before") if used and used in paths else None


def _sent_before(facts: Facts, _wanted: Wanted, _stack: Stack, version: str, _findings: Findings) -> Python | None:
    tree = next((tree for tree, own in facts.python.trees.items() if own == version), None)
    return Python(version, f"{TREES}/{tree}/bin/python{version}", "a tree sent before") if tree else None


def _unfit(facts: Facts, tree: PythonTree) -> Iterator[tuple[str, str]]:
    """Yield (message, remedy) for each reason why a tree cannot run here."""
    what = f"Python {tree.version} of the control machine"
    if tree.machine != facts.machine:
        message = f"{what} is built for {tree.machine}; this is {facts.machine}"
        yield message, "name one on the host (tfctl_pythons)"
        return
    if tree.glibc > facts.python.libc:
        asks, has = (".".join(map(str, each)) for each in (tree.glibc, facts.python.libc))
        yield (
            f"{what} needs the C library {asks}; {facts.title} has {has}",
            "build it on the oldest system on which it must run, or name one on the host (tfctl_pythons)",
        )
    lacking = sorted(set(tree.needs) & set(facts.python.lacking))
    if lacking:
        yield f"{what} needs {', '.join(lacking)}, which this host lacks", "install the packages that contain them"


def _packaged(facts: Facts, wanted: Wanted) -> Mapping[str, tuple[str, ...]]:
    """Return the distribution's packages by the Python version that they provide."""
    system = wanted.systems.get(facts.system)
    return system.pythons if system else {}


PROVIDERS = (_given, _present, _offered, _sent_now, _in_use, _sent_before)
