"""Choose a stack's Python. `look` gathers what a host has; `choose` is a pure function.

The sources, in this order: a path named in the inventory, an interpreter on the host, the distribution, a tree of the
control machine, a tree sent earlier, with the one in use first. Of each, the first that the stack accepts is taken.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import subprocess
from pathlib import Path

from ansible.module_utils.tfctl_fault import fault
from ansible.module_utils.tfctl_links import TREES

STACKS = "/opt/tfctl/stacks"
MARKER = "tfctl-tree.json"
ASK = "import ctypes, ssl, sys, zlib; print('%d.%d' % sys.version_info[:2])"
FOLDERS = ("/usr/bin", "/usr/local/bin")


def look(given, needs):
    """Gather the facts. ``given``: interpreters named in the inventory; ``needs``: libraries that any tree requires.

    {"pythons": {version: path}, "given": {path: version or ""}, "trees": {name: version}, "in_use": {stack: path},
    "libc": [major, minor], "lacking": those of ``needs`` that are not here}
    """
    trees = {path.parent.name: path.parent for path in Path(TREES).glob(f"cpython-*/{MARKER}")}
    return {
        "pythons": of_system(),
        "given": {path: asked(path) for path in given},
        "trees": {name: version for name, path in sorted(trees.items()) if (version := whole(path))},
        "in_use": {
            link.name: os.path.realpath(link / "bin/python") for link in Path(STACKS).glob("*") if link.is_symlink()
        },
        "libc": libc(),
        "lacking": sorted(set(needs) - loadable()) if needs else [],
    }


def of_system():
    """Return {version: path} of the interpreters in /usr/bin and /usr/local/bin, preferring the distribution's."""
    found = {}
    for folder in FOLDERS:
        for path in sorted(Path(folder).glob("python3.*")):
            version = path.name.removeprefix("python")
            if re.fullmatch(r"3\.\d+", version) and os.access(path, os.X_OK):
                found.setdefault(version, str(path))
    return found


def asked(path):
    """Return the version that the interpreter reports, or "" if it is missing or lacks modules for TensorFlow."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        words = [path, "-I", "-c", ASK]
        return subprocess.run(words, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    return ""


def whole(tree):
    """Return the version of a tree whose files are all unchanged since it was unpacked, else ""."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        marker = json.loads((tree / MARKER).read_text(encoding="utf-8"))
        return marker["python"] if marker["files"] == listed(tree) else ""
    return ""


def listed(tree, marker=MARKER):
    """Return a digest of the names and sizes of a tree's files."""
    digest = hashlib.sha256()
    for folder, folders, files in os.walk(tree):
        folders[:] = sorted(set(folders) - {"__pycache__"})
        for name in sorted(set(files) - {marker}):
            path = f"{folder}/{name}"
            digest.update(f"{os.path.relpath(path, tree)}\0{os.lstat(path).st_size}\0".encode())
    return digest.hexdigest()


def libc():
    """Return [major, minor] of the GNU C library, or [0, 0] for another library."""
    with contextlib.suppress(OSError, ValueError):
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        return [int(part) for part in version.split(".")[:2]] if name == "glibc" else [0, 0]
    return [0, 0]


def loadable():
    """Return the names of the libraries that ld.so finds."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, timeout=30, check=True).stdout
        return {line.split()[0] for line in said.splitlines()[1:] if line.strip()}
    return set()


def choose(seen, wanted, name, faults):
    """Return {"version", "path", "packages", "from", "tree": what to send or None}, or None with a fault.

    ``seen`` is tfctl_facts.gather, with ``look`` as its "python"; ``wanted`` has "pythons" and "trees", which the
    inventory names, beside what tfctl_judge says.
    """
    stack, python = wanted["stacks"][name], seen["python"]
    for path, version in python["given"].items():
        if not version:
            message = f"tfctl_pythons: {path} is not there, or does not run with ctypes, ssl and zlib"
            refuse(faults, message, "correct it, or take it out: --python-tree sends a Python of this machine")
    for provider in PROVIDERS:
        for version in stack["pythons"]:
            found = provider(seen, wanted, name, version, faults)
            if found:
                return {"version": version, "packages": [], "tree": None, **found}
    there = sorted({*python["pythons"], *_distribution(seen, wanted)}, key=lambda text: int(text.partition(".")[2]))
    refuse(
        faults,
        f"{name} takes Python {', '.join(stack['pythons'])}; {seen['title']} has {', '.join(there) or 'none'}",
        f"send one of this machine (--python-tree ~/.pyenv/versions/{stack['pythons'][0]}.N), name one that is on the "
        "host (tfctl_pythons in the inventory), or give this host another stack",
    )
    return None


def places(seen, wanted, name):
    """Return {version: [its sources]} of every Python that the stack accepts, in words."""
    found = {}
    for version in wanted["stacks"][name]["pythons"]:
        had = (provider(seen, wanted, name, version, []) for provider in PROVIDERS)
        found[version] = list(dict.fromkeys(each["from"] for each in had if each))
    return found


def _given(seen, _wanted, _name, version, _faults):
    path = next((path for path, said in seen["python"]["given"].items() if said == version), None)
    return {"path": path, "from": "tfctl_pythons of the inventory"} if path else None


def _present(seen, _wanted, _name, version, _faults):
    path = seen["python"]["pythons"].get(version)
    return {"path": path, "from": "this host"} if path else None


def _offered(seen, wanted, _name, version, _faults):
    packages = _distribution(seen, wanted).get(version)
    found = {"path": f"/usr/bin/python{version}", "packages": packages, "from": "the distribution"}
    return found if packages else None


def _sent_now(seen, wanted, _name, version, faults):
    trees = [tree for tree in wanted["trees"] if tree["python"] == version]
    if not trees:
        return None
    tree = next((each for each in trees if each["machine"] == seen["machine"]), trees[0])
    for message, remedy in _unfit(seen, tree):
        refuse(faults, message, remedy)
    to_send = {key: tree[key] for key in ("name", "python", "archive", "sha256", "megabytes")}
    return {
        "path": f"{TREES}/{tree['name']}/bin/python{version}",
        "from": "a tree of the control machine",
        "tree": None if tree["name"] in seen["python"]["trees"] else to_send,
    }


def _unfit(seen, tree):
    """Yield (message, remedy) for each reason why a tree cannot run here."""
    what = f"Python {tree['version']} of the control machine"
    if tree["machine"] != seen["machine"]:
        yield (
            f"{what} is built for {tree['machine']}; this is {seen['machine']}",
            "name one on the host (tfctl_pythons)",
        )
        return
    if tree["glibc"] > seen["python"]["libc"]:
        asks, has = (".".join(map(str, each)) for each in (tree["glibc"], seen["python"]["libc"]))
        yield (
            f"{what} asks for the C library {asks}; {seen['title']} has {has}",
            "build it on the oldest system that it shall run on, or name one on the host (tfctl_pythons)",
        )
    lacking = sorted(set(tree["needs"]) & set(seen["python"]["lacking"]))
    if lacking:
        yield f"{what} asks for {', '.join(lacking)}, not on this host", "install the packages that bring them there"


def _in_use(seen, _wanted, name, version, _faults):
    used = seen["python"]["in_use"].get(name)
    paths = (f"{TREES}/{tree}/bin/python{version}" for tree in seen["python"]["trees"])
    return {"path": used, "from": "a tree sent before"} if used in paths else None


def _sent_before(seen, _wanted, _name, version, _faults):
    tree = next((tree for tree, said in seen["python"]["trees"].items() if said == version), None)
    return {"path": f"{TREES}/{tree}/bin/python{version}", "from": "a tree sent before"} if tree else None


def _distribution(seen, wanted):
    return wanted["systems"].get(seen["system"], {"pythons": {}})["pythons"]


PROVIDERS = (_given, _present, _offered, _sent_now, _in_use, _sent_before)


def refuse(faults, message, remedy):
    faults.append(fault(message, remedy))
