"""tfctl completion: print the code that makes a shell complete command lines of tfctl."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer
import typer.main

from tfctl.cli.candidates import Command
from tfctl.errors import UsageError

_BASH = """\
_tfctl() {
    local IFS=$'\\n' line
    COMPREPLY=()
    while read -r line; do
        if [ "$line" = ":files" ]; then
            compopt -o filenames 2>/dev/null
            COMPREPLY+=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
        else
            COMPREPLY+=("${line%%$'\\t'*}")
        fi
    done < <(tfctl __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _tfctl tfctl
"""
_ZSH = """\
#compdef tfctl
_tfctl() {
    local line name
    local -a found
    while IFS= read -r line; do
        if [[ $line == ":files" ]]; then
            _files
        else
            name=${line%%$'\\t'*}
            name=${name//:/\\\\:}
            [[ $line == *$'\\t'* ]] && found+=("$name:${line#*$'\\t'}") || found+=("$name")
        fi
    done < <(tfctl __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
    (( ${#found} )) && _describe tfctl found
}
compdef _tfctl tfctl
"""
_FISH = """\
function __tfctl_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in (tfctl __complete $words[2..-1] 2>/dev/null)
        if test "$line" = ":files"
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end
complete -c tfctl -f -a "(__tfctl_complete)"
"""


class Shell(StrEnum):
    bash = "bash"
    zsh = "zsh"
    fish = "fish"


_SCRIPTS = {Shell.bash: _BASH, Shell.zsh: _ZSH, Shell.fish: _FISH}


def add_to(app: typer.Typer) -> None:
    app.command(
        epilog="Example, for ~/.bashrc: source <(tfctl completion bash). For ~/.zshrc, after compinit: "
        "source <(tfctl completion zsh). For fish: tfctl completion fish > ~/.config/fish/completions/tfctl.fish"
    )(completion)


def completion(
    shell: Annotated[
        Shell | None, typer.Argument(metavar="SHELL", show_default=False, help="bash, zsh or fish.")
    ] = None,
) -> None:
    """Print code that makes your shell complete command lines.

    Completes commands, options, jobs, roles, hosts and stacks. The names are from the last command that asked the
    hosts. If that was more than half a minute ago, pressing Tab asks the hosts again in the background.
    """
    if shell is None:
        raise UsageError("no shell specified", "tfctl completion bash, zsh or fish")
    typer.echo(_SCRIPTS[shell], nl=False)


def tree() -> Command:
    """Return all commands with their options, as the help shows them."""
    from tfctl.cli.main import command_line

    return _command(typer.main.get_command(command_line()))


def _command(command: Any) -> Command:
    options: dict[str, str] = {}
    arguments = []
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            arguments.append(_choices(parameter) or parameter.metavar or parameter.name.upper())
        elif not parameter.hidden:
            options.update(dict.fromkeys([*parameter.opts, *parameter.secondary_opts], _value(parameter)))
    if "JOBFILE" in arguments:  # which `--job` is the same as
        options = {name: "JOBFILE" if value == "JOB" else value for name, value in options.items()}
    help_text = (command.help or "").strip().partition("\n\n")[0].replace("\n", " ")
    commands = {name: _command(each) for name, each in getattr(command, "commands", {}).items()}
    return {
        "help": help_text.partition(". ")[0].rstrip("."),
        "arguments": " ".join(arguments),
        "options": options,
        "commands": commands,
    }


def _value(parameter: Any) -> str:
    """Return the kind of value that an option takes."""
    if parameter.is_flag or parameter.count:
        return ""
    if choices := _choices(parameter):
        return choices
    kinds = {"job_option": "JOB", "job": "JOB", "host": "HOST", "limit": "HOST", "stack": "STACK"}
    return kinds.get(parameter.name) or parameter.metavar or "VALUE"


def _choices(parameter: Any) -> str:
    """Return the values to choose from, separated by `|`, or "" if there is no choice."""
    from tfctl.model.strategies import STRATEGIES

    choices = STRATEGIES if parameter.name == "strategy" else getattr(parameter.type, "choices", None) or ()
    return "|".join(str(getattr(each, "value", each)) for each in choices)
