"""`tfctl stacks explain` says what provisioning would install on a host, and why not something else."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.provision.fresh_host import PYTHON, facts, wanted
from tests.unit.provision.test_gpu import HOSTS, gpu_facts
from tfctl import schema
from tfctl.cli import stacks as verb
from tfctl.errors import TfctlError
from tfctl.model import stacks
from tfctl.provision import run as provision
from tfctl.provision.decide.explain import explain
from tfctl.provision.decide.host import decide


def shown(stack: str, found: Any) -> str:
    return "\n".join(verb._on_host(stacks.get(stack), "node1", found))


def test_explain_describes_the_cpu_edition_on_a_host_without_gpus() -> None:
    links = {"tf2.15": {"current": "tf2.15-aaaaaaaaaaaa", "before": "tf2.15-bbbbbbbbbbbb"}}
    found = explain(facts(links=links), wanted())
    own = found["stacks"]["tf2.15"]
    decision = decide(facts(), wanted())[0].stack
    assert decision
    assert (own["python"], own["environment"]) == (schema.plain(decision.python), decision.environment)
    assert (own["pythons"]["3.11"], own["pythons"]["3.9"]) == (["this host", "the distribution"], [])
    text = shown("tf2.15", found)
    assert text.startswith("tf2.15 on node1: Debian GNU/Linux 12 (bookworm), x86_64, no NVIDIA GPU\n")
    assert "3.11 from this host: /usr/bin/python3.11" in text
    assert "cpu (this host has no NVIDIA GPU)" in text
    assert "before it      tf2.15-bbbbbbbbbbbb (tfctl provision INVENTORY --rollback)" in text
    assert "tf2.0   no: tf2.0 takes Python 3.7, 3.6; Debian GNU/Linux 12 (bookworm) has 3.11" in text
    assert "tf2.18  would do, with Python 3.11 from this host" in text


def test_explain_prints_each_fault_with_its_remedy() -> None:
    found = explain(facts(sudo=False), wanted())
    text = shown("tf1.15", found)
    assert "  cannot be: tf1.15 takes Python 3.7, 3.6;" in text and "  → send one of this machine" in text
    assert "tf2.15  no: as above" in text


def test_explain_lists_rejected_gpu_methods_with_their_reasons() -> None:
    gpu = gpu_facts(HOSTS["V100 without a driver gets R580, proprietary, from Ubuntu"]["gpu"])
    python = {**PYTHON, "pythons": {"3.7": "/opt/python3.7", "3.11": "/usr/bin/python3.11"}}
    found = explain(facts(gpu=gpu, system="ubuntu-22.04", title="Ubuntu 22.04", python=python), wanted())
    own = found["stacks"]["tf2.15"]
    assert own["driver"]
    assert (own["edition"], own["chosen"]["cuda"], own["driver"]["method"]) == ("gpu", "wheels", "distribution")
    assert own["methods"]["cuda"]["wheels"] == own["methods"]["cuda"]["repo"] == ""
    assert "has no supported CUDA" in own["methods"]["cuda"]["distribution"]
    text = shown("tf2.15", found)
    assert "12.2 by wheels" in text and "would do: tfctl_cuda_method" in text
    old = found["stacks"]["tf2.0"]
    assert (old["edition"], old["chosen"]["cuda"]) == ("gpu", "archive")
    assert "there are no wheels of CUDA for tf2.0" in old["methods"]["cuda"]["wheels"]


def test_explain_leaves_a_driver_as_it_is_if_nothing_has_to_be_done() -> None:
    for title, shows in {
        "A driver of tfctl's own that works, whose role runs if its receipt does not hold": "as it is",
        "A driver of tfctl's own that drifted": "535.261.03 by distribution",
    }.items():
        found = explain(facts(gpu=gpu_facts(HOSTS[title]["gpu"])), wanted())
        assert re.search(rf"driver +{shows}$", shown("tf2.15", found), re.M), title


@pytest.mark.extended
def test_explain_reports_a_python_tree_that_cannot_be_packed(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(f"here ansible_connection=local tfctl_python_trees={tmp_path}/none\n")
    with pytest.raises(TfctlError, match=f"here: .*{tmp_path}/none"):
        provision.explain(inventory, "here")


@pytest.mark.extended
def test_explain_gathers_the_facts_of_a_host(tmp_path: Path) -> None:
    """The host is this machine, over a local connection."""
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(
        "here ansible_connection=local ansible_become=false ansible_python_interpreter={{ansible_playbook_python}}\n"
    )
    found = provision.explain(inventory, "here")
    assert found["machine"] == os.uname().machine
    assert set(found["stacks"]) == set(stacks.load())
