"""The optional roles: each is applied, unchanged by a second run, damaged, and repaired."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import socket
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

from tests.lab import expected_state
from tests.lab.jobs import wait_for
from tests.lab.labs import Lab
from tests.lab.plays import SETTINGS, play

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Site:
    """A lab of two nodes, and its inventory with variables for the roles."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def root(self, node: str, script: str, timeout: float = 60) -> str:
        return self.lab.root_script(node, script, timeout)

    def provision(self, role: str, variables: Mapping[str, object], *words: object) -> dict[str, Any]:
        """Run `tfctl provision`; return the object that -o json prints, with stderr as `stderr`."""
        inventory = self.lab.folder / "site.json"
        hosts = {name: {"tfctl_stack": "none", **variables} for name, variables in self.lab.hosts().items()}
        inventory.write_text(json.dumps({"all": {"hosts": hosts, "vars": variables}}))
        done = self.lab.tfctl("provision", inventory, "--tags", role, "-o", "json", *words, check=False, timeout=250)
        return {**json.loads(done.stdout), "stderr": done.stderr}

    def changed(self, role: str, variables: Mapping[str, object], *words: object) -> int:
        report = self.provision(role, variables, *words)
        assert report["exit"] == 0, [host["reason"] for host in report["hosts"]]
        return int(report["changed"])

    def assert_applied_once(self, role: str, variables: Mapping[str, object], *words: object) -> None:
        """Assert that the role changes something once, and that a second run and a check change nothing."""
        assert self.changed(role, variables, *words) > 0
        assert self.changed(role, variables, *words) == 0
        assert self.changed(role, variables, *words, "--check") == 0

    def assert_repaired(
        self, role: str, variables: Mapping[str, object], *harms: str, spec: Callable[[Host], None]
    ) -> None:
        """Assert that a check reports each damage to node1, and that one run repairs all of them."""
        limit, node1 = ("--limit", "node1"), self.lab.testinfra("node1")
        spec(node1)
        for harm in harms:
            self.root("node1", harm)
            expected_state.is_violated(spec, node1)
            assert self.changed(role, variables, *limit, "--check") > 0, harm
        assert self.changed(role, variables, *limit) > 0
        assert self.changed(role, variables, *limit) == 0
        assert self.changed(role, variables, *limit, "--check") == 0
        spec(node1)


@pytest.fixture(scope="module")
def site(run_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    found = Site(Lab(f"{run_name}-around", tmp_path_factory.mktemp("around")))
    found.lab.up("--nodes", 2)
    found.lab.tfctl("provision", found.lab.inventory, "--stack", "none")
    try:
        yield found
    finally:
        found.lab.down()


def can_connect(site: Site, port: int) -> tuple[bool, bool]:
    """Return whether a port of node1 accepts node2, and whether it accepts this machine, which is outside the lab."""
    address = site.lab.hosts()["node1"]["ansible_host"]
    try:
        socket.create_connection((address, port), 3).close()
        outside = True
    except OSError:
        outside = False
    script = f"import socket; socket.create_connection(('{address}', {port}), 3)"
    return site.root("node2", f'python3 -c "{script}" 2>/dev/null && echo yes || echo no') == "yes", outside


def certificate(site: Site) -> Path:
    """Create a certificate; return its file on this machine."""
    path = site.lab.folder / "ca.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=tfctl-test"]
    subprocess.run([*words, "-keyout", "/dev/null", "-out", path], check=True, capture_output=True, timeout=60)
    return path


def test_firewall_opens_job_ports_to_the_cluster_only(site: Site) -> None:
    for port in (2222, 2300):
        site.root("node1", f"systemd-run --quiet --unit=listen{port} python3 -m http.server {port}")
    asked = {"tfctl_firewall": True}
    assert site.changed("firewall", asked, "--check") > 0
    assert can_connect(site, 2222) == (True, True), "a check changes nothing"
    site.assert_applied_once("firewall", asked)
    assert (can_connect(site, 2222), can_connect(site, 2300)) == ((True, False), (True, True))
    harms = ["nft delete element inet tfctl ports { 2222-2299 }", "nft flush ruleset", "systemctl stop tfctl_firewall",
             "rm /etc/tfctl/firewall.nft", "systemctl disable tfctl_firewall",
             "rm /etc/systemd/system/nftables.service.d/tfctl.conf; systemctl daemon-reload",
             "rm /etc/systemd/system/tfctl_firewall.service; systemctl daemon-reload"]  # fmt: skip
    site.assert_repaired("firewall", asked, *harms, spec=lambda host: expected_state.firewall(host, "2222-2299"))
    for command in ("systemctl restart nftables", "systemctl stop nftables; systemctl start nftables"):
        site.root("node1", command)
        wait_for(lambda: can_connect(site, 2222) == (True, False), 10)
    # The configuration of nftables begins with "flush ruleset", and a start is no restart.
    site.root("node1", "systemctl stop nftables; systemctl start tfctl_firewall; systemctl start nftables")
    wait_for(lambda: can_connect(site, 2222) == (True, False), 10)
    site.assert_applied_once("firewall", {**asked, "tfctl_ports": "2300"})
    assert (can_connect(site, 2222), can_connect(site, 2300)) == ((True, True), (True, False))
    site.assert_applied_once("firewall", {**asked, "tfctl_ports": "2222-2399"})
    assert can_connect(site, 2300) == (True, False)
    report = site.provision("firewall", {**asked, "tfctl_ports": "2299-2222"})
    assert report["exit"] == 3
    assert report["hosts"][0]["reason"].startswith("tfctl_ports: 2299-2222 is not a range such as 2222-2299")
    report = site.provision("firewall", {**asked, "tfctl_address": "nosuchhost.invalid"})
    assert report["exit"] == 3
    assert report["hosts"][0]["reason"].startswith("This host cannot resolve nosuchhost.invalid")
    site.assert_applied_once("firewall", {"tfctl_firewall": False})
    assert can_connect(site, 2222) == (True, True)
    site.root("node1", "systemctl stop listen2222 listen2300")


def test_firewall_reports_other_filters_and_refuses_firewalld(site: Site) -> None:
    """The table of firewalld stands for firewalld, which the nodes do not have."""
    limit = ("--limit", "node1")
    mine = "nft add table inet mine; nft 'add chain inet mine in { type filter hook input priority 0; policy drop; }'"
    with_nft = site.provision("firewall", {"tfctl_firewall": True}, *limit)
    assert with_nft["exit"] == 0
    site.root("node1", f"{mine}; nft add rule inet mine in accept")
    try:
        report = site.provision("firewall", {"tfctl_firewall": True}, *limit)
        assert (report["exit"], report["changed"]) == (0, 0)
        assert "node1: firewall: inet mine in drops packets by default" in report["stderr"]
    finally:
        site.root("node1", "nft delete table inet mine")
    site.root("node1", f"{mine}; nft add rule inet mine in accept".replace(" mine", " firewalld"))
    try:
        report = site.provision("firewall", {"tfctl_firewall": True}, *limit)
    finally:
        site.root("node1", "nft delete table inet firewalld")
    reason = "firewalld is active, and this role cannot open ports in firewalld"
    assert (report["exit"], report["hosts"][0]["reason"]) == (8, reason)
    assert "docs/host-services.md" in report["hosts"][0]["remedy"]
    assert site.changed("firewall", {"tfctl_firewall": False}, *limit) > 0


def test_shared_storage_mounts_one_directory_by_sshfs(site: Site) -> None:
    """node2 is the server for both nodes."""
    keyed = "ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519; cat /root/.ssh/id_ed25519.pub"
    keys = [site.root(node, f"mkdir -pm 700 /root/.ssh; {keyed}") for node in ("node1", "node2")]
    site.root(
        "node2", "install -d -o ops /srv/store; cat >> ~ops/.ssh/authorized_keys <<END\n" + "\n".join(keys) + "\nEND"
    )
    known = site.root("node2", "ssh-keygen -y -f /etc/ssh/ssh_host_ed25519_key")
    for node in ("node1", "node2"):
        site.root(node, f"echo 'node2 {known}' > /root/.ssh/known_hosts")
    asked = {
        "tfctl_shared_storage": "sshfs",
        "tfctl_shared_source": "ops@node2:/srv/store",
        "tfctl_shared_dir": "/mnt/all",
    }
    site.assert_applied_once("shared_storage", asked)
    site.root(
        "node1", "systemctl reset-failed; echo from node1 > /mnt/all/word; stat -c %u /mnt/all/word | grep -x 880"
    )
    assert site.root("node2", "cat /srv/store/word") == "from node1"
    harms = ["umount /mnt/all", "rm /etc/systemd/system/mnt-all.mount", "systemctl disable mnt-all.mount"]
    source = "ops@node2:/srv/store"
    site.assert_repaired(
        "shared_storage", asked, *harms, spec=lambda host: expected_state.shared_storage(host, "/mnt/all", source)
    )


def test_shared_storage_names_a_host_whose_directory_is_not_shared(site: Site) -> None:
    asked = {"tfctl_shared_storage": "existing", "tfctl_shared_dir": "/srv/tfctl"}
    assert site.changed("shared_storage", asked) == 0
    site.root("node2", "mount -t tmpfs -o uid=880,gid=880 mine /srv/tfctl")
    try:
        report = site.provision("shared_storage", asked)
    finally:
        site.root("node2", "umount /srv/tfctl")
    one, two = report["hosts"]
    assert (report["exit"], one["failed"], two["failed"]) == (1, False, True)
    assert two["reason"] == (
        "/srv/tfctl is not the directory that node1 has: a file that was created there does not appear here within 20 s"
    )
    assert two["remedy"] == "check what is mounted there on node2: findmnt -T DIRECTORY"
    assert site.root("node1", "ls -A /srv/tfctl | grep '^.tfctl-' || true") == "", "the files of the check remain"
    nowhere = site.provision("shared_storage", {**asked, "tfctl_shared_dir": "/srv/nowhere"})
    assert (nowhere["exit"], nowhere["hosts"][0]["reason"]) == (8, "Nothing is mounted at /srv/nowhere")
    assert nowhere["hosts"][0]["remedy"] == "mount it on node1, or set tfctl_shared_storage to nfs or sshfs"


def test_shared_storage_refuses_to_mount_over_existing_files(site: Site) -> None:
    site.root("node1", "mkdir /srv/full; touch /srv/full/mine")
    asked = {"tfctl_shared_storage": "nfs", "tfctl_shared_source": "nas:/all", "tfctl_shared_dir": "/srv/full"}
    report = site.provision("shared_storage", asked, "--limit", "node1")
    reason = "/srv/full contains files of this host, which the mount would hide"
    assert (report["exit"], report["hosts"][0]["reason"]) == (8, reason)
    site.root("node1", "rm /srv/full/mine; mount -t tmpfs other /srv/full")
    report = site.provision("shared_storage", asked, "--limit", "node1")
    reason = "/srv/full is mounted from other (tmpfs), not from nas:/all"
    assert (report["exit"], report["hosts"][0]["reason"]) == (8, reason)
    site.root("node1", "umount /srv/full")
    report = site.provision("shared_storage", {**asked, "tfctl_shared_source": "nas"}, "--limit", "node1")
    reason = "tfctl_shared_source 'nas' is not HOST:/PATH"
    assert (report["exit"], report["hosts"][0]["reason"]) == (3, reason)


def test_roles_run_alone_in_a_play_of_a_user(site: Site) -> None:
    """The play has neither preflight nor variables of tfctl. A second run and a check change nothing."""
    roles = ["proxy", "time_sync", "shared_storage", "firewall"]
    node1, authority = site.lab.testinfra("node1"), certificate(site)
    given = {"proxy_ca_bundle": str(authority), "shared_storage_kind": "existing", "firewall_ports": 2244}
    assert re.search(r"changed=[1-9]\d* .*failed=0 ", output := play(site.lab, roles, given)), output
    assert node1.file("/usr/local/share/ca-certificates/tfctl.crt").exists
    expected_state.firewall(node1, "2244")
    for words in ((), ("--check",)):
        assert re.search(r"changed=0 .*failed=0 ", output := play(site.lab, roles, given, *words)), output
    gone = {**given, "proxy_ca_bundle": "", "firewall_enabled": False}
    assert re.search(r"changed=[1-9]\d* .*failed=0 ", output := play(site.lab, roles, gone)), output
    assert not node1.file("/usr/local/share/ca-certificates/tfctl.crt").exists
    expected_state.is_violated(expected_state.firewall, node1, "2244")


#: Lets chronyd run on a node: it does not set the clock and does not see that the node is a container.
CHRONY = {
    "/usr/local/bin/systemd-detect-virt": "#!/bin/sh\necho none; exit 1\n",
    "/etc/systemd/system/chrony.service.d/lab.conf": (
        "[Unit]\nConditionCapability=\n[Service]\nExecStart=\nExecStart=!/usr/sbin/chronyd -F 0 -x\n"
    ),
}


@pytest.mark.timeout(600)
def test_time_sync_keeps_the_clock_synchronized_with_a_server(site: Site) -> None:
    """node2 serves its own clock, and node1 synchronizes with it."""
    assert site.changed("time_sync", {"tfctl_time_sync": True}) == 0, "a container has no clock of its own"
    for node in ("node1", "node2"):
        for path, text in CHRONY.items():
            site.root(node, f"mkdir -p $(dirname {path}); cat > {path} <<'END'\n{text}END\nchmod 755 {path}")
    site.root("node2", "apt-get -qq update; DEBIAN_FRONTEND=noninteractive apt-get -qq install chrony >/dev/null", 120)
    site.root(
        "node2", "printf 'local stratum 8\\nallow\\nmanual\\n' > /etc/chrony/chrony.conf; systemctl restart chrony"
    )
    asked = {"tfctl_time_sync": True, "tfctl_ntp_servers": ["node2"]}
    site.assert_applied_once("time_sync", asked, "--limit", "node1")
    assert "node2" in site.root("node1", "chronyc sources")
    harms = ["systemctl stop chrony", "systemctl disable chrony", "echo 'server nowhere' > /etc/chrony/chrony.conf",
             "apt-get -qq remove chrony >/dev/null"]  # fmt: skip
    site.assert_repaired("time_sync", asked, *harms, spec=lambda host: expected_state.time_sync(host, "node2"))
    output = play(site.lab, ["time_sync"], {"time_sync_servers": ["node2"]})
    assert re.search(r"changed=0 .*failed=0 ", output), output
    earlier = site.root("node1", "cat /var/lib/tfctl/chrony.conf")
    assert "node2" not in earlier and "debian.pool.ntp.org" in earlier
    assert site.root("node1", "ls /etc/chrony | grep '~$' || true") == "", "a backup that a reset does not remove"
    site.root("node2", "chronyc settime '1 hour'")
    site.root("node1", "systemctl restart chrony")
    ahead = site.provision("time_sync", asked, "--limit", "node1")
    site.root("node2", "systemctl stop chrony")
    site.root("node1", "systemctl restart chrony")
    report = site.provision("time_sync", asked, "--limit", "node1")
    assert (ahead["exit"], ahead["hosts"][0]["reason"]) == (report["exit"], report["hosts"][0]["reason"])
    reason = "The clock is not synchronized to within 2 s after 40 s: chrony.service asks node2"
    remedy = "check that node1 can reach the time servers on UDP port 123; to see its offset: chronyc tracking"
    assert (report["exit"], report["hosts"][0]["reason"], report["hosts"][0]["remedy"]) == (1, reason, remedy)


#: A proxy that answers GET requests and logs them.
PROXY = """
import http.server, urllib.request
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(self.path, flush=True)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"from afar")
http.server.HTTPServer(("", 3128), Handler).serve_forever()
"""


def test_proxy_is_used_by_apt_and_checked_by_provision(site: Site) -> None:
    site.root("node2", f"cat > /srv/proxy.py <<'END'{PROXY}END\nsystemd-run --quiet --unit=proxy python3 /srv/proxy.py")
    address = f"http://{site.lab.hosts()['node2']['ansible_host']}:3128"
    authority = certificate(site)
    asked = {"tfctl_http_proxy": address, "tfctl_no_proxy": "near.example", "tfctl_ca_bundle": str(authority)}
    site.assert_applied_once("proxy", asked)
    site.root("node1", "printf 'deb [trusted=yes] http://far.example/ ./\n' > /tmp/far.list; apt-get -qq update "
              "-o Dir::Etc::SourceList=/tmp/far.list -o Dir::Etc::SourceParts=/dev/null 2>&1 || true")  # fmt: skip
    assert "http://far.example/./InRelease" in site.root("node2", "journalctl -u proxy -o cat")
    site.root("node1", "! grep -is proxy /etc/environment")
    harms = ["rm /etc/tfctl/proxy.env", "echo > /etc/apt/apt.conf.d/95tfctl-proxy",
             "rm /usr/local/share/ca-certificates/tfctl.crt; update-ca-certificates"]  # fmt: skip
    site.assert_repaired("proxy", asked, *harms, spec=lambda host: expected_state.proxy(host, address, authority))
    site.root("node2", "systemctl stop proxy")
    report = site.provision("proxy", asked)
    where = address.removeprefix("http://")
    gone = f"The proxy {where} (tfctl_http_proxy) does not answer"
    remedy = "start it, or correct its address in the inventory"
    assert (report["exit"], report["hosts"][0]["reason"], report["hosts"][0]["remedy"]) == (8, gone, remedy)
    site.assert_applied_once("proxy", {"tfctl_http_proxy": ""})
    assert site.root("node1", "ls /etc/apt/apt.conf.d /etc/tfctl | grep proxy || true") == ""
    line = authority.read_text().splitlines()[5]
    assert site.root("node1", f"grep -c {line} /etc/ssl/certs/ca-certificates.crt || true") == "0"


def test_data_set_is_downloaded_once_and_copied_between_hosts(site: Site) -> None:
    """The source is a web server whose log counts the downloads. Later hosts copy the archive from other hosts."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as file:
        for number in range(3):
            part = tarfile.TarInfo(f"set/part-{number}")
            part.size = 100_000
            file.addfile(part, io.BytesIO(bytes([number]) * part.size))
    (site.lab.folder / "set.tgz").write_bytes(packed.getvalue())
    parts = {f"part-{n}": hashlib.sha256(bytes([n]) * 100_000).hexdigest() for n in range(3)}
    right = hashlib.sha256(packed.getvalue()).hexdigest()
    serve = (
        "cd /srv/source; systemd-run --quiet --unit=source --working-directory=/srv/source python3 -m http.server 8000"
    )
    data = base64.b64encode(packed.getvalue()).decode()
    site.root("node2", f"mkdir -p /srv/source; echo {data} | base64 -d > /srv/source/set.tgz; {serve}")
    address = f"http://{site.lab.hosts()['node2']['ansible_host']}:8000/set.tgz"
    wanted = {"name": "parts", "source": address, "sha256": right, "unpack": True, "files": {"set/part-*": 3}}
    asked = {"tfctl_datasets": [wanted]}
    other = site.provision("dataset", {"tfctl_datasets": [{**wanted, "sha256": "0" * 64}]})
    one, two = other["hosts"]
    assert one["reason"] == f"{address} has the SHA-256 {right}, not {'0' * 64}, and was not installed"
    assert two["reason"] == "node1, from which parts is copied, does not have it"
    site.assert_applied_once("dataset", asked)
    came = site.root("node2", "journalctl -u source -o cat | grep -c 'GET /set.tgz'")
    assert came == "2", "one download with the wrong hash, one with the right one"
    for node in ("node1", "node2"):
        there = site.root(
            node,
            "cd /var/lib/tfctl/datasets/parts/set; cat part-* | sha256sum; systemctl is-active tfctl_dataset || true",
        )
        assert there.split()[0] == hashlib.sha256(b"".join(bytes([n]) * 100_000 for n in range(3))).hexdigest()
        assert there.endswith("inactive")
    site.root("node2", "systemctl stop source")
    site.assert_repaired(
        "dataset",
        asked,
        "rm /var/lib/tfctl/datasets/parts/set/part-1",
        "echo x > /var/lib/tfctl/datasets/parts/set/more",
        spec=lambda host: expected_state.dataset(host, "/var/lib/tfctl/datasets/parts/set", parts),
    )
    site.root("node1", "rm -r /var/lib/tfctl/datasets/parts /var/lib/tfctl/datasets/.archives")
    assert site.changed("dataset", asked) == 1, "it must come from node2, since the source has been stopped"
    here = {"name": "whole", "source": str(site.lab.folder / "set.tgz"), "sha256": right, "dest": "/srv/sets"}
    site.assert_applied_once("dataset", {"tfctl_datasets": [here]})
    assert site.root("node2", "sha256sum /srv/sets/whole/set.tgz").split()[0] == right
    report = site.provision("dataset", {"tfctl_datasets": [{"name": "imagenet-tfrecords", "sha": 1}]})
    assert report["exit"] == 3 and "'imagenet-tfrecords': unknown key sha" in report["hosts"][0]["reason"]


def test_ssh_mesh_lets_a_user_log_in_from_host_to_host(site: Site) -> None:
    for node in ("node1", "node2"):
        site.root(node, "useradd --create-home --shell /bin/bash alice")
    site.root(
        "node1", "install -d -o alice -g alice -m 700 /home/alice/.ssh; echo mine > /home/alice/.ssh/authorized_keys"
    )
    asked = {"tfctl_ssh_mesh": "alice"}
    site.assert_applied_once("ssh_mesh", asked)
    accepted = site.root("node2", "grep ' tfctl node1$' /home/alice/.ssh/authorized_keys")
    assert re.match(r'restrict,from="[0-9a-f.:,]+" ssh-ed25519 ', accepted) and "fe80:" not in accepted
    as_alice = "runuser -u alice -- ssh -o BatchMode=yes node2"
    assert site.root("node1", f"cd /; {as_alice} whoami") == "alice"
    assert site.root("node1", "head -1 /home/alice/.ssh/authorized_keys") == "mine"
    site.assert_repaired("ssh_mesh", asked, "rm /home/alice/.ssh/id_tfctl", "rm /home/alice/.ssh/known_hosts_tfctl",
                   "sed -i /tfctl/d /home/alice/.ssh/authorized_keys",
                   spec=lambda host: expected_state.ssh_mesh(host, "alice", ["node1"]))  # fmt: skip
    assert site.changed("ssh_mesh", asked) > 0, "node2 gets the new key of node1, and node1 gets its files back"
    for node in ("node1", "node2"):
        expected_state.ssh_mesh(site.lab.testinfra(node), "alice", ["node1", "node2"])
    assert site.root("node1", f"cd /; {as_alice} whoami") == "alice"
    assert site.changed("ssh_mesh", asked, "--limit", "node2") == 0, "the entry of node1 must stay"
    site.root("node2", "sed -i 's/ tfctl node1$/ tfctl node3/' /home/alice/.ssh/authorized_keys")
    report = site.provision("ssh_mesh", asked, "--limit", "node1")
    (node1,) = report["hosts"]
    assert (report["exit"], node1["failed"]) == (0, False), "it connects to hosts of the run alone"
    assert site.changed("ssh_mesh", asked) == 1, "the entry of node3, which is not in the inventory, is deleted"
    assert "node3" not in site.root("node2", "cat /home/alice/.ssh/authorized_keys")


def test_ssh_mesh_and_dataset_run_alone_in_a_play_of_a_user(site: Site) -> None:
    """The play has neither preflight nor variables of tfctl, on node1. A second run and a check change nothing."""
    site.root("node1", "useradd --create-home --shell /bin/bash carl")
    (site.lab.folder / "alone.bin").write_bytes(b"alone")
    right = hashlib.sha256(b"alone").hexdigest()
    data = {"name": "alone", "source": str(site.lab.folder / "alone.bin"), "sha256": right, "dest": "/srv/alone"}
    given = {"ssh_mesh_user": "carl", "dataset_list": [data]}
    # As its page says, ssh_mesh needs pipelining where Ansible does not log in as root.
    settings = {**SETTINGS, "ANSIBLE_PIPELINING": "1"}
    roles, node1 = ["dataset", "ssh_mesh"], site.lab.testinfra("node1")
    output = play(site.lab, roles, given, settings=settings)
    assert re.search(r"changed=[1-9]\d* .*failed=0 ", output), output
    expected_state.ssh_mesh(node1, "carl", ["node1"])
    assert node1.file("/srv/alone/alone/alone.bin").sha256sum == right
    for words in ((), ("--check",)):
        output = play(site.lab, roles, given, *words, settings=settings)
        assert re.search(r"changed=0 .*failed=0 ", output), output


def test_ssh_mesh_names_hosts_that_do_not_let_the_user_in(site: Site) -> None:
    for node in ("node1", "node2"):
        site.root(node, "id bob 2>/dev/null || useradd --create-home --shell /bin/bash bob")
    site.root("node2", "echo 'DenyUsers bob' > /etc/ssh/sshd_config.d/bob.conf; systemctl reload ssh")
    one, two = site.provision("ssh_mesh", {"tfctl_ssh_mesh": "bob"})["hosts"]
    for host in (one, two):
        assert (host["failed"], "bob cannot log in by ssh to node2: " in host["reason"]) == (True, True), host
        assert "ssh -v HOST true" in host["remedy"]
    report = site.provision("ssh_mesh", {"tfctl_ssh_mesh": "carol"})
    assert "unknown user" in report["hosts"][0]["reason"], report
    assert report["hosts"][0]["remedy"] == "create this user on node1, or correct the inventory"
    report = site.provision("ssh_mesh", {"tfctl_ssh_mesh": "root"})
    assert report["hosts"][0]["reason"] == "tfctl_ssh_mesh: name a user other than root and tfctl"
