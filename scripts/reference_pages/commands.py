"""The page about the commands, from the command line itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer.main

from scripts.reference_pages.markdown import code, fenced, paragraphs, table
from tfctl.cli.main import command_line
from tfctl.cli.objects import OBJECTS

#: The examples at the end of the help.
_EXAMPLE = re.compile(r"^Examples?: (.*)$", re.MULTILINE | re.DOTALL)


def page() -> str:
    root = typer.main.get_command(command_line())
    found = dict(commands(root))
    links = [[f"[`tfctl {name}`](#{_anchor(name)})", _summary(command)] for name, command in found.items()]
    return paragraphs(
        "# Commands",
        "`tfctl COMMAND --help` prints the same. Data goes to stdout, messages go to stderr. Where a command takes a "
        "JOB, it can be left out: commands that only report then take the running job, or the last one. Durations are "
        "written as `90s`, `30m`, `12h`, `1h30m` or `14d`; a number without a unit means "
        "seconds. All commands use the same [exit codes](exit-codes.md).",
        table(["command", "purpose"], links),
        *(_section(name, command) for name, command in found.items()),
    )


def commands(group: Any, *words: str) -> Iterator[tuple[str, Any]]:
    """Yield each command, as the words after `tfctl`, in the order of the help. Yield a group that is a command too."""
    for name, command in group.commands.items():
        if not hasattr(command, "commands") or command.invoke_without_command:
            yield " ".join([*words, name]), command
        if hasattr(command, "commands"):
            yield from commands(command, *words, name)


def _anchor(name: str) -> str:
    return f"tfctl-{name.replace(' ', '-')}"


def _summary(command: Any) -> str:
    return _marked(re.split(r"(?<=\.)\s", inspect.cleandoc(command.help or ""))[0])


def _section(name: str, command: Any) -> str:
    told, examples = _told(command)
    arguments = [
        [code(each.make_metavar(_context(name, command))), _help(each)]
        for each in command.params
        if each.param_type_name == "argument"
    ]
    options = [
        [_spelling(name, command, each), _help(each)]
        for each in command.params
        if each.param_type_name == "option" and not each.hidden
    ]
    return paragraphs(
        f"## tfctl {name}",
        fenced("text", f"tfctl {name} {_synopsis(name, command)}".rstrip()),
        told,
        table(["argument", "meaning"], arguments) if arguments else "",
        table(["option", "meaning"], options) if options else "",
        f"`-o json` prints the object of [tfctl {name}](json.md#{_anchor(name)})." if name in OBJECTS else "",
        f"Example: {', '.join(map(code, examples))}" if examples else "",
    )


def _told(command: Any) -> tuple[str, list[str]]:
    """Return the help without its examples, and the examples."""
    text = "\n\n".join(filter(None, [inspect.cleandoc(command.help or ""), command.epilog]))
    found = _EXAMPLE.search(text)
    examples = re.split(r"\s{3,}|, later: |, then ", found[1]) if found else []
    lines = _EXAMPLE.sub("", text).replace("\b", "").strip()
    return _marked(lines), [each.strip() for each in examples]


def _context(name: str, command: Any) -> Any:
    return command.make_context(f"tfctl {name}", [], resilient_parsing=True)


def _synopsis(name: str, command: Any) -> str:
    return " ".join(command.collect_usage_pieces(_context(name, command)))


def _spelling(name: str, command: Any, option: Any) -> str:
    """Return an option as it is written, with its value."""
    spellings = ", ".join(map(code, option.opts[::-1]))
    return spellings if option.is_flag else f"{spellings} {code(option.make_metavar(_context(name, command)))}"


def _help(param: Any) -> str:
    told = _marked(param.help or "")
    shown = param.show_default
    if isinstance(shown, str):
        return f"{told} Default: {shown}."
    default = param.default
    if shown is False or default in (None, False, [], ()) or callable(default):
        return told
    return f"{told} Default: {code(getattr(default, 'value', default))}."


def _marked(text: str) -> str:
    """Return plain text of the help as Markdown: options and file names as code."""
    return re.sub(r"(?<![`\w-])(--[a-z][a-z-]*|-[a-z] json)(?![`\w-])", r"`\1`", text)
