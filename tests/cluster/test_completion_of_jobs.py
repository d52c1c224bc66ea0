"""Completion of command lines asks the hosts in the background which jobs there are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from node_tree import wait_until

from tests.cluster.hosts import STAY, Hosts
from tfctl.jobs import completion_cache


def complete(*words: str) -> list[str]:
    command = [sys.executable, "-m", "tfctl", "__complete", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()


def test_completion_asks_the_hosts_for_a_user_who_has_not_asked_them_yet(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.ok("start", hosts.file("offered", STAY + "roles: {worker: 2}\n"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TFCTL_INVENTORY", str(hosts.inventory))
    complete("status", "")
    assert completion_cache.load().age is not None, "each key would ask again"
    wait_until(lambda: "offered" in completion_cache.load().jobs, timeout=60)
    assert complete("status", "off") == ["offered", ":files"]
