"""Which files of a job's code may be secrets, by their names and their contents.

A file that is wrongly taken for a secret is missing on the hosts, but tfctl names it, and `include` sends it. A secret
that is sent can be read by every job there. So names are enough for what is hardly ever anything else, whatever the
file contains. Of other files the contents decide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePath

#: Names in lower case. Files of environment variables; keys, key stores and password stores; the files in which git,
#: curl (and with it wandb), npm, pip, databases and clouds keep passwords and tokens.
_NAMES = re.compile(
    r"\.env|\.env[._-].*|.*\.env|\.envrc|env\.(local|dev|development|test|testing|stage|staging|prod|production)"
    r"|id_(rsa|dsa|ecdsa|ed25519)(_sk)?([._-].*)?(?<!\.pub)|.*\.(p12|pfx|p8|ppk|jks|keystore|kdbx)"
    r"|[._]netrc|\.git-credentials|\.npmrc|\.pypirc|\.pgpass|\.my\.cnf|\.htpasswd|\.dockercfg|\.dockerconfigjson|\.boto"
    r"|\.s3cfg|\.vault[_-](token|pass(word)?)|kaggle\.json|(access_?tokens|msal_token_cache)\.(json|db|bin)"
    r"|(.*[._-])?(credentials?|(credentials?|secrets?)\.(json|ya?ml|toml|ini|cfg|conf|txt|csv|xml|db))"
    r"|client_secrets?.*\.json"
)
#: What begins or ends the name of a file without values, such as `.env.example`.
_TEMPLATES = ("example", "sample", "template", "dist")
#: Directories in which programs keep keys and passwords only.
_FOLDERS = {".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker"}
#: Files that contain a token only: of Hugging Face, GitHub, GitLab, npm, PyPI, OpenAI and Slack.
_TOKEN = re.compile(rb"(hf_|gh[a-z]_|github_pat_|glpat-|npm_|pypi-|sk-|xox[a-z]-)[A-Za-z0-9_-]{16,}")
#: Settings of clouds, of kubectl and of package indexes that are secrets.
_SETTING = re.compile(
    rb"""(?i)(secret_?access_?key|session_?token|client[_-]?secret|refresh_?token|client-key-data|account_?key"""
    rb"""|auth_?token)["']?\s*[:=]\s*["']?[a-z0-9+/=_.~-]{16}|\btoken["']?\s*:\s*["']?eyJ[a-z0-9_-]{16}"""
    rb"""|AGE-SECRET-KEY-1[0-9a-z]{16}"""
)
#: Files of settings. In source code, such a line may well be an expression.
_SETTINGS = (
    "",
    ".json",
    ".yaml",
    ".yml",
    ".toml",
    ".ini",
    ".cfg",
    ".conf",
    ".config",
    ".properties",
    ".txt",
    ".tfvars",
)
#: Bytes of a file of settings. Larger files are data.
_SETTINGS_SIZE = 2**20

#: What the first line of every private key contains (RFC 7468, RFC 4716, RFC 4880), and the same in UTF-16.
_MARK = b"PRIVATE KEY"
_WIDE_MARK = b"\0".join(_MARK[at : at + 1] for at in range(len(_MARK)))
#: The same in base64, in which Kubernetes keeps keys: it depends on where in the encoded data it stands.
_ENCODED_MARKS = (b"UFJJVkFURSBLRV", b"BSSVZBVEUgS0V", b"QUklWQVRFIEtFW")
_HEADER = re.compile(rb"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY( BLOCK)? ?-{4,5}")
#: The beginning of a line that a header may stand on: behind a byte order mark or spaces.
_LINE_BEGIN = re.compile(rb"[\r\n](\xef\xbb\xbf|\xff\xfe|\xfe\xff)?[ \t]*\Z")
#: Data of a key, also as JSON may write it.
_DATA = re.compile(rb"(?:[A-Za-z0-9+/]|\\/){40,}")
#: Between a header and the data there may be other lines (RFC 1421, RFC 4880).
_BEFORE, _AFTER = 128, 700
_CHUNK = 2**20


def has_secret_name(name: str) -> bool:
    """Return whether the name of a file, relative to the code, is one of a secret."""
    path = PurePath(name.lower())
    if not _FOLDERS.isdisjoint(path.parts[:-1]) and path.suffix != ".pub":
        return True
    if "huggingface" in path.parent.name and path.name in ("token", "stored_tokens"):
        return True
    words = re.split("[._-]", path.name)
    return _NAMES.fullmatch(path.name) is not None and not {words[0], words[-1]}.intersection(_TEMPLATES)


def has_secret(path: Path) -> bool:
    """Return whether a file contains a private key, wherever in it, or is one of settings with a password of a cloud.

    A text that only mentions how a key begins, such as source code that looks for keys, is none: a key begins a line
    or is followed by its data. Raise OSError if the file cannot be read.
    """
    if path.stat().st_size <= _SETTINGS_SIZE:
        text = path.read_bytes().replace(b"\0", b"").lstrip(b"\xff\xfe\xef\xbb\xbf").strip()
        if path.suffix.lower() in _SETTINGS and (_SETTING.search(text) or _TOKEN.fullmatch(text)):
            return True
        unwrapped = text.translate(None, b"\r\n\t ")
        if text.startswith(b"PuTTY-User-Key-File-") or any(mark in unwrapped for mark in _ENCODED_MARKS):
            return True
    return any(map(_has_key, _overlapping(path)))


def _overlapping(path: Path) -> Iterator[bytes]:
    """Yield the pieces of a file behind a newline, each with the end of the piece before."""
    kept = b"\n"
    with path.open("rb") as file:
        while data := file.read(_CHUNK):
            yield kept + data
            kept = data[-4 * (_BEFORE + _AFTER) :]


def _has_key(data: bytes) -> bool:
    return (
        any(mark in data for mark in _ENCODED_MARKS)
        or any(_is_key(data[max(0, at - _BEFORE) : at + _AFTER]) for at in _places(_MARK, data))
        or any(
            _is_key(data[max(0, at - 2 * _BEFORE) : at + 2 * _AFTER].replace(b"\0", b""))
            for at in _places(_WIDE_MARK, data)
        )
    )


def _places(mark: bytes, data: bytes) -> Iterator[int]:
    at = data.find(mark)
    while at >= 0:
        yield at
        at = data.find(mark, at + 1)


def _is_key(around: bytes) -> bool:
    for header in _HEADER.finditer(around):
        if _LINE_BEGIN.search(around, 0, header.start()):
            return True
        for data in _DATA.finditer(around, header.end()):
            # A long path of lower-case words is none.
            if re.search(rb"[A-Z]", data[0]) and re.search(rb"[a-z]", data[0]) and re.search(rb"[0-9]", data[0]):
                return True
    return False
