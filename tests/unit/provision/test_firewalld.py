"""Preflight names a firewalld that does not let the other hosts connect to the ports of jobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.tfctl.cluster.plugins.module_utils import facts

from tests.unit.provision.test_comparison import host
from tfctl.provision.decide import readings
from tfctl.provision.decide.comparison import compare
from tfctl.provision.decide.facts import Firewalld
from tfctl.provision.decide.firewall import blocked

#: What firewall-cmd of EL 9 prints, without most of its zones.
ZONES = """block
  target: %%REJECT%%
  icmp-block-inversion: no
  interfaces:{space}
  sources:{space}
  services:{space}
  ports:{space}
  protocols:{space}
  forward: yes
  rich rules:{space}

public (active)
  target: default
  icmp-block-inversion: no
  interfaces: ens3 ens4
  sources:{space}
  services: cockpit dhcpv6-client ssh
  ports: {ports}
  protocols:{space}
  forward: yes
  forward-ports:{space}
  rich rules:{space}
{rule}
trusted{active}
  target: ACCEPT
  icmp-block-inversion: no
  interfaces:{space}
  sources: {sources}
  services:{space}
  ports:{space}
  rich rules:{space}
"""


def firewalld(ports: str = "", sources: str = "", rule: str = "") -> Firewalld:
    text = ZONES.format(space=" ", ports=ports, sources=sources, active=" (active)" if sources else "", rule=rule)
    return Firewalld("public", readings.zones(text))


def test_zones_of_firewalld_are_read() -> None:
    block, public, trusted = firewalld("8080/tcp 2222-2299/tcp", "10.0.0.0/24").zones
    assert (block.name, block.target, public.name, trusted.target) == ("block", "%%REJECT%%", "public", "ACCEPT")
    assert (public.interfaces, public.ports) == (("ens3", "ens4"), ("8080/tcp", "2222-2299/tcp"))
    assert (trusted.sources, public.rules) == (("10.0.0.0/24",), False)


@pytest.mark.parametrize(
    ("settings", "rejected"),
    [
        ({}, ["10.0.0.2", "fd00::2"]),
        ({"ports": "2222-2299/tcp"}, []),
        ({"ports": "2222-2250/tcp 2251-2299/tcp"}, []),
        ({"ports": "2222-2250/tcp"}, ["10.0.0.2", "fd00::2"]),
        ({"ports": "2222-2299/udp"}, ["10.0.0.2", "fd00::2"]),
        ({"sources": "10.0.0.0/24"}, ["fd00::2"]),
        ({"sources": "10.0.0.2 fd00::/64"}, []),
        ({"sources": "ipset:cluster"}, []),
        ({"rule": '\trule family="ipv4" source address="10.0.0.0/24" accept'}, []),
    ],
)
def test_firewalld_rejects_addresses_that_no_zone_accepts(settings: dict[str, Any], rejected: list[str]) -> None:
    assert blocked(firewalld(**settings), ["10.0.0.2", "fd00::2"], "2222-2299") == rejected


def test_preflight_names_the_hosts_that_firewalld_rejects_with_the_remedy() -> None:
    one, two, three = (replace(host(number), ports="2222-2299") for number in (1, 2, 3))
    closed = replace(one, firewalld=firewalld(sources="10.0.0.3"))
    (found,) = compare({"n1": closed, "n2": two, "n3": three}).faults["n1"]
    assert found["message"] == "firewalld does not let n2 connect to the ports of jobs, 2222-2299 (tfctl_ports)"
    assert found["remedy"] == "firewall-cmd --permanent --zone=trusted --add-source=10.0.0.2; firewall-cmd --reload"
    opened = replace(one, firewalld=firewalld(sources="10.0.0.3 10.0.0.2"))
    assert compare({"n1": opened, "n2": two, "n3": three}).faults == {}
    assert compare({"n1": closed}).faults == {}


def test_firewalld_is_asked_only_where_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "firewall-cmd"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program.write_text("#!/bin/sh\necho 'not running'; exit 252\n")
    program.chmod(0o755)
    assert facts.firewalld() is None
    program.write_text("#!/bin/sh\ncase $1 in --state) ;; --get-default-zone) echo public;; *) echo 'public'; esac\n")
    seen = facts.firewalld()
    assert seen == {"default": "public", "zones": "public\n"}
