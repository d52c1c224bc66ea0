"""Decide how a host gets CUDA, cuDNN and NCCL: as wheels, packages or an archive. Pure functions."""

from __future__ import annotations

from ansible.module_utils.tfctl_fault import INVENTORY
from ansible.module_utils.tfctl_gpu_cards import numbers
from ansible.module_utils.tfctl_gpu_source import distribution, has_repository, mirrored, refuse_unverified

METHODS = ("auto", "wheels", "repo", "distribution", "archive")
TITLES = {"cuda": "CUDA", "cudnn": "cuDNN", "nccl": "NCCL"}
PREFIX = "/opt/tfctl"


def libraries(case):
    """Return {"cuda", "cudnn", "nccl"}, with None for one that comes as wheels or has a fault.

    Else {"method", "version", "exact": whether a later one will not do, "packages", "archive": None or {"url",
    "sha256", "path", "kind": tar or runfile}, "folders": which the loader has to be told of, "home": for compilers,
    "soname": what programs ask the loader for}.
    """
    return {name: library(case, name) for name in TITLES}


def library(case, name):
    wanted, wish = case.stack["gpu"][name], case.wish[f"{name}_method"]
    if wish not in METHODS:
        case.refuse(f"tfctl_{name}_method is {wish!r}", f"give {', '.join(METHODS)}", INVENTORY)
        return None
    method = best(case, name, wanted) if wish == "auto" else wish
    return {"wheels": of_wheels, "repo": of_repo, "distribution": of_distribution, "archive": of_archive}[method](
        case, name, wanted
    )


def best(case, name, wanted):
    """Return the first method available of: wheels, NVIDIA's repository, the distribution, an archive."""
    offered = distribution(case, name)
    if case.stack["gpu"]["wheels"]:
        return "wheels"
    if in_repository(case):
        return "repo"
    return "distribution" if offered and serves(name, offered["version"], wanted) else "archive"


def of_wheels(case, name, _):
    if not case.stack["gpu"]["wheels"]:
        case.refuse(f"there are no wheels of {TITLES[name]} for {case.name}", f"set tfctl_{name}_method: auto")


def of_repo(case, name, wanted):
    if not has_repository(case, f"tfctl_{name}_method: archive"):
        return None
    cuda = case.stack["gpu"]["cuda"]
    if not in_repository(case):
        held = case.sources["repositories"][case.seen["system"]]["cuda"]
        case.refuse(
            f"NVIDIA's repository for {case.seen['title']} has CUDA {held['min']} to {held['max']}; {case.name} needs "
            f"{TITLES[name]} for CUDA {cuda}",
            f"set tfctl_{name}_method: archive",
        )
        return None
    home = f"/usr/local/cuda-{release(cuda)}" if name == "cuda" else "/usr"
    folders = [f"{home}/lib64", f"{home}/extras/CUPTI/lib64"] if name == "cuda" else []
    packages = repo_packages(name, wanted, cuda, case.seen["packager"])
    return made("repo", name, wanted, packages=packages, home=home, folders=folders)


def of_distribution(case, name, wanted):
    offered = distribution(case, name)
    if not offered or not serves(name, offered["version"], wanted):
        has = f"{TITLES[name]} {offered['version']}" if offered else f"no {TITLES[name]} that tfctl knows"
        case.refuse(f"{case.seen['title']} has {has}; {case.name} needs {wanted}", f"set tfctl_{name}_method: auto")
        return None
    return made("distribution", name, offered["version"], packages=offered["packages"], exact=False)


def of_archive(case, name, wanted):
    listed = case.sources["archives"].get(name, {}) if case.seen["machine"] == "x86_64" else {}
    fitting = sorted((key for key in listed if fits(name, key, wanted, case.stack["gpu"]["cuda"])), key=numbers)
    if not fitting:
        where = f"CUDA {case.stack['gpu']['cuda']} on {case.seen['machine']}"
        case.refuse(f"tfctl knows no archive of {TITLES[name]} {wanted} for {where}", f"set tfctl_{name}_method: auto")
        return None
    entry, version = listed[fitting[0]], fitting[0].partition("-cuda")[0]
    file = entry["url"].rpartition("/")[2]
    refuse_unverified(case, f"{TITLES[name]} archive {file}", f"sha256 {entry['sha256']}", entry)
    home = f"{PREFIX}/{name}/{version}"
    archive = {"url": mirrored(case, entry["url"]), "sha256": entry["sha256"], "path": home, "kind": entry["kind"]}
    folders = [f"{home}/lib"] + ([f"{home}/extras/CUPTI/lib64"] if name == "cuda" else [])
    return made("archive", name, version, archive=archive, home=home, folders=folders)


def made(method, name, version, packages=(), archive=None, home="/usr", folders=(), exact=True):
    found = {"method": method, "version": version, "exact": exact, "packages": list(packages), "archive": archive}
    return {**found, "folders": list(folders), "home": home, "soname": soname(name, version)}


def soname(name, version):
    parts = numbers(version)
    if name != "cuda":
        return f"lib{name}.so.{parts[0]}"
    if parts[0] == 11:
        return "libcudart.so.11.0"
    return f"libcudart.so.{parts[0] if parts[0] > 11 else release(version)}"


def serves(name, have, wanted):
    """Return whether version ``have`` can replace ``wanted``. CUDA before 11 has no minor-version compatibility."""
    mine, asked = numbers(have), numbers(wanted)
    if name == "cuda" and asked[0] < 11:
        return mine[:2] == asked[:2]
    depth = 2 if name == "cuda" else 3
    return mine[0] == asked[0] and mine[:depth] >= asked[:depth]


def in_repository(case):
    held = case.sources["repositories"].get(case.seen["system"])
    return bool(held) and numbers(held["cuda"]["min"]) <= numbers(case.stack["gpu"]["cuda"]) <= numbers(
        held["cuda"]["max"]
    )


def repo_packages(name, wanted, cuda, packager):
    """Return NAME=VERSION of library and headers, always in the same version. VERSION may contain a shell's *."""
    major, dnf = numbers(cuda)[0], packager == "dnf"
    dev = "devel" if dnf else "dev"
    if name == "cuda":
        return [f"cuda-toolkit-{release(cuda).replace('.', '-')}={wanted}.*"]
    if name == "nccl":
        return [f"{each}={wanted}-1+cuda{major}*" for each in ("libnccl" if dnf else "libnccl2", f"libnccl-{dev}")]
    ninth = numbers(wanted)[0] >= 9
    base, end = f"libcudnn{numbers(wanted)[0]}", f"-cuda-{major}" if ninth else ""
    exact = f"{wanted}-*" if ninth else f"{wanted}-1{'.' if dnf else '+'}cuda{major}*"
    return [f"{base}{end}={exact}", f"{base}-{dev}{end}={exact}"]


def fits(name, key, wanted, cuda):
    version, _, made_for = key.partition("-cuda")
    if name == "cuda":
        return numbers(version)[:2] == numbers(wanted)[:2]
    return serves(name, version, wanted) and numbers(made_for) == numbers(cuda)[: len(numbers(made_for))]


def release(version):
    return ".".join(map(str, numbers(version)[:2]))
