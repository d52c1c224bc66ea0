"""links.py switches the link of a stack to an environment, keeps the previous one, and never while a job uses it."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.tfctl.cluster.plugins.module_utils import links, programs
from ansible_collections.tfctl.cluster.plugins.module_utils.install import ModuleFailed, point
from ansible_collections.tfctl.cluster.plugins.modules.rollback import roll_back

from tfctl.errors import UsageError
from tfctl.provision.run import ProvisionRequest, provision

OLD, NEW, NEWEST = (f"tf9-{letter * 12}" for letter in "abc")


@pytest.fixture
def link(tmp_path: Path) -> Path:
    """The path of a link that does not exist yet, beside three environments of the stack and one of another stack."""
    for age, name in enumerate((OLD, NEW, NEWEST, "tf10-aaaaaaaaaaaa")):
        packages = tmp_path / name / "lib/python3.7/site-packages"
        packages.mkdir(parents=True)
        marker = tmp_path / name / links.MARKER
        marker.touch()
        os.utime(marker, (1000 + age, 1000 + age))
    return tmp_path / "tf9"


def entries(link: Path) -> list[str]:
    return sorted(path.name for path in link.parent.iterdir())


def test_switch_keeps_the_current_and_the_newest_other_environment(link: Path) -> None:
    assert links.current(link) is None
    links.switch(link, link.with_name(NEWEST))
    assert entries(link) == ["tf10-aaaaaaaaaaaa", "tf9", NEW, NEWEST]
    assert links.in_order(link, link.with_name(NEWEST))
    assert links.before(link) == link.with_name(NEW)


def test_switch_links_the_ptxas_of_nvidias_wheel_on_which_xla_relies(link: Path) -> None:
    newest = link.with_name(NEWEST)
    links.switch(link, newest)
    assert not (newest / "bin/ptxas").is_symlink()
    program = newest / "lib/python3.7/site-packages" / links.PTXAS
    program.parent.mkdir(parents=True)
    program.touch()
    (newest / "bin").mkdir()
    assert not links.in_order(link, newest)  # installed by an earlier tfctl
    links.switch(link, newest)
    assert links.in_order(link, newest)
    assert (link / "bin/ptxas").resolve() == program


def test_switch_keeps_the_previous_environment_even_when_it_is_older(link: Path) -> None:
    point(link, OLD)
    links.switch(link, link.with_name(NEWEST))
    assert entries(link) == ["tf10-aaaaaaaaaaaa", "tf9", OLD, NEWEST]
    links.switch(link, link.with_name(OLD))
    assert links.before(link) == link.with_name(NEWEST)
    assert (link / "lib/python3.7/site-packages" / links.PTH[0]).read_text() == links.PTH[1]


def test_rollback_ignores_incomplete_environments(link: Path) -> None:
    point(link, NEWEST)
    for name in (OLD, NEW):
        (link.parent / name / links.MARKER).unlink()
    assert links.before(link) is None


def test_switch_deletes_a_python_tree_when_no_environment_uses_it(
    link: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "TREES", str(tmp_path / "pythons"))
    for name, users in (("cpython-3.6.15-aa", [OLD]), ("cpython-3.7.16-bb", [NEW, NEWEST, "tf10-aaaaaaaaaaaa"])):
        program = tmp_path / "pythons" / name / "bin/python3"
        program.parent.mkdir(parents=True)
        program.touch()
        for user in users:
            (tmp_path / user / "bin").mkdir()
            (tmp_path / user / "bin/python").symlink_to(program)
    links.switch(link, link.with_name(NEWEST))
    assert [path.name for path in (tmp_path / "pythons").iterdir()] == ["cpython-3.7.16-bb"]
    links.drop(link.with_name(NEW))
    assert [path.name for path in (tmp_path / "pythons").iterdir()] == ["cpython-3.7.16-bb"]


@pytest.fixture
def job(link: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A task that runs with the stack, and a fake systemctl that reads its state from the file that is returned."""
    variables, state, program = tmp_path / "env", tmp_path / "state", tmp_path / "bin/systemctl"
    variables.mkdir()
    (variables / "tfctl-digits-worker-0.env").write_text(f'PATH="{link}/bin:/bin"\n')
    (variables / "tfctl-digits-worker-1.env").write_text(f'PATH="{link}.1/bin:/bin"\n')
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\n[ $1 = list-units ] || exit\nread state < {state}\n"
        "echo tfctl-digits-worker-0.service loaded $state substate task\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(links, "VARIABLES", str(variables))
    monkeypatch.setattr(programs, "STARTS", tmp_path / "run")
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return state


def test_switch_is_refused_while_a_job_runs_with_the_stack(link: Path, job: Path) -> None:
    point(link, OLD)
    job.write_text("activating\n")
    with pytest.raises(
        ModuleFailed, match=r"tfctl-digits-worker-0\.service: running with tf9, whose files would change"
    ):
        links.switch(link, link.with_name(NEWEST))
    assert links.current(link) == link.with_name(OLD)
    links.switch(link, link.with_name(OLD))  # changes nothing
    job.write_text("failed\n")
    links.switch(link, link.with_name(NEWEST))


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("echo Failed to connect to bus >&2; exit 1", "Failed to connect to bus"),
        ("exec sleep 60", "ran longer than 0.2 s"),
        (None, "there is no systemctl"),
    ],
)
def test_switch_is_refused_when_systemctl_does_not_say_which_jobs_run(
    link: Path, job: Path, monkeypatch: pytest.MonkeyPatch, program: str | None, said: str
) -> None:
    """A host with so much load that systemctl hangs is one with jobs."""
    systemctl = job.parent / "bin/systemctl"
    systemctl.write_text(f"#!/bin/sh\n{program}\n")
    if program is None:
        systemctl.unlink()
        monkeypatch.setenv("PATH", str(job.parent / "bin"))
    monkeypatch.setattr(programs, "LIMIT_S", 0.2)
    point(link, OLD)
    with pytest.raises(ModuleFailed, match=f"^tfctl cannot find out which jobs run: .*{said}"):
        links.switch(link, link.with_name(NEWEST))
    assert links.current(link) == link.with_name(OLD)


def test_switch_is_refused_while_a_task_is_being_started_with_the_stack(link: Path, job: Path) -> None:
    """Its start has written the task's files, and waits for the other hosts."""
    point(link, OLD)
    job.write_text("inactive\n")
    reservation = job.parent / "run/reserved/digits"
    reservation.parent.mkdir(parents=True)
    reservation.write_text(json.dumps({"job": "digits", "tasks": [["worker", 0], ["worker", 1]]}))
    with reservation.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ModuleFailed, match=r"^tfctl-digits-worker-0\.service: running with tf9"):
            links.switch(link, link.with_name(NEWEST))
    links.switch(link, link.with_name(NEWEST))


def test_rollback_switches_to_the_previous_environment_and_back(link: Path) -> None:
    point(link, NEWEST)
    for act, current in ((False, NEWEST), (True, NEW), (True, NEWEST)):
        assert roll_back(link.parent, "tf9", act)["changed"]
        assert links.current(link) == link.with_name(current)
    assert entries(link) == ["tf10-aaaaaaaaaaaa", "tf9", NEW, NEWEST]


@pytest.mark.parametrize(
    ("stack", "reason"),
    [
        ("", "no stack is named for this host"),
        ("none", "no stack is named for this host"),
        ("../tf9", "no stack is named for this host"),
        ("tf8", "tf8 is not on this host"),
        ("tf10", "tf10 has no environment before tf10-aaaaaaaaaaaa"),
    ],
)
@pytest.mark.parametrize("act", [True, False])
def test_rollback_without_an_environment_to_return_to_is_refused(
    link: Path, stack: str, reason: str, act: bool
) -> None:
    point(link.with_name("tf10"), "tf10-aaaaaaaaaaaa")
    before = entries(link)
    with pytest.raises(ModuleFailed, match=f"^{reason}$"):
        roll_back(link.parent, stack, act)
    assert entries(link) == before


@pytest.mark.parametrize("act", [True, False])
def test_rollback_is_refused_while_a_job_runs_with_the_stack(link: Path, job: Path, act: bool) -> None:
    point(link, NEWEST)
    job.write_text("active\n")
    with pytest.raises(ModuleFailed, match="running with tf9, whose files would change"):
        roll_back(link.parent, "tf9", act)
    assert links.current(link) == link.with_name(NEWEST)


@pytest.mark.extended
def test_rollback_only_reports_the_change_in_check_mode(link: Path, tmp_path: Path) -> None:
    point(link, NEWEST)
    words = [
        "adhoc",
        "localhost",
        "--check",
        "--diff",
        "-m",
        "tfctl.cluster.rollback",
        "-a",
        f"stack=tf9 folder={tmp_path}",
    ]
    settings = {
        **os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
        "ANSIBLE_HOME": str(tmp_path / "home"),
    }  # fmt: skip
    run = [sys.executable, "-m", "ansible", *words]
    done = subprocess.run(run, cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=60)
    assert f"-{link} → {NEWEST}" in done.stdout and f"+{link} → {NEW}" in done.stdout, done.stdout + done.stderr
    assert links.current(link) == link.with_name(NEWEST)


def test_rollback_is_refused_for_parts_that_have_no_earlier_version(tmp_path: Path) -> None:
    request = ProvisionRequest(tmp_path / "hosts.ini", rollback=True, tags=("nvidia_driver", "job_host"))
    with pytest.raises(UsageError, match=r"--rollback can only be combined with .* --tags tensorflow,nvidia_driver"):
        provision(request, lambda _: None)
