"""The role firewall, as far as it works without a host: what it reads of the kernel's tables, and its units."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.unit.provision.role_play import MANAGES, ROLES, check, facts, play, tasks_of, trial


def nft(*entries: object) -> dict[str, object]:
    """Return the answer of `nft --json` as Ansible registers it."""
    return {"rc": 0, "stdout": json.dumps({"nftables": [{"metainfo": {"version": "1.0.6"}}, *entries]})}


def table(ports: object, *rules: str) -> dict[str, object]:
    """Return the table inet tfctl of two hosts as nft 1.0.6 lists it; a set without elements has no key for them."""
    sets: list[dict[str, object]] = [
        {"name": "ports", "elem": [ports]}, {"name": "hosts4", "elem": ["10.0.0.2", "10.0.0.1"]}, {"name": "hosts6"}
    ]  # fmt: skip
    return nft({"table": {"name": "tfctl"}}, *({"set": each} for each in sets), *({"rule": each} for each in rules))


def chain(table: str, hook: str = "input", **more: str) -> dict[str, object]:
    return {"chain": {"family": "inet", "table": table, "name": "in", "type": "filter", "hook": hook, **more}}


def test_firewall_compares_the_tables_of_the_kernel_with_its_own_and_finds_what_drops_packets(tmp_path: Path) -> None:
    """firewalld, and chains that drop packets by default."""
    addresses = ["10.0.0.1 STREAM a", "10.0.0.1 DGRAM", "10.0.0.2 STREAM b", "10.0.0.2 RAW"]
    given = {"firewall_resolved": {"stdout_lines": addresses}}
    whole, rules = {"range": [2222, 2299]}, ("loopback", "v4", "v6")
    cases = [
        ("2222-2299", table(whole, *rules), True),
        ("2222", table(2222, *rules), True),
        ("2222-2299", table({"range": [2222, 2300]}, *rules), False),
        ("2222-2299", table(whole), False),
        ("2222-2299", {"rc": 1, "stdout": ""}, False),
    ]
    plain = {"chain": {"family": "inet", "table": "filter", "name": "mine"}}
    chains = [
        plain,
        chain("filter", policy="accept"),
        chain("tfctl", policy="accept"),
        chain("ufw", "output", policy="drop"),
    ]
    dropping: list[object] = [*chains, chain("mine", policy="drop")]
    firewalld = next(each for each in tasks_of("firewall", "rules.yml") if "ansible.builtin.assert" in each)
    play(tmp_path, "firewall", [
        *(
            check(f"firewall_in_force == {expected}", **given, tfctl_ports=ports, firewall_listed=listed)
            for ports, listed, expected in cases
        ),
        check("firewall_dropping == []", firewall_chains=nft(*chains)),
        check("firewall_dropping == ['inet mine in']", firewall_chains=nft(*dropping)),
        *trial(firewalld, "", firewall_chains=nft(*dropping)),
        *trial(firewalld, "firewalld is active", firewall_chains=nft(*chains, chain("firewalld", policy="accept"))),
    ])  # fmt: skip


@pytest.mark.extended
def test_firewall_takes_the_addresses_of_the_inventory_and_names_those_without(tmp_path: Path) -> None:
    resolved = {"stdout_lines": ["fe80::1%eth0 STREAM a", "10.0.0.1 STREAM b", "unknown nosuchhost"]}
    play(tmp_path, "firewall", [
        check("firewall_names == [inventory_hostname]"),
        facts(ansible_host="10.0.0.7"), check("firewall_names == ['10.0.0.7']"),
        facts(tfctl_address="10.0.0.8"), check("firewall_names == ['10.0.0.8']"),
        check("firewall_names == ['a', '10.0.0.1']", firewall_hosts=["a", "10.0.0.1"]),
        check("firewall_v4 == ['10.0.0.1']", "firewall_v6 == ['fe80::1']", "firewall_unknown == ['nosuchhost']",
              firewall_resolved=resolved),
    ])  # fmt: skip


def test_firewall_is_loaded_again_whenever_nftables_starts(tmp_path: Path) -> None:
    """systemd accepts the drop-in. A start of nftables flushes all rules, and PartOf= propagates only a restart."""
    drop_in = "etc/systemd/system/nftables.service.d/tfctl.conf"
    text = (ROLES / "firewall/files" / drop_in).read_text()
    (load,) = (line for line in text.splitlines() if line.startswith("ExecStartPost="))
    service = (ROLES / "firewall/files/etc/systemd/system/tfctl_firewall.service").read_text()
    assert f"ExecStart={load.removeprefix('ExecStartPost=-')}\n" in service
    (tmp_path / "nftables.service.d").mkdir()
    (tmp_path / "nftables.service.d/tfctl.conf").write_text(text)
    unit = tmp_path / "nftables.service"
    unit.write_text("[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n")
    found = {**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"}
    verify = ["systemd-analyze", "verify", "--man=no", str(unit)]
    said = subprocess.run(verify, capture_output=True, text=True, timeout=60, env=found).stderr
    assert [line for line in said.splitlines() if "tfctl.conf" in line] == []
    manages = yaml.safe_load(MANAGES.read_text())["provision_manages"]["firewall"]
    (removal,) = (task for task in tasks_of("firewall", "absent.yml") if "loop" in task)
    assert f"/{drop_in}" in manages["paths"] and f"/{drop_in}" in removal["loop"]
