"""An inventory and job files to place on it, without running Ansible."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.unit.model.four_hosts import INVENTORY, MakeJob
from tfctl.model import load
from tfctl.model.assign import assign
from tfctl.model.host import Site
from tfctl.model.job import Job
from tfctl.model.layout import lay_out


@pytest.fixture
def make_job(tmp_path: Path) -> MakeJob:
    """A job file's text, dedented, to an attempt 1 on INVENTORY; ``gpus`` are those that every host has."""

    def make(text: str, gpus: tuple[str, ...] | None = None, held: dict[int, str] | None = None) -> Job:
        file = tmp_path / "job.yaml"
        file.write_text(textwrap.dedent(text))
        layout = lay_out(load.load(file), INVENTORY, "job.yaml")
        sites = {host.name: Site(host.address or "", held or {}, gpus) for host in layout.hosts}
        return Job(layout, 1, "00000000", 0.0, assign(layout, sites))

    return make
