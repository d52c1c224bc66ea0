"""tfctl schema: print the JSON Schema of the job file, for editors."""

from __future__ import annotations

import json

import typer


def add_to(app: typer.Typer) -> None:
    app.command(epilog="Example: tfctl schema > job.schema.json")(schema)


def schema() -> None:
    """Print the JSON Schema of the job file. Editors use it to complete keys and mark mistakes."""
    from tfctl.model.json_schema import job_schema

    typer.echo(json.dumps(job_schema(), indent=2))
