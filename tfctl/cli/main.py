"""The `tfctl` command: its verbs, and the one place where an error becomes an exit code."""

from __future__ import annotations

import contextlib
import copy
import errno
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer
import typer.main

from tfctl import __version__
from tfctl.cli import (
    events,
    lab,
    list_jobs,
    logs,
    nodes,
    preflight,
    provision,
    render,
    restart,
    stacks,
    start,
    status,
    stop,
    verify,
    wait,
)
from tfctl.cli import run as run_verb
from tfctl.cli.common import say
from tfctl.errors import Exit, TfctlError

app = typer.Typer(
    name="tfctl",
    help="Provision plain Linux machines and run distributed TensorFlow on them, over ssh and systemd.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tfctl {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.add_typer(lab.app)
app.add_typer(stacks.app)
for verb in (
    provision,
    preflight,
    render,
    start,
    run_verb,
    status,
    list_jobs,
    nodes,
    logs,
    events,
    wait,
    stop,
    restart,
    verify,
):
    verb.add_to(app)


def main() -> NoReturn:
    """Run the verb that the command line names, and leave with its exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a verb undoes the same for both
    _take_everything()
    code = run(sys.argv[1:])
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    # Without the interpreter's own farewell: to take down some hundred modules takes it a tenth of a second.
    os._exit(code)


def _take_everything() -> None:
    """A stream that is closed (`>&-`) leads nowhere; of a letter that the locale has not, `?` is written."""
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def run(words: Sequence[str]) -> int:
    """Run a verb. Every way out is a code of tfctl.errors.Exit and at most a sentence on stderr."""
    try:
        # Not the command's own main(): it makes exit codes of its own of an interrupt and of a closed pipe.
        command = typer.main.get_command(_alone(words) or app)
        with command.make_context("tfctl", list(words)) as context:
            code = command.invoke(context)
        sys.stdout.flush()
        return int(code or Exit.OK)
    except typer.Exit as leave:
        return leave.exit_code
    except TfctlError as error:
        _tell(error.message, error.remedy)
        return error.exit
    except (KeyboardInterrupt, typer.Abort):
        _tell("interrupted")
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader of the pipe has gone (`tfctl logs | head`): nothing is left to say, nor anyone to say it to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except Exception as error:
        return _unexpected(error)


def _alone(words: Sequence[str]) -> typer.Typer | None:
    """An app of nothing but the verb that is named, if one is: each of the others costs half a millisecond."""
    names = {info.name or getattr(info.callback, "__name__", ""): info for info in app.registered_commands}
    if not words or words[0] not in names:
        return None
    alone = copy.copy(app)
    alone.registered_commands, alone.registered_groups = [names[words[0]]], []
    return alone


def _unexpected(error: Exception) -> int:
    """Typer's own errors (wrong words) keep their text and exit 2; a file that this machine does not let us have, and a
    full disk, are named; anything else is a defect of tfctl."""
    if hasattr(error, "exit_code") and hasattr(error, "show"):
        error.show()
        return int(error.exit_code)
    if os.environ.get("TFCTL_TRACEBACK"):
        raise error
    if isinstance(error, OSError) and (error.filename or error.errno in (errno.ENOSPC, errno.EDQUOT)):
        _tell(f"{error.filename or 'what tfctl says cannot be written'}: {error.strerror}")
        return Exit.FAILED
    _tell(f"this is a defect in tfctl: {type(error).__name__}: {error}", "TFCTL_TRACEBACK=1 shows where it happened")
    return Exit.FAILED


def _tell(message: str, remedy: str = "") -> None:
    first, *rest = message.splitlines() or [""]
    lines = [f"tfctl: {first}", *(f"  {line}" for line in rest), *(f"  → {line}" for line in remedy.splitlines())]
    say("\n".join(lines))
