"""Mask values that look like secrets, in what is shown. What is sent to hosts is never masked."""

from __future__ import annotations

import re

MASK = "***"
#: Words in the names of variables. TOKENIZERS_PARALLELISM is no secret.
_NAME = re.compile(r"TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|KEY|(^|_)(PASS|PWD|AUTH|DSN)(_|$)", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)[^/\s?#]+(?=@)")
_SECRET = r"--?(?:[a-z_-]*(?:api[_-]?key|secret|passw(?:or)?d|(?:api|access|auth|hf|hub)[_-]token)|token)"
#: Options such as --api-key=VALUE, and --password VALUE in a command line or in the words of a unit file.
_OPTION = re.compile(
    rf"""(?P<name>(?<![^\s"']){_SECRET}(?:=["']?|["']?\s+["']?(?!-)))"""
    r"""(?:(?<=["'])[^"'\n]+|(?<==)[^"'\n]+(?=["'])|[^\s"']+)""",
    re.IGNORECASE,
)


def masked(name: str, value: str) -> str:
    """Return the value of a variable as it may be shown."""
    return MASK if value and _NAME.search(name) else without_user_info(value)


def command(line: str) -> str:
    """Return a command line, or a unit that has one, as it may be shown: without passwords in URLs and options."""
    return _OPTION.sub(rf"\g<name>{MASK}", without_user_info(line))


def without_user_info(text: str) -> str:
    """Mask the user and password in URLs such as https://me:password@host/."""
    return _USER_INFO.sub(MASK, text)
