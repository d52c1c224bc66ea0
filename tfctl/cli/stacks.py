"""`tfctl stacks`: show which exact versions work together, and what a host would get."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfctl import schema
from tfctl.cli.common import (
    AskBecomePassOption,
    InventoryOption,
    OutputFormat,
    OutputOption,
    PythonTreeOption,
    TableFormat,
    TableOption,
)
from tfctl.cli.tables import Column, Table
from tfctl.errors import ErrorObject, Exit
from tfctl.wording import shown, with_remedy

if TYPE_CHECKING:
    from tfctl.cli.objects import WrittenFilesObject
    from tfctl.model.stacks import Stack
    from tfctl.provision.explanation import Explanation, StackOnHost

app = typer.Typer(
    name="stacks",
    help="Show the stacks: exact versions that work together. Also show what a host would get.",
    invoke_without_command=True,
    rich_markup_mode=None,
)
#: An inventory that may have stacks of one's own. It is not required.
StacksOfOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--inventory",
        "-i",
        show_default=False,
        help="Also show the stacks of its tfctl_stack_dirs; may be repeated.",
    ),
]
_TITLES = {"cuda": "CUDA", "cudnn": "cuDNN", "nccl": "NCCL"}


def add_to(parent: typer.Typer) -> None:
    parent.add_typer(app)


@app.callback()
def table(context: typer.Context, inventory: StacksOfOption = None, output: TableOption = TableFormat.text) -> None:
    """Show the stacks: exact versions that work together. Also show what a host would get."""
    if context.invoked_subcommand:
        return
    from tfctl.cli import text
    from tfctl.model import stacks

    known = stacks.load(_directories(inventory)).values()
    if output is TableFormat.json:
        text.print_json({"stacks": [schema.plain(stack) for stack in known]})
        return
    text.show(_STACKS.render(known, output is TableFormat.wide))


@app.command()
def explain(
    stack: Annotated[str, typer.Argument(metavar="STACK", show_default=False, help="Such as tf2.15.")],
    host: Annotated[
        str | None,
        typer.Option(metavar="NODE", show_default=False, help="Examine this host and show what it would get."),
    ] = None,
    inventory: InventoryOption = None,
    python_tree: PythonTreeOption = None,
    ask_become_pass: AskBecomePassOption = False,
    output: OutputOption = OutputFormat.text,
) -> int:
    """Show what a stack contains or, with --host, what that host would get and why."""
    from tfctl.model import stacks

    if host is None:
        known = stacks.get(stack, _directories(inventory))
        _print(schema.plain(known), _contents(known), output)
        return Exit.OK
    from tfctl.cli.host_results import ask_become_password
    from tfctl.cli.which import find_inventory
    from tfctl.provision.run import explain as explain_host

    hosts = find_inventory(inventory)
    known = stacks.get(stack, hosts.stack_dirs)
    password = ask_become_password() if ask_become_pass else None
    found = explain_host(Path(hosts.source), host, tuple(python_tree or ()), password)
    _print({"stack": stack, "host": host, **found}, _on_host(known, host, found), output)
    return Exit.PREFLIGHT if found["stacks"][stack]["faults"] else Exit.OK


@app.command()
def lock(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="The YAML file of the stack.")],
    output: OutputOption = OutputFormat.text,
) -> None:
    """Write the lock files of a stack of your own: all its wheels, with their hashes."""
    from tfctl.cli.common import say
    from tfctl.cli.text import print_json
    from tfctl.model import stacks
    from tfctl.provision import locks

    found: WrittenFilesObject = {"files": []}
    for path in locks.write_locks(stacks.read(file.absolute())):
        say(f"{path}: written")
        found["files"].append(str(path))
    if output is OutputFormat.json:
        print_json(found)


def _directories(inventory: Sequence[Path] | None) -> tuple[str, ...]:
    """Return the directories with stacks of one's own: of this inventory, else of the default one if there is one."""
    from tfctl.cli.which import default_inventory
    from tfctl.remote import inventory as inventories
    from tfctl.remote import inventory_sources

    source = inventory_sources.joined(inventory) if inventory else default_inventory()
    if source is None or not (inventory or inventory_sources.exists(source)):
        return ()
    return inventories.load(source).stack_dirs


def _print(data: Mapping[str, object], lines: Iterable[str], output: OutputFormat) -> None:
    from tfctl.cli import text

    if output is OutputFormat.json:
        text.print_json(data)
    else:
        print("\n".join(map(shown, lines)))


def _contents(stack: Stack) -> Iterator[str]:
    from tfctl.model.stacks import nvidia

    yield f"{stack.name}: {stack.title}"
    if not stack.shipped:
        yield f"  from {stack.file}"
    rows = {"Python": ", ".join(stack.pythons), "packages": ", ".join(stack.requirements)}
    if stack.gcc:
        rows["gcc"] = f"{stack.gcc.min} to {stack.gcc.max}" if stack.gcc.max else f"{stack.gcc.min} or later"
    if stack.openmpi:
        rows["Open MPI"] = stack.openmpi.version
    rows["Horovod"] = stack.horovod.version if stack.horovod else "no release builds for it"
    if stack.gpu:
        rows |= {_TITLES[name]: getattr(stack.gpu, name) for name in _TITLES}
        rows["GPUs"] = f"compute capability {stack.gpu.capability.min} to {stack.gpu.capability.max}"
        rows["driver"] = f"{stack.gpu.driver.min} or later, branch {stack.gpu.driver.max_branch} at most"
        branches = nvidia().ptx
        rows |= {f"driver for {each}": f"{stack.gpu.oldest_driver(each, branches)} or later" for each in stack.gpu.ptx}
    yield from _aligned(rows)
    for name, edition in stack.editions.items():
        yield f"edition {name}: {', '.join(edition.machines)}, {edition.disk_mb} MB while it is installed"
        yield from _aligned({"packages": ", ".join(edition.requirements)})
        yield from _aligned({f"{key} is": substitute for key, substitute in edition.substitutes.items()})
    yield "tried:" if stack.tested else "tried: nowhere yet"
    for each in stack.tested:
        yield f"  {each.system}, Python {each.python}, edition {each.edition}: {each.what}"


def _on_host(stack: Stack, host: str, found: Explanation[ErrorObject]) -> Iterator[str]:
    own = found["stacks"][stack.name]
    gpus = found["gpus"] or "no NVIDIA GPU"
    yield f"{stack.name} on {host}: {found['title']}, {found['machine']}, {gpus}"
    yield from _aligned(dict(_chosen(stack, own)))
    yield from (f"  note: {notice}" for notice in own["notices"])
    for fault in own["faults"]:
        yield with_remedy("  cannot be: " + fault["message"], fault["remedy"])
    yield "the others:"
    yield from _aligned({name: _fit(other, own) for name, other in found["stacks"].items() if name != stack.name})


def _chosen(stack: Stack, own: StackOnHost[ErrorObject]) -> Iterator[tuple[str, str]]:
    """Yield what would be installed, and why not the alternatives."""
    python = own["python"]
    if python:
        packages = f", with {' '.join(python['packages'])}" if python["packages"] else ""
        yield "Python", f"{python['version']} from {python['from']}: {python['path']}{packages}"
    others = {
        version: places for version, places in own["pythons"].items() if not python or version != python["version"]
    }
    if others:
        found_in = "; ".join(f"{version}: {', '.join(places) or 'nowhere'}" for version, places in others.items())
        yield "other Pythons", found_in
    yield "edition", f"{own['edition']} ({own['why']})"
    yield "environment", f"{own['environment']} ({own['state']})" if own["environment"] else "none"
    if own["before"]:
        yield "before it", f"{own['before']} (tfctl provision INVENTORY --rollback)"
    if stack.gpu and own["edition"] == "gpu":
        driver = own["driver"]
        yield "driver", f"{driver['version']} by {driver['method']}" if driver else "as it is"
        for name, methods in own["methods"].items():
            chosen = own["chosen"][name]
            yield _TITLES[name], f"{getattr(stack.gpu, name)} by {chosen}" if chosen else "none; only Horovod uses it"
            for method, why in methods.items():
                if method != own["chosen"][name]:
                    yield f"  by {method} of {_TITLES[name]}", why or f"would do: tfctl_{name}_method"
    yield "Horovod", stack.horovod.version if stack.horovod else "no release builds for it"


def _fit(other: StackOnHost[ErrorObject], own: StackOnHost[ErrorObject]) -> str:
    """Return one line: the faults that only this stack has, else that it would fit."""
    messages = [fault["message"] for fault in other["faults"]]
    known = [fault["message"] for fault in own["faults"]]
    if messages:
        return f"no: {'; '.join(message for message in messages if message not in known) or 'as above'}"
    state = "" if other["state"] == "absent" else f", {other['state']}"
    python = other["python"]
    with_python = f", with Python {python['version']} from {python['from']}" if python else ""
    return f"would do{with_python}{state}"


def _aligned(rows: Mapping[str, str]) -> Iterator[str]:
    width = max(map(len, rows), default=0)
    return (f"  {name:{width}}  {value}" for name, value in rows.items())


_STACKS: Table[Stack] = Table(
    Column("STACK", lambda stack: stack.name),
    Column("TENSORFLOW", lambda stack: stack.tensorflow),
    Column("PYTHON", lambda stack: " ".join(stack.pythons), rank=1),
    Column("CUDA", lambda stack: stack.gpu.cuda if stack.gpu else "-", rank=2),
    Column("HOROVOD", lambda stack: stack.horovod.version if stack.horovod else "-", rank=3),
    Column("FROM", lambda stack: "tfctl" if stack.shipped else stack.file, rank=5),
    Column("TRIED ON", lambda stack: ", ".join(dict.fromkeys(each.system for each in stack.tested)) or "-", rank=4),
)
