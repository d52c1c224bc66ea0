"""tfctl metrics: print or serve metrics for Prometheus."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Annotated

import typer

from tfctl.cli.common import InventoryOption, say, say_error
from tfctl.cli.which import open_fleet
from tfctl.errors import UsageError, first_of

_PLACE = re.compile(r"(?:(?P<address>\[[0-9a-fA-F:.]+\]|[^\[\]:\s]+):)?(?P<port>\d{1,5})")


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: tfctl metrics --listen 9836 -i my.ini")(metrics)


def metrics(
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="[ADDRESS:]PORT",
            show_default=False,
            help="Serve them over HTTP until Ctrl-C, without a password. Default of ADDRESS: 127.0.0.1. Port 0: any.",
        ),
    ] = None,
    textfile: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", show_default=False, help="Write them to a file, for node_exporter's collector textfile."
        ),
    ] = None,
    inventory: InventoryOption = None,
) -> int:
    """Print metrics of all jobs, tasks and hosts for Prometheus.

    With --listen, hosts are asked at each scrape. One that does not answer has tfctl_host_up 0.

    Exit code: 0 all hosts answer, 4 one cannot be reached, 8 one of them has not been provisioned. The metrics of the
    others are printed all the same.
    """
    if listen is not None and textfile is not None:
        raise UsageError("--listen and --textfile are two ways to export", "use one of them")
    place = parse(listen) if listen is not None else None

    from tfctl import files
    from tfctl.jobs import prometheus
    from tfctl.jobs.metrics import LIMIT_S, Scraper

    with open_fleet(None, None, inventory) as (fleet, _):
        if place:
            address, port = place
            with prometheus.served(Scraper(fleet, LIMIT_S).scrape, address, port) as used:
                shown = f"[{address}]" if ":" in address else address
                typer.echo(f"http://{shown}:{used}/metrics")
                say("Ctrl-C ends it")
                over = threading.Event()
                while not over.wait(1.0):
                    pass
        scrape = Scraper(fleet).scrape()
    text = prometheus.text(scrape)
    if textfile is None:
        typer.echo(text, nl=False)
    else:
        files.replace(textfile, text, 0o644)
    for error in scrape.errors:
        say_error(error)
    return first_of(error.exit for error in scrape.errors)


def parse(listen: str) -> tuple[str, int]:
    """Return the address and the port to listen at. Raise UsageError."""
    found = _PLACE.fullmatch(listen)
    if not found or int(found["port"]) > 65535:
        raise UsageError(f"--listen: {listen!r} is not a port, or an address and a port", "tfctl metrics --listen 9836")
    return (found["address"] or "127.0.0.1").strip("[]"), int(found["port"])
