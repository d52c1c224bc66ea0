"""Ansible inventories become hosts. Real Ansible reads them, which takes 0.4 s each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tfctl.errors import BadFile, Exit
from tfctl.model.host import Host, Inventory, Ssh
from tfctl.provision.events import Event, Warned
from tfctl.provision.run import check_inventory
from tfctl.remote import hostvars
from tfctl.remote.ansible_cfg import AnsibleSettings
from tfctl.remote.inventory import default_path, load
from tfctl.remote.inventory_sources import joined

#: With it, Ansible starts more quickly.
PRECOMPILED = Path(__file__).parents[1] / "fakes/precompiled"


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, a cache and a working directory for the test, and no variable of Ansible in the environment."""
    for name in [name for name in os.environ if name.startswith("ANSIBLE_")]:
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir(mode=0o755)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(PRECOMPILED))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@pytest.fixture
def ansible_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """A function that returns how often ansible-inventory has run; a script on PATH counts its calls."""
    real = Path(sys.executable).parent / "ansible-inventory"
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin/ansible-inventory"
    command.write_text(f'#!/bin/sh\necho >> {tmp_path}/tally\nexec {real} "$@"\n')
    command.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere/python"))
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    tally = tmp_path / "tally"
    return lambda: len(tally.read_text().splitlines()) if tally.exists() else 0


def refusal(path: Path) -> BadFile:
    with pytest.raises(BadFile) as caught:
        load(path)
    error = caught.value
    assert error.exit == Exit.BAD_FILE
    assert error.message.startswith(str(path))
    assert "\n" not in error.message
    assert error.remedy
    return error


INI = """\
[ps]
zeta ansible_host=10.0.0.9 ansible_port=2222
alpha ansible_host=10.0.0.1

[worker]
node[1:3]

[gpu:children]
worker

[all:vars]
ansible_user=ops
ansible_ssh_common_args='-o UserKnownHostsFile=/kh -o "ProxyCommand=nc %h %p"'
ansible_ssh_extra_args=-4
"""
ARGS = ("-o", "UserKnownHostsFile=/kh", "-o", "ProxyCommand=nc %h %p", "-4")


def test_inventory_ini_is_read_with_group_vars_and_host_vars(work: Path, ansible_runs: Callable[[], int]) -> None:
    path = work / "hosts.ini"
    path.write_text(INI)
    (work / "group_vars").mkdir()
    (work / "group_vars/gpu.yml").write_text(
        "tfctl_stack: tf2.15\ntfctl_ports: 3000-3009\ntfctl_output_roots: [/srv/tfctl, /mnt/]\nother: '{{ x }}'\n"
        "ansible_ssh_private_key_file: ~/id\n"
    )
    (work / "host_vars").mkdir()
    (work / "host_vars/node2.yml").write_text("tfctl_address: 192.168.0.2\nansible_user: root\n")
    # These variables belong to the current directory, not to the inventory, and must not be read.
    (work / "elsewhere/group_vars").mkdir(parents=True)
    (work / "elsewhere/group_vars/all.yml").write_text("ansible_port: 1\n")
    os.chdir(work / "elsewhere")

    def node(name: str, user: str = "ops", address: str | None = None) -> Host:
        ssh = Ssh(name, user=user, key=f"{work.parent}/home/id", args=ARGS)
        return Host(name, ssh, address, "tf2.15", (3000, 3009), ("/srv/tfctl", "/mnt"))

    hosts = (
        Host("zeta", Ssh("10.0.0.9", 2222, "ops", args=ARGS), "10.0.0.9"),
        Host("alpha", Ssh("10.0.0.1", None, "ops", args=ARGS), "10.0.0.1"),
        node("node1"),
        node("node2", "root", "192.168.0.2"),
        node("node3"),
    )
    workers = ("node1", "node2", "node3")
    groups = {
        "all": ("zeta", "alpha", *workers),
        "ungrouped": (),
        "ps": ("zeta", "alpha"),
        "gpu": workers,
        "worker": workers,
    }
    expected = Inventory(str(path), hosts, groups)
    for _ in ("asked", "remembered"):
        assert load(Path("../hosts.ini")) == expected
    assert ansible_runs() == 1


def test_inventory_yaml_keeps_the_order_of_hosts_and_lists(work: Path) -> None:
    (work / "hosts.yml").write_text(
        "all:\n  children:\n    worker:\n      hosts: {w2: {}, w1: {tfctl_stack_dirs: [stacks, /srv/stacks]}}\n"
        "    chief:\n      hosts: {c1: {}, w1: {}}\n    everything: {children: {chief: {}, worker: {}}}\n"
    )
    for _ in ("asked", "remembered"):
        found = load(work / "hosts.yml")
        assert [host.name for host in found.hosts] == ["w2", "w1", "c1"]
        assert found.groups["everything"] == ("w2", "w1", "c1")
        assert found.groups["chief"] == ("w1", "c1")
        assert found.stack_dirs == found.hosts[1].stack_dirs == (f"{work}/stacks", "/srv/stacks")


def test_inventory_directory_is_merged_and_read_again_after_a_change(
    work: Path, ansible_runs: Callable[[], int]
) -> None:
    (work / "lab/group_vars").mkdir(parents=True)
    (work / "lab/a.ini").write_text("[gpu]\na\n")
    (work / "lab/b.yml").write_text("gpu: {hosts: {b: {}}}\n")
    (work / "lab/group_vars/gpu.yml").write_text("tfctl_stack: one\n")
    for _ in range(2):
        assert [(host.name, host.stack) for host in load(work / "lab").hosts] == [("a", "one"), ("b", "one")]
    assert ansible_runs() == 1
    (work / "lab/group_vars/gpu.yml").write_text("tfctl_stack: two\n")
    assert [host.stack for host in load(work / "lab").hosts] == ["two", "two"]
    (work / "lab/b.yml").write_text("gpu: {hosts: [\n")
    assert "b.yml" in refusal(work / "lab").message


@pytest.mark.extended
def test_inventory_program_is_run_each_time(work: Path, ansible_runs: Callable[[], int]) -> None:
    path = work / "cloud"
    listing = {"gpu": {"hosts": ["b", "a"]}, "_meta": {"hostvars": {"a": {"ansible_host": "10.0.0.1"}}}}
    path.write_text(f"#!/bin/sh\necho '{json.dumps(listing)}'\n")
    path.chmod(0o755)
    for _ in range(2):
        assert [(host.name, host.ssh.host) for host in load(path).hosts] == [("b", "b"), ("a", "10.0.0.1")]
    assert ansible_runs() == 2
    path.write_text("#!/bin/sh\necho 'the cloud is down' >&2\nexit 1\n")
    assert "the cloud is down" in refusal(path).message
    path.write_text("#!/bin/sh\necho hello\n")
    assert "JSON" in refusal(path).message
    path.write_text("#!/bin/sh\necho started >&2\necho 'no such region' >&2\nexit 2\n")
    assert refusal(path).message.endswith("non-zero exit code 2 (no such region)")
    path.write_text("#!/no/such/shell\n")
    error = refusal(path)
    assert "names /no/such/shell" in error.message
    assert "correct the line" in error.remedy
    path.write_text("#!/bin/sh\r\necho {}\r\n")
    assert "dos2unix" in refusal(path).remedy


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no hosts in it"),
        ("a b c\n", "Expected key=value"),
    ],
)
def test_inventory_that_is_invalid_is_refused(work: Path, text: str, message: str) -> None:
    (work / "hosts.ini").write_text(text)
    assert message in refusal(work / "hosts.ini").message


#: Encrypted by ansible-vault with the password "pw": the variable tfctl_stack.
ENCRYPTED = """\
$ANSIBLE_VAULT;1.1;AES256
65336137336161383265356466373036306530326366616136663363643330383032616333353865
3538386430626231616464363032653534646262343537320a393861626343633030343961366536
63396337306238633735313233646162613164333865653237323266373830383731663430656162
3639666633613031370a633862616264616232623331343962653765373930303866623838326364
6432
"""


@pytest.mark.parametrize(
    ("password", "message", "remedy"),
    [
        (None, "there is no password for it", "ANSIBLE_VAULT_PASSWORD_FILE"),
        ("prompt", "there is no password for it", "ANSIBLE_VAULT_PASSWORD_FILE"),
        ("wrong", "another password", "ANSIBLE_VAULT_PASSWORD_FILE"),
        ("missing", "was not found", "correct ANSIBLE_VAULT_PASSWORD_FILE"),
    ],
)
def test_inventory_that_cannot_be_decrypted_says_how_to_give_the_password(
    work: Path, password: str | None, message: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "group_vars/all").mkdir(parents=True)
    (work / "group_vars/all/vault.yml").write_text(ENCRYPTED)
    (work / "hosts.ini").write_text("a\n")
    (work / "wrong").write_text("not it\n")
    if password == "prompt":
        (work / "ansible.cfg").write_text("[defaults]\nask_vault_pass = True\n")
    elif password:
        monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(work / password))
    error = refusal(work / "hosts.ini")
    assert message in error.message
    assert remedy in error.remedy


@pytest.mark.parametrize(
    ("name", "text", "message", "remedy"),
    [
        ("x.aws_ec2.yml", "plugin: amazon.aws.aws_ec2\n", "unknown plugin 'amazon.aws.aws_ec2'", "install amazon.aws "),
        ("x.yml", "plugin: nope\n", "unknown plugin 'nope'", "correct `plugin:`"),
        ("x.yml", "plugin: ansible.builtin.generator\nstrict: 5x\n", "'layers'", "ansible-inventory --list"),
        ("x.py", "#!/usr/bin/env python3\nprint('{}')\n", "not executable", "chmod +x "),
        ("x", "#!/bin/sh\necho {}\n", "not executable", "chmod +x "),
    ],
)
def test_inventory_plugin_or_program_that_is_missing_is_named(
    work: Path, name: str, text: str, message: str, remedy: str
) -> None:
    (work / name).write_text(text)
    error = refusal(work / name)
    assert message in error.message
    assert remedy in error.remedy


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("gpu:\n  hosts: {a: {}}\n  stacks: [x]\n", "Skipping key (stacks) in group (gpu) as it is not a mapping"),
        ("gpu:\n  hosts: {a: {}}\n  host: {b: {}}\n", "Skipping unexpected key (host) in group (gpu)"),
        ("gpu-nodes: {hosts: {a: {}}}\n", "Invalid characters were found in group names but not replaced"),
        ("gpu: {hosts: {a: {}}}\na: {hosts: {b: {}}}\n", "Found both group and host with same name: a"),
    ],
)
def test_warnings_of_ansible_are_kept(work: Path, text: str, warning: str) -> None:
    path = work / "hosts.yml"
    path.write_text(text)
    for _ in ("asked", "remembered"):
        (found,) = load(path).warnings
        assert found.startswith(f"{path}: {warning}")
        assert "class" not in found


def test_provisioning_reports_the_warnings_of_ansible(work: Path) -> None:
    (work / "hosts.yml").write_text("gpu:\n  hosts: {a: {}}\n  stacks: [x]\n")
    events: list[Event] = []
    check_inventory(work / "hosts.yml", None, events.append)
    assert events == [Warned(str(work / "hosts.yml"), "Skipping key (stacks) in group (gpu) as it is not a mapping")]


def test_variable_that_ansible_skips_is_refused(work: Path) -> None:
    (work / "hosts.yml").write_text("gpu:\n  hosts: {a: {}}\n  tfctl_output_roots: [/mnt/shared]\n")
    error = refusal(work / "hosts.yml")
    assert "group gpu: tfctl_output_roots is a key of the group itself" in error.message
    assert error.remedy == "write it below `vars:` of gpu"


def test_several_inventories_are_merged_as_ansible_merges_them(work: Path, ansible_runs: Callable[[], int]) -> None:
    for name in ("one", "two"):
        (work / name / "group_vars").mkdir(parents=True)
        (work / name / "group_vars/all.yml").write_text(f"tfctl_stack: {name}\nansible_user: {name}\n")
    (work / "one/hosts.ini").write_text("[gpu]\na ansible_port=1\nb\n")
    (work / "two/hosts.yml").write_text("gpu: {hosts: {c: {}}}\nall: {hosts: {a: {ansible_port: 2}}}\n")
    both = joined([Path("one/hosts.ini"), Path("two/hosts.yml"), Path("d,e")])
    assert joined([both]) == both == Path(f"{work}/one/hosts.ini,{work}/two/hosts.yml,d,e,")
    for _ in ("asked", "remembered"):
        found = load(both)
        assert [host.name for host in found.hosts] == ["d", "e", "a", "b", "c"]
        assert found.groups["gpu"] == ("a", "b", "c")
        assert {host.stack for host in found.hosts} == {"two"}
        assert found.hosts[2].ssh.port == 2
        assert found.source == str(both)
    assert ansible_runs() == 1
    (work / "two/hosts.yml").write_text("gpu: {hosts: {c: {tfctl_stack_dirs: [stacks]}}}\n")
    assert "'stacks' is relative, and the inventories are in several directories" in refusal(both).message
    (work / "two/hosts.yml").unlink()
    with pytest.raises(BadFile, match=r"two/hosts\.yml: no such inventory"):
        load(both)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["a.ini"], "{work}/a.ini"),
        (["./x/../a.ini", "b"], "{work}/a.ini,{work}/b"),
        (["a.ini,b"], "{work}/a.ini,{work}/b"),
        (["with,comma.ini"], "{work}/with,comma.ini"),
        (["node1,"], "node1,"),
        (["node1, node2 ,"], "node1,node2,"),
        (["a.ini,node1"], "a.ini,node1,"),
        (["missing"], "{work}/missing"),
    ],
)
def test_inventory_option_is_read_as_ansible_reads_it(work: Path, given: list[str], expected: str) -> None:
    for name in ("a.ini", "with,comma.ini"):
        (work / name).touch()
    (work / "b").mkdir()
    assert str(joined(list(map(Path, given)))) == expected.format(work=work)


def test_list_of_hosts_is_an_inventory(work: Path) -> None:
    (work / "group_vars").mkdir()
    (work / "group_vars/all.yml").write_text("ansible_user: not-mine\n")
    found = load(joined([Path("10.0.0.1,10.0.0.2")]))
    assert [host.ssh for host in found.hosts] == [Ssh("10.0.0.1"), Ssh("10.0.0.2")]
    assert found.source == "10.0.0.1,10.0.0.2,"


def test_inventory_that_is_missing_is_refused_with_a_remedy(work: Path) -> None:
    error = refusal(work / "hosts.ini")
    assert error.message == f"{work}/hosts.ini: no such inventory"
    assert "tfctl init" in error.remedy


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ("ansible_host={{ ip }}", "ansible_host: '{{ ip }}' is a template"),
        ("ansible_port={{ port }}", "ansible_port: '{{ port }}' is a template"),
        ("ansible_user={{ me }}", "ansible_user: '{{ me }}' is a template"),
        ("ansible_ssh_private_key_file={{ lookup(1) }}", "ansible_ssh_private_key_file: "),
        ("ansible_ssh_common_args=-J {{ jump }}", "ansible_ssh_common_args: '{{ jump }}' is a template"),
        ("ansible_ssh_extra_args={% if a %}-4{% endif %}", "ansible_ssh_extra_args: '{% if a %}' is a template"),
        ("tfctl_address={{ ip }}", "tfctl_address: "),
        ("tfctl_stack={{ s }}", "tfctl_stack: "),
        ("tfctl_ports={{ a }}-{{ b }}", "tfctl_ports: "),
        ("tfctl_output_roots={{ r }}", "tfctl_output_roots: "),
        ("ansible_host=a b", "ansible_host: 'a b' is not the address"),
        ("ansible_host=-oProxyCommand=x", "is not the address of a host"),
        ("ansible_host=10.0.0.1:22", "ansible_host: '10.0.0.1:22' is more than an address: it holds a port"),
        ("ansible_ssh_host=ops@gpu1", "ansible_host: 'ops@gpu1' is more than an address: it holds a user"),
        (
            "ansible_host=[2001:db8::1]:22",
            "ansible_host: '[2001:db8::1]:22' is more than an address",
        ),
        ("ansible_host=gpu1/srv", "ansible_host: 'gpu1/srv' is more than an address: it holds a path"),
        ("tfctl_address=10.0.0.1:2222", "tfctl_address: '10.0.0.1:2222' is more than an address: it holds a port"),
        ("tfctl_address=ops@10.0.0.1", "tfctl_address: 'ops@10.0.0.1' is more than an address: it holds a user"),
        ("tfctl_address=10.0.0.1/24", "tfctl_address: '10.0.0.1/24' is more than an address: it holds a path"),
        ("tfctl_address=10.0.0.1, 10.0.0.2", "tfctl_address: '10.0.0.1, 10.0.0.2' is not the address of a host"),
        ("tfctl_stack=tf2/15", "tfctl_stack: 'tf2/15' is not the name of a stack"),
        ("tfctl_address=a\\tb", "tfctl_address: "),
        ("tfctl_stack=a\tb", "tfctl_stack: control character '\\t' at position 1"),
        ("tfctl_ssh=telnet", "tfctl_ssh: 'telnet' is not a transport"),
        ("ansible_connection=docker", "ansible_connection: 'docker' is neither ssh nor local"),
        ("ansible_port=0", "ansible_port: '0' is not a port"),
        ("ansible_port=ssh", "ansible_port: 'ssh' is not a port"),
        ("tfctl_ports=70000-70001", "tfctl_ports: 70000-70001: the range must ascend and lie within 1-65535"),
        ("tfctl_ports=2299-2222", "tfctl_ports: 2299-2222: the range must ascend"),
        ("tfctl_ports=many", "tfctl_ports: 'many' is not a range such as 2222-2299"),
        ("tfctl_output_roots=data", "tfctl_output_roots: 'data' is not an absolute path"),
        ("tfctl_output_roots=/srv/../etc", "tfctl_output_roots: "),
        ("tfctl_output_roots=/", "tfctl_output_roots: "),
        ('ansible_ssh_common_args=-o "A', "ansible_ssh_common_args: no closing quotation"),
    ],
)
def test_host_variable_that_is_invalid_is_refused(variables: str, message: str) -> None:
    name, _, value = variables.partition("=")
    with pytest.raises(BadFile) as caught:
        hostvars.host(Path("/hosts.ini"), "node1", {name: value}, AnsibleSettings(None, {}))
    assert caught.value.message.startswith("/hosts.ini: host node1: ")
    assert message in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("variable", "value", "remedy"),
    [
        ("ansible_host", "ops@gpu1:22", "write ops as ansible_user; write the port as ansible_port"),
        (
            "ansible_host",
            "1.2.3.4 10.0.0.4",
            "the one for other hosts is tfctl_address, options of ssh are ansible_ssh_c",
        ),
        ("tfctl_address", "10.0.0.1:2222", "the ports of jobs are tfctl_ports; that of ssh is ansible_port"),
        ("tfctl_address", "10.0.0.1 10.0.0.2", "write one address, at which all other hosts reach this one"),
    ],
)
def test_address_with_more_in_it_is_refused_with_the_variable_for_that(variable: str, value: str, remedy: str) -> None:
    with pytest.raises(BadFile) as caught:
        hostvars.host(Path("/hosts.ini"), "node1", {variable: value}, AnsibleSettings(None, {}))
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("end", ['"', "{{ jump }}", "{{ jump", "\n"])
def test_refusal_of_ssh_arguments_does_not_print_a_password_in_them(end: str) -> None:
    value = f"-o ProxyCommand=sshpass -p hunter2 ssh {end}"
    with pytest.raises(BadFile, match="ansible_ssh_common_args: ") as caught:
        hostvars.host(Path("/hosts.ini"), "node1", {"ansible_ssh_common_args": value}, AnsibleSettings(None, {}))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["a b", "-a", "a/b", "a\u0007b", "..", "a\u202eb", "a\u200bb", "a" * 256])
def test_host_name_that_is_invalid_is_refused(name: str) -> None:
    with pytest.raises(BadFile) as caught:
        hostvars.host(Path("/hosts.ini"), name, {"ansible_host": "10.0.0.1"}, AnsibleSettings(None, {}))
    assert f"no host can be called {name!r}" in caught.value.message


#: Loads the inventory, and prints which modules that takes.
LOAD = """
import sys
from pathlib import Path
from tfctl.remote.inventory import load
load(Path("hosts.ini"))
print([name for name in ("yaml", "ansible", "paramiko", "subprocess", "asyncio") if name in sys.modules])
"""


def test_host_variables_are_accepted_in_each_form_and_cached(work: Path) -> None:
    """A cached inventory is loaded without Ansible and heavy imports."""
    (work / "hosts.ini").write_text(
        "plain\n"
        "transport tfctl_ssh=openssh ansible_password=secret\n"
        "ports tfctl_ports=2222\n"
        "address ansible_host=fe80::1%eth0\n"
        "paths tfctl_output_roots=/a,/b/ tfctl_stack_dirs='../x, ~/y' ansible_ssh_private_key_file=keys/id\n"
    )
    for _ in ("asked", "remembered"):
        hosts = {host.name: host for host in load(work / "hosts.ini").hosts}
        assert hosts["plain"].ssh == Ssh("plain")
        assert hosts["transport"].ssh == Ssh("transport", transport="openssh", password=True)
        assert "secret" not in repr(hosts["transport"])
        assert hosts["ports"].ports == (2222, 2222)
        assert hosts["address"].ssh.host == "fe80::1%eth0"
        paths = hosts["paths"]
        assert (paths.output_roots, paths.ssh.key) == (("/a", "/b"), str(work / "keys/id"))
        assert paths.stack_dirs == (f"{work.parent}/x", str(Path.home() / "y"))
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]"


TEMPLATES = """\
all:
  vars:
    domain: example.org
    ansible_host: "{{ inventory_hostname }}.{{ domain }}"
    ansible_user: "{{ login | default('ops') }}"
    tfctl_output_roots: ["/mnt/{{ domain }}", /srv]
    tfctl_ports: "{% if domain %}3000{% endif %}-3009"
    secret: "{{ lookup('ansible.builtin.pipe', 'touch evaluated') }}"
  hosts:
    a: {}
    b: {login: root, tfctl_address: 10.0.0.2}
"""


def test_templates_of_variables_that_tfctl_reads_are_evaluated_by_ansible(work: Path) -> None:
    (work / "hosts.yml").write_text(TEMPLATES)
    a, b = load(work / "hosts.yml").hosts
    assert (a.ssh.host, a.ssh.user, a.address, a.ports) == ("a.example.org", "ops", "a.example.org", (3000, 3009))
    assert (b.ssh.host, b.ssh.user, b.address) == ("b.example.org", "root", "10.0.0.2")
    assert a.output_roots == ("/mnt/example.org", "/srv")
    assert not (work / "evaluated").exists(), "other variables are not evaluated"


def test_template_that_cannot_be_evaluated_is_named(work: Path) -> None:
    (work / "hosts.ini").write_text("a ansible_host='{{ ansible_facts.fqdn }}'\n")
    error = refusal(work / "hosts.ini")
    assert "ansible_host: Ansible cannot compute the value: " in error.message
    assert "fqdn" in error.message
    assert "define in the inventory" in error.remedy


#: The user "ops", encrypted with the password "pw".
USER = """\
all:
  hosts:
    a:
      ansible_user: !vault |
{user}
      ansible_become_password: !vault |
{user}
"""


def test_encrypted_variable_that_tfctl_reads_is_decrypted_and_not_stored(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "pw").write_text("pw\n")
    words = ["encrypt_string", "--vault-password-file", "pw", "ops-of-the-vault"]
    program = Path(sys.executable).parent / "ansible-vault"
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=60, check=True)
    (work / "hosts.yml").write_text(USER.format(user=done.stdout.partition("\n")[2].rstrip()))
    error = refusal(work / "hosts.yml")
    assert "there is no password for it" in error.message
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", "pw")
    assert load(work / "hosts.yml").hosts[0].ssh.user == "ops-of-the-vault"
    stored = (work.parent / "cache").rglob("*")
    assert not any("ops-of-the-vault" in file.read_text() for file in stored if file.is_file())


def test_refusal_names_the_inventory_and_the_host(work: Path) -> None:
    (work / "hosts.yml").write_text("all: {hosts: {a: {tfctl_stack: !unsafe tf2, tfctl_address: !unsafe '{{ x'}}}\n")
    assert refusal(work / "hosts.yml").message == f"{work}/hosts.yml: host a: tfctl_address: '{{{{ x' is a template"


def test_ansible_cfg_provides_inventory_user_key_and_ssh_arguments(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = work / "inventory/hosts.ini"
    path.parent.mkdir()
    path.write_text("a\nb ansible_user=own\n")
    assert default_path() is None
    (work / "ansible.cfg").write_text(
        "[defaults]\ninventory = inventory/hosts.ini ; ours\nremote_user = cfg\nprivate_key_file = keys/id\n"
        "[ssh_connection]\nssh_args = -o ControlMaster=auto\n"
    )
    assert default_path() == path
    rest = (str(work / "keys/id"), ("-o", "ControlMaster=auto"))
    assert [host.ssh for host in load(path).hosts] == [Ssh("a", None, "cfg", *rest), Ssh("b", None, "own", *rest)]
    monkeypatch.setenv("ANSIBLE_REMOTE_USER", "env")
    assert [host.ssh.user for host in load(path).hosts] == ["env", "own"]
    monkeypatch.setenv("ANSIBLE_INVENTORY", "other.ini")
    assert default_path() == work / "other.ini"
    monkeypatch.setenv("ANSIBLE_INVENTORY", "a.ini,b.ini")
    assert default_path() == Path(f"{work}/a.ini,{work}/b.ini")
    monkeypatch.delenv("ANSIBLE_INVENTORY")
    (work / "ansible.cfg").write_text("inventory\n")
    with pytest.raises(BadFile, match=r"ansible\.cfg: "):
        default_path()


def test_cached_inventory_is_that_of_the_variables_in_its_paths(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "hosts.ini").write_text("a ansible_ssh_private_key_file=$KEYS/id\n")
    for folder in ("/one", "/two"):
        monkeypatch.setenv("KEYS", folder)
        assert load(work / "hosts.ini").hosts[0].ssh.key == f"{folder}/id"


@pytest.mark.extended
def test_inventory_cache_is_private_and_optional(work: Path, ansible_runs: Callable[[], int]) -> None:
    (work / "hosts.ini").write_text("a\n")
    expected = load(work / "hosts.ini")
    [file] = (work.parent / "cache/tfctl/inventory").iterdir()
    assert file.stat().st_mode & 0o077 == 0
    for content in ("", "{}", '{"hosts": [{"name": "a"}], "groups": {}}'):
        file.write_text(content)
        assert load(work / "hosts.ini") == expected
    assert ansible_runs() == 4
    file.unlink()
    file.parent.rmdir()
    file.parent.write_text("in the way")
    assert load(work / "hosts.ini") == expected
