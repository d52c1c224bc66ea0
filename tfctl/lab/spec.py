"""The specification of a lab, and all names and addresses derived from it.

Names in the kernel (bridge, cable, cgroup, machine) contain six hex digits derived from the lab's name, because an
interface name has at most 15 characters. `down` can therefore find what a crash left even if the record is gone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tfctl.errors import UsageError

Progress = Callable[[str], None]

STATE = Path("/var/lib/tfctl-lab")
CACHE = Path("/var/cache/tfctl/lab")
SUITES = ("bullseye", "bookworm", "trixie")
DEFAULT_NAME = "lab"
DEFAULT_NODES = 4
DEFAULT_SUITE = "bookworm"
STACK = "tf2.15"
USER = "ops"
SHARED = "/srv/tfctl"
MAX_NODES = 200

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_FIRST_NODE = 11


@dataclass(frozen=True)
class LabSpec:
    """The arguments of `up`. None means as in the existing lab, else as in ``snapshot``, else the default.

    ``suites`` are assigned to the nodes in turn. ``inventory`` None: ``./inventory/<name>.ini``. Raises UsageError.
    """

    name: str = DEFAULT_NAME
    nodes: int | None = None
    suites: tuple[str, ...] | None = None
    snapshot: str | None = None
    inventory: Path | None = None

    def __post_init__(self) -> None:
        check_name("--name", self.name)
        if self.snapshot is not None:
            check_name("--from", self.snapshot)
        if self.nodes is not None and not 1 <= self.nodes <= MAX_NODES:
            raise UsageError(f"--nodes: {self.nodes} is out of range", f"Choose a number from 1 to {MAX_NODES}.")
        unknown = [suite for suite in self.suites or () if suite not in SUITES]
        if unknown:
            named = ", ".join(repr(suite) for suite in unknown)
            raise UsageError(
                f"--suite: {named} is not known", f"Choose from {', '.join(SUITES)}, or a list with commas."
            )
        if self.snapshot is not None and self.suites is not None:
            raise UsageError("--suite and --from: a snapshot has its own suites", "Remove --suite.")

    @property
    def inventory_path(self) -> Path:
        return (self.inventory or default_inventory(self.name)).absolute()

    def new_suites(self) -> tuple[str, ...]:
        """The suite of each node, in order, for a new lab."""
        suites = self.suites or (DEFAULT_SUITE,)
        return tuple(suites[index % len(suites)] for index in range(self.nodes or DEFAULT_NODES))


@dataclass(frozen=True)
class Lab:
    """A lab on this machine. ``octet`` is the third octet of its network, 10.77.<octet>.0/24."""

    name: str
    octet: int

    @property
    def folder(self) -> Path:
        return folder(self.name)

    @property
    def key(self) -> Path:
        return self.folder / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def shared(self) -> Path:
        return self.folder / "shared"

    @property
    def network(self) -> str:
        return f"10.77.{self.octet}.0/24"

    @property
    def gateway(self) -> str:
        return f"10.77.{self.octet}.1"

    @property
    def bridge(self) -> str:
        return bridge(self.name)


@dataclass(frozen=True)
class NodeDisk:
    """The read-only part of a node's disk: a base image, by its directory name in the cache, and ``layers`` on it,
    topmost first, by their directory names in STATE/layers."""

    suite: str
    image: str
    layers: tuple[str, ...] = ()


@dataclass(frozen=True)
class LabNode:
    """A machine of a lab. ``index`` counts from 1."""

    lab: Lab
    index: int
    disk: NodeDisk

    @property
    def name(self) -> str:
        return f"node{self.index}"

    @property
    def address(self) -> str:
        return f"10.77.{self.lab.octet}.{_FIRST_NODE + self.index - 1}"

    @property
    def machine(self) -> str:
        return f"{machine_prefix(self.lab.name)}{self.index}"

    @property
    def folder(self) -> Path:
        return self.lab.folder / "nodes" / self.name

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def upper(self) -> Path:
        return self.folder / "upper"

    @property
    def host_key(self) -> Path:
        return self.folder / "ssh_host_ed25519_key"

    @property
    def console(self) -> Path:
        """The log of the node's console, over all boots."""
        return self.folder / "console.log"


def parse_suites(text: str) -> tuple[str, ...]:
    """Split ``bookworm`` or ``bookworm,trixie``. LabSpec rejects unknown and empty names."""
    return tuple(word.strip() for word in text.split(","))


def check_name(place: str, name: str) -> None:
    """Raise UsageError if ``name`` is not valid for a lab or snapshot."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{place}: {name!r} is not a valid name", "Use up to 40 characters: a-z, 0-9 and, between them, dashes."
        )


def folder(lab: str) -> Path:
    return STATE / "labs" / lab


def layer(name: str) -> Path:
    return STATE / "layers" / name


def default_inventory(lab: str) -> Path:
    return Path("inventory") / f"{lab}.ini"


def bridge(lab: str) -> str:
    return f"tfctl-{_digits(lab)}"


def machine_prefix(lab: str) -> str:
    """Return the prefix of this lab's machine names. A number follows it."""
    return f"tl{_digits(lab)}n"


def is_machine(lab: str, name: str) -> bool:
    return re.fullmatch(rf"{machine_prefix(lab)}\d+", name) is not None


def cable(machine: str) -> str:
    """Return the name that systemd-nspawn gives to this machine's end of the node's network cable."""
    return f"vb-{machine}"


def rule_comment(lab: str) -> str:
    """Return the comment that marks this lab's iptables rules."""
    return f"tfctl-lab:{lab}"


def choose_octet(lab: str, taken: set[int]) -> int:
    """Return the lab's own octet, which depends only on its name, or the next free one. Raises UsageError if none is
    free."""
    first = int(hashlib.sha256(lab.encode()).hexdigest(), 16)
    for step in range(254):
        octet = (first + step) % 254 + 1
        if octet not in taken:
            return octet
    raise UsageError("10.77.0.0/16: no /24 is free for another lab", "Remove another lab: tfctl lab down --name NAME")


def _digits(lab: str) -> str:
    return hashlib.sha256(lab.encode()).hexdigest()[:6]
