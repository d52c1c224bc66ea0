"""What can follow on a command line: commands, options, and the names of jobs, tasks, hosts and stacks.

This runs whenever a key is pressed, so it imports neither typer nor anything that connects to hosts. The commands and
their options are written to the cache by the first call after an installation.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

import tfctl
from tfctl import files
from tfctl.jobs import completion_cache
from tfctl.jobs.completion_cache import CompletionNames

#: Ask the hosts again, in the background, if what is known is older (s).
_REFRESH_S = 30.0
#: The answer that lets the shell complete names of files.
FILES = ":files"


class Command(TypedDict):
    """``arguments``: what the help shows, such as ``[JOB] [ROLE [INDEX]]``, or choices, separated by `|`. ``options``:
    with the value that each takes, as the help shows it; empty for none. ``commands``: those below this one."""

    help: str
    arguments: str
    options: dict[str, str]
    commands: dict[str, Command]


def main(words: Sequence[str]) -> int:
    """Print what the last word can become: each candidate on a line with its description after a tab."""
    known = completion_cache.load()
    if known.age is None or known.age > _REFRESH_S:
        _refresh(words)
    for line in candidates(words, _tree(), known, _stacks()):
        print(line)
    return 0


def candidates(words: Sequence[str], tree: Command, known: CompletionNames, stacks: Sequence[str]) -> list[str]:
    """Return the candidates for the last word. ``words``: those after `tfctl`; the last one may be empty."""
    *before, last = words or [""]
    if "--" in before:
        return [FILES]
    command, pending = tree, ""
    given: list[str] = []
    for word in before:
        if pending:
            pending = ""
        elif word.startswith("-"):
            name, _, value = word.partition("=")
            pending = command["options"].get(name, "") if not value else ""
        elif word in command["commands"] and not given:
            command = command["commands"][word]
        else:
            given.append(word)
    if pending:
        return _starting(last, _values(pending, known, stacks))
    if last.startswith("-"):
        return _starting(last, [option for option in command["options"] if option.startswith("--")])
    if command["commands"]:
        return _starting(last, [f"{name}\t{each['help']}" for name, each in command["commands"].items()])
    return _starting(last, _arguments(command["arguments"], given, known, stacks))


def _values(kind: str, known: CompletionNames, stacks: Sequence[str]) -> list[str]:
    """Return the values of an option."""
    if kind.startswith("[") or "|" in kind:
        return kind.strip("[]<>").split("|")
    hosts = [host for host in known.hosts if host.isprintable()]  # another would become several candidates
    return {"JOB": [*known.jobs, FILES], "HOST": hosts, "STACK": list(stacks)}.get(kind, [FILES])


def _arguments(form: str, given: Sequence[str], known: CompletionNames, stacks: Sequence[str]) -> list[str]:
    """Return the candidates for the next argument, after those that are given."""
    if "|" in form:
        return [] if given else form.split("|")
    if "ROLE" in form:
        return _task(given, known)
    if "STACK" in form:
        return list(stacks)
    if "JOB" in form and "JOBFILE" not in form:
        return [*known.jobs, FILES] if not given or form.endswith("...") else [FILES]
    return [FILES] if form else []


def _task(given: Sequence[str], known: CompletionNames) -> list[str]:
    """Return the candidates in ``[JOB] [ROLE [INDEX]]``."""
    job = given[0] if given and given[0] in known.jobs else None
    rest = given[1:] if job else given
    jobs = [known.jobs[job]] if job else list(known.jobs.values())
    roles: dict[str, int] = {}
    for each in jobs:
        for role, count in each.items():
            roles[role] = max(count, roles.get(role, 0))
    if not rest:
        return [*roles, *([] if job else [*known.jobs, FILES])]
    if len(rest) == 1 and rest[0] in roles:
        return [str(number) for number in range(roles[rest[0]])]
    return []


def _starting(beginning: str, offered: Sequence[str]) -> list[str]:
    return [each for each in dict.fromkeys(offered) if each.startswith(beginning) or each == FILES]


def _refresh(words: Sequence[str]) -> None:
    """Ask the hosts which jobs there are, in a process that goes on without this one."""
    if not completion_cache.mark_as_refreshing():
        return  # each key would ask them again
    own = list(words)
    named = [own[number + 1] for number, word in enumerate(own[:-2]) if word in ("-i", "--inventory")]
    command = [sys.executable, "-m", "tfctl", "list", *(word for name in named for word in ("-i", name))]
    with suppress(OSError):
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip


def _stacks() -> list[str]:
    return sorted(path.stem for path in (Path(tfctl.__file__).parent / "model/stacks").glob("*.yaml"))


def _tree() -> Command:
    """Return the commands, from the cache if it is of this version."""
    from platformdirs import user_cache_path

    here = Path(__file__).parent
    version = f"{tfctl.__version__}-{max(path.stat().st_mtime_ns for path in here.glob('*.py'))}"
    file = user_cache_path("tfctl") / "completion" / "commands.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        cached = json.loads(file.read_text())
        if cached["version"] == version:
            tree: Command = cached["tree"]
            return tree
    from tfctl.cli.completion import tree as build

    made = build()
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        files.replace(file, json.dumps({"version": version, "tree": made}))
    return made
