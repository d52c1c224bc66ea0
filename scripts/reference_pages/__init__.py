"""The generated pages of the reference. Each module has a function ``page`` that returns one page as Markdown."""

from __future__ import annotations

import json

from scripts.reference_pages import commands, exit_codes, inventory, job_file, json_objects, metrics, tf_config, why
from tfctl.model.json_schema import job_schema

#: The first line of each page.
NOTE = "<!-- Written by scripts/reference. -->"


def pages() -> dict[str, str]:
    """Return the text of each generated file, by its path in the repository."""
    written = {
        "commands": commands.page(),
        "job-file": job_file.page(),
        "inventory": inventory.page(),
        "tf-config": tf_config.page(),
        "json": json_objects.page(),
        "exit-codes": exit_codes.page(),
        "metrics": metrics.page(),
    }
    found = {f"docs/reference/{name}.md": f"{NOTE}\n\n{text}\n" for name, text in written.items()}
    return {**found, "docs/job.schema.json": json.dumps(job_schema(), indent=2) + "\n", why.PAGE: why.page()}
