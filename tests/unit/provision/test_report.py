"""The events of a playbook become a result per host: what failed, why, and what the user can do about it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest
from ansible_collections.tfctl.cluster.plugins.module_utils import install

from tfctl.errors import Exit
from tfctl.provision import ansible as ansible_run
from tfctl.provision.events import (
    Began,
    Collector,
    HostDone,
    HostMessage,
    PlayMessage,
    StatsMessage,
    TaskStarted,
    Warned,
)
from tfctl.provision.faults import KINDS, Kind
from tfctl.provision.inspection import compared_hosts
from tfctl.provision.results import TaskResult, causes_of, diffs_of, faults_of, kept_of
from tfctl.provision.role_variables import inventory_variables


def play(*hosts: str) -> PlayMessage:
    return {"event": "play", "hosts": [*hosts], "batch": [*hosts], "serial": []}


def host(name: str, state: Any, **result: Any) -> HostMessage:
    return {
        "event": "host",
        "host": name,
        "role": "job_host",
        "task": "Prepare",
        "state": state,
        "result": cast(TaskResult, result),
    }


def stats(**hosts: tuple[int, int]) -> StatsMessage:
    return {"event": "stats", "hosts": {name: {"ok": ok, "changed": changed} for name, (ok, changed) in hosts.items()}}


def test_collector_reports_ok_failed_and_unreachable_hosts() -> None:
    collector = Collector()
    assert collector.take(play("n1", "n2", "n3")) == [Began(("n1", "n2", "n3"))]
    assert collector.take({"event": "task", "role": "job_host", "task": "Prepare"}) == [
        TaskStarted("job_host: Prepare")
    ]
    assert collector.take(host("n3", "changed", diff="+a\n", warnings=["careful"])) == [
        Warned("n3", "careful"),
        HostDone("n3", "job_host: Prepare", "changed", "+a\n"),
    ]
    fault = {"message": "2 MB are free", "remedy": "free space on {host}", "kind": "unfit"}
    collector.take(host("n2", "failed", msg="2 MB are free", faults=[fault]))
    drift = ["/etc/x changed since it was provisioned"]
    assert collector.take(host("n3", "ok", drifts=drift, removed=["/etc/y"], kept=["z stays"]))[0] == Warned(
        "n3", drift[0]
    )
    collector.take(host("n1", "unreachable", msg="ssh: connect to host 10.0.0.1 port 22: Connection refused"))
    assert not collector.finished
    collector.take(stats(n3=(2, 1), n2=(1, 0), n1=(0, 0)))
    assert collector.finished
    report = collector.result()
    assert [(row.host, row.ok, row.changed, row.failed, row.unreachable) for row in report.hosts] == [
        ("n1", 0, 0, False, True),
        ("n2", 1, 0, True, False),
        ("n3", 2, 1, False, False),
    ]
    assert [row.exit for row in report.hosts] == [Exit.UNREACHABLE, Exit.PREFLIGHT, Exit.OK]
    assert (report.hosts[1].task, report.hosts[1].reason) == ("job_host: Prepare", "2 MB are free")
    assert report.hosts[1].remedy == "free space on n2"
    assert (report.hosts[2].drifts, report.hosts[2].removed, report.hosts[2].kept) == (
        tuple(drift), ("/etc/y",), ("z stays",),
    )  # fmt: skip
    assert [row.warnings for row in report.hosts] == [(), (), ("careful",)]
    assert (report.changed, report.exit) == (1, Exit.PREFLIGHT)


def exceptions(*messages: str) -> SimpleNamespace | None:
    """Return what ansible-core knows of exceptions, each of which was caused by the next one."""
    event = None
    for message in reversed(messages):
        event = SimpleNamespace(msg=message, chain=event and SimpleNamespace(follow=True, event=event))
    return event and SimpleNamespace(event=event)


@pytest.mark.parametrize(
    ("result", "causes"),
    [
        ({"invocation": {"module_args": {}}}, ["no disk"]),
        ({"invocation": {"module_args": {"password": "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"}}}, []),
        ({"invocation": {"module_args": {"password": "$REDACTED$"}}}, []),
        # ansible-core does not tell which arguments were not logged.
        ({}, []),
        ({"invocation": {}}, []),
    ],
)
def test_causes_are_returned_only_if_all_arguments_may_be_logged(result: dict[str, object], causes: list[str]) -> None:
    error = exceptions("Task failed: It failed", "It failed", "no disk\nat all", "no disk")
    assert causes_of({"msg": "It failed", **result}, error) == causes


@pytest.mark.parametrize(
    ("state", "result", "reason", "remedy", "code"),
    [
        (
            "unreachable",
            {
                "msg": "Data could not be sent to remote host 'n1'. Make sure this host can be reached over SSH: "
                "[Errno 32] Broken pipe"
            },
            "ssh ended before the connection was established",
            "check that n1 is up, and that its sshd listens at ansible_host and ansible_port",
            Exit.UNREACHABLE,
        ),
        (
            "unreachable",
            {"msg": "Failed to connect to the host via ssh: ops@h: Permission denied (publickey)."},
            "ops@h: Permission denied (publickey).",
            "give n1 the public key",
            Exit.UNREACHABLE,
        ),
        (
            "failed",
            {
                "msg": "Task failed: Module failed: Request failed: <urlopen error [Errno 104] Connection reset>",
                "url": "https://a.example/cudnn.tgz",
            },
            "https://a.example/cudnn.tgz: Request failed: <urlopen error [Errno 104] Connection reset>",
            "check that n1 can reach this URL",
            Exit.FAILED,
        ),
        (
            "failed",
            {"msg": "It failed", "causes": ["[Errno 32] Broken pipe"]},
            "It failed\n[Errno 32] Broken pipe",
            "",
            Exit.FAILED,
        ),
        (
            "failed",
            {"msg": "The checksum for /x/archive did not match 12; it was 34.", "url": "https://a.example/cudnn.tgz"},
            "https://a.example/cudnn.tgz: The checksum for /x/archive did not match 12; it was 34.",
            "check your mirror",
            Exit.FAILED,
        ),
        ("failed", {"msg": "Missing sudo password"}, "Missing sudo password", "with -K", Exit.PREFLIGHT),
        ("unreachable", {"msg": "Incorrect sudo password"}, "Incorrect sudo password", "n1", Exit.PREFLIGHT),
        (
            "failed",
            {"msg": "non-zero return code", "rc": 100, "stderr": "E: Unable to locate package python9"},
            "Unable to locate package python9",
            "package sources",
            Exit.FAILED,
        ),
        (
            "failed",
            {"msg": "MODULE FAILURE", "rc": 127, "module_stdout": "/bin/sh: 1: /usr/bin/python3: not found"},
            "MODULE FAILURE\n/bin/sh: 1: /usr/bin/python3: not found",
            "install python3 on n1",
            Exit.FAILED,
        ),
        (
            "failed",
            {"msg": "Failed to replace '/var/tmp/a.tar' with b'/b': [Errno 28] No space left on device: b'/b'"},
            "no space left on device for /var/tmp/a.tar",
            "free space on n1",
            Exit.FAILED,
        ),
        (
            "failed",
            {"msg": "'/usr/bin/apt-get -y install 'make'' failed: E: Held packages were changed and -y was used."},
            "Held packages were changed and -y was used.",
            "apt-mark unhold",
            Exit.FAILED,
        ),
        (
            "failed",
            {"msg": "One or more items failed", "items": ["The proxy a:1 (tfctl_http_proxy) does not answer"]},
            "The proxy a:1 (tfctl_http_proxy) does not answer",
            "correct its address",
            Exit.PREFLIGHT,
        ),
        (
            "failed",
            {"msg": "One or more items failed", "items": ["/var/lib/tfctl/jobs already exists as a file"]},
            "/var/lib/tfctl/jobs already exists as a file",
            "find out on n1 what it is",
            Exit.FAILED,
        ),
        (
            "failed",
            {"msg": "apt-get ran longer than 1800 s and was killed"},
            "apt-get ran longer than 1800 s and was killed",
            "run it by hand on n1",
            Exit.FAILED,
        ),
        (
            "failed",
            {"msg": "the user tfctl has the ID 101 here instead of 880"},
            "the user tfctl has the ID 101 here instead of 880",
            "set tfctl_uid",
            Exit.PREFLIGHT,
        ),
        (
            "failed",
            {"msg": "tfctl_operators: there is no user alise on this host"},
            "tfctl_operators: there is no user alise on this host",
            "create the account on n1",
            Exit.PREFLIGHT,
        ),
        (
            "failed",
            {"msg": "ops cannot run tfctl-node: sudo: a password is required"},
            "ops cannot run tfctl-node: sudo: a password is required",
            "another rule of n1 overrides /etc/sudoers.d/tfctl",
            Exit.PREFLIGHT,
        ),
        ("failed", {"msg": "odd"}, "odd", "", Exit.FAILED),
        ("failed", {}, "no reason given", "", Exit.FAILED),
    ],
)
def test_faults_of_a_failed_task_have_reason_remedy_and_exit_code(
    state: str, result: TaskResult, reason: str, remedy: str, code: Exit
) -> None:
    (found,) = faults_of(result, "n1", state == "unreachable")
    assert (found.message, found.exit) == (reason, code)
    assert remedy in found.remedy and bool(remedy) == bool(found.remedy)


def test_faults_name_the_variable_of_the_inventory_instead_of_that_of_a_role() -> None:
    text = "Validation of arguments failed:\nargument 'preflight_uid' is of type str and cannot be converted to int"
    variables = inventory_variables(ansible_run.data_dir() / "roles")
    (found,) = faults_of({"msg": text}, "n1", variables=variables)
    assert found.message.splitlines()[1] == "argument 'tfctl_uid' is of type str and cannot be converted to int"
    assert (found.remedy, found.exit) == ("correct it in the inventory", Exit.BAD_FILE)


def test_warning_about_several_hosts_is_reported() -> None:
    message: HostMessage = {
        "event": "host", "host": "a", "role": "preflight", "task": "Compare", "state": "ok",
        "result": {"warnings": ["a and b are the same machine"]},
    }  # fmt: skip
    collector = Collector()
    collector.take(play("a", "b"))
    assert Warned("a", "a and b are the same machine") in collector.take(message)
    assert [row.warnings for row in collector.result().hosts] == [("a and b are the same machine",), ()]
    assert not collector.worked
    collector.take({**message, "role": "job_host"})
    assert collector.worked


def test_faults_hide_passwords_in_urls() -> None:
    (found,) = faults_of({"msg": "http://me:secret@index.example/simple: 403"}, "n1")
    assert found.message == "http://me:***@index.example/simple: 403"


def test_remedy_names_the_host_and_keeps_a_word_that_the_user_replaces() -> None:
    form = {"message": "tfctl_http_proxy is not an address", "remedy": "write http://HOST:PORT", "kind": "inventory"}
    named = {"message": "no key", "remedy": "install openssh-client on {host}", "kind": "failed"}
    collector = Collector()
    collector.take(play("n1"))
    collector.take(host("n1", "failed", faults=[form, named]))
    (found,) = collector.result().hosts
    assert found.remedy == "write http://HOST:PORT\ninstall openssh-client on n1"
    assert (found.reason, found.exit) == ("tfctl_http_proxy is not an address\nno key", Exit.BAD_FILE)


def test_each_kind_of_fault_of_the_modules_has_an_exit_code() -> None:
    assert {install.BUSY, install.FAILED} < {*KINDS} == {*get_args(Kind)}


EXPLAINED = {"title": "", "machine": "", "gpus": "", "driver": "", "stacks": {"tf2.15": {"faults": [{}]}}}


@pytest.mark.parametrize(
    ("result", "place"),
    [
        ({"faults": [1]}, "faults/0"),
        ({"faults": "x"}, "faults"),
        ({"faults": [{"message": "x"}]}, "faults/0/remedy"),
        ({"faults": [{"message": "x", "remedy": "", "kind": "evil"}]}, "faults/0/kind"),
        ({"faults": {"message": "x"}}, "faults"),
        ({"drifts": 5}, "drifts"),
        ({"drifts": [{}]}, "drifts/0"),
        ({"removed": "all"}, "removed"),
        ({"kept": [None]}, "kept/0"),
        ({"warnings": 7}, "warnings"),
        ({"items": [3]}, "items/0"),
        ({"causes": 3}, "causes"),
        ({"explained": 3}, "explained"),
        ({"explained": {"title": ""}}, "explained/machine"),
        ({"explained": EXPLAINED}, "explained/stacks/tf2.15/python"),
        ({"faults": "x" * 10**6}, "faults: expected a list, not 'xxx"),
        (5, "expected a mapping"),
    ],
)
@pytest.mark.parametrize("state", ["ok", "changed", "failed", "unreachable", "skipped"])
def test_malformed_answer_of_a_host_fails_that_host_and_no_other(result: Any, place: str, state: Any) -> None:
    collector = Collector()
    collector.take(play("n1", "n2"))
    collector.take({**host("n1", state), "result": result})
    collector.take(host("n2", "changed"))
    collector.take(stats(n1=(1, 0), n2=(1, 1)))
    one, two = collector.result().hosts
    assert (one.failed, one.task, one.exit) == (True, "job_host: Prepare", Exit.FAILED)
    assert one.reason.startswith(f"the host's answer to this task is malformed: {place}") and len(one.reason) < 400
    assert one.remedy.startswith("find out what changes the answers of Ansible's modules on n1")
    assert (two.failed, two.changed, two.exit) == (False, 1, Exit.OK)


@pytest.mark.parametrize("batch", [2, "no number"])
def test_the_comparison_of_the_hosts_is_no_malformed_answer_of_the_first_one(batch: object) -> None:
    """It runs on the control machine, and Ansible reports it for the first host."""
    collector = Collector()
    collector.take(play("n1", "n2"))
    compared = compared_hosts({"n1": None, "n2": None}, others=False, canary="", batch=batch)
    collector.take(host("n1", "ok", **kept_of({**compared, "changed": False}, None)))
    assert not any(each.failed for each in collector.result().hosts)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"msg": {"a": 1}}, "{'a': 1}"),
        ({"msg": None, "stderr": 5}, "5"),
        ({"rc": "x", "stdout": [1]}, "[1]"),
        ({"url": 5, "msg": "x"}, "5: x"),
        ({"msg": "x", "faults": None, "drifts": None}, "x"),
        ({"msg": "x", "warnings": [1, "careful"], "unknown": object()}, "x"),
        ({"msg": "x {0} {host}", "diff": {}}, "x {0} {host}"),
    ],
)
def test_answer_of_a_module_of_others_needs_no_text_where_there_usually_is_one(result: Any, reason: str) -> None:
    collector = Collector()
    collector.take(play("n1"))
    collector.take(host("n1", "failed", **result))
    assert collector.result().hosts[0].reason == reason


@pytest.mark.parametrize("at_most_s", [120, "long", None])
def test_host_that_waits_is_reported_whatever_it_has_sent(at_most_s: Any) -> None:
    collector = Collector()
    collector.take(play("n1"))
    (event,) = collector.take({"event": "waits", "host": "n1", "text": ["another run"], "at_most_s": at_most_s})
    assert event == Warned("n1", f"waits up to {2 if at_most_s == 120 else 'a few'} min: ['another run']")


def test_host_fails_that_ansible_counts_as_failed_without_a_message_of_the_plugin() -> None:
    collector = Collector()
    collector.take(play("n1", "n2"))
    collector.take({"event": "stats", "hosts": {"n1": {"ok": 1, "failures": 1}, "n2": {"ok": 1, "failures": 0}}})
    one, two = collector.result().hosts
    assert (one.failed, one.reason, two.failed) == (True, "a task failed, and Ansible could not read why", False)


def test_plugin_keeps_what_the_result_of_a_task_says_whatever_the_host_has_put_into_it() -> None:
    items = [
        {"failed": True, "msg": 5},
        {"msg": "fine"},
        "a text of dnf",
        {"failed": True, "diff": [5, {"after": "x"}]},
    ]
    kept = kept_of({"msg": "x", "results": items, "more": 1, "drifts": 5}, None)
    assert kept == {"msg": "x", "drifts": 5, "items": ["5", ""], "causes": []}
    assert diffs_of({"results": items}) == [{"after": "x"}]
    others: tuple[Any, ...] = (5, None, "text", {})
    for results in others:
        assert kept_of({"results": results, "failed": True}, None)["items"] == [""]
        assert diffs_of({"results": results, "changed": True, "diff": 5}) == []
