"""Mask values that look like secrets, in what is shown. What is sent to hosts is never masked."""

from __future__ import annotations

import re
from collections.abc import Sequence

MASK = "***"
#: Words in the names of variables. TOKENIZERS_PARALLELISM is no secret.
_NAME = re.compile(r"TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|KEY|(^|_)(PASS|PWD|AUTH|DSN)(_|$)", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)[^/\s?#]+(?=@)")
#: Options whose value is a secret. --no-password and --ask-password have none.
_OPTION = (
    r"(?!--?(?:no|ask|use|with)[_-])--?"
    r"(?:[a-z_-]*(?:api[_-]?key|secret|passw(?:or)?d|(?:api|access|auth|hf|hub)[_-]token)|token)"
)
_WORD = re.compile(rf"({_OPTION})(=.+)?", re.IGNORECASE | re.DOTALL)
#: The same in a script that a word contains, as in sh -c SCRIPT.
_IN_SCRIPT = re.compile(
    rf"""(?<![^\s"'])({_OPTION}(?:=|[^\S\n]+(?!-)))(?:"[^"\n]*"|'[^'\n]*'|[^\s"']+)""", re.IGNORECASE
)


def masked(name: str, value: str) -> str:
    """Return the value of a variable as it may be shown."""
    return MASK if value and _NAME.search(name) else without_user_info(value)


def command(words: Sequence[str]) -> list[str]:
    """Return the words of a command as they may be shown: without passwords in URLs and secret values of options."""
    shown, is_value = [], False
    for word in words:
        option = _WORD.fullmatch(word)
        if is_value and not word.startswith("-"):
            shown.append(MASK)
        elif option and option[2]:
            shown.append(f"{option[1]}={MASK}")
        else:
            shown.append(without_user_info(_IN_SCRIPT.sub(rf"\1{MASK}", word)))
        is_value = option is not None and not option[2]
    return shown


def without_user_info(text: str) -> str:
    """Mask the user and password in URLs such as https://me:password@host/."""
    return _USER_INFO.sub(MASK, text)
