"""Choose a stack's Python.

The sources, in this order: a path named in the inventory, an interpreter on the host, the distribution, a tree of the
control machine, a CPython sent earlier, with the one in use first, and one that uv gets for the host. Of each source,
the first version that the stack accepts is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tfctl.model.stacks import Stack
from tfctl.provision import uv_pythons
from tfctl.provision.decide.decision import Python, Tree
from tfctl.provision.decide.facts import Facts
from tfctl.provision.decide.fault import Findings
from tfctl.provision.decide.wanted import Wanted
from tfctl.provision.python_tree import BY_HAND, PythonTree

#: CPythons sent from the control machine.
TREES = "/opt/tfctl/pythons"
#: The space that a CPython of uv takes, with its bytecode.
UV_MB = 250


def choose(facts: Facts, wanted: Wanted, stack: Stack, findings: Findings) -> Python | None:
    """Return the interpreter for the stack, or None with a fault."""
    for path, version in facts.python.given.items():
        if not version:
            message = f"tfctl_pythons: {path} does not exist, or cannot import ctypes, ssl and zlib"
            findings.refuse(message, "correct or remove it: without it, tfctl chooses a Python")
    found = _found(facts, wanted, stack, findings)
    if found is None:
        findings.refuse(_none(facts, wanted, stack), _remedy(wanted, stack))
    elif found.tree and found.tree.key:
        findings.notices.append(
            f"this host gets CPython {found.tree.release}, which uv downloads to the control machine"
        )
    return found


def needs_uv(facts: Facts, wanted: Wanted) -> bool:
    """Return whether a host with this stack has no Python but one that uv may have. ``wanted.builds`` do not matter."""
    stack = wanted.stacks.get(wanted.stack)
    return stack is not None and _found(facts, replace(wanted, builds=()), stack, Findings()) is None


def places(facts: Facts, wanted: Wanted, stack: Stack) -> dict[str, list[str]]:
    """Return the sources, in words, of every Python version that the stack accepts."""
    found = {}
    for version in stack.pythons:
        offers = (provider(facts, wanted, stack, version, Findings()) for provider in PROVIDERS)
        found[version] = list(dict.fromkeys(each.from_ for each in offers if each))
    return found


def _found(facts: Facts, wanted: Wanted, stack: Stack, findings: Findings) -> Python | None:
    offers = (provider(facts, wanted, stack, version, findings) for provider in PROVIDERS for version in stack.pythons)
    return next((each for each in offers if each), None)


def _none(facts: Facts, wanted: Wanted, stack: Stack) -> str:
    """Return the message of the fault that the stack's Python is nowhere."""
    there = {*facts.python.pythons, *_packaged(facts, wanted)}
    has = ", ".join(sorted(there, key=lambda version: int(version.partition(".")[2]))) or "none"
    return f"{stack.name} takes Python {', '.join(stack.pythons)}; {facts.title} has {has}, and uv has none of them" + (
        f": {wanted.no_builds}" if wanted.no_builds else ""
    )


def _remedy(wanted: Wanted, stack: Stack) -> str:
    """Return what can be done about it."""
    by_hand = [version for version in stack.pythons if version in BY_HAND]
    own = "name one that is on the host (tfctl_pythons in the inventory), or give this host another stack"
    if by_hand:
        return f"send one of this machine (--python-tree ~/.pyenv/versions/{by_hand[0]}.N), {own}"
    if wanted.no_builds:
        return f"make `uv python list` work on the control machine, {own}"
    return f"set tfctl_python_mirror to a list that has one, {own}"


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
    to_send = Tree(tree.name, tree.version, tree.megabytes, archive=tree.archive, sha256=tree.sha256)
    path = f"{TREES}/{tree.name}/bin/python{version}"
    there = tree.name in facts.python.trees
    return Python(version, path, "a tree of the control machine", tree=None if there else to_send)


def _in_use(facts: Facts, _wanted: Wanted, stack: Stack, version: str, _findings: Findings) -> Python | None:
    used = facts.python.in_use.get(stack.name)
    paths = (f"{TREES}/{tree}/bin/python{version}" for tree in facts.python.trees)
    return Python(version, used, "a CPython sent before") if used and used in paths else None


def _sent_before(facts: Facts, _wanted: Wanted, _stack: Stack, version: str, _findings: Findings) -> Python | None:
    tree = next((tree for tree, own in facts.python.trees.items() if own == version), None)
    return Python(version, f"{TREES}/{tree}/bin/python{version}", "a CPython sent before") if tree else None


def _of_uv(facts: Facts, wanted: Wanted, _stack: Stack, version: str, findings: Findings) -> Python | None:
    build = uv_pythons.choose(wanted.builds, version, facts.machine)
    if build is None:
        return None
    if build.flaw:
        findings.refuse(build.flaw, "add the hash of the archive to the entry", "inventory")
    path = f"{TREES}/{build.name}/bin/python{version}"
    return Python(version, path, f"uv, as {build.release}", tree=Tree(build.name, build.release, UV_MB, build.key))


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


PROVIDERS = (_given, _present, _offered, _sent_now, _in_use, _sent_before, _of_uv)
