"""The optional roles, as far as they work without a host: their variables, their messages, and the modules of some."""

from __future__ import annotations

import base64
import functools
import hashlib
import http.server
import importlib.util
import io
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from ansible.module_utils import tfctl_datasets
from ansible.module_utils.tfctl_datasets import Dataset
from ansible.module_utils.tfctl_install import ModuleFailed

from playbooks.library.tfctl_store import FileStore, StoredFile
from tfctl.errors import Exit
from tfctl.model.ports import port_range
from tfctl.provision import ansible
from tfctl.provision.decide import datasets
from tfctl.provision.remedies import remedy_for

ROLES = ansible.data_dir() / "roles"


def play(
    folder: Path, role: str, tasks: Sequence[Mapping[str, object]], *options: str, hosts: str = "localhost,"
) -> str:
    """Run tasks on this machine with the defaults and variables of a role. They must succeed. Return the output.

    ``hosts``: names of this machine.
    """
    files = [str(ROLES / role / part / "main.yml") for part in ("defaults", "vars")]
    found = {"hosts": "all", "gather_facts": False, "tasks": [*tasks]}
    found["vars_files"] = [path for path in files if Path(path).exists()]
    (folder / "play.yml").write_text(json.dumps([found]))
    words = [sys.executable, "-m", "ansible", "playbook", "-i", hosts, "--connection", "local"]
    words += ["-e", f"ansible_python_interpreter={sys.executable}", *options]
    done = subprocess.run([*words, str(folder / "play.yml")], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def facts(**values: object) -> dict[str, object]:
    """Return a task that sets facts and variables of the host, as ansible.builtin.setup and an inventory do."""
    return {"ansible.builtin.set_fact": {**values, "cacheable": True}}


def check(*that: str, **variables: object) -> dict[str, object]:
    return {"ansible.builtin.assert": {"that": [*that]}, "vars": variables}


def trial(task: Mapping[str, object], failure: str, **variables: object) -> Iterator[dict[str, object]]:
    """Yield a task of a role and a check: the task fails with this message, or succeeds if the message is empty."""
    yield {**task, "vars": variables, "register": "found", "ignore_errors": True}
    yield check("found is failed" if failure else "found is success", "expected in found | string", expected=failure)


def failures(role: str) -> Iterator[str]:
    """Yield the message of each check of a role, with the names of variables in place of their values."""

    def tasks(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for task in found:
            yield task
            for part in ("block", "always"):
                yield from tasks(task.get(part, []))

    for path in sorted((ROLES / role / "tasks").glob("*.yml")):
        for task in tasks(yaml.safe_load(path.read_text())):
            if "ansible.builtin.assert" in task:
                yield task["ansible.builtin.assert"]["fail_msg"]
            if "ansible.builtin.wait_for" in task:
                yield task["ansible.builtin.wait_for"]["msg"]


def tasks_of(role: str, file: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load((ROLES / role / "tasks" / file).read_text()))


@pytest.mark.parametrize(
    ("role", "codes"),
    [
        ("time_sync", [Exit.FAILED, Exit.PREFLIGHT]),
        ("proxy", [Exit.BAD_FILE, Exit.PREFLIGHT]),
        ("dataset", [Exit.BAD_FILE]),
        ("firewall", [Exit.FAILED, Exit.BAD_FILE, Exit.BAD_FILE, Exit.PREFLIGHT]),
        ("shared_storage", [Exit.FAILED, Exit.BAD_FILE, *[Exit.PREFLIGHT] * 4]),
    ],
)
def test_each_check_of_a_role_has_a_remedy_and_an_exit_code(role: str, codes: list[Exit]) -> None:
    remedies = {message: remedy_for(message) for message in failures(role)}
    assert [message for message, remedy in remedies.items() if not remedy] == []
    assert sorted(remedy.exit for remedy in remedies.values() if remedy) == codes


def services(*running: str) -> dict[str, object]:
    names = ("chrony.service", "chronyd.service", "ntpd.service", "systemd-timesyncd.service", "ssh.service")
    return {name: {"name": name, "state": "running" if name in running else "stopped"} for name in names}


@pytest.mark.extended
def test_time_sync_keeps_the_running_time_service_and_otherwise_takes_chrony(tmp_path: Path) -> None:
    cases = [
        ("Debian", ["ssh.service"], "chrony.service"),
        ("RedHat", ["ssh.service"], "chronyd.service"),
        ("RedHat", ["chronyd.service"], "chronyd.service"),
        ("Debian", ["systemd-timesyncd.service"], "systemd-timesyncd.service"),
        ("RedHat", ["ntpd.service", "ssh.service"], "ntpd.service"),
    ]
    tasks = [
        task
        for family, running, unit in cases
        for task in (facts(os_family=family, services=services(*running)), check(f"time_sync_unit == '{unit}'"))
    ]
    play(tmp_path, "time_sync", tasks)


#: A fake of systemctl, and of other programs, that writes down how it is called.
SYSTEMCTL = "#!/bin/sh\necho $* >>$CALLS\n"


@pytest.mark.extended
def test_time_servers_of_an_ini_inventory_may_be_text_with_commas(tmp_path: Path) -> None:
    """Otherwise a template would take each letter for a server."""
    play(tmp_path, "time_sync", [
        check("time_sync_server_list == ['ntp1.example', 'n2']", tfctl_ntp_servers="ntp1.example, n2"),
        check("time_sync_server_list == ['ntp1.example']", tfctl_ntp_servers=["ntp1.example"]),
        check("time_sync_server_list == []"),
    ])  # fmt: skip


@pytest.mark.extended
def test_time_sync_keeps_the_configuration_of_chrony_and_a_reset_restores_it(tmp_path: Path) -> None:
    conf, kept = tmp_path / "chrony.conf", tmp_path / "var/chrony.conf"
    conf.write_text("pool mine.example\n")
    block = next(task["block"] for task in tasks_of("time_sync", "chrony.yml") if "block" in task)
    files = [task for task in block if "ansible.builtin.systemd_service" not in task]
    for task in files:
        for arguments in (value for name, value in task.items() if name.startswith("ansible.builtin.")):
            for own in ("owner", "group"):  # tests need no root
                arguments.pop(own, None)
            if "dest" in arguments and not arguments.get("remote_src"):
                arguments["src"] = str(ROLES / "time_sync/templates" / arguments["src"])
    given = {"time_sync_chrony_conf": str(conf), "time_sync_kept_conf": str(kept), "time_sync_servers": ["ntp.example"]}
    for _ in range(2):
        play(tmp_path, "time_sync", [{**task, "vars": given} for task in files])
        assert "server ntp.example iburst" in conf.read_text()
        assert kept.read_text() == "pool mine.example\n", "a second run keeps the first configuration"
        conf.unlink()
    assert not list(tmp_path.glob("chrony.conf?*")), "no backup that a reset does not know"
    conf.write_text("server ntp.example iburst\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text(SYSTEMCTL)
    (tmp_path / "bin/systemctl").chmod(0o755)
    places = {"/etc/chrony.conf": conf, "/var/lib/tfctl/chrony.conf": kept}
    restore, restart = map(shlex.split, restored(tmp_path, "dnf", places))
    variables = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "CALLS": f"{tmp_path}/calls"}
    subprocess.run(restore, check=True, timeout=10, env=variables)
    assert (conf.read_text(), kept.exists()) == ("pool mine.example\n", False)
    subprocess.run(restart, check=True, timeout=10, env=variables)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == ["try-restart chronyd.service", "try-restart systemd-timesyncd.service"]
    (tmp_path / "bin/systemctl").write_text("#!/bin/sh\nexit 5\n")  # the unit does not exist
    subprocess.run(restart, check=True, timeout=10, env=variables)
    subprocess.run(restore, check=True, timeout=10, env=variables)
    kept.write_text("of a chrony that the reset has removed\n")
    conf.unlink()
    subprocess.run(restore, check=True, timeout=10, env=variables)
    assert (conf.exists(), kept.exists()) == (False, False)


def restored(folder: Path, packager: str, places: Mapping[str, Path]) -> list[str]:
    """Return the commands with which a reset restores the configuration of chrony, for files in other places, and makes
    systemd-timesyncd read its own again."""
    receipt: dict[str, object] = {"ansible.builtin.include_vars": str(ROLES / "time_sync/vars/receipt.yml")}
    copy = {"content": "{{ time_sync_manages.refresh | to_json }}", "dest": str(folder / "commands")}
    seen = {"preflight_found": {"seen": {"packager": packager}}}
    play(folder, "time_sync", [receipt, {"ansible.builtin.copy": copy, "vars": seen}])
    text = (folder / "commands").read_text()
    for path, place in places.items():
        assert path in text
        text = text.replace(path, str(place))
    return list(json.loads(text))


@pytest.mark.extended
@pytest.mark.parametrize(
    ("packager", "unit", "conf"),
    [("apt-get", "chrony.service", "/etc/chrony/chrony.conf"), ("dnf", "chronyd.service", "/etc/chrony.conf")],
)
def test_time_sync_lists_the_files_and_units_that_it_changes_in_its_receipt(
    packager: str, unit: str, conf: str, tmp_path: Path
) -> None:
    receipt: dict[str, object] = {"ansible.builtin.include_vars": str(ROLES / "time_sync/vars/receipt.yml")}
    seen = {"preflight_found": {"seen": {"packager": packager}}, "unit": unit, "conf": conf}
    play(tmp_path, "time_sync", [
        receipt,
        check("time_sync_manages.units == [unit, 'systemd-timesyncd.service']", **seen),
        check("conf not in time_sync_manages.paths", **seen),
        check("conf in time_sync_manages.paths", **seen, tfctl_ntp_servers=["ntp.example"]),
    ])  # fmt: skip


@pytest.mark.extended
def test_proxy_must_be_a_url_with_a_port_and_answer(tmp_path: Path) -> None:
    form, answers = tasks_of("proxy", "main.yml")[:2]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        tasks = [
            *trial(form, "", proxy_http=f"http://me:secret@{place}/", proxy_https="http://[::1]:3128"),
            *trial(form, "tfctl_http_proxy is not a URL such as http://HOST:PORT", proxy_http="http://proxy"),
            *trial(form, "tfctl_https_proxy is not a URL", proxy_https=f"http://{place}/path"),
            *trial(answers, "", proxy_http=f"http://me:secret@{place}/"),
        ]
        play(tmp_path, "proxy", tasks)
    silent = trial(answers, f"The proxy {place} (tfctl_http_proxy) does not answer", proxy_http=f"http://{place}")
    play(tmp_path, "proxy", [*silent])


@pytest.mark.extended
def test_proxy_installs_ca_certificates_where_it_is_missing(tmp_path: Path) -> None:
    """Minimal hosts have neither the program nor the directory for the certificate. The test installs nothing."""
    tasks = tasks_of("proxy", "certificates.yml")[:2]
    tasks[1]["ansible.builtin.fail"] = {"msg": f"install {tasks[1]['vars']['packages_names'][0]}"}
    assert tasks[1].pop("ansible.builtin.include_role") == {"name": "packages"}
    present = tmp_path / "update-ca-certificates"
    present.touch()
    cases = [
        ("/a/bundle.pem", tmp_path / "none", "install ca-certificates"),
        ("", tmp_path / "none", ""),
        ("/a/bundle.pem", present, ""),
    ]
    for bundle, path, failure in cases:
        given = facts(proxy_ca_bundle=bundle, proxy_trust={"program": str(path)})
        play(tmp_path, "proxy", [given, tasks[0], *trial(tasks[1], failure)])


def test_reset_updates_the_certificates_only_where_the_program_is_still_installed(tmp_path: Path) -> None:
    receipt = yaml.safe_load((ROLES / "proxy/vars/receipt.yml").read_text())
    command = str(receipt["proxy_manages_certificates"]).replace("/usr/sbin", str(tmp_path))
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": f"{tmp_path}/calls"}
    subprocess.run(shlex.split(command), check=True, timeout=10, env=variables)
    assert not (tmp_path / "calls").exists()
    (tmp_path / "update-ca-certificates").write_text(SYSTEMCTL)
    (tmp_path / "update-ca-certificates").chmod(0o755)
    subprocess.run(shlex.split(command), check=True, timeout=10, env=variables)
    assert (tmp_path / "calls").read_text() == "--fresh\n"


#: The configuration of dnf, with settings of the host's owner.
DNF_CONF = "[main]\ngpgcheck=1\nproxy=http://mine:3128\nbest=True\n"


def in_file(task: dict[str, Any], path: Path) -> dict[str, object]:
    """Return a task that changes this file instead of dnf's configuration, on every system."""
    changed = {**task["ansible.builtin.blockinfile"], "path": str(path)}
    return {**{key: value for key, value in task.items() if key != "when"}, "ansible.builtin.blockinfile": changed}


@pytest.mark.extended
def test_proxy_of_dnf_is_a_block_behind_the_line_of_the_owner_and_is_removed_alone(tmp_path: Path) -> None:
    conf, kept = tmp_path / "dnf.conf", tmp_path / "kept.conf"
    conf.write_text(DNF_CONF)
    find = "ansible.builtin.blockinfile"
    (present,) = (in_file(task, conf) for task in tasks_of("proxy", "present.yml") if find in task)
    (absent,) = (in_file(task, conf) for task in tasks_of("proxy", "absent.yml") if find in task)
    url = {"proxy_http": "http://me:secret@proxy:3128", "proxy_https": "", "proxy_none": ""}
    keep: dict[str, object] = {"ansible.builtin.copy": {"src": str(conf), "dest": str(kept)}}
    output = play(tmp_path, "proxy", [
        {**present, "vars": url, "register": "first"}, keep, {**present, "vars": url, "register": "second"},
        check("first is changed", "second is not changed"), {**absent, "vars": url},
    ], "-vvv")  # fmt: skip
    assert "secret" not in output
    lines = kept.read_text().splitlines()
    assert lines.index("proxy=http://me:secret@proxy:3128") > lines.index("proxy=http://mine:3128"), "the last applies"
    assert conf.read_text() == DNF_CONF


@pytest.mark.extended
def test_reset_removes_the_proxy_of_dnf_and_a_change_of_it_is_drift(tmp_path: Path) -> None:
    receipt: dict[str, object] = {"ansible.builtin.include_vars": str(ROLES / "proxy/vars/receipt.yml")}
    commands = tmp_path / "commands"
    write: dict[str, object] = {
        "ansible.builtin.copy": {"content": "{{ proxy_manages.refresh | to_json }}", "dest": str(commands)}
    }
    on_dnf, on_apt = ({"preflight_found": {"seen": {"packager": name}}} for name in ("dnf", "apt-get"))
    nothing = check("proxy_manages.refresh == []", **on_apt)
    managed = check("'/etc/dnf/dnf.conf' in proxy_manages.paths", **on_dnf)
    play(tmp_path, "proxy", [receipt, nothing, managed, {**write, "vars": on_dnf}])
    (command,) = json.loads(commands.read_text())
    conf = tmp_path / "dnf.conf"
    (task,) = (
        in_file(each, conf) for each in tasks_of("proxy", "present.yml") if "ansible.builtin.blockinfile" in each
    )
    conf.write_text(DNF_CONF)
    play(tmp_path, "proxy", [{**task, "vars": {"proxy_http": "http://me:secret@proxy:3128", "proxy_https": ""}}])
    assert "secret" in conf.read_text()
    subprocess.run(shlex.split(command.replace("/etc/dnf/dnf.conf", str(conf))), check=True, timeout=10)
    assert conf.read_text() == DNF_CONF


def library(name: str) -> ModuleType:
    """Import a module of playbooks/library, which is not a package."""
    found = importlib.util.spec_from_file_location(name, ansible.data_dir() / f"playbooks/library/{name}.py")
    assert found and found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


#: Ranges of ports that an inventory may contain, and others.
RANGES = ("2222", "2222-2299", " 2222 - 2299 ", "1-65535", "2222-2222",
          "2299-2222", "0-5", "1-65536", "2222-", "-2222", "2222-2230-2299", "many", "")  # fmt: skip


@pytest.mark.extended
@pytest.mark.parametrize(("role", "file"), [("firewall", "present.yml"), ("dataset", "main.yml")])
def test_role_accepts_the_same_ranges_of_ports_as_job_files(role: str, file: str, tmp_path: Path) -> None:
    task = tasks_of(role, file)[0]
    tasks: list[dict[str, object]] = []
    for ports in RANGES:
        try:
            first, last = port_range(ports)
        except ValueError:
            tasks += trial(task, "is not a range such as 2222-2299", tfctl_ports=ports)
            continue
        tasks += trial(task, "", tfctl_ports=ports)
        tasks.append(check(f"[{role}_first_port, {role}_last_port] == [{first}, {last}]", tfctl_ports=ports))
    play(tmp_path, role, tasks)


def nft(*entries: object) -> dict[str, object]:
    """Return the answer of `nft --json` as Ansible registers it."""
    return {"rc": 0, "stdout": json.dumps({"nftables": [{"metainfo": {"version": "1.0.6"}}, *entries]})}


def table(ports: object, *rules: str) -> dict[str, object]:
    """Return the table inet tfctl of two hosts as nft 1.0.6 lists it; a set without elements has no key for them."""
    sets: list[dict[str, object]] = [
        {"name": "ports", "elem": [ports]}, {"name": "hosts4", "elem": ["10.0.0.2", "10.0.0.1"]}, {"name": "hosts6"}
    ]  # fmt: skip
    return nft({"table": {"name": "tfctl"}}, *({"set": each} for each in sets), *({"rule": each} for each in rules))


def test_firewall_compares_sets_and_rules_of_the_kernel_with_its_own(tmp_path: Path) -> None:
    resolved = {"stdout_lines": ["10.0.0.1 STREAM a", "10.0.0.1 DGRAM", "10.0.0.2 STREAM b", "10.0.0.2 RAW"]}
    whole, rules = {"range": [2222, 2299]}, ("loopback", "v4", "v6")
    cases = [
        ("2222-2299", table(whole, *rules), True),
        ("2222", table(2222, *rules), True),
        ("2222-2299", table({"range": [2222, 2300]}, *rules), False),
        ("2222-2299", table(whole), False),
        ("2222-2299", {"rc": 1, "stdout": ""}, False),
    ]
    play(tmp_path, "firewall", [
        check(f"firewall_in_force == {expected}", tfctl_ports=ports, firewall_listed=listed, firewall_resolved=resolved)
        for ports, listed, expected in cases
    ])  # fmt: skip


def chain(table: str, hook: str = "input", **more: str) -> dict[str, object]:
    return {"chain": {"family": "inet", "table": table, "name": "in", "type": "filter", "hook": hook, **more}}


def test_firewall_finds_firewalld_and_chains_that_drop_packets_by_default(tmp_path: Path) -> None:
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
        check("firewall_dropping == []", firewall_chains=nft(*chains)),
        check("firewall_dropping == ['inet mine in']", firewall_chains=nft(*dropping)),
        *trial(firewalld, "", firewall_chains=nft(*dropping)),
        *trial(firewalld, "firewalld is active", firewall_chains=nft(*chains, chain("firewalld", policy="accept"))),
    ])  # fmt: skip


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
    manages = yaml.safe_load((ROLES / "firewall/vars/receipt.yml").read_text())["firewall_manages"]
    (removal,) = (task for task in tasks_of("firewall", "absent.yml") if "loop" in task)
    assert f"/{drop_in}" in manages["paths"] and f"/{drop_in}" in removal["loop"]


def test_shared_storage_finds_the_visible_mount_at_a_directory(tmp_path: Path) -> None:
    """The answers of findmnt are recorded."""
    stacked = {"filesystems": [
        {"target": "/srv/all", "source": "/dev/sda1", "fstype": "ext4"},
        {"target": "/srv/all", "source": "nas:/with space", "fstype": "nfs4"},
    ]}  # fmt: skip
    visible = "shared_storage_mount == {'target': '/srv/all', 'source': 'nas:/with space', 'fstype': 'nfs4'}"
    found = check(visible, shared_storage_findmnt={"rc": 0, "stdout": json.dumps(stacked)})
    nothing = check("shared_storage_mount.target == ''", shared_storage_findmnt={"rc": 1, "stdout": ""})
    play(tmp_path, "shared_storage", [found, nothing])


#: Kinds and sources, and the message of the role, or "".
SOURCES = (
    ("nfs", "nas:/all", ""),
    ("nfs", "[2001:db8::1]:/", ""),
    ("nfs", "nas", "tfctl_shared_source 'nas' is not HOST:/PATH"),
    ("nfs", "nas:/a\nWhat=b", "is not HOST:/PATH"),
    ("sshfs", "me@nas:/all", ""),
    ("sshfs", "nas:/all", "tfctl_shared_source 'nas:/all' is not USER@HOST:/PATH"),
)


@pytest.mark.extended
def test_shared_storage_checks_the_form_of_the_source(tmp_path: Path) -> None:
    task = tasks_of("shared_storage", "preflight.yml")[0]
    tasks: list[dict[str, object]] = []
    for kind, source, failure in SOURCES:
        tasks += trial(task, failure, shared_storage_kind=kind, shared_storage_source=source)
    play(tmp_path, "shared_storage", tasks)


#: A fake of systemctl(1) for one mount unit, beside the files "loaded" and "mounted": what systemd has read, and with
#: what it has mounted. While there is a file "busy", umount fails.
MOUNTS = """#!/bin/sh
cd "$MOUNTS"
test -e mounted && active=active || active=inactive
test -e unit && load=loaded || load=not-found
stop() { test ! -e mounted && return; test ! -e busy || { echo "umount: target is busy." >&2; exit 1; }; rm mounted; }
case $1 in
daemon-reload) cp unit loaded ;;
show) printf 'LoadState=%s\\nActiveState=%s\\n' $load $active ;;
is-enabled) echo enabled ;;
start) test -e mounted || cp loaded mounted ;;
stop) stop ;;
restart) stop; cp loaded mounted ;;
*) exit 2 ;;
esac
"""


@pytest.mark.extended
def test_shared_storage_mounts_with_new_options_also_if_the_directory_was_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/systemctl").write_text(MOUNTS)
    (tmp_path / "bin/systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("MOUNTS", str(tmp_path))
    kinds = ("ansible.builtin.template", "ansible.builtin.systemd_service")
    tasks = [task for task in tasks_of("shared_storage", "mount.yml") if {*kinds} & {*task}]
    for arguments in (task["ansible.builtin.template"] for task in tasks if "ansible.builtin.template" in task):
        arguments |= {
            "src": str(ROLES / "shared_storage/templates/etc/systemd/system/share.mount.j2"),
            "dest": f"{tmp_path}/unit",
        }
        for own in ("owner", "group"):  # tests need no root
            arguments.pop(own, None)

    def run(options: str, *words: str, fails: bool = False) -> None:
        target = "/mnt/all" if (tmp_path / "mounted").exists() else ""
        given = {"shared_storage_kind": "nfs", "shared_storage_source": "nas:/all", "shared_storage_dir": "/mnt/all"}
        given |= {"shared_storage_options": options}
        found = facts(**given, shared_storage_mount={"target": target})
        block: dict[str, object] = {"block": tasks, "rescue": [facts(busy=True)]}
        play(tmp_path, "shared_storage", [found, facts(busy=False), block, check(f"busy == {fails}")], *words)

    run("soft", "--check")
    assert not (tmp_path / "unit").exists()
    run("soft")
    assert ",soft\n" in (tmp_path / "mounted").read_text()
    (tmp_path / "busy").touch()
    run("soft")
    run("nfsvers=4.2", fails=True)
    assert ",soft\n" in (tmp_path / "mounted").read_text()
    (tmp_path / "busy").unlink()
    run("nfsvers=4.2", "--check")
    run("nfsvers=4.2")
    assert ",nfsvers=4.2\n" in (tmp_path / "mounted").read_text()


def test_mount_that_is_in_use_when_its_options_change_has_a_remedy_of_its_own() -> None:
    remedy = remedy_for("Unable to stop service mnt-all.mount: Job for mnt-all.mount failed.")
    assert remedy and "end what else uses the directory" in remedy.text


@pytest.mark.extended
@pytest.mark.parametrize(
    ("kind", "source", "options"),
    [
        ("nfs", "nas:/all", "Type=nfs\nOptions=hard,noatime,_netdev,nofail,soft"),
        ("sshfs", "me@nas:/50%", "uid=881,gid=881,_netdev,nofail,soft"),
    ],
)
def test_shared_storage_creates_a_mount_unit_that_systemd_accepts(
    kind: str, source: str, options: str, tmp_path: Path
) -> None:
    unit = tmp_path / "mnt-all.mount"
    template = ROLES / "shared_storage/templates/etc/systemd/system/share.mount.j2"
    given = {"tfctl_shared_storage": kind, "tfctl_shared_source": source, "tfctl_shared_dir": "/mnt/all"}
    task: dict[str, object] = {"ansible.builtin.template": {"src": str(template), "dest": str(unit), "mode": "0644"}}
    play(tmp_path, "shared_storage", [{**task, "vars": {**given, "tfctl_shared_options": "soft", "tfctl_uid": 881}}])
    verify = ["systemd-analyze", "verify", "--man=no", str(unit)]
    said = subprocess.run(verify, capture_output=True, text=True, timeout=60)
    assert [line for line in said.stderr.splitlines() if "mnt-all.mount" in line] == []
    assert f"What={source.replace('%', '%%')}\nWhere=/mnt/all\n" in unit.read_text()
    assert options in unit.read_text()


@pytest.mark.extended
def test_shared_storage_names_its_unit_like_systemd_and_lists_it_in_its_receipt(tmp_path: Path) -> None:
    """A reset removes what the receipt lists."""
    tasks: list[dict[str, object]] = []
    receipt: dict[str, object] = {"ansible.builtin.include_vars": str(ROLES / "shared_storage/vars/receipt.yml")}
    for place in ("/srv/tfctl", "/mnt/my-share//all/", "/srv/./.hidden.d", "/srv/ä:b_c~d@e\\f%g"):
        escape = ["systemd-escape", "--path", "--suffix=mount", place]
        unit = subprocess.run(escape, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
        given = {"tfctl_shared_storage": "nfs", "tfctl_shared_dir": place, "expected": unit}
        listed = (
            "shared_storage_manages.units == [expected]",
            "shared_storage_manages.paths == ['/etc/systemd/system/' ~ expected]",
            "shared_storage_manages.directories == [tfctl_shared_dir]",
        )
        tasks += [receipt, check(*listed, **given)]
    nothing = check("shared_storage_manages.values() | flatten == []", tfctl_shared_storage="existing")
    play(tmp_path, "shared_storage", [*tasks, nothing])


@pytest.mark.extended
def test_roles_that_compare_hosts_ignore_those_that_skip_them(tmp_path: Path) -> None:
    """A variable of a group enables the roles dataset and shared_storage on some hosts of the play only."""
    found = {"dataset_found": {"missing": ["cifar10"], "archived": []}, "shared_storage_probe": {"stdout": "/srv/x"}}
    own = {**facts(**found), "when": "inventory_hostname != 'login'"}
    (installs,) = (task["when"] for task in tasks_of("dataset", "main.yml") if "dataset_entry" in str(task.get("when")))
    checks = ["dataset_with_archive == []", "dataset_without_set == ['gpu1', 'gpu2']", installs[-1]]
    names = "login,gpu1,gpu2"
    play(tmp_path, "dataset", [own, check(*checks, dataset_entry={"name": "cifar10"})], hosts=names)
    play(tmp_path, "shared_storage", [own, check("shared_storage_first == 'gpu1'")], hosts=names)


def test_ssh_mesh_keeps_its_own_lines_of_absent_hosts_and_copies_no_key_of_the_user(tmp_path: Path) -> None:
    known = "b,10.0.0.2 ssh-ed25519 AAAA b\n"
    own = 'restrict,from="10.0.0.2" ssh-ed25519 BBBB tfctl b'
    accepted = f"ssh-rsa CCCC b\n# BEGIN tfctl ssh_mesh\n{own}\n{own}\nssh-rsa CCCC b\n# END tfctl ssh_mesh\n"
    read = {"results": [{"content": base64.b64encode(text.encode()).decode()} for text in (known, accepted)]}
    skipped = {"results": [{"skipped": True}, {"skipped": True}]}
    present = {**facts(ssh_mesh_public_key={"stdout": "ssh-ed25519 DDDD"}), "when": "inventory_hostname == 'a'"}
    play(tmp_path, "ssh_mesh", [
        present,
        check("ssh_mesh_absent == ['b']"),
        check(f"ssh_mesh_earlier_lines == [[{known.strip()!r}], [{own!r}]]", ssh_mesh_earlier=read),
        check("ssh_mesh_earlier_lines == [[], []]", ssh_mesh_earlier=skipped),
    ], hosts="a,b")  # fmt: skip


@pytest.mark.extended
def test_ssh_mesh_writes_its_lines_in_one_order_whichever_hosts_take_part(tmp_path: Path) -> None:
    """Without a in the run, b takes the lines of a from its files."""
    (tmp_path / "templates").symlink_to(ROLES / "ssh_mesh/templates")
    own = facts(
        ssh_mesh_public_key={"stdout": "ssh-ed25519 AAAA"}, all_ipv4_addresses=["10.0.0.1"], all_ipv6_addresses=[],
        ssh_host_key_ed25519_public="BBBB", ssh_host_key_ed25519_public_keytype="ssh-ed25519",
    )  # fmt: skip
    read, *write = tasks_of("ssh_mesh", "hosts.yml")[:3]
    read["loop"] = [f"{tmp_path}/{{{{ inventory_hostname }}}}-{number}" for number in range(len(write))]
    for task, path in zip(write, read["loop"], strict=True):
        task["ansible.builtin.blockinfile"]["path"] = path
    for words, changed in (((), 2), (("--limit", "b"), 0)):
        output = play(tmp_path, "ssh_mesh", [own, read, *write], *words, hosts="a,b")
        assert re.search(rf"^b .*changed={changed} ", output, re.MULTILINE), output
    assert (tmp_path / "b-0").read_text().splitlines()[1:-1] == ["a ssh-ed25519 BBBB a", "b ssh-ed25519 BBBB b"]


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A data set of two shards whose archive has not been copied to the host yet."""
    monkeypatch.setattr(tfctl_datasets, "ARCHIVES", tmp_path / "archives")
    path = tmp_path / "set.tgz"
    with tarfile.open(path, "w:gz") as file:
        for number in range(2):
            file.addfile(tarfile.TarInfo(f"train-{number}"), io.BytesIO())
    right = hashlib.sha256(path.read_bytes()).hexdigest()
    given = {"name": "set", "source": str(path), "sha256": right, "unpack": True, "dest": str(tmp_path / "sets")}
    assert datasets.faults(given) == []
    return datasets.completed(given)


def test_data_set_names_a_missing_file_and_is_repaired_from_its_archive(entry: dict[str, Any]) -> None:
    dataset = Dataset({**entry, "files": {"train-*": 2}})
    assert dataset.difference().endswith("sets/set is missing")
    dataset.install(f"file://{entry['source']}")
    assert dataset.difference() == ""
    (dataset.place / "train-1").unlink()
    assert dataset.difference().endswith("train-1 has changed since it was installed")
    dataset.install("http://127.0.0.1:9/nobody")  # not used: the archive is on the host
    assert dataset.difference() == ""


def test_data_set_is_copied_from_another_host_without_the_proxy(
    entry: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(entry["source"]).parent
    serve = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as peer:
        threading.Thread(target=peer.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{peer.server_port}"
        with pytest.raises(ModuleFailed, match="cannot be fetched"):
            Dataset(entry).install(f"{address}/set.tgz")
        (folder / "set.tgz").rename(folder / entry["sha256"])
        store = FileStore(tfctl_datasets.ARCHIVES, [StoredFile("set", entry["sha256"], None)])
        assert (store.missing() != [], store.fetch(address), store.missing()) == (True, "", [])
        peer.shutdown()
    Dataset(entry).install("http://127.0.0.1:9/nobody")  # not used: the archive is on the host
    assert Dataset(entry).difference() == ""


@pytest.mark.extended
def test_data_set_that_cannot_be_installed_leaves_no_archive_in_the_temporary_directory(tmp_path: Path) -> None:
    archive, upload = tmp_path / "set.tgz", tmp_path / "tfctl-set"
    archive.write_text("archive")
    (task,) = tasks_of("dataset", "source.yml")
    for each in task["block"]:
        if each.pop("tfctl_dataset", None):
            each["ansible.builtin.fail"] = {"msg": "another hash"}
        for own in ("owner", "group"):  # tests need no root
            each.get("ansible.builtin.copy", {}).pop(own, None)
    given = facts(dataset_entry={"name": "set", "source": str(archive)}, dataset_is_local=True)
    kept = facts(dataset_upload=str(upload))
    output = play(tmp_path, "dataset", [given, kept, {"block": [task], "rescue": [check("true")]}])
    assert "another hash" in output and "changed=0" in output
    assert not upload.exists()


def test_data_set_with_a_missing_shard_is_not_installed(entry: dict[str, Any]) -> None:
    dataset = Dataset({**entry, "files": {"train-*": 3}})
    with pytest.raises(ModuleFailed, match=r"the archive of set contains 2 files train-\*, not 3"):
        dataset.install(f"file://{entry['source']}")
    assert [path.name for path in dataset.place.parent.iterdir()] == []


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"sha256": ""}, "sha256 is not 64 lowercase hexadecimal digits"),
        ({"source": "ftp://x/y"}, "neither a URL nor an absolute path"),
        ({"name": "Set"}, "is not a valid name"),
        ({"dest": "../x"}, "is not an absolute path"),
        ({"sha1": "x"}, "unknown key sha1"),
    ],
)
def test_data_set_entry_with_an_invalid_key_is_refused_with_a_remedy(
    entry: dict[str, Any], more: dict[str, Any], expected: str
) -> None:
    (fault,) = datasets.faults({**entry, **more})
    assert expected in fault["message"] and fault["remedy"] and fault["kind"] == "inventory"


def test_data_set_entry_needs_only_a_name_when_its_source_is_built_in() -> None:
    assert [datasets.faults({"name": name}) for name in ("cifar10", "cifar10-binary")] == [[], []]
    assert len(datasets.faults({"name": "imagenet-tfrecords"})) == 2, "source and sha256 are missing"
    assert datasets.completed({"name": "cifar10", "dest": "/data"})["dest"] == "/data"
