"""The command line of `scripts/bench scale`, and the order in which things are measured."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from scripts.bench_scale import table
from scripts.bench_scale.following import follow
from scripts.bench_scale.measure import Failed, Usage, median, run
from scripts.bench_scale.peers import PEERS, install
from scripts.bench_scale.rig import Rig
from scripts.bench_scale.table import CommandResult, FollowResult, Results

Number = TypeVar("Number", int, float)

_BIN = Path(sys.executable).parent
_JOB = """\
name: scale
strategy: custom
stack: none
command: sleep 600
roles: {worker: {per_host: 1}}
"""
VERBS = ("start", "status", "list", "nodes", "logs", "stop", "preflight")
#: The most processes that the servers share by default.
_PROCESSES = 4
_EXAMPLES = """\
examples:
  scripts/bench scale                                         everything but preflight
  scripts/bench scale --hosts 4,100 --verbs status,list --peers none
  scripts/bench scale --hosts 4 --verbs logs --rate 5000      four hosts that print as fast as the client can read
  scripts/bench scale --hosts 100 --verbs preflight           Ansible, which takes longer
  scripts/bench scale --hosts 1000 -o json > after.json
"""


class Options(NamedTuple):
    hosts: tuple[int, ...]
    verbs: tuple[str, ...]
    peers: tuple[str, ...]
    runs: int
    rate: float
    seconds: float
    processes: int
    limit: float
    json: bool


def main(given: Sequence[str]) -> int:
    """Measure, print the results on stdout and return an exit code: 1 if something could not be measured."""
    options = parse(given)
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell ignores SIGINT in what it starts in the background
        signal.signal(number, signal.default_int_handler)
    try:
        found = measured(options)
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    print(json.dumps(table.as_object(found), indent=2) if options.json else table.text(found))
    return int(any(one.error for one in found.commands) or any(one.error for one in found.follows))


def parse(given: Sequence[str]) -> Options:
    """Parse the command line; exit with code 2 if it is wrong."""
    parser = argparse.ArgumentParser(
        prog="bench scale",
        description="Measure what commands of tfctl cost per host, and other programs beside them, on hosts that ssh\n"
        "servers on this machine imitate. Needs Linux. Only the client is measured.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    def add(name: str, metavar: str, kind: Callable[[str], object], default: object, text: str) -> None:
        parser.add_argument(name, metavar=metavar, type=kind, default=default, help=text)

    processes = max(1, min(_PROCESSES, (os.cpu_count() or 1) - 1))
    add("--hosts", "N,...", _numbers, (4, 100, 300, 1000), "numbers of hosts; default: 4,100,300,1000")
    add(
        "--verbs",
        "VERB,...",
        _some_of(VERBS),
        VERBS[:-1],
        f"none, or some of {','.join(VERBS)}; default: all but the last",
    )
    add("--peers", "PEER,...", _some_of(PEERS), tuple(PEERS), f"none, or some of {','.join(PEERS)}; default: all")
    add("--runs", "N", _positive(int), 3, "runs of each command, whose median is printed; default: 3")
    add("--rate", "N", _positive(float), 10.0, "lines a second that each task prints; default: 10")
    add("--seconds", "N", _positive(float), 10.0, "how long lines are followed; default: 10")
    add("--processes", "N", _positive(int), processes, f"processes of the servers; default: {processes}")
    add("--limit", "N", _positive(float), 300.0, "the longest time (s) of a command; default: 300")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")
    found = parser.parse_args(given)
    return Options(
        found.hosts, found.verbs, found.peers, found.runs, found.rate, found.seconds, found.processes, found.limit,
        found.output == "json",
    )  # fmt: skip


def measured(options: Options) -> Results:
    """Measure everything that the options name."""
    found = Results(os.cpu_count() or 1, [], [], {})
    with tempfile.TemporaryDirectory(prefix="tfctl-bench-") as folder:
        peers = _installed(options.peers, Path(folder), found.missing)
        for hosts in options.hosts:
            place = Path(folder, str(hosts))
            place.mkdir()
            with Rig(place, hosts, options.processes, options.rate) as rig:
                bench = _Bench(rig, options, bench_environment(place))
                bench.warm_up()
                for verb in options.verbs:
                    if verb == "logs":
                        found.follows.append(bench.follow())
                    else:
                        found.commands.append(bench.tfctl(verb))
                for peer, programs in peers.items():
                    found.commands.append(bench.result(PEERS[peer].title, PEERS[peer].words(programs, rig)))
    return found


class _Bench:
    """Measures one command after the other on the hosts of a rig."""

    def __init__(self, rig: Rig, options: Options, env: dict[str, str]) -> None:
        self._rig, self._options, self._env = rig, options, env
        self._job = job_file(rig)
        #: Whether the job runs.
        self._running = False

    def warm_up(self) -> None:
        """Let tfctl read and cache the inventory, so that the first measured command does not pay for it.

        If this fails, that command says why.
        """
        with contextlib.suppress(Failed):
            self._once(self._words("render"))

    def tfctl(self, verb: str) -> CommandResult:
        """Measure a verb."""
        return self.result(f"tfctl {verb}", self._words(verb), lambda: self._prepare(verb))

    def result(self, title: str, words: Sequence[str], before: Callable[[], None] = lambda: None) -> CommandResult:
        """Measure a command. ``before`` is called before each run."""
        usages, traffic = [], None
        try:
            for number in range(1, self._options.runs + 1):
                before()
                _say(f"{self._rig.hosts} hosts: {title} ({number} of {self._options.runs})")
                self._rig.report()
                usages.append(self._once(words))
                traffic = self._rig.report()
        except Failed as error:
            return CommandResult(title, self._rig.hosts, error=str(error))
        return CommandResult(title, self._rig.hosts, median(usages), traffic)

    def follow(self) -> FollowResult:
        """Measure `tfctl logs -f`."""
        options, hosts = self._options, self._rig.hosts
        wanted = hosts * options.rate
        try:
            self._prepare("logs")
            _say(f"{hosts} hosts: tfctl logs -f")
            self._rig.report()
            folder, words = self._rig.folder, self._words("logs")
            found = follow(words, self._env, folder, hosts, options.seconds, options.limit)
            return FollowResult(hosts, wanted, found, self._rig.report())
        except Failed as error:
            return FollowResult(hosts, wanted, error=str(error))

    def _prepare(self, verb: str) -> None:
        """Start or stop the job so that the verb can be measured."""
        if verb == "preflight":
            return
        if self._running != (verb != "start"):
            self._once(self._words("stop" if self._running else "start"))
        self._running = verb != "stop"

    def _once(self, words: Sequence[str]) -> Usage:
        return run(words, self._env, self._rig.folder, self._options.limit)

    def _words(self, verb: str) -> list[str]:
        more = {
            "start": [str(self._job)], "render": [str(self._job)], "status": ["scale"], "logs": ["scale", "-f"],
            "stop": ["scale"], "preflight": ["--stack", "tf2.15"],
        }  # fmt: skip
        return words(self._rig, verb, *more.get(verb, []))


def words(rig: Rig, verb: str, *more: str) -> list[str]:
    """Return the words of a command of tfctl about the hosts of a rig."""
    inventory = [str(rig.inventory)] if verb == "preflight" else ["-i", str(rig.inventory)]
    return [str(_BIN / "tfctl"), verb, *more, *inventory]


def job_file(rig: Rig) -> Path:
    """Write the job file, and return where."""
    path = rig.folder / "job.yaml"
    path.write_text(_JOB)
    return path


def _installed(peers: Sequence[str], folder: Path, missing: dict[str, str]) -> dict[str, Path]:
    """Install the peers. Return where the programs of each are, and add to ``missing`` why others are missing."""
    from tfctl.provision import uv

    found = {}
    for peer in peers:
        _say(f"installing {peer}")
        try:
            found[peer] = install(PEERS[peer], folder, uv.settings()[0])
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            missing[peer] = str(error)
    return found


def bench_environment(folder: Path) -> dict[str, str]:
    """Return the environment of the clients: without the user's settings. What they write is written to ``folder``."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LC_ALL", "TFCTL_SSH")}
    config = folder / "ansible.cfg"
    config.write_text("[defaults]\nremote_tmp = ~/.ansible/tmp\n")  # the file system of which the fake hosts report
    places = dict.fromkeys(("HOME", "TMPDIR", "ANSIBLE_HOME"), str(folder))
    return {"LANG": "C.UTF-8", **kept, **places, "ANSIBLE_CONFIG": str(config)}


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(_positive(int)(word) for word in text.split(","))


def _some_of(known: Collection[str]) -> Callable[[str], tuple[str, ...]]:
    """Return a type of argparse: some of these words, in their own order, or none."""

    def parse(text: str) -> tuple[str, ...]:
        given = [] if text == "none" else text.split(",")
        for word in given:
            if word not in known:
                raise argparse.ArgumentTypeError(f"{word!r} is not one of {', '.join(known)}")
        return tuple(word for word in known if word in given)

    return parse


def _positive(kind: Callable[[str], Number]) -> Callable[[str], Number]:
    """Return a type of argparse: a number above 0."""

    def parse(text: str) -> Number:
        with contextlib.suppress(ValueError):
            if 0 < (found := kind(text)) < float("inf"):
                return found
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")

    return parse


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
