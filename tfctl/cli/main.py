"""The `tfctl` command: its subcommands, and the one place where errors become exit codes."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
import typer.main

from tfctl import __version__
from tfctl.cli import interrupts, stdout
from tfctl.cli.common import say, say_error
from tfctl.errors import Exit, TfctlError, UsageError, error_json

if TYPE_CHECKING:
    from tfctl.cli.objects import FailedObject

#: The commands, in the order of the help. Each is a module of this package with a function ``add_to``.
COMMANDS = (
    "init", "provision", "preflight", "reset", "check", "render", "start", "run", "sweep", "top", "status", "list",
    "nodes", "metrics", "logs", "ui", "why", "trace", "events", "report", "exec", "ssh", "forward", "tensorboard",
    "pull", "wait", "stop", "restart", "prune", "verify", "lab", "stacks", "schema", "completion",
)  # fmt: skip


def command_line(commands: Iterable[str] = COMMANDS) -> typer.Typer:
    """Return the command line with these commands. Only their modules are imported."""
    app = typer.Typer(
        name="tfctl",
        help="Provision plain Linux machines and run distributed TensorFlow on them, over ssh and systemd.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_root)
    for name in commands:
        import_module(f"tfctl.cli.{name}").add_to(app)
    return app


#: Command lines that only list the commands.
_HELP = [[], ["-h"], ["--help"]]


def _summary(app: typer.Typer) -> typer.Typer:
    """Remove the parameters and the code of the app's own commands. Listing them then takes a third less time."""

    def without_parameters(command: Callable[..., object]) -> Callable[[], None]:
        def summary() -> None: ...

        summary.__name__, summary.__doc__ = command.__name__, command.__doc__
        return summary

    for info in app.registered_commands:
        info.callback = info.callback and without_parameters(info.callback)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tfctl {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> NoReturn:
    """Run the command line and exit with its exit code. `tfctl.cli.entry` has installed the handlers of signals."""
    stdout.install()
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    code = run(sys.argv[1:])
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    # Skip the interpreter's own shutdown: tearing down some hundred modules takes a tenth of a second.
    os._exit(code)


#: Commands of other tools, and what they are called here.
_MEANT = {
    "ps": "tfctl status shows the tasks of a job; tfctl list shows all jobs",
    "ls": "tfctl list shows the jobs; tfctl nodes shows the hosts",
    "jobs": "tfctl list shows the jobs",
    "hosts": "tfctl nodes shows the hosts",
    "describe": "tfctl status JOB shows a job; tfctl events JOB shows what happened to it",
    "explain": "tfctl stacks explain STACK shows what a stack contains",
    "submit": "tfctl start JOBFILE starts a job",
    "launch": "tfctl start JOBFILE starts a job",
    "cancel": "tfctl stop JOB ends a job",
    "kill": "tfctl stop JOB ends a job",
    "delete": "tfctl stop JOB ends a job",
    "log": "tfctl logs ROLE INDEX shows what a task prints",
    "attach": "tfctl logs -f shows what the tasks print",
    "shell": "tfctl ssh ROLE INDEX logs in to the host of a task",
    "cp": "tfctl pull JOB DIR copies a job's output to this machine",
    "download": "tfctl pull JOB DIR copies a job's output to this machine",
}


def run(words: Sequence[str]) -> int:
    """Run a command and return an exit code of tfctl.errors.Exit. Errors become a sentence on stderr.

    With -o json, an error is also an object on stdout.
    """
    try:
        if words and words[0] in _MEANT:
            raise UsageError(f"tfctl has no command {words[0]!r}", _MEANT[words[0]])
        # Not the command's own main(), which picks its own exit codes for interrupts and closed pipes.
        one = bool(words) and words[0] in COMMANDS
        app = command_line(words[:1] if one else COMMANDS)
        command = typer.main.get_command(_summary(app) if list(words) in _HELP else app)
        with command.make_context("tfctl", list(words)) as context:
            code = command.invoke(context)
        sys.stdout.flush()
        return int(code or Exit.OK)
    except typer.Exit as leave:
        return leave.exit_code
    except TfctlError as error:
        say_error(error)
        _print_error(words, error.exit, error.message, error.remedy)
        return error.exit
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted(words)
    except BrokenPipeError:
        return Exit.OK  # what it would have printed is not wanted (`tfctl logs | head`)
    except Exception as error:
        return _interrupted(words) if interrupts.received() else _unexpected(error, words)


def _interrupted(words: Sequence[str]) -> int:
    interrupts.ignore()
    say("tfctl: interrupted")
    if not getattr(sys.stdout, "used", False):  # Ctrl-C is the usual end of what prints objects until then
        _print_error(words, Exit.INTERRUPTED, "interrupted")
    return Exit.INTERRUPTED


def wants_json(words: Sequence[str]) -> bool:
    """Return whether a command line has the option ``-o json``."""
    own = list(words[: list(words).index("--")] if "--" in words else words)
    long = own[:1] != ["run"]  # there --output names a directory
    for word, value in itertools.pairwise([*own, ""]):
        if (short := re.fullmatch("-[a-zA-Z]*o(json)?", word)) and (short[1] or value == "json"):
            return True
        if long and (word == "--output=json" or (word, value) == ("--output", "json")):
            return True
    return False


def _print_error(words: Sequence[str], code: int, message: str, remedy: str = "") -> None:
    """Print the error as an object on stdout if the command line asks for JSON."""
    if wants_json(words):
        with contextlib.suppress(OSError):
            found: FailedObject = {"error": error_json(code, message, remedy)}
            print(json.dumps(found), flush=True)


def _unexpected(error: Exception, words: Sequence[str]) -> int:
    """Report an exception that is not a TfctlError, and return the exit code.

    Typer's usage errors keep their text and exit code 2. File errors and full disks are named. Anything else is a
    bug in tfctl.
    """
    if hasattr(error, "exit_code") and hasattr(error, "show"):
        error.show()
        _print_error(words, error.exit_code, str(getattr(error, "message", error)))
        return int(error.exit_code)
    if os.environ.get("TFCTL_TRACEBACK"):
        raise error
    if isinstance(error, OSError) and (error.filename or error.errno in (errno.ENOSPC, errno.EDQUOT)):
        message = f"{error.filename or 'cannot write the output'}: {error.strerror}"
        say(f"tfctl: {message}")
        _print_error(words, Exit.FAILED, message)
        return Exit.FAILED
    message = f"this is a bug in tfctl: {type(error).__name__}: {error}"
    say_error(TfctlError(message, "TFCTL_TRACEBACK=1 shows where it happened"))
    _print_error(words, Exit.FAILED, message, "TFCTL_TRACEBACK=1 shows where it happened")
    return Exit.FAILED
