"""Read what a shell would run: the simple commands of a script, without running or expanding anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

#: One token. Its alternatives begin with different characters, so that a long script takes no longer than its length.
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+|\\\n)
      | (?P<comment>\#[^\n]*)
      | (?P<here><<(?!<)-?[ \t]*['"]?(?P<mark>\w+)['"]?)
      | (?P<redirect>[0-9]*(?:&>>?|<<<|[<>]&|>>|>\||[<>])[ \t]*)
      | (?P<end>;;|&&|\|\||\|&|[;\n()|&])
      | (?P<word>(?:'[^']*'|"(?:\\.|[^"\\])*+"|\\.|\$\((?:[^()]|\([^()]{0,999}\)){0,999}\)|\$\{[^}]{0,999}\}|`[^`]*`
                   |[^\s;&|()<>'"\\`$]++|\$)++)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_PART = re.compile(r"""'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)""", re.DOTALL)
_OPENING = ("if", "while", "until", "for", "case", "select", "{")
_CLOSING = ("fi", "done", "esac", "}")
_KEYWORDS = ("then", "elif", "else", "do", "in", "!", "function", *_OPENING, *_CLOSING)
#: Programs after which `&&` is a condition. After others, the task fails if they do.
_TESTS = ("[", "[[", "command", "false", "grep", "hash", "test", "type", "which")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)


@dataclass(frozen=True)
class ShellCommand:
    """A simple command: its words without quotes, and its first line. ``words`` begin with assignments, if it has any.

    ``level``: in how many conditions, loops, groups and functions it is. ``certain``: it is in none, it does not depend
    on a test, and the script does not go on in another way if it fails.
    """

    words: tuple[str, ...]
    line: int
    certain: bool = True
    level: int = 0


def commands(text: str) -> Iterator[ShellCommand]:
    """Yield the simple commands of a script, in the order in which they are written."""
    words: list[str] = []
    depth, open_brackets, line, first, depends = 0, 0, 1, 1, False
    for kind, token in _tokens(text):
        if kind == "word":
            word = _plain(token)
            if not words and token in _KEYWORDS:
                depth = max(0, depth + (token in _OPENING) - (token in _CLOSING))
            else:
                first = first if words else line
                words.append(word)
        elif kind == "end":
            if words:
                level = depth + open_brackets
                yield ShellCommand(tuple(words), first, not level and not depends and token != "||", level)
                depends = token == "||" or (token == "&&" and (depends or words[0] in _TESTS))
            open_brackets = max(0, open_brackets + (token == "(") - (token == ")"))  # in `case`, `)` stands alone
            words = []
        line += token.count("\n")


def assignments(words: tuple[str, ...]) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return the variables that the words set at their beginning, and the other words."""
    found: list[tuple[str, str]] = []
    for at, word in enumerate(words):
        match = _ASSIGNMENT.fullmatch(word)
        if match is None:
            return tuple(found), words[at:]
        found.append((match[1], match[2]))
    return tuple(found), ()


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of each token. The text of here-documents and the targets of redirections, which are
    no words of the command, have the kind "skipped". A newline ends the last command."""
    at, target = 0, False
    marks: list[str] = []
    text += "\n"
    while match := _TOKEN.match(text, at):
        kind, token, at = match.lastgroup or "", match[0], match.end()
        if match["here"]:
            kind = "here"
            marks.append(match["mark"])
        if kind == "word" and target:
            kind = "skipped"
        target = kind == "redirect"
        yield kind, token
        if token == "\n" and marks:
            for mark in marks:
                end = re.compile(rf"^\t*{mark}$", re.MULTILINE).search(text, at)
                body = text[at : end.end() if end else len(text) - 1]
                yield "skipped", body
                at += len(body)
            marks = []


def _plain(token: str) -> str:
    """Return a word without its quotes. References such as `$X` stay."""

    def one(match: re.Match[str]) -> str:
        if match[1] is not None:
            return match[1]
        return re.sub(r'\\([\\"$`\n])', r"\1", match[2]) if match[2] is not None else match[3]

    return _PART.sub(one, token)
