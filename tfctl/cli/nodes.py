"""tfctl nodes: show every host, one line each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli import text
from tfctl.cli.common import InventoryOption, TableFormat, TableOption, say, say_error
from tfctl.cli.tables import Column, Table
from tfctl.cli.which import open_fleet
from tfctl.errors import first_of
from tfctl.node.names import REQUIREMENTS
from tfctl.wording import Lines, abbreviated, consecutive, counted, plain, with_remedy

if TYPE_CHECKING:
    from tfctl.cli.objects import NodesObject
    from tfctl.jobs.nodes import NodeState
    from tfctl.node import wire

#: Changes on a host that are listed. -o json lists all.
_DRIFTS = 5
#: How many characters the names of a host's jobs may have together.
_NAMES = 30


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Examples: tfctl nodes    tfctl nodes -o wide")(nodes)


def nodes(
    job: Annotated[
        str | None,
        typer.Option("--job", "-j", show_default=False, help="Only hosts of this job: its name or file."),
    ] = None,
    inventory: InventoryOption = None,
    output: TableOption = TableFormat.text,
) -> int:
    """Show the state of each host, and which jobs use it.

    TROUBLE says in a word what needs attention. Messages below the tables explain it.

    Exit code: 0 all are ready, 4 one cannot be reached, 8 one answers but is not fit for jobs.
    """
    from tfctl.jobs.nodes import nodes as ask
    from tfctl.model.gpus import RESTART, missing_gpus
    from tfctl.provision.node_part import version

    with open_fleet(None, job, inventory, keep=False) as (fleet, name):
        states = ask(fleet, version(), name)
    if output is TableFormat.json:
        found: NodesObject = {"nodes": [state.json() for state in states]}
        text.print_json(found)
    else:
        text.show(table(states, output is TableFormat.wide))
    if name and not any(state.node for state in states):
        say(f"no host that answers runs tasks of {name}")
    others = [state.host.name for state in states if state.current is False]
    if others:
        what = f"{abbreviated(others)}: the node part's version differs from this tfctl's"
        say(with_remedy(what, "tfctl provision INVENTORY --tags job_host"))
    for state in states:
        if state.node and (missing := missing_gpus(state.host, state.node.gpu_cards, state.node.missing_gpus)):
            say(with_remedy(missing, RESTART))
        for card in state.node.cards if state.node else ():
            for notice in card.notices:
                say(f"{state.host.name}: GPU {card.uuid}: {notice}")
        if state.node and state.node.drifts:
            say(drift_message(state.host.name, state.node.drifts))
    for warning in shared_addresses(states):
        say(warning)
    errors = [state.error for state in states if state.error is not None]
    for error in errors:
        say_error(error)
    return first_of(error.exit for error in errors)


def drift_message(host: str, drifts: Sequence[str]) -> str:
    """Return what has changed on a host since it was provisioned, with the remedy.

    The role requirements repairs packages of requirements files only when it gets these files.
    """
    more = [f"and {counted(len(drifts) - _DRIFTS, 'other change')}"] if len(drifts) > _DRIFTS else []
    lines = f"{host}: " + Lines(*drifts[:_DRIFTS], *more)
    files = " --requirements FILE" if any(line.startswith(f"{REQUIREMENTS}/") for line in drifts) else ""
    return with_remedy(lines, f"tfctl provision INVENTORY --limit {host}{files}")


def shared_addresses(states: Sequence[NodeState]) -> list[str]:
    """Return a warning, with its remedy, for each machine and each address that several of the hosts have."""
    from tfctl.model.addresses import SAME_ADDRESS, SAME_MACHINE, same_address, same_machine

    hosts = [state.host for state in states]
    machines = {state.host.name: state.node.machine or "" for state in states if state.node}
    if found := [*same_machine(hosts, machines)]:
        return [with_remedy(sentence, SAME_MACHINE) for sentence in found]
    addresses = {host.name: host.address or host.name for host in hosts}
    ports = {host.name: host.ports for host in hosts}
    return [with_remedy(sentence, SAME_ADDRESS) for sentence in same_address(addresses, ports)]


def table(states: list[NodeState], wide: bool = False) -> text.Rendered:
    """Return a table of the hosts and, if there are any, one of their GPUs and one of the cards' states."""
    tables = [_HOSTS.render(states, wide)]
    gpus = [(state.host.name, gpu) for state in states if state.node for gpu in state.node.gpus]
    if gpus:
        tables.append(_GPUS.render(gpus, wide))
    cards = [(state.host.name, card) for state in states if state.node for card in state.node.cards]
    if cards:
        tables.append(_CARDS.render(cards, wide))
    troubles = [(state.host.name, state.node.gpu_trouble) for state in states if state.node]
    tables += [text.Rendered(plain(f"{host}: {trouble.message}")) for host, trouble in troubles if trouble]
    return text.joined(tables)


def _answer(cell: Callable[[wire.Node], str]) -> Callable[[NodeState], str]:
    """Return the function for a cell about what a host has answered. It is empty if the host has not."""
    return lambda state: cell(state.node) if state.node else ""


def _stacks(node: wire.Node) -> str:
    return " ".join(target[: len(name) + 9] for name, target in node.stacks.items())


def _shown(value: object) -> str:
    return "" if value is None else str(value)


def _trouble(state: NodeState) -> str:
    """Return in a few words what the messages below the tables explain. That a host is not ready is its state."""
    from tfctl.model.gpus import missing_gpus

    node = state.node
    if node is None:
        return ""
    found = {
        "version": state.current is False,
        counted(len(node.drifts), "change"): bool(node.drifts),
        "GPUs": bool(
            node.gpu_trouble
            or missing_gpus(state.host, node.gpu_cards, node.missing_gpus)
            or any(card.notices for card in node.cards)
        ),
    }
    return ", ".join(word for word, applies in found.items() if applies)


def _free_disk(node: wire.Node) -> str:
    """Return the free space of the fullest of the file systems on which jobs write."""
    return _gib(min((disk.free_mib for disk in node.disks), default=None))


def _disks(node: wire.Node) -> str:
    """Return the free space of the jobs' directory, and that of output directories on other file systems."""
    seen: dict[int, str] = {}
    for disk in node.disks:
        space = f"{_gib(disk.free_mib)} free"
        seen.setdefault(disk.device, f"{space} in {disk.path}" if seen else space)
    return ", ".join(seen.values())


def _gib(mib: int | None) -> str:
    return "" if mib is None else f"{mib / 1024:.1f} GiB"


def _free(node: wire.Node) -> str:
    if node.gpu_trouble:
        return "trouble"
    free = sum(not gpu.holder for gpu in node.gpus)
    return f"{free} of {len(node.gpus)} free" if node.gpus else "none"


def ranges(numbers: list[int]) -> str:
    """Return sorted numbers as ranges: ``2222-2224 2230``."""
    return " ".join("-".join(map(str, part)) for part in consecutive(numbers))


def _jobs(state: NodeState) -> str:
    """Return the names of the jobs, or how many there are if the names are long."""
    names = " ".join(state.jobs)
    return names if len(state.jobs) == 1 or len(names) <= _NAMES else f"{len(state.jobs)} jobs"


def _tasks(state: NodeState) -> str:
    return "; ".join(f"{job}: {' '.join(names)}" for job, names in state.jobs.items())


def _mode(on: bool | None) -> str:
    return {True: "on", False: "off", None: "-"}[on]


def _mig(card: wire.Card) -> str:
    return "off" if card.mig is None else " ".join(card.mig) or "no instances"


def _ecc(card: wire.Card) -> str:
    return _mode(card.ecc) + (f", {counted(card.ecc_errors, 'error')}" if card.ecc_errors else "")


def _clock(card: wire.Card) -> str:
    return "-" if card.mhz is None else f"{card.mhz} of {card.max_mhz or '?'} MHz"


def _with_unit(value: int | None, unit: str) -> str:
    return "-" if value is None else f"{value} {unit}"


_HOSTS: Table[NodeState] = Table(
    Column("HOST", lambda state: state.host.name),
    Column("STATE", lambda state: state.state, coloured=True),
    Column("TROUBLE", _trouble, if_needed=True),
    Column("CPUS", _answer(lambda node: _shown(node.cpus)), rank=6),
    Column("LOAD", _answer(lambda node: _shown(node.load)), rank=5),
    Column("FREE MEM", _answer(lambda node: _gib(node.memory_mib[1] if node.memory_mib else None)), rank=4),
    Column("FREE DISK", _answer(_free_disk), rank=3),
    Column("GPUS", _answer(_free), rank=1),
    Column("JOBS", _jobs, rank=2),
    Column("OS", _answer(lambda node: _shown(node.os)), wide=True),
    Column("SYSTEMD", _answer(lambda node: _shown(node.systemd or None)), wide=True),
    Column("PART", _answer(lambda node: node.version[:8]), wide=True),
    Column("STACKS", _answer(_stacks), wide=True),
    Column("MEMORY", _answer(lambda node: _gib(node.memory_mib[0] if node.memory_mib else None)), wide=True),
    Column("DISK", _answer(_disks), wide=True),
    Column("CODE", _answer(lambda node: _gib(node.stored_mib)), wide=True),
    Column("PORTS", _answer(lambda node: ranges(list(node.ports))), wide=True),
    Column("TASKS", _tasks, wide=True),
)

#: Of a host's name and one of its GPUs.
_GPUS: Table[tuple[str, wire.Gpu]] = Table(
    Column("HOST", lambda row: row[0]),
    Column("GPU", lambda row: str(row[1].index)),
    Column("NAME", lambda row: row[1].name, rank=1),
    Column("DRIVER", lambda row: row[1].driver or "", wide=True),
    Column("MEMORY", lambda row: f"{row[1].memory_mib / 1024:.0f} GiB" if row[1].memory_mib else "", rank=2),
    Column("HELD BY", lambda row: row[1].holder or "free"),
)

#: Of a host's name and one of its cards. What a card does not have is a dash.
_CARDS: Table[tuple[str, wire.Card]] = Table(
    Column("HOST", lambda row: row[0]),
    Column("CARD", lambda row: row[1].name),
    Column("MIG", lambda row: _mig(row[1]), wide=True),
    Column("ECC", lambda row: _ecc(row[1])),
    Column("PERSISTENCE", lambda row: _mode(row[1].persistence), wide=True),
    Column("CLOCK", lambda row: _clock(row[1]), rank=3),
    Column("TEMP", lambda row: _with_unit(row[1].celsius, "°C"), rank=1),
    Column("POWER", lambda row: _with_unit(row[1].watts, "W"), rank=2),
)
