"""`tfctl start` checks what only hosts know: their TensorFlow, and the ports of their outgoing connections."""

from __future__ import annotations

import pytest

from tests.cluster.hosts import STAY, Hosts

MIRRORED = "strategy: multi_worker_mirrored\nroles: {worker: 3}\n"


def file_of(hosts: Hosts, text: str, name: str = "checked") -> str:
    """Write a job file; its text replaces the strategy."""
    path = hosts.file(name, text)
    path.write_text(path.read_text().replace("strategy: custom\n", "" if "strategy:" in text else "strategy: custom\n"))
    return str(path)


def test_a_job_without_output_runs_on_hosts_that_share_nothing(hosts: Hosts) -> None:
    command = "command: [sh, -c, 'echo output=$TFCTL_OUTPUT.']\noutput: none\npolicy: {notify: {command: 'true'}}\n"
    job = file_of(hosts, command + MIRRORED)
    planned = hosts.ok("start", job, "--dry-run")
    assert "node1: output none\n" in planned
    hosts.ok("start", job, "--wait")
    assert hosts.ok("logs", "checked").count("output=.\n") == 3
    assert not any((tree / "srv/tfctl/checked").exists() for tree in hosts.trees.values())
    hosts.ok("pull", "checked", "pulled")
    assert hosts("tensorboard", "checked").code == 7


def test_a_job_without_output_may_run_beside_others_and_restart(hosts: Hosts) -> None:
    for name in ("first", "second"):
        hosts.ok("start", file_of(hosts, f"{STAY}output: none\n{MIRRORED}", name))
    hosts.ok("start", hosts.file("third", f"{STAY}roles: {{worker: 1}}\n"))
    hosts.ok("restart", "second")
    assert set(hosts.states("second").values()) == {"running"}
    hosts.ok("stop", "first")
    hosts.ok("stop", "second")


@pytest.mark.parametrize(("versions", "code"), [(("2.15.1", "2.15.1"), 0), (("2.15.1", "2.17.1"), 8)])
def test_start_refuses_a_cluster_with_different_versions_of_tensorflow(
    versions: tuple[str, str], code: int, hosts: Hosts
) -> None:
    for name, version in zip(("node1", "node2"), versions, strict=True):
        packages = hosts.trees[name] / "opt/tfctl/stacks/tf2.15-ab/lib/python3.11/site-packages"
        (packages / f"tensorflow_cpu-{version}.dist-info").mkdir(parents=True)
        (packages / "tensorflow_estimator-2.9.0.dist-info").mkdir()
    job = file_of(hosts, f"{STAY}output: none\nstrategy: multi_worker_mirrored\nroles: {{worker: 3}}\n")
    path = hosts.folder / "checked/job.yaml"
    path.write_text(path.read_text().replace("stack: none", "stack: tf2.15"))
    done = hosts("start", job)
    assert done.code == code, done.err
    if code:
        assert (
            "the tasks of one cluster have different versions of TensorFlow: 2.15.1 (worker/0 on node1, stack tf2.15) "
            "and 2.17.1 (worker/1 on node2, stack tf2.15)\n  → set one `stack:` in the job file, or install the same"
        ) in done.err
        assert hosts.left() == []
        path.write_text(path.read_text().replace("multi_worker_mirrored", "custom"))
        hosts.ok("start", job)


@pytest.mark.parametrize(
    ("ports", "reserved", "said"),
    [
        ("20000\t30000", "", True),
        ("20000\t30000", "23000-23450", True),
        ("20000\t30000", "23000,23400-23499", False),
        ("32768\t60999", "", False),
    ],
)
def test_start_names_ports_that_a_host_uses_for_outgoing_connections(
    ports: str, reserved: str, said: bool, hosts: Hosts
) -> None:
    folder = hosts.trees["node2"] / "proc/sys/net/ipv4"
    folder.mkdir(parents=True)
    (folder / "ip_local_port_range").write_text(f"{ports}\n")
    (folder / "ip_local_reserved_ports").write_text(f"{reserved}\n")
    done = hosts("start", hosts.file("ranges", STAY + "roles: {worker: 3}\n"))
    assert done.code == 0, done.err
    sentence = (
        "tfctl_ports: 23400-23499 is in the range of outgoing connections of node2 (20000-30000), which may take a "
        "port before a task does: choose ports below 20000\n"
    )
    assert done.err.count("outgoing") == (1 if said else 0)
    assert (sentence in done.err) == said
