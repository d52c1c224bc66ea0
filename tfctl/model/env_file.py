"""Read a file of environment variables (`.env`): lines NAME=VALUE, as docker compose and shells read them.

No error shows a value, since such files hold secrets.
"""

from __future__ import annotations

import re
from pathlib import Path

from tfctl.errors import BadFile
from tfctl.model.text import Verbatim, clean, env_name, without_references

_LARGEST = 2**20
_BLANK = re.compile(r"[ \t]*(#[^\n]*)?(\n|\Z)")
_NAME = re.compile(r"[ \t]*(?:export[ \t]+)?([^\s=:'\"#]+)[ \t]*=")
_QUOTED = re.compile(r"""[ \t]*(?:'([^']*)'|"((?:\\.|[^"\\])*)")""", re.DOTALL)
_OPEN = re.compile(r"[ \t]*['\"]")
_PLAIN = re.compile(r"[^\n]*")
_COMMENT = re.compile(r"(?<=[ \t])#.*")
#: In double quotes, as in a shell, and \n, \t and \r as in docker compose. A backslash before any other stays.
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "$": "$", "`": "`", "\n": ""}


def load(path: Path) -> dict[str, str]:
    """Return the file's variables. Raise BadFile with the file and the line for anything else than NAME=VALUE."""
    try:
        data = path.read_bytes()
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except FileNotFoundError:
        raise BadFile(f"{path} does not exist", "create it, or remove `env_file`") from None
    except OSError as error:
        raise BadFile(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BadFile(f"{path}, line {line}: not UTF-8") from None
    if len(data) > _LARGEST:
        raise BadFile(f"{path}: larger than 1 MiB; this is not a file of variables")
    return parse(text, path)


def parse(text: str, place: Path) -> dict[str, str]:
    """Return the variables of a file's text. Raise BadFile."""
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        if blank := _BLANK.match(text, at):
            at = blank.end()
            continue
        line = text.count("\n", 0, at) + 1
        try:
            name, value, at = _variable(text, at)
            if name in found:
                raise ValueError(f"{name}: given twice")
        except ValueError as error:
            raise BadFile(f"{place}, line {line}: {error}") from None
        found[name] = Verbatim(value)
    return found


def _variable(text: str, at: int) -> tuple[str, str, int]:
    """Return the name and the value of the line that begins at ``at``, and where the next one begins."""
    match = _NAME.match(text, at)
    if match is None:
        raise ValueError("this is not NAME=VALUE")
    name = env_name(match[1])
    try:
        value, at = _value(text, match.end())
        return name, clean(value), at
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _value(text: str, at: int) -> tuple[str, int]:
    """Return the value that begins at ``at``, and where the next line begins."""
    if quoted := _QUOTED.match(text, at):
        rest = _BLANK.match(text, quoted.end())
        if rest is None:
            raise ValueError("there is text after the closing quote")
        return (quoted[1] if quoted[1] is not None else _unescaped(quoted[2])), rest.end()
    if _OPEN.match(text, at):
        raise ValueError("the quote is not closed")
    line = _PLAIN.match(text, at)
    assert line is not None  # it may be empty
    return without_references(_COMMENT.sub("", line[0]).strip()), line.end() + 1


def _unescaped(text: str) -> str:
    """Return the text between double quotes. A dollar sign behind a backslash begins no reference."""
    parts = re.split(r"(\\.)", text, flags=re.DOTALL)
    plain = [part if index % 2 else without_references(part) for index, part in enumerate(parts)]
    return _ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[0]), "".join(plain))
