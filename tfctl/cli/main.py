"""The `tfctl` command: its subcommands, and the one place where errors become exit codes."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Annotated, NoReturn

import typer
import typer.main

from tfctl import __version__
from tfctl.cli.common import say, say_error
from tfctl.errors import Exit, TfctlError

#: The commands, in the order of the help. Each is a module of this package with a function ``add_to``.
COMMANDS = (
    "provision", "preflight", "reset", "render", "start", "run", "status", "list", "nodes", "logs", "events", "exec",
    "ssh", "forward", "tensorboard", "pull", "wait", "stop", "restart", "verify", "lab", "stacks",
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
    """Run the command line and exit with its exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # treat SIGTERM like Ctrl-C
    _take_everything()
    code = run(sys.argv[1:])
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    # Skip the interpreter's own shutdown: tearing down some hundred modules takes a tenth of a second.
    os._exit(code)


def _take_everything() -> None:
    """Discard what is written to a closed stream (`>&-`), and write `?` for characters the locale cannot encode."""
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def run(words: Sequence[str]) -> int:
    """Run a command and return an exit code of tfctl.errors.Exit. Errors become a sentence on stderr."""
    try:
        # Not the command's own main(), which picks its own exit codes for interrupts and closed pipes.
        wanted = words[:1] if words and words[0] in COMMANDS else COMMANDS
        command = typer.main.get_command(command_line(wanted))
        with command.make_context("tfctl", list(words)) as context:
            code = command.invoke(context)
        sys.stdout.flush()
        return int(code or Exit.OK)
    except typer.Exit as leave:
        return leave.exit_code
    except TfctlError as error:
        say_error(error)
        return error.exit
    except (KeyboardInterrupt, typer.Abort):
        say("tfctl: interrupted")
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader of the pipe is gone (`tfctl logs | head`), so discard the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except Exception as error:
        return _unexpected(error)


def _unexpected(error: Exception) -> int:
    """Report an exception that is not a TfctlError, and return the exit code.

    Typer's usage errors keep their text and exit code 2. File errors and full disks are named. Anything else is a
    defect in tfctl.
    """
    if hasattr(error, "exit_code") and hasattr(error, "show"):
        error.show()
        return int(error.exit_code)
    if os.environ.get("TFCTL_TRACEBACK"):
        raise error
    if isinstance(error, OSError) and (error.filename or error.errno in (errno.ENOSPC, errno.EDQUOT)):
        say(f"tfctl: {error.filename or 'cannot write the output'}: {error.strerror}")
        return Exit.FAILED
    message = f"this is a defect in tfctl: {type(error).__name__}: {error}"
    say_error(TfctlError(message, "TFCTL_TRACEBACK=1 shows where it happened"))
    return Exit.FAILED
