"""Jobs without a client on real nodes: what their guards do when tasks, hosts, networks and guards fail."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import pytest

from tests.lab.jobs import Jobs, wait_for
from tfctl.node import wire

#: A chief on node1 that runs a script, and servers on node2 and node3 that run until they are stopped.
SERVERS = """
    command: [sh, -c, "exec sleep 600"]
    roles:
      chief: {replicas: 1, hosts: node1, command: [sh, -c, %s]}
      server: {replicas: 2, hosts: "node2,node3"}
    policy: {success: chief%s}
"""
#: Roles of each strategy. Programs that need no TensorFlow stand for training.
STRATEGIES = {
    "tf1_ps": "roles: {ps: {replicas: 1, hosts: node3}, worker: {replicas: 2, hosts: 'node1,node2'}}",
    "parameter_server": "roles: {chief: {replicas: 1, hosts: node1}, worker: {replicas: 1, hosts: node2}, "
    "ps: {replicas: 1, hosts: node3}}",
    "multi_worker_mirrored": "roles: {worker: {replicas: 3, hosts: 'node1,node2,node3'}}",
}
#: Serve until stopped, as ps and as workers of ParameterServerStrategy do, or train for a while.
SERVES = "import os, time; time.sleep(600 if os.environ.get('TFCTL_SERVES') == '1' else 8)"


def start(jobs: Jobs, name: str, chief: str, policy: str = "") -> None:
    jobs.ok("start", jobs.file(name, SERVERS % (json.dumps(chief), policy)))


def ended(jobs: Jobs, name: str, state: str, within: float = 60) -> None:
    wait_for(lambda: jobs.status(name)["state"] == state, within, lambda: jobs.ok("status", name))


def all_is_over(jobs: Jobs, name: str) -> None:
    """Assert that processes and guards end without a client, and that a stop then removes the rest."""
    look = "ps -u tfctl -u tfctl-guard -o args=; ls /run/systemd/system /run/tfctl | grep guard; true"
    wait_for(lambda: not any(jobs.everywhere(look).values()), 30, lambda: str(jobs.everywhere(look)))
    jobs.ok("stop", name)
    jobs.assert_nothing_left()


def guard_pid(jobs: Jobs, host: str, name: str) -> int:
    return int(jobs.root(host, f"systemctl show -P MainPID tfctlguard-{name}.service") or 0)


def connected(jobs: Jobs, name: str) -> bool:
    """Return whether both members have a connection to the head."""
    [port] = re.findall(r"\d+", jobs.root("node1", f"grep ListenStream /run/systemd/system/tfctlguard-{name}.socket"))
    return len(jobs.root("node1", f"ss -Htn state established '( sport = :{port} )'").splitlines()) == 2


@contextmanager
def cut_off(jobs: Jobs, host: str, name: str) -> Iterator[None]:
    """Drop what the guards of this host and of the head say to each other, during the block."""
    [port] = re.findall(r"\d+", jobs.root("node1", f"grep ListenStream /run/systemd/system/tfctlguard-{name}.socket"))
    rule = f"OUTPUT -p tcp --dport {port} -j DROP"
    jobs.root(host, f"iptables -w -I {rule} || (apt-get -qq install -y iptables >/dev/null && iptables -w -I {rule})")
    try:
        yield
    finally:
        jobs.root(host, f"iptables -w -D {rule}")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_job_whose_client_was_killed_ends_by_itself(strategy: str, jobs: Jobs) -> None:
    name = strategy.replace("_", "-")
    stack = "none" if strategy == "tf1_ps" else "tf2.15"
    python = "python3" if stack == "none" else "python"
    text = f'strategy: {strategy}\nstack: {stack}\ncommand: [{python}, -c, "{SERVES}"]\n{STRATEGIES[strategy]}\n'
    client = jobs.begin("start", jobs.file(name, text), "--wait")
    wait_for(lambda: jobs("status", name).returncode == 0 and jobs.status(name)["state"] == "running", 60)
    client.send_signal(signal.SIGKILL)
    client.communicate(timeout=10)
    ended(jobs, name, "succeeded")
    assert json.loads(jobs.elsewhere("status", name, "-o", "json"))["state"] == "succeeded"
    all_is_over(jobs, name)


def test_servers_are_stopped_within_five_seconds_of_the_end_of_the_chief(jobs: Jobs) -> None:
    start(jobs, "quick", "sleep 5")
    ended(jobs, "quick", "succeeded")
    all_is_over(jobs, "quick")
    events = json.loads(jobs.ok("events", "quick", "-o", "json"))["events"]
    ends = {
        (event["role"], event["index"]): datetime.fromisoformat(event["time"])
        for event in events
        if event["event"] == "end"
    }
    for server in (0, 1):
        assert timedelta() <= ends["server", server] - ends["chief", 0] < timedelta(seconds=5), ends
    assert "chief/0 has succeeded" in jobs.ok("events", "quick")


def test_tasks_cannot_signal_trace_or_read_the_guard(jobs: Jobs) -> None:
    start(jobs, "reach", "exec sleep 600")
    wait_for(lambda: connected(jobs, "reach"), 30)
    pid = guard_pid(jobs, "node1", "reach")
    user = "setpriv --reuid=tfctl --regid=tfctl --clear-groups"
    # PTRACE_SEIZE traces the guard without stopping it, until this program ends (ptrace(2)).
    trace = f'python3 -c "import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(0x4206, {pid}, None, None) != 0)"'
    assert jobs.root("node1", f"{trace} && echo done") == "done", "only the user must be the reason"
    for attack in (
        f"kill -9 {pid}",
        trace,
        f"cat /proc/{pid}/environ",
        "cat /run/credentials/tfctlguard-reach.service/key",
        "cat /run/tfctl/guard/reach.key",
        "python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('/run/tfctl/guard/reach.sock')\"",
        "touch /var/lib/tfctl/jobs/reach/1/guard/report.json",
    ):
        assert jobs.root("node1", f"{user} {attack} >/dev/null 2>&1 && echo done; true") == "", attack
    [port] = re.findall(r"\d+", jobs.root("node1", "grep ListenStream /run/systemd/system/tfctlguard-reach.socket"))
    bind = f"import socket; s = socket.socket(); s.bind(('0.0.0.0', {port}))"
    jobs.root("node1", f'systemctl stop tfctlguard-reach.service; {user} python3 -c "{bind}" && echo bound; true')
    assert "bound" not in jobs.root("node1", f'{user} python3 -c "{bind}" 2>/dev/null && echo bound; true')
    jobs.ok("stop", "reach")
    jobs.assert_nothing_left()


def test_socket_of_a_guard_refuses_other_processes_of_the_same_user(jobs: Jobs) -> None:
    """As the guard of another job is."""
    start(jobs, "alone", "exec sleep 600")
    request = json.dumps({"protocol": wire.PROTOCOL, "verb": "show", "job": "alone"})
    ask = (
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/run/tfctl/guard/alone.sock'); "
        f"s.sendall({request!r}.encode() + bytes([10])); print(s.makefile().readline())"
    )
    user = "setpriv --reuid=tfctl-guard --regid=tfctl-guard --clear-groups"
    said = jobs.root("node1", f"{user} python3 -c {shlex.quote(ask)}")
    assert "only the guard of alone may connect to this socket of node1" in said
    jobs.ok("stop", "alone")
    jobs.assert_nothing_left()


def test_guard_costs_less_than_30_mb_and_a_hundredth_of_a_core(jobs: Jobs) -> None:
    start(jobs, "cheap", "exec sleep 600")
    wait_for(lambda: connected(jobs, "cheap"), 30)
    unit = "tfctlguard-cheap.service"

    def cpu() -> dict[str, int]:
        shown = jobs.everywhere(f"systemctl show -P CPUUsageNSec {unit}", ["node1", "node2"])
        return {host: int(lines[0]) for host, lines in shown.items()}

    time.sleep(3)
    before, began = cpu(), time.monotonic()
    time.sleep(20)
    after, lasted = cpu(), time.monotonic() - began
    for host, used in after.items():
        assert (used - before[host]) / 1e9 / lasted < 0.01, host
        pid = guard_pid(jobs, host, "cheap")
        resident = int(jobs.root(host, f"awk '/VmRSS/ {{print $2}}' /proc/{pid}/status"))
        assert resident < 30_000, resident
    jobs.ok("stop", "cheap")
    jobs.assert_nothing_left()


@pytest.mark.parametrize("hosts", [["node1"], ["node2", "node3"]], ids=["head", "members"])
def test_killed_guards_are_started_again_and_go_on(hosts: list[str], jobs: Jobs) -> None:
    start(jobs, "killed", "sleep 12")
    wait_for(lambda: connected(jobs, "killed"), 30)
    for host in hosts:
        jobs.root(host, f"kill -9 {guard_pid(jobs, host, 'killed')}")
    ended(jobs, "killed", "succeeded")
    all_is_over(jobs, "killed")


def test_host_without_contact_to_the_head_ends_its_tasks_after_the_lease_only(jobs: Jobs) -> None:
    start(jobs, "lease", "exec sleep 600", ", lease: 20s")
    wait_for(lambda: connected(jobs, "lease"), 30)
    with cut_off(jobs, "node2", "lease"):
        time.sleep(10)
    time.sleep(15)
    assert set(jobs.states("lease").values()) == {"running"}
    with cut_off(jobs, "node2", "lease"):
        wait_for(lambda: jobs.states("lease")["server/0"] == "stopped", 60)
        assert jobs.states("lease")["server/1"] == "running"
    jobs.ok("stop", "lease")
    jobs.assert_nothing_left()


def test_host_that_stays_silent_fails_a_job_that_needs_it(jobs: Jobs) -> None:
    text = "strategy: tf1_ps\nstack: none\ncommand: [python3, -c, 'import time; time.sleep(600)']\n"
    jobs.ok("start", jobs.file("mute", f"{text}{STRATEGIES['tf1_ps']}\npolicy: {{lease: 10s, grace: 15s}}\n"))
    wait_for(lambda: connected(jobs, "mute"), 30)
    with cut_off(jobs, "node3", "mute"):
        ended(jobs, "mute", "failed", 90)
        assert "ps/0 on node3 is lost: the host has not answered the guard" in jobs.status("mute")["reason"]
    jobs.ok("stop", "mute")
    jobs.assert_nothing_left()


def test_all_hosts_end_their_tasks_when_the_head_is_gone(jobs: Jobs) -> None:
    start(jobs, "headless", "exec sleep 600", ", lease: 10s")
    wait_for(lambda: connected(jobs, "headless"), 30)
    with jobs.lab.without_network("node1"):
        wait_for(lambda: not any(jobs.everywhere("pgrep -u tfctl; true", ["node2", "node3"]).values()), 60)
    wait_for(lambda: jobs("status", "headless").returncode == 0, 60)
    jobs.ok("stop", "headless")
    jobs.assert_nothing_left()


def test_failed_job_is_tried_again_and_wait_follows_it(jobs: Jobs) -> None:
    script = 'test "$TFCTL_ATTEMPT" = 2 || { sleep 2; exit 9; }; sleep 2'
    start(jobs, "retried", script, ", max_attempts: 3, max_restarts: 0, fail_exit_codes: [3]")
    done = jobs("wait", "retried", "--timeout", "80s")
    assert done.returncode == 0, done.stderr
    assert jobs.status("retried")["attempt"] == 2
    assert re.search(r"retry .*exit code 9; attempt 2 in 10 s", jobs.ok("events", "retried"))
    all_is_over(jobs, "retried")


def test_stop_ends_a_job_that_waits_for_its_next_attempt(jobs: Jobs) -> None:
    start(jobs, "pending", "sleep 2; exit 9", ", max_attempts: 3, max_restarts: 0")
    wait_for(lambda: "attempt 2 in" in jobs.status("pending")["reason"], 40)
    jobs.ok("stop", "pending")
    jobs.assert_nothing_left()
    found = jobs.status("pending")
    assert (found["state"], found["attempt"]) == ("failed", 1)


def test_server_that_does_not_listen_fails_the_job(jobs: Jobs) -> None:
    text = (
        "strategy: tf1_ps\nstack: none\ncommand: [python3, -c, 'import time; time.sleep(600)']\n"
        "roles: {ps: 1, worker: 2}\npolicy: {start_timeout: 5s}\n"
    )
    jobs.ok("start", jobs.file("deaf", text))
    ended(jobs, "deaf", "failed")
    assert re.search(
        r"did not listen on port \d+, nor did 2 other tasks on theirs, within 5 s of", jobs.status("deaf")["reason"]
    )
    all_is_over(jobs, "deaf")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_task_that_makes_no_step_ends_the_attempt_and_why_knows_what_it_did(jobs: Jobs) -> None:
    script = "n=0; while :; do n=$((n + 1)); echo step $n; sleep 1; done"
    text = (
        f"command: [sh, -c, {json.dumps(script)}]\nroles: {{worker: {{per_host: 1, hosts: 'node1:node2'}}}}\n"
        "progress: 'step (?P<step>[0-9]+)'\npolicy: {stall: 30s, on_stall: restart, max_attempts: 2}\n"
    )
    jobs.ok("start", jobs.file("stalls", text))
    stop = "systemctl kill --signal=STOP tfctl-stalls-worker-1.service"
    wait_for(lambda: "step 15" in jobs.ok("logs", "stalls", "worker", 1), 40)
    jobs.root("node2", stop)
    wait_for(lambda: "worker/1 on node2 has made no step for 30 s" in jobs.status("stalls")["reason"], 70)
    wait_for(lambda: jobs.status("stalls")["attempt"] == 2 and jobs.status("stalls")["state"] == "running", 40)
    assert re.search(r"worker/1 .*stall .*has made no step for 30 s", jobs.ok("events", "stalls"))
    wait_for(lambda: "step 15" in jobs.ok("logs", "stalls", "worker", 1), 40)
    jobs.root("node2", stop)
    ended(jobs, "stalls", "failed", 80)
    all_is_over(jobs, "stalls")
    found = json.loads(jobs.ok("why", "stalls", "-o", "json"))
    [culprit] = found["culprits"]
    assert (culprit["task"], culprit["host"], culprit["kind"]) == ("worker/1", "node2", "stopped")
    assert found["evidence"][0] == jobs.status("stalls")["reason"]


def test_task_that_fails_at_once_is_not_started_again(jobs: Jobs) -> None:
    start(jobs, "missing", "exec python3 -c 'import no_such_module'", ", max_restarts: 20")
    began = time.monotonic()
    ended(jobs, "missing", "failed")
    assert time.monotonic() - began < 30
    assert "twice within 10 s of its start; it is not started again" in jobs.status("missing")["reason"]
    all_is_over(jobs, "missing")


def test_rebooted_host_fails_a_job_that_needs_it_and_wait_cleans_up(jobs: Jobs) -> None:
    text = "strategy: multi_worker_mirrored\nstack: tf2.15\ncommand: [python, -c, 'import time; time.sleep(600)']\n"
    jobs.ok("start", jobs.file("reboot", text + STRATEGIES["multi_worker_mirrored"] + "\n"))
    wait_for(lambda: connected(jobs, "reboot"), 30)
    subprocess.run(jobs.lab.ssh("node2", "sudo -n systemctl reboot"), capture_output=True, timeout=20)
    done = jobs("wait", "reboot", "--timeout", "80s", timeout=110)
    assert done.returncode == 100, done.stderr
    assert "worker/1 on node2 is lost: the host was shut down or rebooted" in done.stderr
    jobs.ok("stop", "reboot")
    jobs.assert_nothing_left()


def test_upgrade_of_the_node_part_leaves_jobs_and_their_guards_alone(jobs: Jobs) -> None:
    start(jobs, "upgrade", "sleep 25")
    wait_for(lambda: connected(jobs, "upgrade"), 30)
    before = {host: guard_pid(jobs, host, "upgrade") for host in ("node1", "node2", "node3")}
    install = (
        "cd /usr/local/lib/tfctl && cp -a $(readlink current) 0123456789abcdef && ln -sfn 0123456789abcdef current"
    )
    old = jobs.everywhere("readlink /usr/local/lib/tfctl/current")
    try:
        jobs.everywhere(install)
        jobs.ok("status", "upgrade")
        assert before == {host: guard_pid(jobs, host, "upgrade") for host in before}
        ended(jobs, "upgrade", "succeeded")
        all_is_over(jobs, "upgrade")
    finally:
        for host, [digest] in old.items():
            jobs.root(host, f"cd /usr/local/lib/tfctl && ln -sfn {digest} current && rm -r 0123456789abcdef")


def test_end_of_a_job_is_notified(jobs: Jobs) -> None:
    program = "cat >/srv/tfctl/told/outcome.json; id -un >/srv/tfctl/told/who"
    server = (
        "import http.server\nclass H(http.server.BaseHTTPRequestHandler):\n"
        " def do_POST(self):\n  open('/tmp/post','wb').write(self.rfile.read(int(self.headers['Content-Length'])))\n"
        "  self.send_response(200); self.end_headers()\n"
        "http.server.HTTPServer(('127.0.0.1', 8099), H).handle_request()\n"
    )
    jobs.root("node1", "mkdir -p /srv/tfctl/told && chown tfctl: /srv/tfctl/told; rm -f /tmp/post")
    jobs.lab.root_script("node1", f"cat >/tmp/hook.py <<'X'\n{server}X\nsystemd-run -q python3 /tmp/hook.py", 30)
    notify = f", notify: {{command: [sh, -c, {json.dumps(program)}], url: 'http://127.0.0.1:8099/secret'}}"
    start(jobs, "told", "sleep 3", notify)
    ended(jobs, "told", "succeeded")
    all_is_over(jobs, "told")
    for path in ("/srv/tfctl/told/outcome.json", "/tmp/post"):
        told = json.loads(jobs.root("node1", f"cat {path}"))
        assert (told["job"], told["state"]) == ("told", "succeeded")
    assert jobs.root("node1", "cat /srv/tfctl/told/who") == "tfctl"
    assert "secret" not in jobs.ok("events", "told")
    jobs.root("node1", "rm -r /srv/tfctl/told /tmp/post /tmp/hook.py")
