"""What the docstring of a class says about its fields: sentences that begin with their names, ``name``: meaning."""

from __future__ import annotations

import inspect
import re

_NAMES = re.compile(r"^((?:``\w+``(?:, | and )?)+)(:?\s*)")
#: The end of a sentence, and what begins the next one.
_BETWEEN = re.compile(r"(?<=\.)\s+(?=[A-Z`])|(?<=;)\s+(?=``)")


def told(kind: type) -> tuple[str, dict[str, str]]:
    """Return what the docstring says about the class itself, and the meaning of each field that it names, as Markdown.

    A sentence that names no field belongs to the field before it, within one paragraph.
    """
    about: list[str] = []
    meanings: dict[str, str] = {}
    for paragraph in inspect.cleandoc(kind.__doc__ or "").split("\n\n"):
        names: list[str] = []
        for sentence in _BETWEEN.split(" ".join(paragraph.split())):
            found = _NAMES.match(sentence)
            if found:
                names = re.findall(r"\w+", found[1].replace(" and ", " "))
                text = sentence[found.end() :] if found[2].startswith(":") else sentence
                meanings.update(dict.fromkeys(names, _markdown(text)))
            elif names:
                meanings.update({name: f"{meanings[name]} {_markdown(sentence)}" for name in names})
            else:
                about.append(_markdown(sentence))
    return " ".join(about), meanings


def _markdown(text: str) -> str:
    """Return the text with the words of Markdown and JSON."""
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    text = re.sub(r"\bNone\b", "null", text).replace('""', "an empty string")
    return text.rstrip(";")
