"""`tfctl lab` itself: what a new lab has, how it survives failures, and that it leaves nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.lab.labs import LABS, TFCTL, Lab

pytestmark = pytest.mark.timeout(300)  # once, an image may have to be built; else each test takes seconds

MakeLab = Callable[[str], Lab]


@pytest.fixture
def fresh(run_name: str, tmp_path: Path) -> Iterator[MakeLab]:
    """A function that names new labs, which are deleted after the test."""
    labs: list[Lab] = []

    def make(word: str) -> Lab:
        labs.append(Lab(f"{run_name}-{word}", tmp_path))
        return labs[-1]

    yield make
    for lab in labs:
        lab.tfctl("lab", "down", "--name", lab.name, check=False)


@pytest.fixture(scope="module")
def pair(run_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab of two nodes that tests may damage, as long as they repair it."""
    found = Lab(f"{run_name}-pair", tmp_path_factory.mktemp("pair"))
    try:
        found.up("--nodes", 2)
        yield found
    finally:
        found.down()


def status(lab: Lab) -> dict[str, Any]:
    return dict(json.loads(lab.tfctl("lab", "status", "--name", lab.name, "-o", "json").stdout))


def states(lab: Lab) -> list[str]:
    return [node["state"] for node in status(lab)["nodes"]]


def pids(lab: Lab) -> list[int]:
    return [node["pid"] for node in status(lab)["nodes"]]


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


def traces(lab: Lab) -> list[str]:
    """List everything that belongs to a lab: mounts, processes, network devices, rules, cgroups and directories."""
    digits = re.escape(subprocess.run(["sha256sum"], input=lab.name, capture_output=True, text=True).stdout[:6])
    mine = re.compile(rf"/labs/{lab.name}(/|\s|$)|tfctl-lab:{lab.name}\"|tfctl-{digits}|tl{digits}n")
    commands = ("findmnt -rn", "ps -eww -o pid,args", "ip -o link", "iptables-save")
    lines = [line for command in commands for line in output(*command.split()).splitlines()]
    # Not "**", which fails when a group of another lab is removed meanwhile.
    lines += [str(path) for depth in ("", "*/") for path in Path("/sys/fs/cgroup").glob(f"{depth}tfctl-lab/*")]
    lines += [str(path) for path in (*Path("/run/systemd/nspawn").glob("*/*"), *LABS.glob("*"))]
    return sorted(line for line in lines if mine.search(line))


def layers(snapshot: str) -> list[Path]:
    """Return the directories of a snapshot of one node: the layers of the node's disk, and the shared directory."""
    kept = json.loads((LABS.parent / "snapshots" / f"{snapshot}.json").read_text())
    [disk] = kept["disks"]
    return [LABS.parent / "layers" / name for name in (*disk["layers"], kept["shared"])]


def kill_hard(lab: Lab) -> list[int]:
    """Kill every systemd-nspawn of the lab; return the process IDs of the first processes of the nodes."""
    found = pids(lab)
    inits = [int(output("pgrep", "--parent", str(pid))) for pid in found]
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return inits


def command_of(pid: int) -> str:
    """Return the command line of a process, or "" if it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


# -- after `up`


def test_lab_nodes_have_their_own_identity_and_boot_completely(pair: Lab) -> None:
    assert [pair.shell(node, "hostname") for node in pair.hosts()] == ["node1", "node2"]
    for file in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id"):
        assert len({pair.shell(node, f"cat {file}") for node in pair.hosts()}) == 2
    assert pair.shell("node1", "systemctl is-system-running") == "running"
    assert "Server listening" in pair.shell("node1", "sudo -n journalctl -q -b -u ssh.service -o cat")
    assert pair.shell("node1", "stat --file-system --format %T /tmp") != "tmpfs"


def test_lab_nodes_reach_each_other_by_name(pair: Lab) -> None:
    pair.shell("node1", "exec 3<>/dev/tcp/node2/22 && head -c 4 <&3 | grep -q SSH-")
    assert pair.shell("node1", "getent hosts node1").split()[0] == pair.hosts()["node1"]["ansible_host"]


def test_lab_node_accepts_only_the_key_and_only_for_ops(pair: Lab) -> None:
    output = set(pair.shell("node1", "sudo -n sshd -T").splitlines())
    assert {"passwordauthentication no", "permitrootlogin no", "kbdinteractiveauthentication no"} <= output
    as_root = [word.replace("ops@", "root@") for word in pair.ssh("node1", "true")]
    assert subprocess.run(as_root, capture_output=True, timeout=20).returncode == 255


def test_lab_inventory_rejects_a_node_with_another_host_key(pair: Lab, tmp_path: Path) -> None:
    """known_hosts is written before the first connection, so another machine at the address is refused."""
    first, second = (host["ansible_host"] for host in pair.hosts().values())
    known = LABS / pair.name / "known_hosts"
    (tmp_path / "known").write_text(known.read_text().replace(second, "0.0.0.0").replace(first, second))
    command = [word.replace(str(known), str(tmp_path / "known")) for word in pair.ssh("node2", "true")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr


def test_lab_shared_directory_is_the_same_on_every_node(pair: Lab) -> None:
    pair.shell("node1", "echo hello | sudo -n tee /srv/tfctl/word")
    assert pair.shell("node2", "cat /srv/tfctl/word") == "hello"
    assert Path(status(pair)["shared"], "word").read_text() == "hello\n"


def test_lab_node_can_use_apt_and_pip(pair: Lab) -> None:
    pair.shell("node1", "sudo -n apt-get update -q --error-on=any", timeout=60)
    pair.shell("node1", "python3 -m venv /tmp/v && /tmp/v/bin/pip download -q --no-deps -d /tmp/got six", timeout=60)
    assert pair.shell("node1", "ls /tmp/got").startswith("six-")


def test_lab_login_is_fast_after_a_long_pause(pair: Lab) -> None:
    """logind stops the user manager 10 s after the last logout. This took minutes when nodes shared a cgroup."""
    for node in pair.hosts():
        pair.shell(node, "true")
    time.sleep(15)
    for node in pair.hosts():
        began = time.monotonic()
        pair.shell(node, "true")
        assert time.monotonic() - began < 2


def test_lab_nodes_do_not_share_cgroups(pair: Lab) -> None:
    """In a shared cgroup the processes of the other node would keep the cgroup of the stopped unit alive."""
    for node in pair.hosts():
        pair.shell(node, "sudo -n systemd-run -q --unit=twin --slice=tfctl-t.slice sleep 600")
    pair.shell("node1", "sudo -n systemctl stop tfctl-t.slice")
    assert pair.shell("node1", "find /sys/fs/cgroup -name twin.service") == ""
    assert pair.shell("node2", "find /sys/fs/cgroup -name twin.service") != ""
    assert pair.shell("node2", "systemctl is-active twin") == "active"
    pair.shell("node2", "sudo -n systemctl stop twin")


def test_lab_up_changes_nothing_when_the_lab_runs(pair: Lab) -> None:
    before = status(pair), traces(pair), pair.inventory.read_bytes()
    assert "all nodes run" in pair.up()
    assert (status(pair), traces(pair), pair.inventory.read_bytes()) == before


@pytest.mark.parametrize("words", [["--nodes", 1], ["--suite", "trixie"], ["--from", "bare"]])
def test_lab_up_with_other_options_is_refused_with_a_command(pair: Lab, words: list[object]) -> None:
    done = pair.tfctl("lab", "up", "--name", pair.name, *words, check=False)
    assert done.returncode == 5
    assert f"tfctl lab down --name {pair.name}" in done.stderr
    assert states(pair) == ["running", "running"]


# -- failures


def test_lab_node_comes_back_after_a_reboot(pair: Lab) -> None:
    look = "cat /proc/sys/kernel/random/boot_id"
    before = pair.shell("node2", look)
    subprocess.run(pair.ssh("node2", "sudo -n systemctl reboot"), capture_output=True, timeout=20)
    again, end = before, time.monotonic() + 40
    while again in ("", before) and time.monotonic() < end:
        time.sleep(0.2)
        again = subprocess.run(pair.ssh("node2", look), capture_output=True, text=True, timeout=20).stdout.strip()
    assert again not in ("", before)


def test_lab_up_restarts_killed_nodes_and_ends_their_leftover_processes(pair: Lab) -> None:
    pair.shell("node2", "echo kept > ~/file")
    first = pids(pair)[0]
    inits = kill_hard(pair)
    assert states(pair) == ["off", "off"]
    pair.up()
    assert states(pair) == ["running", "running"]
    assert first not in pids(pair)
    assert [command_of(pid) for pid in inits] == ["", ""]
    assert pair.shell("node2", "cat ~/file") == "kept"


def test_lab_verbs_exit_7_when_the_lab_or_snapshot_is_missing(pair: Lab) -> None:
    for words in (["down", "--name", "never"], ["status", "--name", "never"], ["up", "--name", "x", "--from", "never"]):
        done = pair.tfctl("lab", *words, check=False)
        assert done.returncode == 7
        assert "is called 'never'" in done.stderr


# -- snapshots


def test_snapshot_keeps_the_state_of_the_lab_when_it_was_taken(pair: Lab, fresh: MakeLab, run_name: str) -> None:
    name = f"{run_name}-snap"
    pair.shell("node1", "echo first > ~/word; sudo -n mkdir -m 2770 /srv/tfctl/out; logger --tag mark before")
    pair.tfctl("lab", "snapshot", name, "--name", pair.name)
    try:
        pair.shell("node1", "cat ~/word && echo second > ~/word && sudo -n rmdir /srv/tfctl/out")
        other = fresh("other")
        other.up("--from", name)
        assert list(other.hosts()) == ["node1", "node2"]
        assert other.shell("node1", "cat ~/word; stat -c %a /srv/tfctl/out; systemctl is-system-running") == (
            "first\n2770\nrunning"
        )
        assert other.shell("node1", "sudo -n journalctl -q -t mark -o cat") == "before"
        assert other.shell("node1", "getent hosts node2").split()[0] == other.hosts()["node2"]["ansible_host"]
        assert other.hosts()["node1"]["ansible_host"] != pair.hosts()["node1"]["ansible_host"]
        assert pair.shell("node1", "cat ~/word") == "second"
        fewer = fresh("fewer")
        fewer.up("--from", name, "--nodes", 1)
        assert fewer.shell("node1", "cat ~/word; grep -c node /etc/hosts") == "first\n1"
        done = other.tfctl("lab", "up", "--name", f"{run_name}-more", "--from", name, "--nodes", 3, check=False)
        assert (done.returncode, "has only 2" in done.stderr) == (2, True)
        # Only the name is deleted: a lab that was created from the snapshot keeps its files.
        done = pair.tfctl("lab", "snapshot", name, "--delete", "-o", "json")
        assert json.loads(done.stdout) == {"snapshot": name, "lab": None, "deleted": True}
        assert name not in status(other)["snapshots"]
        kill_hard(other)
        other.up()
        assert other.shell("node1", "cat ~/word") == "first"
    finally:
        pair.tfctl("lab", "snapshot", name, "--delete", check=False)


def test_snapshot_can_be_replaced_and_taken_from_a_restored_lab(fresh: MakeLab, run_name: str) -> None:
    name, one, other = f"{run_name}-chain", fresh("one"), fresh("two")
    try:
        one.up("--nodes", 1)
        for word in ("a", "b"):
            one.shell("node1", f"touch ~/{word}")
            one.tfctl("lab", "snapshot", name, "--name", one.name)
        one.down()
        other.up("--from", name)
        other.shell("node1", "rm ~/a && touch ~/c")
        other.tfctl("lab", "snapshot", name, "--name", other.name)
        other.down()
        one.up("--from", name)
        assert one.shell("node1", "ls") == "b\nc"
        kept = layers(name)
        assert len(kept) == 4 and all(path.is_dir() for path in kept)
        one.down()
    finally:
        one.tfctl("lab", "snapshot", name, "--delete", check=False)
    assert not any(path.exists() for path in kept)


# -- cleanup


def test_lab_down_leaves_nothing_and_does_not_touch_other_labs(pair: Lab, fresh: MakeLab) -> None:
    beside = fresh("beside")
    beside.up("--nodes", 1)
    assert status(beside)["network"] != status(pair)["network"]
    before = traces(pair)
    beside.down()
    assert traces(beside) == []
    assert not beside.inventory.exists()
    assert traces(pair) == before
    assert states(pair) == ["running", "running"]


@pytest.mark.parametrize("lost", ["nothing", "record", "folder"])
@pytest.mark.parametrize("then", ["down", "up"])
def test_lab_up_and_down_clean_up_after_a_crash(fresh: MakeLab, lost: str, then: str) -> None:
    lab = fresh("crash")
    lab.up("--nodes", 2)
    inits = kill_hard(lab)
    assert all(command_of(pid) for pid in inits)  # they survive, so there is something to clean up
    if lost == "record":
        (LABS / lab.name / "lab.json").unlink()
    if lost == "folder":
        for mount in output("findmnt", "-rno", "TARGET").split():
            if mount.startswith(f"{LABS}/{lab.name}/"):
                subprocess.run(["umount", "--lazy", mount], check=True, timeout=20)
        shutil.rmtree(LABS / lab.name)
    if then == "up":
        lab.up("--nodes", 2)
        assert states(lab) == ["running", "running"]
        assert lab.shell("node1", "echo alive") == "alive"
    lab.down()
    assert [command_of(pid) for pid in inits] == ["", ""]
    assert traces(lab) == []
    assert not lab.inventory.exists()


@pytest.mark.parametrize("then", ["down", "up"])
def test_lab_up_and_down_recover_from_a_killed_up(fresh: MakeLab, then: str) -> None:
    lab = fresh("half")
    command = [str(TFCTL), "lab", "up", "--name", lab.name, "--nodes", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=lab.folder) as started:
        assert started.stderr is not None
        seen = any("starting 2 of 2" in line for line in started.stderr)
        started.kill()
    assert seen
    assert traces(lab)
    if then == "up":
        lab.up()
        assert states(lab) == ["running", "running"]
    lab.down()
    assert traces(lab) == []


def test_lab_up_starts_each_node_once_when_two_run_at_the_same_time(fresh: MakeLab) -> None:
    lab = fresh("twice")
    command = [str(TFCTL), "lab", "up", "--name", lab.name, "--nodes", "2"]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=lab.folder) for _ in range(2)]
    heard = [started.communicate(timeout=120)[1] for started in both]
    assert [started.returncode for started in both] == [0, 0]
    assert sorted(text.count("starting 2 of 2") for text in heard) == [0, 1]
    assert states(lab) == ["running", "running"]


BUILD = """
import sys
from tfctl.lab.image import Recipe, ensure, path, recipe
asked = Recipe("bookworm", recipe("bookworm").sources, packages=("mount",))  # so no real image shares its key
print(path(asked.key), flush=True)
ensure(asked, lambda line: print(line, flush=True))
"""


def test_image_build_leaves_no_image_and_no_process_when_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", BUILD], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        image = Path(started.stdout.readline().strip())
        assert "building" in started.stdout.readline()
        assert soon(lambda: builders() != [])
        started.kill()
    assert soon(lambda: builders() == [])
    assert not image.exists()


def builders() -> list[str]:
    lines = output("ps", "-eww", "-o", "args").splitlines()
    return [line for line in lines if "mmdebstrap" in line and "--include=mount " in line]


def soon(what: Callable[[], bool]) -> bool:
    end = time.monotonic() + 10
    while not (held := what()) and time.monotonic() < end:
        time.sleep(0.05)
    return held


def test_lab_up_refuses_to_overwrite_a_foreign_inventory(fresh: MakeLab) -> None:
    lab = fresh("file")
    lab.inventory.parent.mkdir()
    lab.inventory.write_text("[gpu]\nreal1\n")
    done = lab.tfctl("lab", "up", "--name", lab.name, check=False)
    assert done.returncode == 3
    assert lab.inventory.read_text() == "[gpu]\nreal1\n"
    assert traces(lab) == []
