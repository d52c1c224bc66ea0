"""tfctl nodes: show every host, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tfctl.cli import text
from tfctl.cli.common import InventoryOption, OutputFormat, OutputOption, say, say_error
from tfctl.cli.which import open_fleet
from tfctl.errors import first_of
from tfctl.node.names import REQUIREMENTS
from tfctl.wording import counted, plain, with_remedy

if TYPE_CHECKING:
    from tfctl.cli.objects import NodesObject
    from tfctl.jobs.nodes import NodeState
    from tfctl.node import wire

_COLUMNS = (
    "HOST", "STATE", "OS", "SYSTEMD", "PART", "STACKS", "CPUS", "LOAD", "MEMORY", "DISK", "CODE", "GPUS", "PORTS",
    "TASKS",
)  # fmt: skip

_CARD_COLUMNS = ("HOST", "CARD", "MIG", "ECC", "PERSISTENCE", "CLOCK", "TEMP", "POWER")

#: Changes on a host that are listed. -o json lists all.
_DRIFTS = 5


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: tfctl nodes -o json")(nodes)


def nodes(
    job: Annotated[
        str | None,
        typer.Option("--job", "-j", show_default=False, help="Only hosts of this job: its name or file."),
    ] = None,
    inventory: InventoryOption = None,
    output: OutputOption = OutputFormat.text,
) -> int:
    """Show the state of each host, and which jobs use it.

    Exit code: 0 all are ready, 4 one cannot be reached, 8 one answers but is not fit for jobs.
    """
    from tfctl.jobs.nodes import nodes as ask
    from tfctl.provision.node_part import version

    with open_fleet(None, job, inventory) as (fleet, name):
        states = ask(fleet, version(), name)
    if output is OutputFormat.json:
        found: NodesObject = {"nodes": [state.json() for state in states]}
        text.print_json(found)
    else:
        typer.echo(table(states))
    others = [state.host.name for state in states if state.current is False]
    if others:
        what = f"{', '.join(others)}: the node part's version differs from this tfctl's"
        say(with_remedy(what, "tfctl provision INVENTORY --tags job_host"))
    for state in states:
        if state.node and state.node.drifts:
            say(drift_message(state.host.name, state.node.drifts))
    errors = [state.error for state in states if state.error is not None]
    for error in errors:
        say_error(error)
    return first_of(error.exit for error in errors)


def drift_message(host: str, drifts: Sequence[str]) -> str:
    """Return what has changed on a host since it was provisioned, with the remedy.

    The role requirements repairs packages of requirements files only when it gets these files.
    """
    more = [f"and {counted(len(drifts) - _DRIFTS, 'other change')}"] if len(drifts) > _DRIFTS else []
    lines = "\n".join([*drifts[:_DRIFTS], *more])
    files = " --requirements FILE" if any(line.startswith(f"{REQUIREMENTS}/") for line in drifts) else ""
    return with_remedy(f"{host}: {lines}", f"tfctl provision INVENTORY --limit {host}{files}")


def table(states: list[NodeState]) -> str:
    """Return a table of the hosts and, if there are any, one of their GPUs and one of the cards' states."""
    rows = [_COLUMNS, *(_row(state) for state in states)]
    devices = [(state.host.name, gpu) for state in states if state.node for gpu in state.node.gpus]
    tables = [text.table(rows, state=1)]
    if devices:
        tables.append(text.table([("HOST", "GPU", "NAME", "MEMORY", "HELD BY"), *(_device(*one) for one in devices)]))
    cards = [(state.host.name, card) for state in states if state.node for card in state.node.cards]
    if cards:
        tables.append(text.table([_CARD_COLUMNS, *(_card(*one) for one in cards)]))
    troubles = [(state.host.name, state.node.gpu_trouble) for state in states if state.node]
    tables += [plain(f"{host}: {trouble.message}") for host, trouble in troubles if trouble]
    return "\n\n".join(tables)


def _row(state: NodeState) -> tuple[str, ...]:
    node = state.node
    if node is None:
        return (state.host.name, state.state, *[""] * (len(_COLUMNS) - 2))
    stacks = (target[: len(name) + 9] for name, target in node.stacks.items())
    tasks = (f"{job}: {' '.join(names)}" for job, names in state.jobs.items())
    return (
        state.host.name, state.state, _shown(node.os), _shown(node.systemd or None), node.version[:8],
        " ".join(stacks), _shown(node.cpus), _shown(node.load), _memory(node.memory_mib), _disks(node),
        _gib(node.stored_mib), _free(node), ranges(list(node.ports)), "; ".join(tasks),
    )  # fmt: skip


def _shown(value: object) -> str:
    return "" if value is None else str(value)


def _memory(sizes: tuple[int, int] | None) -> str:
    return f"{sizes[1] / 1024:.1f} of {sizes[0] / 1024:.1f} GiB" if sizes else ""


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


def _device(host: str, gpu: wire.Gpu) -> tuple[str, ...]:
    memory = f"{gpu.memory_mib / 1024:.0f} GiB" if gpu.memory_mib else ""
    return (host, str(gpu.index), gpu.name, memory, gpu.holder or "free")


def _card(host: str, card: wire.Card) -> tuple[str, ...]:
    """Return a row about a card. What it does not have is a dash."""
    modes = {True: "on", False: "off", None: "-"}
    errors = f", {counted(card.ecc_errors, 'error')}" if card.ecc_errors else ""
    mig = "off" if card.mig is None else " ".join(card.mig) or "no instances"
    clock = "-" if card.mhz is None else f"{card.mhz} of {card.max_mhz or '?'} MHz"
    return (
        host, card.name, mig, modes[card.ecc] + errors, modes[card.persistence], clock,
        "-" if card.celsius is None else f"{card.celsius} °C", "-" if card.watts is None else f"{card.watts} W",
    )  # fmt: skip


def ranges(numbers: list[int]) -> str:
    """Return sorted numbers as ranges: ``2222-2224 2230``."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][-1] + 1:
            found[-1][1:] = [number]
        else:
            found.append([number])
    return " ".join("-".join(map(str, part)) for part in found)
