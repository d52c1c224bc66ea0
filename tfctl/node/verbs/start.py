"""The verb `start`: start all of a plan's tasks on this host, or none (tfctl.node.wire describes the session).

    hello → plan or rerun → reserved → go → started → keep → kept

`refused` in place of `reserved`, and `undone` in place of `started`, end the session. Until the client sends `keep`,
the end of stdin, silence, a signal or any error undoes everything that was made.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Callable, NoReturn

from .. import checks, code, deadlines, fields, guards, jobstore, names, reservations, restart_files, unitfile, wire
from ..asuser import as_user, os_error
from ..exits import Exit
from ..hello import hello
from ..network import Attempts
from ..reservations import Reservation
from ..session import NodeSession, NotDone, RequestRefused
from ..states import Properties
from ..system import PROVISION, System, caller, clock_zero, host
from ..system import run as run_to_end
from ..units import exec_failure, installed_units, remove_units, wait_for_execution
from ..wire import Plan, PlannedTask

_NONCE = re.compile(r"[0-9A-Za-z_-]{8,64}")
#: Timeout in seconds of the one systemctl call that starts all units.
_LAUNCH_S = 90.0
#: How long (s) the guard of a job that has just ended may take to leave.
_LEAVES_S = 15.0
#: How often to look whether it has (s).
_LOOK_S = 0.2
#: Seconds that another host's mark may take to appear on a shared file system.
_SEEN_S = 2.0


def run(system: System, session: NodeSession, request: wire.StartRequest) -> None:
    """Serve the whole session. Raises RequestRefused, NotDone or Gone, and then leaves nothing behind."""
    Start(system, session, request).serve()


class Start:
    """One client's start.

    ``_reservation`` is what to undo, with the descriptor that holds its lock: it is there from `reserved` to `kept`.
    """

    def __init__(self, system: System, session: NodeSession, request: wire.StartRequest) -> None:
        self._system, self._session, self._request = system, session, request
        self._job = fields.job_name(request.job)
        self._code = None if request.code is None else fields.match(names.DIGEST, request.code, "a digest")
        # The descriptor keeps the stored code from being removed as long as this process lives.
        self._stored = code.hold(system, self._code) if self._code else None
        before = fields.optional_attempt(request.restart_of)
        self._files = restart_files.load(system, self._job, before) if before else None
        self._notify = guards.notify(system, self._job) if before else None
        self._plan: Plan | None = None
        self._reservation: tuple[Reservation, int] | None = None
        self._started = False
        self._mark: Path | None = None

    def serve(self) -> None:
        """Perform the step that each message asks for, and undo whatever was not kept."""
        self._session.send(hello(self._system, self._request, self._has_code, tuple(self._files or ())))
        try:
            while True:
                message = self._session.receive()
                if isinstance(message, wire.Plan):
                    self._require(self._files is None, "a plan")
                    self._reserve(message)
                elif isinstance(message, wire.Rerun):
                    self._rerun(message)
                elif isinstance(message, wire.Share):
                    self._share(message)
                elif isinstance(message, wire.Go):
                    self._go()
                elif isinstance(message, wire.Keep):
                    self._keep()
                    return
                else:
                    raise self._out_of_order(type(message).__name__.lower())
        finally:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            self._undo()

    @property
    def _has_code(self) -> bool:
        return not self._code or self._stored is not None

    # Step 1: check the plan, reserve, and write all files.

    def _rerun(self, message: wire.Rerun) -> None:
        """Make the plan here, so that the values of its variables never leave this host."""
        self._require(self._files is not None and self._has_code, "rerun")
        self._require(not message.guard or caller() != names.GUARD_USER, "another guard")
        self._require_same_job(message)
        guard = message.guard and message.guard._replace(notify=self._notify)
        self._reserve(restart_files.plan(self._files or {}, message.record, self._code)._replace(guard=guard))

    def _require_same_job(self, message: wire.Rerun) -> None:
        """Refuse a record that differs from the previous attempt's in more than attempts differ."""
        record = message.record
        before = jobstore.record(self._system, self._job, self._request.restart_of or 0)
        if before is None:
            raise RequestRefused(Exit.NOT_FOUND, f"{host()} no longer has the record of {self._job}")
        same = before._replace(attempt=record.attempt, run=record.run, started=record.started, guard=record.guard)
        if not message.guard and before.guard and record.guard:
            same = same._replace(guard=before.guard._replace(number=record.guard.number))
        if record != same:
            raise RequestRefused(
                Exit.USAGE, f"the record does not match the attempt of {self._job} that is to be repeated"
            )
        if (record.code or None) != self._code:
            raise RequestRefused(Exit.USAGE, f"the request names other code than the record of {self._job}")

    def _reserve(self, plan: Plan) -> None:
        self._require(not self._reservation, "a plan")
        incoming = None if self._has_code else self._receive_code()
        refusal: wire.Error | None = None
        unreached: tuple[wire.Unreached, ...] = ()
        try:
            checks.plan(plan, self._job, self._code)
            with Attempts(self._system.network, plan.reach) as attempts:  # they wait while this host works
                self._reservation = _prepare(self._system, plan, incoming)
                self._plan = plan
                unreached = attempts.unreached()
        except RequestRefused as refused:
            refusal = refused.error
        except OSError as error:
            refusal = os_error(error, "cannot write").error
        finally:
            if incoming:
                incoming.close()
        if refusal is not None:
            self._session.send(wire.Refused(refusal))
            raise NotDone
        self._session.send(wire.Reserved(unreached))

    def _receive_code(self) -> code.Incoming:
        message = self._session.receive()
        if not isinstance(message, wire.Code):
            raise self._out_of_order(type(message).__name__.lower())
        incoming = code.Incoming(self._system, self._code or "")
        try:
            incoming.receive(self._session, fields.number(message.size, "a size", 0, 1 << 40))
        except BaseException:
            incoming.close()
            raise
        return incoming

    # Step 2, only where several tasks write there: compare the hosts' output directories.

    def _share(self, message: wire.Share) -> None:
        self._require(self._reservation and self._plan and self._plan.output, "share")
        assert self._plan
        mark = self._system.at(self._plan.output) / f".tfctl-{fields.match(_NONCE, message.nonce, 'a nonce')}"
        actions: dict[str, Callable[[], object]] = {
            "write": mark.touch,
            "find": lambda: _found(str(mark)),
            "remove": mark.unlink,
        }
        self._mark = {"write": mark, "remove": None}.get(message.action, self._mark)
        try:
            ok = as_user(self._system, actions[message.action]) is not False
        except RequestRefused:
            ok = False
        self._session.send(wire.Shared(ok))

    # Step 3: start the units, and see that systemd could execute them.

    def _go(self) -> None:
        self._require(self._reservation and not self._started, "go")
        assert self._plan
        self._started = True
        units, before = [names.unit(self._job, *task.name) for task in self._plan.tasks], time.time()
        if units:
            try:
                _require_unchanged(self._system, self._plan)
                self._make_output()
            except RequestRefused as refused:
                self._give_up(refused.error)
            timers = deadlines.timers(self._system, self._job, [task.name for task in self._plan.tasks])
            guard = guards.installed(self._system, self._job) if self._plan.guard else []
            process = self._system.managing("start", "--", *units, *timers, *guard)
            assert process.stderr
            with process.stderr as errors:
                complaints = self._session.read_output(process, errors, _LAUNCH_S)
            properties = wait_for_execution(self._system, [*units, *timers], failed=bool(complaints))
            failure = self._failure(self._plan, properties)
            if complaints and not failure and guard:
                failure = self._guard_failure(guard)
            if failure:
                self._give_up(wire.Error(Exit.UNDONE, failure, "correct the job or the host, then start again"))
            self._set_began(self._plan, properties, before)
        self._session.send(wire.Started())

    def _make_output(self) -> None:
        """Create the directories of the output again. Another start of the job may have created them, on a host that
        shares them, and has removed them since. Raises RequestRefused."""
        assert self._reservation and self._plan
        missing = _missing_output(self._system, self._plan)
        if missing:
            reservation, descriptor = self._reservation
            made = {*reservation.made, *_make_output(self._system, self._plan, missing)}
            self._reservation = reservation._replace(made=tuple(sorted(made))), descriptor

    def _give_up(self, error: wire.Error) -> NoReturn:
        """Undo the start and report the error. Raises NotDone."""
        self._undo()
        self._session.send(wire.Undone(error._replace(exit=Exit.UNDONE)))
        raise NotDone

    def _failure(self, plan: Plan, properties: dict[str, Properties]) -> str:
        """Return why a task could not be started, or "". A program that ran counts, however soon it ended."""
        for task in plan.tasks:
            unit = names.unit(self._job, *task.name)
            ends = jobstore.ends(self._system, self._job, plan.attempt, *task.name)
            reason = exec_failure(properties[unit], ends)
            if reason:
                what = f"{names.task(*task.name)} could not be started on {host()}: {reason}"
                return f"{what}{self._last_lines(unit)}"
        for unit, found in properties.items():
            if unit.endswith(".timer") and found.get("ActiveState") != "active":
                return f"systemd on {host()} did not start {unit}"
        return ""

    def _guard_failure(self, units: list[str]) -> str:
        """Return why the guard could not be started, or ""."""
        for unit, found in self._system.show(units).items():
            if found.get("ActiveState") not in ("active", "activating"):
                return f"systemd on {host()} did not start {unit}: {found.get('Result')}{self._last_lines(unit)}"
        return ""

    def _set_began(self, plan: Plan, properties: dict[str, Properties], before: float) -> None:
        """Record when each task began. systemd forgets a task that succeeded: for that one use the time of the call."""
        zero, times = clock_zero(), {}
        for task in plan.tasks:
            micros = properties[names.unit(self._job, *task.name)].get("ExecMainStartTimestampMonotonic", "0")
            began = zero + int(micros) / 1e6 if micros.isdigit() else 0.0
            times[names.task_key(*task.name)] = round(max(began, before), 3)
        jobstore.set_began(self._system, self._job, plan.attempt, times)

    def _last_lines(self, unit: str) -> str:
        """Return the unit's last lines, each behind a newline. For one of more than 4 KiB, journalctl prints null."""
        words = ["-q", "--no-pager", "-o", "json", "--output-fields=MESSAGE", "-n", "5", "-u", unit, "--since=-2min"]
        try:
            found = run_to_end([*self._system.journalctl, *words], 10.0).output.splitlines()
            lines = [wire.journal_entry(line.encode()).text or "(a long line)" for line in found]
        except (RequestRefused, wire.Malformed):
            lines = []
        return "".join(f"\n{line}" for line in lines)

    # Step 4: let them run, or undo everything.

    def _keep(self) -> None:
        self._require(self._reservation and self._started, "keep")
        assert self._reservation
        reservation, descriptor = self._reservation
        reservations.keep(self._system, reservation)
        jobstore.add_action(self._system, self._job, reservation.attempt, "start")
        restart_files.delete(self._system, self._job)
        os.close(descriptor)
        self._reservation = None
        self._session.send(wire.Kept())

    def _undo(self) -> None:
        if self._mark:
            with contextlib.suppress(RequestRefused):
                as_user(self._system, self._mark.unlink)
        if self._reservation:
            reservation, descriptor = self._reservation
            reservations.undo(self._system, reservation)
            os.close(descriptor)
        self._reservation, self._mark = None, None

    def _require(self, fits: object, what: str) -> None:
        if not fits:
            raise self._out_of_order(what)

    def _out_of_order(self, what: str) -> RequestRefused:
        return RequestRefused(Exit.USAGE, f"{what} is out of order in a start")


def _prepare(system: System, plan: Plan, incoming: code.Incoming | None) -> tuple[Reservation, int]:
    """Check, reserve and write everything that the plan needs, or leave nothing. Nothing runs yet.

    The descriptor holds the reservation. Raises RequestRefused, OSError.
    """
    reservation = Reservation(
        plan.job, plan.attempt, plan.run, tuple(task.name for task in plan.tasks),
        tuple(checks.ports(plan)),
        tuple(gpu for task in plan.tasks for gpu in task.gpus),
        guard=plan.guard is not None, output=plan.output,
    )  # fmt: skip
    try:
        checks.fit(system, plan)
        if incoming and incoming.store():
            reservation = reservation._replace(stored=plan.code or "")
        checks.programs(system, plan)
        return _take_when_unguarded(system, plan, reservation)
    except BaseException:
        if incoming:
            incoming.close()  # it holds the code, which could not be removed
        reservations.undo_preparation(system, reservation)
        raise


def _take_when_unguarded(system: System, plan: Plan, reservation: Reservation) -> tuple[Reservation, int]:
    """Take the reservation. If the job has just ended, first let its guard leave."""
    until = time.monotonic() + _LEAVES_S
    while True:
        try:
            with reservations.lock(system):
                reservations.sweep(system)
                checks.free(system, plan)
                return _take(system, plan, reservation)
        except checks.StillGuarded:
            if time.monotonic() > until:
                raise
        time.sleep(_LOOK_S)


def _take(system: System, plan: Plan, reservation: Reservation) -> tuple[Reservation, int]:
    reservation = reservation._replace(made=_missing_output(system, plan))
    descriptor = reservations.take(system, reservation)
    # Until the guard of the previous attempt is removed, it is not part of what this start undoes.
    undone = reservation._replace(guard=False)
    try:
        # Before the directories of the output, on which a start on hosts that share them does not rely while it sees
        # the record.
        _write_record(system, plan)
        if reservation.made:
            reservation = reservation._replace(made=_make_output(system, plan, reservation.made))
        undone = reservation
        _remove_previous_attempt(system, plan)
        _write(system, plan)
        _check_loaded(system, plan)
    except BaseException:
        reservations.undo(system, undone)
        os.close(descriptor)
        raise
    return reservation, descriptor


def _missing_output(system: System, plan: Plan) -> tuple[str, ...]:
    """Return the directories to create for the output, if there is one, outermost first. Raises RequestRefused."""
    if not plan.output:
        return ()
    path = system.at(plan.output)

    def look() -> list[str]:
        missing = [str(one) for one in (path, *path.parents) if not one.exists()]
        if not missing:
            _require_writable(system, plan, path)
        return missing[::-1]

    return tuple(as_user(system, look, patience=reservations.OUTPUT_S))


def _make_output(system: System, plan: Plan, missing: Sequence[str]) -> tuple[str, ...]:
    """Create these directories as the jobs' user, for this user and its group. Return those that no one else created.

    Call it only once the start has its reservation: one that is refused must not remove a directory in which another
    start of the job is about to run. Raises RequestRefused.
    """

    def make() -> list[str]:
        made = []
        for one in map(Path, missing):
            with contextlib.suppress(FileExistsError):  # another host that shares it was faster
                one.mkdir()
                one.chmod(0o2770)
                made.append(str(one))
        _require_writable(system, plan, system.at(plan.output))
        return made

    return tuple(as_user(system, make, patience=reservations.OUTPUT_S))


def _require_writable(system: System, plan: Plan, path: Path) -> None:
    if not os.access(path, os.W_OK | os.X_OK) or not path.is_dir():
        what = f"user {system.account} cannot write to {plan.output} on {host()}"
        raise RequestRefused(Exit.PREFLIGHT, what, "chown it to that user")


def _remove_previous_attempt(system: System, plan: Plan) -> None:
    """Remove the previous attempt's units, which have ended, and its guard unless that one starts this attempt."""
    job = plan.job
    if guards.replaced(plan):
        guards.remove(system, job)
    remove_units(system, job, [unit.task for unit in installed_units(system, job)], keep_restart_files=True)


def _write_record(system: System, plan: Plan) -> None:
    """Write the directories of the attempt and its record: from then on, the host shows the attempt."""
    user = system.user()
    attempt = system.at(names.attempt_dir(plan.job, plan.attempt))
    attempt.mkdir(0o750, parents=True)
    os.chown(attempt, -1, user.pw_gid)
    (attempt / "stopped").mkdir(0o755)
    for task in plan.tasks:
        directory = system.at(names.task_dir(plan.job, plan.attempt, *task.name))
        directory.mkdir(0o750)
        os.chown(directory, user.pw_uid, user.pw_gid)
    jobstore.write_record(system, plan.record)


def _write(system: System, plan: Plan) -> None:
    """Write code, environment files and units."""
    system.at(f"{names.RUN_DIR}/env").mkdir(0o700, parents=True, exist_ok=True)
    system.at(names.UNITS).mkdir(0o755, parents=True, exist_ok=True)
    if plan.record.guard:
        guards.make_dir(system, plan.job, plan.attempt)
        guards.write(system, plan)
    code.copy(system, plan.code or "", system.at(names.code_dir(plan.job, plan.attempt)))
    for task in plan.tasks:
        _write_task(system, plan, task)


def _write_task(system: System, plan: Plan, task: PlannedTask) -> None:
    # First the unit, by which `undo` finds the other files of a start that was interrupted.
    jobstore.write(system.at(names.unit_file(plan.job, *task.name)), _unit_file(system, task))
    jobstore.write(system.at(names.env_file(plan.job, *task.name)), task.env.encode(), 0o600)
    deadline = unitfile.facts(task.unit).deadline
    if deadline is not None:
        deadlines.write(system, plan.job, plan.run, task.name, deadline)


def _unit_file(system: System, task: PlannedTask) -> bytes:
    return unitfile.installable(task.unit, sees_execution=system.sees_execution()).encode()


def _require_unchanged(system: System, plan: Plan) -> None:
    """Check that the drop-in and the units are still as they were when the start reserved. Raises RequestRefused."""
    checks.drop_in(system)
    for task in plan.tasks:
        path = names.unit_file(plan.job, *task.name)
        with contextlib.suppress(OSError):
            if system.at(path).read_bytes() == _unit_file(system, task):
                continue
        raise RequestRefused(Exit.PREFLIGHT, f"{path} on {host()} is not as tfctl has written it", "start again")


def _check_loaded(system: System, plan: Plan) -> None:
    """Check that systemd loaded the units, those of tasks under the drop-in. Raises RequestRefused."""
    units = [names.unit(plan.job, *task.name) for task in plan.tasks]
    others = deadlines.installed(system, plan.job, [task.name for task in plan.tasks])
    if plan.guard:
        others += guards.installed(system, plan.job)
    for unit, properties in system.settle([*units, *others], "loaded").items():
        if properties.get("LoadState") != "loaded":
            what = f"systemd on {host()} did not load {unit}: LoadState={properties.get('LoadState')}"
            raise RequestRefused(Exit.FAILED, what)
        if unit in units and names.DROP_IN not in properties.get("DropInPaths", ""):
            raise RequestRefused(Exit.PREFLIGHT, f"systemd on {host()} has not read {names.DROP_IN}", PROVISION)


def _found(mark: str) -> bool:
    until = time.monotonic() + _SEEN_S
    while True:
        try:
            # Opening the file asks the server; listing the directory may be answered from a cache.
            os.close(os.open(mark, os.O_RDONLY | os.O_CLOEXEC))
            return True
        except OSError:
            if time.monotonic() > until:
                return False
            time.sleep(0.1)
