"""Decide whether the file systems of a host have enough free space and inodes, and may hold programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tfctl.provision.decide.decision import ChosenStack
from tfctl.provision.decide.facts import Facts
from tfctl.provision.decide.fault import fault
from tfctl.provision.decide.wanted import Wanted
from tfctl.provision.faults import ModuleFault
from tfctl.wording import counted, listed

STACKS = "/opt/tfctl"
#: Where modules and builds keep their temporary files.
TEMPORARY = "/var/tmp"
#: Where hosts keep wheels.
WHEELS = "/var/cache/tfctl/wheels"
#: Where jobs have their code and their working directories.
JOBS = "/var/lib/tfctl/jobs"
#: Other directories that tfctl uses on every host, and the space (MB) that has to be free there.
SPARE_MB = {
    "/etc": 1,
    "/run": 10,  # units and environment files of jobs
    "/tmp": 10,  # Ansible unpacks its modules there
    "/usr/local/lib/tfctl": 10,
    JOBS: 200,
    "/var/log": 50,  # journald stores the output of jobs there
}
#: Space (MB) that has to be free in any other directory to which tfctl writes.
OTHER_MB = 10
#: Inodes that have to be free in each directory, and for a stack: TensorFlow with its requirements is 30,000 files.
SPARE_INODES = 100
STACK_INODES = 40_000


class Need(NamedTuple):
    """What has to be free in a directory. ``counted``: the part of ``mb`` that the space for a stack includes."""

    mb: int
    inodes: int = SPARE_INODES
    counted: int = 0


def directories(shared: tuple[str, ...], remote_tmp: str) -> tuple[str, ...]:
    """Return the directories whose file systems are looked at."""
    return tuple(dict.fromkeys((STACKS, TEMPORARY, WHEELS, *SPARE_MB, *shared, remote_tmp)))


def faults(facts: Facts, wanted: Wanted, stack: ChosenStack | None) -> Iterator[ModuleFault]:
    """Yield a fault for each file system with too little space or too few inodes, and for a stack on one with noexec.

    The needs of directories on the same file system are added up.
    """
    by_device: dict[int, dict[str, Need]] = {}
    for path, need in needs(wanted, stack).items():
        by_device.setdefault(facts.disks[path].device, {})[path] = need
    for asked in by_device.values():
        disk = facts.disks[next(iter(asked))]
        names = _names(facts, asked)
        megabytes = sum(need.mb - (need.counted if STACKS in asked else 0) for need in asked.values())
        if disk.free_mb < megabytes:
            remedy = "free some space there (df -h and du -xsh show where it is used)"
            if JOBS in asked:
                remedy += "; tfctl prune --older-than 14d deletes jobs that are over"
            yield fault(f"{disk.free_mb} MB are free for {names}, but {megabytes} MB are needed", remedy)
        inodes = sum(need.inodes for need in asked.values())
        if disk.free_inodes is not None and disk.free_inodes < inodes:
            remedy = "delete files there (df -i and du --inodes -xs show where they are)"
            yield fault(f"{disk.free_inodes} inodes are free for {names}, but {inodes} are needed", remedy)
    if stack and facts.disks[STACKS].noexec:
        at = facts.disks[STACKS].at
        yield fault(f"{at} is mounted noexec, but stacks contain programs", f"mount -o remount,exec {at}")


def needs(wanted: Wanted, stack: ChosenStack | None) -> dict[str, Need]:
    """Return what each directory needs."""
    new_mb = stack.disk_mb if stack and not stack.there else 0
    tree = stack.python.tree if stack else None
    wheels = new_mb // 5  # of the stacks that have been measured, the wheels are a seventh to a fifth
    found = {path: Need(OTHER_MB) for path in wanted.shared}
    found |= {path: Need(mb) for path, mb in SPARE_MB.items()}
    found |= dict.fromkeys((TEMPORARY, wanted.remote_tmp), Need(OTHER_MB))
    # Those that the control machine sends are there twice for a moment: as pieces, and put together.
    found[WHEELS] = Need(OTHER_MB + 2 * wheels, counted=2 * wheels)
    if new_mb or tree:
        found[STACKS] = Need(new_mb + (tree.megabytes if tree else 0), STACK_INODES)
    return found


def _names(facts: Facts, asked: dict[str, Need]) -> str:
    """Return the names of directories, those that need most space first."""
    paths = sorted(asked, key=lambda path: -asked[path].mb)
    # The directory of Ansible is below the home directory of the login user, which ~ is not for root.
    names = [facts.disks[path].at if path.startswith("~") else path for path in paths]
    rest = len(names) - 3
    return listed([*names[:3], counted(rest, "other directory", "other directories")] if rest > 1 else names)
