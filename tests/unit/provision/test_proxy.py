"""The role proxy, as far as it works without a host: its checks, its certificates and the configuration of dnf."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.provision.role_play import MANAGES, SYSTEMCTL, check, facts, play, tasks_of, trial


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
    assert tasks[1].pop("ansible.builtin.include_role") == {"name": "tfctl.cluster.packages"}
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
    receipt = yaml.safe_load(MANAGES.read_text())
    command = str(receipt["provision_update_certificates"]).replace("/usr/sbin", str(tmp_path))
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
    receipt: dict[str, object] = {"ansible.builtin.include_vars": str(MANAGES)}
    commands = tmp_path / "commands"
    write: dict[str, object] = {
        "ansible.builtin.copy": {"content": "{{ provision_manages.proxy.refresh | to_json }}", "dest": str(commands)}
    }
    on_dnf, on_apt = ({"preflight_found": {"seen": {"packager": name}}} for name in ("dnf", "apt-get"))
    nothing = check("provision_manages.proxy.refresh == []", **on_apt)
    managed = check("'/etc/dnf/dnf.conf' in provision_manages.proxy.paths", **on_dnf)
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
