"""Decide where NVIDIA's packages come from: its repository or the distribution. Pure; its data: stacks/nvidia.yaml."""

from __future__ import annotations

MACHINES = {"x86_64": "x86_64", "aarch64": "sbsa"}  # as NVIDIA names them; sbsa: Arm servers


def distribution(case, what):
    """Return the entry for what the host's distribution offers, or None."""
    return case.sources["distributions"].get(case.seen["system"], {}).get(what)


def has_repository(case, remedy):
    """Return whether NVIDIA has a repository for this system; if not, add a fault."""
    if case.seen["system"] in case.sources["repositories"]:
        return True
    case.refuse(f"NVIDIA has no repository for {case.seen['title']} that tfctl knows", f"set {remedy}")
    return False


def source(case, found):
    """Return the package sources to set up: {"components", "repository", "drivers"}, or None.

    components: of Debian's own archive. repository: {"uri", "key_url", "fingerprint"} of NVIDIA's, or None. drivers:
    whether drivers are taken from it.
    """
    methods = {each["method"] for each in found.values() if each and each["packages"]}
    components = []
    if "distribution" in methods:
        components = case.sources["distributions"][case.seen["system"]]["components"]
    repository = repository_of(case) if "repo" in methods else None
    if not (components or repository):
        return None
    drivers = bool(found["driver"]) and found["driver"]["method"] == "repo"
    return {"components": components, "repository": repository, "drivers": drivers}


def repository_of(case):
    entry = case.sources["repositories"][case.seen["system"]]
    key = case.sources["keys"][entry["key"]]
    refuse_unverified(case, f"key {entry['key']} of NVIDIA's repository", key["fingerprint"], key)
    machine = case.seen["machine"]
    base = mirrored(case, f"{case.sources['mirror']}/{entry['path']}/{MACHINES.get(machine, machine)}")
    return {"uri": f"{base}/", "key_url": f"{base}/{entry['key']}.pub", "fingerprint": key["fingerprint"]}


def mirrored(case, url):
    """Return the URL, moved to the user's mirror of NVIDIA's download host if there is one."""
    own, mirror = case.sources["mirror"], case.wish["nvidia_mirror"].rstrip("/")
    return mirror + url[len(own) :] if mirror and url.startswith(f"{own}/") else url


def refuse_unverified(case, what, value, entry):
    """Add a fault for a value that nobody has compared with NVIDIA's own, unless the inventory allows it."""
    if not (entry["verified"] or yes(case.wish["allow_unverified"])):
        case.refuse(
            f"{what}: nobody has verified {value}, from {entry['source']}",
            "compare it with NVIDIA's own, then set tfctl_allow_unverified: true",
        )


def yes(value):
    """Parse a boolean, which is a string in INI inventories."""
    return str(value).strip().lower() in ("1", "true", "yes", "on")
