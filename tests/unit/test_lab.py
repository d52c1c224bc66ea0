"""The parts of the lab that need no root: names, addresses, files of nodes, inventories, keys of images."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tfctl.errors import BadFile, Exit, PreflightFailed, TfctlError, UsageError
from tfctl.lab import LabSpec, boot, cgroup, host, inventory, parse_suites, record, seed, settings, spec
from tfctl.lab.egress import Egress
from tfctl.lab.image import Recipe
from tfctl.lab.record import LabRecord, Snapshot
from tfctl.lab.spec import NodeDisk

IFNAMSIZ = 16  # <linux/if.h>, including the terminating zero byte


def a_record(count: int = 3, name: str = "lab") -> LabRecord:
    return LabRecord(name, 5, tuple(NodeDisk("bookworm", "bookworm-0") for _ in range(count)))


def nodes(count: int = 3, name: str = "lab") -> tuple[spec.LabNode, ...]:
    return a_record(count, name).nodes


def tfctl(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tfctl", *words], capture_output=True, text=True, timeout=30)


def test_lab_help_shows_an_example_and_all_verbs() -> None:
    output = tfctl("lab", "--help").stdout
    assert "Example: tfctl lab up --nodes 4" in output
    assert all(verb in output for verb in ("up", "down", "status", "snapshot"))


@pytest.mark.parametrize("words", [["up", "--nodes", "0"], ["up", "--name", "A"], ["up", "--suite", "sid"]])
def test_lab_refuses_an_invalid_option_before_other_checks(words: list[str]) -> None:
    done = tfctl("lab", *words)
    assert (done.returncode, done.stderr.startswith(f"tfctl: {words[1]}: ")) == (2, True)


# -- one at a time


def test_lab_lock_admits_one_holder_and_is_deleted_after_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty threads take the lock in turn; each waits for a file that the one before it deletes."""
    monkeypatch.setattr(host, "_LOCKS", tmp_path)
    inside: list[int] = []
    counts: list[int] = []

    def take(number: int) -> None:
        with host.locked("one", lambda _: None):
            inside.append(number)
            time.sleep(0.002)
            counts.append(len(inside))
            inside.remove(number)

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(take, range(200), timeout=60))
    assert (max(counts), len(counts)) == (1, 200)
    assert list(tmp_path.iterdir()) == []


# -- names and addresses


def test_lab_nodes_are_numbered_and_addressed_in_order() -> None:
    assert [(node.name, node.address) for node in nodes()] == [
        ("node1", "10.77.5.11"),
        ("node2", "10.77.5.12"),
        ("node3", "10.77.5.13"),
    ]


def test_lab_suites_are_assigned_in_turn() -> None:
    wanted = LabSpec(nodes=5, suites=parse_suites("bookworm, trixie"))
    assert wanted.new_suites() == ("bookworm", "trixie", "bookworm", "trixie", "bookworm")
    assert LabSpec().new_suites() == ("bookworm",) * 4


def test_lab_never_follows_a_symlink_when_it_changes_ownership(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", str(os.getuid()))
    monkeypatch.setenv("SUDO_GID", str(os.getgid()))
    (tmp_path / "lab.ini").symlink_to(tmp_path / "elsewhere")
    host.give_to_caller(tmp_path / "lab.ini")


def test_lab_interface_names_fit_when_the_lab_name_is_longest() -> None:
    last = nodes(spec.MAX_NODES, "a" * 40)[-1]
    assert max(len(spec.cable(last.machine)), len(last.lab.bridge)) < IFNAMSIZ
    assert last.address == "10.77.5.210"


def test_labs_share_no_machine_or_bridge_name() -> None:
    one, other = nodes(1, "blue")[0], nodes(1, "green")[0]
    assert one.machine != other.machine
    assert one.lab.bridge != other.lab.bridge
    assert not other.machine.startswith(spec.machine_prefix("blue"))


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a_b", "a/b", "..", "a" * 41, "lab\n"])
def test_lab_name_that_is_invalid_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="--name"):
        LabSpec(name=name)
    with pytest.raises(UsageError, match="--from"):
        LabSpec(snapshot=name)


@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        ({"nodes": 0}, "--nodes: 0"),
        ({"nodes": 201}, "--nodes: 201"),
        ({"suites": ("sid",)}, "--suite: 'sid'"),
        ({"suites": ("bookworm", "")}, "--suite: ''"),
        ({"suites": ("bookworm",), "snapshot": "a"}, "--suite and --from"),
    ],
)
def test_lab_options_that_are_invalid_are_refused(wanted: dict[str, object], place: str) -> None:
    with pytest.raises(UsageError, match=place):
        LabSpec(**wanted)  # type: ignore[arg-type]


def test_lab_inventory_is_named_after_the_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert LabSpec(name="blue").inventory_path == tmp_path / "inventory/blue.ini"


def test_lab_network_is_stable_and_avoids_those_in_use() -> None:
    first = spec.choose_octet("lab", set())
    assert first == spec.choose_octet("lab", set())
    second = spec.choose_octet("lab", {first})
    assert second not in (0, first)
    with pytest.raises(UsageError, match="no /24 is free"):
        spec.choose_octet("lab", set(range(256)))


# -- records


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (spec, record):
        monkeypatch.setattr(module, "STATE", tmp_path)
    return tmp_path


@pytest.mark.usefixtures("state")
def test_lab_record_is_read_back_as_it_was_written() -> None:
    disks = record.with_layer(a_record(2).disks, ("aa", "bb"))
    lab = LabRecord("blue", 7, disks, "bare", ("/somewhere/blue.ini",))
    record.keep(lab)
    record.keep(Snapshot("bare", record.with_layer(disks, ("cc", "dd")), "ee"))
    assert record.find("blue") == lab
    assert [node.disk.layers for node in record.get("blue").nodes] == [("aa",), ("bb",)]
    assert record.get_snapshot("bare").disks[0].layers == ("cc", "aa")
    assert (record.labs(), record.snapshots(), record.octets()) == (["blue"], ["bare"], {7})
    assert record.layers() == {"aa", "bb", "cc", "dd", "ee"}


def test_lab_layers_cannot_be_listed_while_a_record_is_unreadable(state: Path) -> None:
    record.keep(a_record())
    (state / "labs/lab/lab.json").write_text("{")
    with pytest.raises(TfctlError, match=r"lab\.json: cannot be read") as fault:
        record.layers()
    assert fault.value.remedy == "tfctl lab down --name lab"
    assert record.octets() == set()


@pytest.mark.usefixtures("state")
def test_missing_lab_is_not_found_and_existing_ones_are_listed() -> None:
    record.keep(a_record())
    with pytest.raises(TfctlError, match="'red'") as no_lab:
        record.get("red")
    with pytest.raises(TfctlError, match="'red'") as no_snapshot:
        record.get_snapshot("red")
    assert no_lab.value.exit == no_snapshot.value.exit == Exit.NOT_FOUND
    assert no_lab.value.remedy == "Existing labs: lab. To create it: tfctl lab up --name red"


# -- files of a node


def seeds(ways: Egress | None = None) -> dict[str, seed.Seed]:
    peers = nodes()
    identity = seed.NodeIdentity("0" * 32, "PRIVATE\n", "ssh-ed25519 BBBB\n", "ssh-ed25519 AAAA\n")
    return seed.seeds(peers[0], peers, identity, ways or Egress())


def test_lab_node_resolves_every_node_name_to_its_address() -> None:
    lines = seeds()["etc/hosts"].text.splitlines()
    assert lines[2:] == ["10.77.5.11 node1", "10.77.5.12 node2", "10.77.5.13 node3"]
    assert not any(line.startswith("127.") and "node" in line for line in lines)


def test_lab_secrets_are_readable_by_their_owner_only() -> None:
    files = seeds(Egress(apt_logins={"mirror.conf": "machine m login l password p"}))
    key, login = files["etc/ssh/ssh_host_ed25519_key"], files["home/ops/.ssh/authorized_keys"]
    assert (key.mode, key.owner) == (0o600, 0)
    assert files["etc/ssh/ssh_host_ed25519_key.pub"].text == "ssh-ed25519 BBBB\n"
    assert (login.mode, login.owner) == (0o600, 1000)
    assert files["etc/apt/auth.conf.d/mirror.conf"].mode == 0o600


def test_lab_known_hosts_lists_each_node_by_address_and_name() -> None:
    node = nodes(1)[0]
    assert seed.known_hosts([(node, "ssh-ed25519 AAAA comment\n")]) == "10.77.5.11,node1 ssh-ed25519 AAAA\n"


def test_lab_node_gets_the_pip_and_apt_settings_of_the_machine() -> None:
    ways = Egress(
        ca_bundle="PEM",
        index_url="https://index.example/simple",
        extra_index_urls=("https://a.example", "https://b.example"),
        https_proxy="http://proxy.example:3128",
        apt_settings='Acquire::http::Proxy "http://apt.example";\n',
    )
    files = seeds(ways)
    assert files["etc/pip.conf"].text == (
        "[global]\ncert = /etc/ssl/certs/ca-certificates.crt\nindex-url = https://index.example/simple\n"
        "extra-index-url =\n    https://a.example\n    https://b.example\nproxy = http://proxy.example:3128\n"
    )
    assert files["etc/apt/apt.conf.d/90tfctl-lab"].text == (
        'Acquire::http::Proxy "http://apt.example";\nAcquire::https::Proxy "http://proxy.example:3128";\n'
    )


def test_lab_node_keeps_its_own_certificates_when_the_machine_has_no_bundle() -> None:
    assert "etc/ssl/certs/ca-certificates.crt" not in seeds()


# -- how a node is booted


def test_lab_supervisor_is_recognised_by_its_machine() -> None:
    node = nodes(1)[0]
    command = boot.nspawn(node)
    assert f"--machine={node.machine}" in command
    assert boot.supervised_machine(boot.supervised(command, node.machine, [])) == node.machine
    assert boot.supervised_machine(["grep", "-r", "tfctl-lab-supervisor", node.machine]) == ""


@pytest.mark.parametrize(("statuses", "wanted"), [(["133", "133", "0"], 0), (["7"], 7)])
def test_lab_supervisor_restarts_its_node_only_after_a_reboot(tmp_path: Path, statuses: list[str], wanted: int) -> None:
    """The command exits with the next number in a file; systemd-nspawn exits with 133 when a node reboots."""
    queue = tmp_path / "statuses"
    queue.write_text("\n".join(statuses))
    one = (
        "import pathlib, sys; file = pathlib.Path(sys.argv[1]); first, *rest = file.read_text().split(); "
        "file.write_text(' '.join(rest)); sys.exit(int(first))"
    )
    groups = [tmp_path / "a/x", tmp_path / "b/x"]
    done = subprocess.run(boot.supervised([sys.executable, "-c", one, str(queue)], "x", groups), timeout=20)
    assert done.returncode == wanted
    assert queue.read_text() == ""
    assert all((group / "cgroup.procs").read_text().strip().isdigit() for group in groups)


def test_lab_supervisor_creates_its_cgroup_although_a_sweep_removes_the_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first two calls of mkdir fail, as it does when the parent disappears between its two steps."""
    fake = tmp_path / "bin/mkdir"
    fake.parent.mkdir()
    fake.write_text(
        f"#!/bin/sh\necho >> {tmp_path}/calls; [ $(wc -l < {tmp_path}/calls) -gt 2 ] && exec /bin/mkdir $@\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:/usr/bin:/bin")
    done = subprocess.run(boot.supervised(["true"], "x", [tmp_path / "a/x"]), timeout=20)
    assert (done.returncode, (tmp_path / "a/x/cgroup.procs").exists()) == (0, True)


@pytest.mark.parametrize(
    ("present", "wanted"),
    [
        (["cgroup.controllers"], ["tfctl-lab/m1"]),
        (["systemd/cgroup.procs", "unified/cgroup.procs"], ["systemd/tfctl-lab/m1", "unified/tfctl-lab/m1"]),
        (["systemd/cgroup.procs"], ["systemd/tfctl-lab/m1"]),
    ],
)
def test_lab_node_has_a_cgroup_in_every_systemd_hierarchy(
    tmp_path: Path, present: list[str], wanted: list[str]
) -> None:
    for name in present:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert cgroup.folders("m1", tmp_path) == [tmp_path / name for name in wanted]


def test_lab_cgroups_are_distinguished_from_those_of_another_lab(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").touch()
    ours, other = nodes(12)[11].machine, nodes(1, "blue")[0].machine
    for machine in (ours, other):
        (tmp_path / "tfctl-lab" / machine).mkdir(parents=True)
    assert cgroup.machines("lab", tmp_path) == {ours}


def test_lab_unit_escapes_dollar_signs_for_systemd() -> None:
    words = boot.unit(["sh", "-c", 'echo "$1"'], nodes(1)[0])
    assert words[words.index("--") + 1 :] == ["sh", "-c", 'echo "$$1"']


# -- the image's key


def test_lab_image_key_depends_on_every_input() -> None:
    recipe = Recipe("bookworm", ("deb http://mirror.example/debian bookworm main",))
    assert recipe.key == replace(recipe).key
    assert recipe.key.startswith("bookworm-")
    others = [
        replace(recipe, suite="trixie"),
        replace(recipe, sources=()),
        replace(recipe, packages=("systemd",)),
        replace(recipe, masked=()),
        replace(recipe, files=(*recipe.files, ("etc/motd", "hi\n"))),
        replace(recipe, hooks=()),
        replace(recipe, apt_options=()),
        replace(recipe, dpkg_options=()),
    ]
    assert len({recipe.key, *(other.key for other in others)}) == len(others) + 1


# -- the inventory


def test_lab_inventory_text_lists_nodes_and_logins() -> None:
    lab = "/var/lib/tfctl-lab/labs/lab"
    login = (
        f"ansible_user=ops ansible_ssh_private_key_file={lab}/id_ed25519 "
        f"ansible_ssh_common_args='-o UserKnownHostsFile={lab}/known_hosts -o StrictHostKeyChecking=yes'"
    )
    assert inventory.text(nodes(2)).splitlines() == [
        "# Written by `tfctl lab up` for lab lab.",
        "# The next `tfctl lab up` overwrites it; `tfctl lab down` deletes it.",
        "",
        "[gpu]",
        f"node1 ansible_host=10.77.5.11 {login}",
        f"node2 ansible_host=10.77.5.12 {login}",
        "",
        "[gpu:vars]",
        "ansible_python_interpreter=/usr/bin/python3",
        "tfctl_stack=tf2.15",
    ]


def test_ansible_reads_the_lab_inventory_as_intended(tmp_path: Path) -> None:
    file = tmp_path / "deep/lab.ini"
    inventory.save(file, nodes(2))
    tool = Path(sys.executable).with_name("ansible-inventory")
    done = subprocess.run([tool, "-i", file, "--list"], capture_output=True, text=True, check=True, timeout=60)
    listed = json.loads(done.stdout)
    assert listed["gpu"]["hosts"] == ["node1", "node2"]
    assert listed["_meta"]["hostvars"]["node2"] == {
        "ansible_host": "10.77.5.12",
        "ansible_user": "ops",
        "ansible_ssh_private_key_file": "/var/lib/tfctl-lab/labs/lab/id_ed25519",
        "ansible_ssh_common_args": (
            "-o UserKnownHostsFile=/var/lib/tfctl-lab/labs/lab/known_hosts -o StrictHostKeyChecking=yes"
        ),
        "ansible_python_interpreter": "/usr/bin/python3",
        "tfctl_stack": "tf2.15",
    }


def test_lab_refuses_to_overwrite_a_file_that_is_not_its_inventory(tmp_path: Path) -> None:
    file = tmp_path / "lab.ini"
    file.write_text("[gpu]\nreal1\n")
    with pytest.raises(BadFile, match="is not the inventory of lab 'lab'"):
        inventory.save(file, nodes())
    assert file.read_text() == "[gpu]\nreal1\n"


# -- this machine


def test_kernel_settings_are_restored_to_their_values_before_the_first_lab(tmp_path: Path) -> None:
    found = {"net/ipv4/ip_forward": "0", "fs/inotify/max_user_instances": "9000", "fs/inotify/max_user_watches": "8192"}
    for name, value in found.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{value}\n")
    before = tmp_path / "before"
    settings.ensure(tmp_path, before)
    raised = {name: (tmp_path / name).read_text().strip() for name in found}
    assert raised == {**found, "net/ipv4/ip_forward": "1", "fs/inotify/max_user_watches": "524288"}
    settings.ensure(tmp_path, before)  # the second lab must not take the first one's setting for the machine's own
    settings.restore(tmp_path, before)
    assert {name: (tmp_path / name).read_text().strip() for name in found} == found
    assert not before.exists()


def test_lab_is_refused_when_the_system_is_not_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(PreflightFailed, match="needs a Linux machine"):
        host.preflight()


def test_lab_names_the_command_that_installs_missing_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(host, "_SBIN", ())
    with pytest.raises(PreflightFailed) as fault:
        host.preflight()
    assert fault.value.remedy == (
        "apt-get install --yes iproute2 iptables mmdebstrap openssh-client systemd-container util-linux"
    )


def test_lab_without_root_exits_8_with_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tfctl.cli.main import run

    monkeypatch.setattr("os.geteuid", lambda: 1000)
    for words in (["up"], ["down"], ["snapshot", "bare"]):
        assert run(["lab", *words]) == 8
        assert capsys.readouterr().err == (
            "tfctl: a lab needs root (mounts, bridge, namespaces)\n  → Run it with sudo.\n"
        )


def test_lab_names_the_program_that_runs_too_long() -> None:
    with pytest.raises(TfctlError, match=r"^`sleep 9` ran longer than 0\.2 s and was killed\n") as caught:
        host.run(["sleep", "9"], timeout=0.2)
    assert caught.value.remedy


def test_mounts_under_a_directory_are_listed_deepest_first(tmp_path: Path) -> None:
    points = ("/lab", "/lab/nodes/a\\040b/root", "/lab/nodes/a\\040b/root/srv", "/labs", "/")
    table = tmp_path / "mountinfo"
    table.write_text("".join(f"36 35 98:0 / {point} rw,noatime - ext4 /dev/root rw\n" for point in points))
    assert [str(point) for point in host.mounts_under(Path("/lab"), table)] == [
        "/lab/nodes/a b/root/srv",
        "/lab/nodes/a b/root",
        "/lab",
    ]
